"""MirrorMaker 2 between a real Kafka and the gateway, both ways at once: records, settings and groups."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
from penstock.embedded.java import find_java

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
PARTITIONS, EACH = 3, 200
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "compression.type": "lz4",
    "max.message.bytes": "2000000",
}
INTERNAL = ("config.storage", "offset.storage", "status.storage", "checkpoints.topic", "heartbeats.topic")
QUICK = {
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "2",
    "refresh.topics.interval.seconds": "5",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "5",
    "offset.flush.interval.ms": "1000",
}
"""Its defaults are minutes; nothing else differs but the replicas of a cluster of one broker."""

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


@dataclass(frozen=True)
class Side:
    """One of the two clusters."""

    bootstrap: str

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self, topic: str, settings: Mapping[str, str]) -> None:
        new = NewTopic(topic, PARTITIONS, 1, config=dict(settings))
        self.admin.create_topics([new])[topic].result(30)

    def produce(self, topic: str, rounds: range) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in rounds:
            producer.produce(
                topic,
                None if number % 7 == 0 else b"value %d" % number,
                key=b"key %d" % number,
                partition=number % PARTITIONS,
                headers=[("a", b"\xff\x00"), ("a", None), ("b", b"")],
                timestamp=1_700_000_000_000 + number,
            )
        assert producer.flush(60) == 0

    def records(self, topic: str, count: int) -> dict[int, list[Record]]:
        """Read so many records of a topic; fewer if they do not come."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"all-{uuid.uuid4().hex[:6]}"})
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        consumer.assign(places)
        found: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
        end = time.monotonic() + 150
        try:
            while sum(map(len, found.values())) < count and time.monotonic() < end:
                for message in consumer.consume(500, timeout=0.5):
                    if message.error() is None:
                        headers = tuple(message.headers() or ())
                        row = (message.key(), message.value(), headers, message.timestamp()[1])
                        found[message.partition() or 0].append(row)
        finally:
            consumer.close()
        return found

    def settings(self, topic: str) -> dict[str, tuple[str, bool]]:
        """Give the settings of a topic, and whether somebody has set each."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(30)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: (entry.value, entry.source == own) for name, entry in found.items()}

    def has(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=10).topics

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            return [place.offset for place in consumer.committed(places, timeout=30)]
        finally:
            consumer.close()


@contextmanager
def mirror(folder: Path, kafka: Side, pulsar: Side, prefix: str) -> Iterator[Callable[[], str]]:
    """Run it; gives what it says."""
    rows = {
        "clusters": "kafka, pulsar",
        "kafka.bootstrap.servers": kafka.bootstrap,
        "pulsar.bootstrap.servers": pulsar.bootstrap,
        "kafka->pulsar.enabled": "true",
        "kafka->pulsar.topics": f"{prefix}-orders",
        "pulsar->kafka.enabled": "true",
        "pulsar->kafka.topics": f"{prefix}-shipments",
        "groups": f"{prefix}-.*",
        "sync.group.offsets.enabled": "true",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        **{f"{name}.replication.factor": "1" for name in INTERNAL},
        **QUICK,
    }
    path = folder / "mirror.properties"
    path.write_text("".join(f"{name} = {value}\n" for name, value in rows.items()), encoding="utf-8")
    lock = HERE / "mirror-maker.lock"
    jars = ensure_artifacts(parse_lock(lock.read_text(encoding="utf-8"), origin=lock.name))
    words = [str(find_java().executable), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", os.pathsep.join(map(str, jars))]
    words += ["org.apache.kafka.connect.mirror.MirrorMaker", str(path)]
    log = folder / "mirror.log"
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as process:
        try:
            yield lambda: f"ended with {process.poll()}: {log.read_text(errors='replace')[-4000:]}"
        finally:
            process.kill()


def wait(condition: Callable[[], object], said: Callable[[], str], seconds: float = 330) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and said().startswith("ended with None"), said()
        time.sleep(0.5)


def test_records_settings_and_groups_both_ways(kafka: Any, process: Any, tmp_path: Path) -> None:
    prefix = f"mm-{uuid.uuid4().hex[:6]}"
    orders, shipments, group = f"{prefix}-orders", f"{prefix}-shipments", f"{prefix}-billing"
    there, here = Side(kafka.bootstrap), Side(process.bootstrap)
    count = PARTITIONS * EACH
    there.create(orders, SETTINGS)
    here.create(shipments, {})
    there.produce(orders, range(count))
    here.produce(shipments, range(count))
    there.commit(group, orders, EACH // 2)
    with mirror(tmp_path, there, here, prefix) as said:
        wait(lambda: here.has(f"kafka.{orders}") and there.has(f"pulsar.{shipments}"), said)
        assert here.records(f"kafka.{orders}", count) == there.records(orders, count), said()
        assert there.records(f"pulsar.{shipments}", count) == here.records(shipments, count), said()
        # What was set is set there too, and what nobody has set stays as the other cluster has it.
        wait(lambda: here.settings(f"kafka.{orders}")["segment.ms"] == ("3600000", True), said)
        copied = here.settings(f"kafka.{orders}")
        assert {name: copied[name] for name in SETTINGS} == {
            name: (value, True) for name, value in SETTINGS.items()
        }
        back = there.settings(f"pulsar.{shipments}")
        assert [name for name, (_, is_set) in back.items() if is_set and name != "cleanup.policy"] == []
        # A group goes on with the other cluster where it has stopped, or a little before.
        wait(lambda: min(here.committed(group, f"kafka.{orders}")) > 0, said)
        assert max(here.committed(group, f"kafka.{orders}")) <= EACH // 2
        there.produce(orders, range(count, 2 * count))
        wait(lambda: sum(map(len, here.records(f"kafka.{orders}", 2 * count).values())) == 2 * count, said)
