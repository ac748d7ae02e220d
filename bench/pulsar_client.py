"""Our Pulsar client beside pulsar-client on one broker: entries out, entries in, CPU of the client.

One topic without partitions, deduplication off, no sync of the journal. Ours sends ready batches (built
once; head and checksum are made for each) and reads entries without looking into them, which is what
the gateway does; pulsar-client sends and receives message by message, batched by itself to the same
size. So the rate says what the broker and the wire can do, the CPU what a client costs.
Topics are deleted after each round.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pulsar
import uvloop

from penstock.brokers.pulsar import Admin, Options, PulsarClient
from penstock.embedded.pulsar import Pulsar
from penstock.wire.pulsar.pulsar_pb2 import SingleMessageMetadata
from table import Report

ROOM = 512
BATCH_BYTES = 128 * 1024
SIZES = {"100 B": 100, "1 KiB": 1024}
LIMIT = 120.0
"""Seconds that one round may take."""


@dataclass(frozen=True)
class Load:
    """So many batches of so many messages."""

    size: int
    batches: int

    @property
    def per_batch(self) -> int:
        return BATCH_BYTES // (self.size + 10)

    @property
    def messages(self) -> int:
        return self.batches * self.per_batch

    @property
    def payload(self) -> np.ndarray[Any, Any]:
        head = SingleMessageMetadata(payload_size=self.size).SerializeToString()
        one = len(head).to_bytes(4, "big") + head + b"x" * self.size
        return np.frombuffer(bytes(ROOM) + one * self.per_batch, np.uint8)


@dataclass(frozen=True)
class Round:
    """Wall and CPU seconds of one round."""

    wall: float
    cpu: float


async def timed(work: Awaitable[Any]) -> Round:
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.wait_for(work, LIMIT)
    return Round(time.perf_counter() - wall, time.process_time() - cpu)


async def ours(url: str, topic: str, load: Load) -> dict[str, Round]:
    async with PulsarClient(url, options=Options(window_bytes=32 * 1024 * 1024)) as client:
        producer = await client.producer(topic)

        async def send() -> None:
            waiting = []
            for _ in range(load.batches):
                # The producer owns a buffer until its receipt: each batch is a copy, as a conversion is.
                batch = load_payload.copy()
                waiting.append(
                    await producer.send(
                        batch, ROOM, len(batch), num_messages=load.per_batch, publish_time=1_700_000_000_000
                    )
                )
            await asyncio.gather(*waiting)

        load_payload = load.payload
        sent = await timed(send())
        reader = await client.reader(topic, convert=lambda delivery: delivery.entry.num_messages)

        async def read() -> None:
            found = 0
            while found < load.messages:
                found += await reader.read()

        return {"send": sent, "read": await timed(read())}


async def theirs(url: str, topic: str, load: Load) -> dict[str, Round]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(url, logger=quiet)
    try:
        return {
            "send": await timed(asyncio.to_thread(their_send, client, topic, load)),
            "read": await timed(asyncio.to_thread(their_read, client, topic, load)),
        }
    finally:
        client.close()


def their_send(client: Any, topic: str, load: Load) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=load.per_batch,
        batching_max_allowed_size_in_bytes=BATCH_BYTES,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        max_pending_messages=100_000,
    )
    failed: list[Any] = []
    value = b"x" * load.size

    def done(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    for _ in range(load.messages):
        producer.send_async(value, done)
    producer.flush()
    producer.close()
    if failed:
        raise SystemExit(f"{len(failed)} messages were not sent: {failed[0]}")


def their_read(client: Any, topic: str, load: Load) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=100_000)
    for _ in range(load.messages):
        reader.read_next(30_000)
    reader.close()


SIDES: dict[str, Callable[[str, str, Load], Awaitable[dict[str, Round]]]] = {
    "penstock": ours,
    "pulsar-client": theirs,
}


async def measure(server: Pulsar, loads: dict[str, Load], rounds: int) -> dict[tuple[str, str], list[Round]]:
    found: dict[tuple[str, str], list[Round]] = {}
    async with Admin(server.admin_url) as admin:
        for number in range(rounds + 1):
            for side, run in SIDES.items():
                topic = f"persistent://public/default/bench-{secrets.token_hex(6)}"
                await admin.create_topic(topic)
                for what, one in (await run(server.service_url, topic, loads[side])).items():
                    if number:  # the first round warms the broker
                        found.setdefault((side, what), []).append(one)
                await admin.delete_topic(topic, partitioned=False, force=True)
    return found


def report_on(
    report: Report, name: str, loads: dict[str, Load], found: dict[tuple[str, str], list[Round]]
) -> None:
    rates = {}
    for (side, what), rounds in sorted(found.items()):
        load = loads[side]
        wall = statistics.median(one.wall for one in rounds)
        cpu = statistics.median(one.cpu for one in rounds)
        megabytes = load.messages * load.size / 1e6
        rates[side, what] = load.messages / wall
        report.row(
            f"{what} {name}",
            side,
            f"{load.batches / wall:,.0f}",
            f"{load.messages / wall:,.0f}",
            f"{megabytes / wall:,.0f}",
            f"{1000 * cpu / megabytes:.2f}",
        )
        key = f"{what} {name} {side}"
        report.figure(f"{key} records/s", load.messages / wall)
        report.figure(f"{key} CPU ms/MB", 1000 * cpu / megabytes)
    for what in ("send", "read"):
        ratio = rates["penstock", what] / rates["pulsar-client", what]
        report.goal(f"{what} {name}: rate against pulsar-client", ratio, 1.0)


def main() -> None:
    report = Report.from_arguments(
        "The Pulsar client, ready batches of 128 KiB",
        ["what", "client", "entries/s", "records/s", "MB/s", "CPU ms/MB"],
    )
    settings = {"brokerDeduplicationEnabled": "false", "defaultRetentionTimeInMinutes": "0"}
    settings["defaultRetentionSizeInMB"] = "0"
    with ExitStack() as stack:
        server = stack.enter_context(Pulsar(durable=False, full_jit=True, heap_mb=512, settings=settings))
        for name, size in SIZES.items():
            # A client that works message by message gets fewer: rates are compared, not times.
            loads = {"penstock": Load(size, 300 if report.quick else 1500)}
            loads["pulsar-client"] = Load(size, 30 if report.quick else 200)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found = runner.run(measure(server, loads, 2 if report.quick else 5))
            report_on(report, name, loads, found)
    report.finish()


if __name__ == "__main__":
    main()
