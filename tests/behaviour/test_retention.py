"""A Pulsar with its own default retention, which keeps nothing: Kafka clients lose nothing by it."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from penstock.embedded.gateway import Gateway
from penstock.embedded.pulsar import Pulsar

pytestmark = [pytest.mark.server, pytest.mark.slow]

NOTHING = {
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    # The cursor of deduplication holds ledgers, too, until its next snapshot.
    "brokerDeduplicationEntriesInterval": "1",
}
ROUNDS, EACH = 4, 200


@pytest.fixture(scope="module")
def pulsar() -> Iterator[Pulsar]:
    with Pulsar(settings=NOTHING) as server:
        yield server


@pytest.fixture(scope="module", params=[(), ("--retention-hours", "0")], ids=["week", "pulsar"])
def gateway(request: pytest.FixtureRequest, pulsar: Pulsar) -> Iterator[Gateway]:
    with Gateway(pulsar, options=request.param) as server:
        yield server


def ask(pulsar: Pulsar, topic: str, what: str) -> None:
    url = f"{pulsar.admin_url}/admin/v2/persistent/public/default/{topic}/{what}"
    request = urllib.request.Request(url, method="PUT" if what == "unload" else "POST")
    urllib.request.urlopen(request, timeout=30).close()


def low_watermark(gateway: Gateway, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "marks"})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(low)
    finally:
        consumer.close()


def read(gateway: Gateway, topic: str, last: int, seconds: float = 60.0) -> list[int]:
    """Read from the beginning to an offset; give the numbers that the records hold."""
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            message = consumer.poll(1.0)
            if message is None:
                continue
            assert message.error() is None, message.error()
            found.append(int(message.value() or b"-1"))
            if (message.offset() or 0) >= last:
                break
    finally:
        consumer.close()
    return found


def trimmed(gateway: Gateway, pulsar: Pulsar, topic: str) -> int:
    """Let Pulsar remove what it may, until it has removed something; give where the log begins."""
    end = time.monotonic() + 60
    while not (low := low_watermark(gateway, topic)):
        assert time.monotonic() < end, "nothing was removed"
        ask(pulsar, f"{topic}-partition-0", "trim")
    return low


def produce(gateway: Gateway, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
    failed: list[Any] = []

    def stored(error: Any, _: Any) -> None:
        if error:
            failed.append(error)

    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=0, on_delivery=stored)
    assert producer.flush(60) == 0
    assert failed == []


def written(gateway: Gateway, pulsar: Pulsar, topic: str) -> int:
    """Write records into several ledgers, all of which but the last are closed; give their number."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    for first in range(0, ROUNDS * EACH, EACH):
        produce(gateway, topic, range(first, first + EACH))
        ask(pulsar, f"{topic}-partition-0", "unload")
    ask(pulsar, f"{topic}-partition-0", "trim")
    return ROUNDS * EACH


def test_what_was_acknowledged_is_there_for_the_first_who_reads(
    gateway: Gateway, pulsar: Pulsar, request: pytest.FixtureRequest
) -> None:
    is_kept = "week" in request.node.name
    topic = f"kept-{request.node.callspec.id}"
    count = written(gateway, pulsar, topic)
    retention = retention_of(gateway, topic)
    if is_kept:
        assert retention == 7 * 24 * 3600 * 1000
        assert low_watermark(gateway, topic) == 0
        assert read(gateway, topic, count - 1) == list(range(count))
    else:
        # The gateway does not promise what Pulsar does not do, and says where the log begins.
        assert retention == 0
        low = trimmed(gateway, pulsar, topic)
        produce(gateway, topic, range(count, count + 1))
        assert read(gateway, topic, count) == list(range(low, count + 1))


def retention_of(gateway: Gateway, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return int(admin.describe_configs([resource])[resource].result(30)["retention.ms"].value)
