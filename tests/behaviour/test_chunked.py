"""Large messages that a Pulsar producer sends in chunks, and Kafka consumers of the same topic."""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pulsar as pulsar_client
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from penstock.embedded.gateway import Gateway
from penstock.embedded.pulsar import Pulsar

pytestmark = pytest.mark.server

LARGE = 12 << 20
"""More than two times what the broker takes in one message."""


@pytest.fixture(scope="module", params=["fail", "skip", "placeholder"])
def gateway(pulsar: Pulsar, request: pytest.FixtureRequest) -> Iterator[tuple[Gateway, str]]:
    with Gateway(pulsar, options=("--undecodable", request.param)) as started:
        yield started, request.param


def consume(bootstrap: str, topic: str, wanted: int) -> tuple[list[Any], int]:
    """Read from the beginning until there are so many records, or an error that stays; give the position."""
    options = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0}
    consumer = Consumer({**options, "fetch.error.backoff.ms": 100})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        end = time.monotonic() + 60
        while len(found) < wanted and time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is not None:
                found.append(message)
                if message.error() is not None:
                    break
        return found, consumer.position([TopicPartition(topic, 0)])[0].offset
    finally:
        consumer.close()


def skipped(gateway: Gateway) -> float:
    with urllib.request.urlopen(f"{gateway.metrics_url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    return sum(
        each.value
        for each in samples
        if each.name == "penstock_gateway_undecodable_total" and each.labels["reason"] == "chunked"
    )


def test_a_chunked_message_between_others(pulsar: Pulsar, gateway: tuple[Gateway, str]) -> None:
    server, policy = gateway
    topic = f"chunked-{uuid.uuid4().hex[:6]}"
    kafka = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    kafka.produce(topic, b"before")
    assert kafka.flush(30) == 0
    client = pulsar_client.Client(
        pulsar.service_url, logger=pulsar_client.ConsoleLogger(pulsar_client.LoggerLevel.Error)
    )
    try:
        name = f"persistent://public/default/{topic}-partition-0"
        large = client.create_producer(name, chunking_enabled=True, batching_enabled=False)
        large.send(b"x" * LARGE)
        kafka.produce(topic, b"after")
        assert kafka.flush(30) == 0
        # Pulsar's own consumers have the whole message.
        reader = client.create_reader(name, pulsar_client.MessageId.earliest)
        assert [len(reader.read_next(30_000).data()) for _ in range(3)] == [6, LARGE, 5]
    finally:
        client.close()
    before = skipped(server)
    found, position = consume(server.bootstrap, topic, 3 if policy == "placeholder" else 2)
    assert found[0].value() == b"before"
    assert skipped(server) > before
    if policy == "fail":
        assert found[1].error() is not None
        return
    assert (found[-1].value(), position) == (b"after", found[-1].offset() + 1)
    assert found[-1].offset() > 3
    if policy == "placeholder":
        assert found[1].value() is None
        assert dict(found[1].headers())["penstock.undecodable"].startswith(b"chunked")
