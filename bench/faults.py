"""What clients see when a gateway dies, hangs or leaves, and when Pulsar dies: seconds until they are served.

Three gateways on one Pulsar. A group is served again when a commit for it is stored, a partition when a
record for it is acknowledged; both belonged to the gateway that fails, and are asked for at another one,
again and again, by requests of our own. A gateway that hung finds a commit in its socket when it goes on:
how long it takes to refuse it is timed, and that it was not written is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from groups import COMMIT, LIMIT, Process, Wire, coordinator, encoded, make_topic, reachable
from penstock.embedded.pulsar import Pulsar
from table import Report

PRODUCE, METADATA, FETCH_OFFSETS = 0, 3, 9
NOT_COORDINATOR = 16
GATEWAYS, PARTITIONS = 3, 30
FAULTS = {
    "killed (SIGKILL)": signal.SIGKILL,
    "hangs (SIGSTOP)": signal.SIGSTOP,
    "ends (SIGTERM)": signal.SIGTERM,
}


@dataclass
class Times:
    """Seconds, one of each a round."""

    group: list[float] = field(default_factory=list)
    partition: list[float] = field(default_factory=list)
    refusal: list[float] = field(default_factory=list)


# Requests


def commit_frame(group: str, topic: str, offset: int) -> bytes:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    return encoded(COMMIT, 7, fields | {"topics": [{"name": topic, "partitions": [row]}]})


def produce_frame(topic: str, partition: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)
    builder.append(0, timestamp=int(time.time() * 1000), key=None, value=b"x", headers=[])
    data = [{"index": partition, "records": bytes(builder.build())}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 20_000}
    return encoded(PRODUCE, 9, fields | {"topic_data": [{"name": topic, "partition_data": data}]})


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Wire]:
    wire = await Wire.open(bootstrap)
    try:
        yield wire
    finally:
        wire.close()


async def leaders(bootstrap: str, topic: str) -> list[str]:
    """The address of each partition's leader."""
    async with connected(bootstrap) as wire:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        found = await wire.ask(METADATA, 7, asked)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in found.brokers}
    parts = sorted(found.topics[0].partitions, key=lambda part: part.partition_index)
    return [nodes.get(part.leader_id, "") for part in parts]


async def committed_at(bootstrap: str, group: str, topic: str, offset: int) -> int:
    async with connected(bootstrap) as wire:
        found = await wire.ask_raw(COMMIT, 7, commit_frame(group, topic, offset))
    return int(found.topics[0].partitions[0].error_code)


async def commits_by(where: str, other: str, group: str, topic: str) -> bool:
    """Commit at the coordinator that another gateway names, unless it is still the one that failed."""
    now = await coordinator(other, group)
    return now != where and not await committed_at(now, group, topic, 10)


async def produces_by(where: str, other: str, topic: str, partition: int) -> bool:
    now = (await leaders(other, topic))[partition]
    if now in (where, ""):
        return False
    async with connected(now) as wire:
        found = await wire.ask_raw(PRODUCE, 9, produce_frame(topic, partition))
    return not found.responses[0].partition_responses[0].error_code


async def until(check: Callable[[], Awaitable[bool]]) -> float:
    """Give the seconds until something is true; nobody is waited for longer than two seconds."""
    begun = time.perf_counter()
    async with asyncio.timeout(LIMIT):
        while True:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(2.0):
                    if await check():
                        return time.perf_counter() - begun
            await asyncio.sleep(0.02)


# Faults


async def know_each_other(gateways: list[Process]) -> None:
    async def all_there() -> bool:
        for gateway in gateways:
            async with connected(gateway.bootstrap) as wire:
                if len((await wire.ask(METADATA, 7, {"topics": []})).brokers) != len(gateways):
                    return False
        return True

    await until(all_there)


async def fail(gateways: list[Process], which: int, times: Times) -> Process:
    """Let the gateway fail that serves a group, and with it a partition; give it."""
    topic, group = await make_topic(gateways[0].bootstrap, PARTITIONS), secrets.token_hex(4)
    where = await coordinator(gateways[0].bootstrap, group)
    [victim] = [gateway for gateway in gateways if gateway.bootstrap == where]
    other = next(gateway.bootstrap for gateway in gateways if gateway is not victim)
    partition = (await leaders(other, topic)).index(where)
    await until(lambda: commits_by("", other, group, topic))
    await until(lambda: produces_by("", other, topic, partition))
    async with connected(where) as wire:
        victim.process.send_signal(which)
        late = asyncio.create_task(wire.ask_raw(COMMIT, 7, commit_frame(group, topic, 7)))
        group_time, partition_time = await asyncio.gather(
            until(lambda: commits_by(where, other, group, topic)),
            until(lambda: produces_by(where, other, topic, partition)),
        )
        times.group.append(group_time)
        times.partition.append(partition_time)
        if which == signal.SIGSTOP:
            times.refusal.append(await go_on(victim, late))
            await know_each_other(gateways)
            assert await stored(other, group, topic) == 10, "the gateway that hung has written"
        else:
            await asyncio.gather(late, return_exceptions=True)
    return victim


async def go_on(victim: Process, late: asyncio.Task[Any]) -> float:
    """Let a gateway go on, and time until it has refused what was in its socket."""
    victim.process.send_signal(signal.SIGCONT)
    begun = time.perf_counter()
    async with asyncio.timeout(LIMIT):
        answer = await late
    assert answer.topics[0].partitions[0].error_code == NOT_COORDINATOR, answer
    return time.perf_counter() - begun


async def stored(bootstrap: str, group: str, topic: str) -> int:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    async with asyncio.timeout(LIMIT):
        while True:
            async with connected(await coordinator(bootstrap, group)) as wire:
                found = await wire.ask(FETCH_OFFSETS, 7, {**asked, "require_stable": False})
            if not found.error_code:
                return int(found.topics[0].partitions[0].committed_offset)
            await asyncio.sleep(0.05)


async def gateways_fail(pulsar: Pulsar, rounds: int) -> dict[str, Times]:
    found = {name: Times() for name in FAULTS}
    gateways = [Process(pulsar) for _ in range(GATEWAYS)]
    try:
        await asyncio.gather(*(reachable(each.bootstrap) for each in gateways))
        for _ in range(rounds):
            for name, which in FAULTS.items():
                await know_each_other(gateways)
                victim = await fail(gateways, which, found[name])
                gateways.remove(victim)
                if which != signal.SIGSTOP:
                    victim.process.wait()
                    victim = Process(pulsar)
                    await reachable(victim.bootstrap)
                gateways.append(victim)
    finally:
        for gateway in gateways:
            gateway.end(signal.SIGTERM)
    return found


async def pulsar_fails(pulsar: Pulsar, rounds: int) -> Times:
    """Kill Pulsar and start it again; time from where it is ready."""
    times, gateway = Times(), Process(pulsar)
    try:
        await reachable(gateway.bootstrap)
        topic, group = await make_topic(gateway.bootstrap, 1), secrets.token_hex(4)
        await until(lambda: commits_by("", gateway.bootstrap, group, topic))
        for _ in range(rounds):
            await asyncio.to_thread(pulsar.kill)
            await asyncio.to_thread(pulsar.start)
            group_time, partition_time = await asyncio.gather(
                until(lambda: commits_by("", gateway.bootstrap, group, topic)),
                until(lambda: produces_by("", gateway.bootstrap, topic, 0)),
            )
            times.group.append(group_time)
            times.partition.append(partition_time)
    finally:
        gateway.end(signal.SIGTERM)
    return times


# The table


def span(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} (to {max(seconds):.2f})" if seconds else ""


def main() -> None:
    report = Report.from_arguments(
        "seconds until served again, median and longest",
        ("what happens", "group", "partition", "late commit refused"),
    )
    rounds = 2 if report.quick else 10
    with tempfile.TemporaryDirectory() as data, Pulsar(data=data, durable=False) as pulsar:
        found = asyncio.run(gateways_fail(pulsar, rounds))
        if not report.quick:
            found["Pulsar is killed and started again"] = asyncio.run(pulsar_fails(pulsar, 3))
    for name, times in found.items():
        report.row(name, span(times.group), span(times.partition), span(times.refusal))
        report.figure(f"{name}: group", max(times.group))
        report.figure(f"{name}: partition", max(times.partition))
    longest = max(max(times.group) for name, times in found.items() if name in FAULTS)
    report.goal("takeover (s), the longest", longest, 5.0, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
