"""The pipeline's Pulsar reader and sink alone, on one broker: records/s, and CPU of this process per million.

One topic without partitions, deduplication on, no sync of the journal. The sink is given batch bodies as a
router makes them, with an id for each record; the reader gives record batches as a router takes them.
"inline" is the same reader without the thread of its own: the event loop runs inside of `poll`.
With "busy" the caller checks each answer twice, without the GIL, as a router works on it.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.log import PulsarLog
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkBatch, SinkSource, sequence_ids
from penstock.pipeline.delivery.pulsar.reader import PulsarPartitionReader
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels import crc32c
from table import Report

T = TypeVar("T")
SIZES = {"100 B": (100, 1000), "1 KiB": (1024, 125)}
"""Bytes of a value, and records of a batch."""
PROTOTYPE = {("read", "100 B"): 650_000, ("write", "100 B"): 407_000, ("read", "1 KiB"): 219_000}
"""Records/s of the client of the binary protocol that was tried first, without Spark."""


@dataclass(frozen=True)
class Round:
    """Wall and CPU seconds of one round."""

    wall: float
    cpu: float


def timed(work: Callable[[], None]) -> Round:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Round(time.perf_counter() - wall, time.process_time() - cpu)


class Inline(PulsarCluster):
    """A cluster whose loop runs in the thread that calls."""

    def __init__(self, settings: PulsarSettings) -> None:
        super().__init__(settings)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def call(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        if self._thread.is_alive():
            return super().call(work, timeout=timeout)
        return self._loop.run_until_complete(asyncio.wait_for(work, timeout))

    def _stop(self) -> None:
        self._loop.close()


def write(cluster: PulsarCluster, topic: str, body: BatchBody, batches: int) -> None:
    source = SinkSource(
        run=secrets.token_hex(4), topic="in", incarnation="", partition=0, first=0, begun=False
    )
    sink = PulsarSink(cluster, [PulsarTarget(topic=topic, partitions=0)], source)
    ordinals = np.zeros(body.count, np.int64)
    for number in range(batches):
        indexes = np.arange(number * body.count, (number + 1) * body.count, dtype=np.int64)
        sink.put(SinkBatch(0, 0, body, sequence_ids(indexes, ordinals)))
    sink.commit({})
    sink.close()


def read(cluster: PulsarCluster, topic: str, count: int, busy: bool) -> None:
    log = PulsarLog(cluster, topic, 0, 0)
    reader = PulsarPartitionReader(log, 0, count)
    while not reader.done:
        fetched = reader.poll(30.0)
        if fetched is None:
            raise SystemExit("nothing came for 30 s")
        if busy:
            crc32c(fetched.data)
            crc32c(fetched.data)
    reader.close()


def measure(server: Pulsar, report: Report, name: str, size: int, count: int) -> None:
    batches = (400_000 if report.quick else 2_000_000) * 250 // (size + 150) // count
    value = secrets.token_bytes(size)
    records = b"".join(numbered(record_bytes(b"key", value, (("h", b"text"),)), at) for at in range(count))
    body = BatchBody(records, count, 1_700_000_000_000, 1_700_000_000_000)
    settings = PulsarSettings(service_url=server.service_url, admin_url=server.admin_url)
    found: dict[str, list[Round]] = {}
    with PulsarCluster(settings) as cluster:
        for number in range(3 if report.quick else 6):
            topic = f"persistent://public/default/bench-{secrets.token_hex(6)}"
            cluster.call(cluster.admin.create_topic(topic))
            total = batches * count
            sides: dict[str, Callable[[], None]] = {
                "write": partial(write, cluster, topic, body, batches),
                "read": partial(read, cluster, topic, total, busy=False),
                "read busy": partial(read, cluster, topic, total, busy=True),
                "read inline": partial(read_inline, settings, topic, total, busy=False),
                "read inline busy": partial(read_inline, settings, topic, total, busy=True),
            }
            for side, work in sides.items():
                one = timed(work)
                if number:  # the first round warms the broker
                    found.setdefault(side, []).append(one)
            cluster.call(cluster.admin.delete_topic(topic, partitioned=False, force=True))
    for side, rounds in found.items():
        wall = statistics.median(one.wall for one in rounds)
        cpu = statistics.median(one.cpu for one in rounds)
        rate, per_million = batches * count / wall, 1e6 * cpu / (batches * count)
        known = PROTOTYPE.get((side, name))
        report.row(
            f"{side} {name}", f"{rate:,.0f}", f"{per_million:.2f}", "" if known is None else f"{known:,}"
        )
        report.figure(f"{side} {name} records/s", rate)
        report.figure(f"{side} {name} CPU s/M", per_million)


def read_inline(settings: PulsarSettings, topic: str, count: int, busy: bool) -> None:
    with Inline(settings) as cluster:
        read(cluster, topic, count, busy)


def main() -> None:
    report = Report.from_arguments(
        "The pipeline's Pulsar reader and sink", ["what", "records/s", "CPU s/M", "prototype records/s"]
    )
    settings = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "4096"}
    with Pulsar(durable=False, full_jit=True, heap_mb=512, direct_mb=512, settings=settings) as server:
        for name, (size, count) in SIZES.items():
            measure(server, report, name, size, count)
    report.finish()


if __name__ == "__main__":
    main()
