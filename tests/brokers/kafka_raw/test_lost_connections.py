"""Connections that break all the time, to a real Kafka: nothing is lost, repeated or out of order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.kafka_raw import cluster as module
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.kafka import Kafka
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server

Topic = Callable[..., str]
Body = Callable[..., BatchBody]
Keep = Callable[[Any], Any]
ReadAll = Callable[..., dict[int, list[bytes]]]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Breaks one of ten steps; what was broken is counted."""
    chance = random.Random(9)
    breaks: list[str] = []

    class Fragile(Connection):
        def _send_all(self, parts: list[Buffer]) -> None:
            if self.versions is not None and chance.random() < 0.05:
                breaks.append("request")
                self._sock.sendall(b"".join(parts)[: chance.randrange(200)])
                raise ConnectionResetError("cut while sending")
            super()._send_all(parts)

        def _receive_frame(self, until: float) -> memoryview:
            frame = super()._receive_frame(until)
            if self.versions is not None and chance.random() < 0.05:
                breaks.append("answer")
                raise ConnectionResetError("cut before the answer")
            return frame

    monkeypatch.setattr(module, "Connection", Fragile)
    return breaks


@pytest.fixture
def cluster(kafka: Kafka, broken: list[str], open_cluster: Callable[..., Cluster]) -> Cluster:
    return open_cluster(kafka)


def test_an_idempotent_producer(
    kafka: Kafka,
    cluster: Cluster,
    broken: list[str],
    new_topic: Topic,
    body_of: Body,
    keep: Keep,
    read_all: ReadAll,
) -> None:
    topic = new_topic(kafka, 2)
    producer = keep(Producer(cluster))
    values: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(200):
        batch = [b"%d-%d" % (number, n) for n in range(3)]
        values[number % 2] += batch
        producer.send(topic, number % 2, body_of(*batch))
    producer.flush()
    assert read_all(cluster, topic, partition_max_bytes=2000) == values
    assert {"request", "answer"} <= set(broken)


def test_transactions(
    kafka: Kafka,
    cluster: Cluster,
    broken: list[str],
    new_topic: Topic,
    body_of: Body,
    keep: Keep,
    read_all: ReadAll,
) -> None:
    topic, group = new_topic(kafka, 2), f"g-{new_topic(kafka)}"
    producer = keep(TransactionalProducer(cluster, f"id-{topic}"))
    for number in range(12):
        producer.begin()
        for part in (0, 1):
            producer.send(topic, part, body_of(b"%d" % number))
        if number % 3 == 2:
            producer.abort()
        else:
            producer.commit(group=group, offsets={(topic, 0): GroupOffset(number)})
    kept = [b"%d" % number for number in range(12) if number % 3 != 2]
    assert read_all(cluster, topic) == {0: kept, 1: kept}
    assert GroupOffsets(cluster, group).committed(topic) == {0: GroupOffset(10)}
    assert broken
