"""The first record to each of many partitions, on the gateway and on a real Kafka, in turn.

Kafka opens a partition when the topic is created, Pulsar when it is first used: so the time from CreateTopics
on is compared. One librdkafka producer sends one record to each partition of a new topic, then a second one.
Beside it another client asks for something small all the time; the longest it waits is what a consumer beside
such a producer sees. With `busy` both cores have other work. The CPU of the gateway is given for several
sizes: it must grow as they do.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.gateway import Gateway
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.server import Server
from quiet import cpu_seconds, settled
from table import Report

LIMIT = 300.0
"""Seconds that one measurement may take."""
SIZES = (250, 500, 1000)
GOAL = 1.5
"""The time of the gateway, of Kafka's."""
COLUMNS = ("created", "first", "second", "cpu", "longest")


@dataclass
class Opened:
    """What the topic, and the first and the second record to each of its partitions took, in seconds."""

    created: float
    """Until every partition has a leader."""
    first: float
    second: float
    cpu: float
    """CPU seconds of the gateway, or of Kafka, for the first."""
    longest: float
    """The longest that another client waited for an answer meanwhile."""


class Beside:
    """Another client: asks for the list of groups, again and again, and notes the longest it waited."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._admin.list_groups(timeout=30)
        self._over = threading.Event()
        self.longest = 0.0

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            began = time.perf_counter()
            self._admin.list_groups(timeout=60)
            self.longest = max(self.longest, time.perf_counter() - began)


def send_to_all(producer: Producer, topic: str, partitions: int) -> float:
    """Send one record to each partition; give the seconds until all are acknowledged."""
    failed: list[Any] = []

    def done(error: Any, _: Any) -> None:
        if error:
            failed.append(error)

    began = time.perf_counter()
    for index in range(partitions):
        producer.produce(topic, b"x" * 100, partition=index, on_delivery=done)
    if producer.flush(LIMIT) or failed:
        raise SystemExit(f"not all records were stored: {failed[:1]}")
    return time.perf_counter() - began


def has_leaders(producer: Producer, topic: str, partitions: int) -> bool:
    found = producer.list_topics(topic, timeout=120).topics[topic].partitions
    return len(found) == partitions and all(each.leader >= 0 for each in found.values())


def open_all(server: Server, bootstrap: str, partitions: int) -> Opened:
    topic = f"bench-{secrets.token_hex(6)}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "message.timeout.ms": 300_000})
    began = time.perf_counter()
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
    while not has_leaders(producer, topic, partitions):
        time.sleep(0.02)
    created = time.perf_counter() - began
    beside = Beside(bootstrap)
    settled([server.pid or 0])
    try:
        before = cpu_seconds(server.pid or 0)
        with beside.asking():
            first = send_to_all(producer, topic, partitions)
        cpu = cpu_seconds(server.pid or 0) - before
        return Opened(created, first, send_to_all(producer, topic, partitions), cpu, beside.longest)
    finally:
        admin.delete_topics([topic])[topic].result(120)


@contextmanager
def busy() -> Iterator[None]:
    """Keep every core busy with something else."""
    over = multiprocessing.Event()
    workers = [multiprocessing.Process(target=_spin, args=(over,)) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        over.set()
        for worker in workers:
            worker.join()


def _spin(over: Any) -> None:
    while not over.is_set():
        sum(range(100_000))


def median(rounds: list[Opened], name: str) -> float:
    return statistics.median(getattr(each, name) for each in rounds)


def compare(
    report: Report, sides: dict[str, tuple[Server, str]], partitions: int, rounds: int, label: str
) -> None:
    found: dict[str, list[Opened]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (server, bootstrap) in sides.items():
            found[name].append(open_all(server, bootstrap, partitions))
    for name, opened in found.items():
        cells = [f"{median(opened, column):.2f}" for column in COLUMNS]
        report.row(f"{partitions}{label}", name, *cells)
        report.figure(f"{name} topic of {partitions}{label}, s", median(opened, "created"))
        report.figure(f"{name} first record to {partitions}{label}, s", median(opened, "first"))
        report.figure(f"{name} CPU for {partitions}{label}, s", median(opened, "cpu"))
        report.figure(f"{name} longest wait beside {partitions}{label}, s", median(opened, "longest"))
    taken = {name: median(opened, "created") + median(opened, "first") for name, opened in found.items()}
    ratio = taken["gateway"] / taken["kafka"]
    report.goal(f"{partitions}{label}, gateway of kafka", ratio, GOAL, at_least=False)


def main() -> None:
    report = Report.from_arguments(
        "The first record to each of many partitions",
        ["partitions", "side", "topic, s", "first, s", "second, s", "CPU s", "longest wait beside, s"],
    )
    sizes, rounds = ((100, 200), 1) if report.quick else (SIZES, 3)
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(heap_mb=512, full_jit=True))
        broker = stack.enter_context(Pulsar(durable=False, heap_mb=1024, direct_mb=512, full_jit=True))
        gateway = stack.enter_context(Gateway(broker))
        sides: dict[str, tuple[Server, str]] = {
            "kafka": (kafka, kafka.bootstrap),
            "gateway": (gateway, gateway.bootstrap),
        }
        for server, bootstrap in sides.values():
            # Thrown away: the first of its kind.
            open_all(server, bootstrap, 20)
        for partitions in sizes:
            compare(report, sides, partitions, rounds, "")
        if not report.quick:
            with busy():
                compare(report, sides, sizes[-1], 1, ", busy")
    small, large = (report.figures[f"gateway CPU for {size}, s"] / size for size in (sizes[0], sizes[-1]))
    report.goal("CPU of a partition, of many partitions to few", large / small, 1.3, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
