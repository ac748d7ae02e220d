"""Brokers that go and come back, and leaders that move, while the raw client writes and reads."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.topic_offsets import latest
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.kafka import Kafka
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server

Open = Callable[..., Cluster]
Topic = Callable[..., str]
Body = Callable[..., BatchBody]
Keep = Callable[[Any], Any]
ReadAll = Callable[..., dict[int, list[bytes]]]


@pytest.fixture(scope="module")
def first() -> Iterator[Kafka]:
    with Kafka() as server:
        yield server


@pytest.fixture(scope="module")
def joined(first: Kafka) -> Iterator[Kafka]:
    with Kafka(joins=first) as server:
        yield server


@pytest.fixture
def second(joined: Kafka) -> Kafka:
    """The second broker, running whatever the last test did to it."""
    return joined.start()


@pytest.fixture
def numbers(body_of: Body) -> Iterator[tuple[bytes, BatchBody]]:
    """Endless values, with the body of a batch of each."""

    def count() -> Iterator[tuple[bytes, BatchBody]]:
        number = 0
        while True:
            value = b"%d" % number
            yield value, body_of(value)
            number += 1

    return count()


def test_a_leader_that_dies_is_replaced(
    first: Kafka,
    second: Kafka,
    open_cluster: Open,
    new_topic: Topic,
    numbers: Iterator[tuple[bytes, BatchBody]],
    keep: Keep,
    values_of: Callable[[Fetched], list[bytes]],
) -> None:
    # In sync must be both before one is killed: a new leader is only taken from those.
    topic = new_topic(first, config={"min.insync.replicas": "1"}, assignment=[[2, 1]])
    cluster = open_cluster(first)
    assert cluster.leader(topic, 0).node == 2
    producer, fetcher = keep(Producer(cluster)), keep(Fetcher(cluster, [Wanted(topic, 0, 0)], max_wait=0.05))
    sent: list[bytes] = []
    found: list[bytes] = []

    def turn() -> None:
        value, body = next(numbers)
        producer.send(topic, 0, body)
        sent.append(value)
        for fetched in fetcher.poll(0.02):
            found.extend(values_of(fetched))

    for _ in range(50):
        turn()
    producer.flush()
    second.kill()
    until = time.monotonic() + 60
    while cluster.leader(topic, 0).node != 1 and time.monotonic() < until:
        turn()
    assert cluster.leader(topic, 0).node == 1
    for _ in range(20):
        turn()
    producer.flush()
    while len(found) < len(sent) and time.monotonic() < until:
        for fetched in fetcher.poll(1.0):
            found.extend(values_of(fetched))
    assert found == sent


def test_a_broker_restarts_in_the_middle_of_writing(
    first: Kafka,
    second: Kafka,
    open_cluster: Open,
    new_topic: Topic,
    numbers: Iterator[tuple[bytes, BatchBody]],
    keep: Keep,
    read_all: ReadAll,
) -> None:
    topic = new_topic(first, assignment=[[2], [2]])
    producer = keep(Producer(open_cluster(first)))
    sent: dict[int, list[bytes]] = {0: [], 1: []}

    def write(count: int) -> None:
        for _ in range(count):
            for part, values in sent.items():
                value, body = next(numbers)
                producer.send(topic, part, body)
                values.append(value)

    write(200)
    restarting = Thread(target=lambda: (second.kill(), second.start()))
    restarting.start()
    while restarting.is_alive():
        write(10)
        time.sleep(0.01)
    write(200)
    producer.flush()
    assert read_all(open_cluster(first), topic) == sent


@pytest.mark.parametrize("transactional", [False, True])
def test_a_broker_that_dies_before_it_has_answered_has_forgotten_all_but_the_last_batch(
    first: Kafka,
    second: Kafka,
    open_cluster: Open,
    new_topic: Topic,
    numbers: Iterator[tuple[bytes, BatchBody]],
    keep: Keep,
    read_all: ReadAll,
    transactional: bool,
) -> None:
    topic = new_topic(first, assignment=[[2]])
    cluster, looker = open_cluster(first), open_cluster(first)
    producer = keep(TransactionalProducer(cluster, f"id-{topic}") if transactional else Producer(cluster))
    sent: list[bytes] = []

    def write(count: int) -> None:
        for value, body in itertools.islice(numbers, count):
            producer.send(topic, 0, body)
            sent.append(value)

    if transactional:
        producer.begin()
    write(1)
    producer.flush()
    write(5)
    until = time.monotonic() + 30
    while latest(looker, topic) != {0: len(sent)}:
        assert time.monotonic() < until, "what is not in the log cannot be forgotten"
    second.kill()
    second.start()
    write(7)
    producer.commit() if transactional else producer.flush()
    assert read_all(open_cluster(first), topic) == {0: sent}


def test_a_transaction_outlives_a_restart(
    first: Kafka,
    second: Kafka,
    open_cluster: Open,
    new_topic: Topic,
    body_of: Body,
    keep: Keep,
    read_all: ReadAll,
) -> None:
    topic = new_topic(first, assignment=[[2]])
    cluster = open_cluster(first)
    producer = keep(TransactionalProducer(cluster, f"id-{topic}"))
    producer.begin()
    producer.send(topic, 0, body_of(b"before"))
    second.stop()
    second.start()
    producer.send(topic, 0, body_of(b"after"))
    producer.commit()
    assert read_all(cluster, topic) == {0: [b"before", b"after"]}
