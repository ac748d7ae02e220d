"""Questions for many topics at once, and how large the records of a topic are, on a real Kafka."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.first_batches import bytes_per_offset, density
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.topic_offsets import latest_of_topics
from penstock.embedded.kafka import Kafka
from penstock.pipeline.delivery.end_watch import EndWatch

Topic = Callable[..., str]


def head(size: int, offsets: int) -> bytes:
    """Return the beginning of a record batch with its length and last offset delta."""
    return struct.pack(">qi", 7, size - 12) + bytes(11) + struct.pack(">i", offsets - 1) + bytes(34)


def test_the_size_of_an_offset_is_judged_by_whole_batches_and_by_the_head_of_a_cut_one() -> None:
    assert density(memoryview(b"")) is None
    assert density(memoryview(head(400_000, 1))) == 400_000
    assert density(memoryview(head(61, 1) + head(139, 9))) == 20
    assert density(memoryview(head(61, 1)[:20])) is None
    assert density(memoryview(bytes(80))) is None


@pytest.fixture
def settings(kafka: Kafka) -> Settings:
    return Settings.of(kafka.client_options())


@pytest.fixture
def cluster(settings: Settings) -> Iterator[Cluster]:
    with Cluster(settings) as made:
        yield made


def write(kafka: Kafka, topic: str, partition: int, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(kafka.client_options())
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.server
def test_the_ends_of_many_topics_are_one_question(kafka: Kafka, cluster: Cluster, new_topic: Topic) -> None:
    one, two, gone = new_topic(kafka, 2), new_topic(kafka, 1), new_topic(kafka, 1)
    write(kafka, one, 1, [b"a", b"b"])
    cluster.refresh([one, two, gone])
    found = latest_of_topics(cluster, [one, two, gone])
    assert found == {one: {0: 0, 1: 2}, two: {0: 0}, gone: {0: 0}}
    admin = AdminClient(kafka.client_options())
    admin.delete_topics([gone])[gone].result(60)
    end = time.monotonic() + 60
    while gone in latest_of_topics(cluster, [one, two, gone]):  # the broker takes a moment
        assert time.monotonic() < end
        time.sleep(0.05)
    # A topic that is not there keeps nobody else from an answer.
    assert latest_of_topics(cluster, [one, two, gone, "never"]) == {one: {0: 0, 1: 2}, two: {0: 0}}


@pytest.mark.server
def test_who_waits_is_woken_by_a_record(kafka: Kafka, settings: Settings, new_topic: Topic) -> None:
    one, two = new_topic(kafka, 1), new_topic(kafka, 1)
    watch, released, asked = EndWatch(settings), threading.Event(), threading.Event()
    threading.Timer(0.5, write, (kafka, two, 0, [b"x"])).start()
    try:
        assert watch.wait(one, {0: 0}, 0.3, released=released, asked=asked.set) is None
        assert asked.is_set()
        assert watch.wait(two, {0: 0}, 60, released=released, asked=asked.set) == {0: 1}
    finally:
        watch.close()


def test_who_waits_asks_for_itself_whatever_the_question_ends_with() -> None:
    asked: list[list[str]] = []

    def ask(topics: list[str]) -> dict[str, dict[int, int]]:
        asked.append(topics)
        if len(asked) == 1:
            raise ValueError("what nobody has thought of")
        return {"t": {0: 7}}

    watch, released = EndWatch(Settings(bootstrap=()), ask=ask), threading.Event()
    try:
        for found in (None, {0: 7}):
            assert watch.wait("t", {0: 0}, 600, released=released, asked=lambda: None) == found
    finally:
        watch.close()
    assert asked == [["t"], ["t"]]


@pytest.mark.server
def test_large_records_are_seen_before_they_are_read(
    kafka: Kafka, cluster: Cluster, new_topic: Topic
) -> None:
    topic = new_topic(kafka, 3)
    write(kafka, topic, 0, [os.urandom(400_000) for _ in range(3)])
    write(kafka, topic, 1, [b"x" * 100 for _ in range(1000)])
    cluster.partitions(topic)
    found = bytes_per_offset(cluster, topic, {0: 0, 1: 0, 2: 0})
    assert 400_000 < found[0] < 401_000
    assert 100 < found[1] < 200
    assert 2 not in found
