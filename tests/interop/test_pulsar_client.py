"""Pulsar's own client beside Kafka's: each reads what the other wrote, field by field (spec 001, Message)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pulsar_client = pytest.importorskip("pulsar")
pytestmark = pytest.mark.server

_SILENT = logging.getLogger("silent")
_SILENT.setLevel(logging.CRITICAL)
ALONE = {
    "group.id": "alone",
    "enable.auto.commit": False,
    "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 300,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def client(pulsar: Any) -> Iterator[Any]:
    made = pulsar_client.Client(pulsar.service_url, logger=_SILENT)
    yield made
    made.close()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}-partition-0"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_pulsar_reads_what_kafka_wrote(gateway: str, topic: Any, client: Any, compression: str) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": gateway, "compression.type": compression, "log_level": 0})
    for number in range(20):
        producer.produce(
            name,
            b"v%d" % number,
            b"k%d" % number if number % 2 else b"k\xff%d" % number,
            partition=0,
            headers=[("trace", b"t%d" % number), ("none", None)],
            timestamp=1000 + number,
        )
    producer.produce(name, None, None, partition=0, timestamp=5000)
    assert producer.flush(20) == 0
    reader = client.create_reader(full(name), pulsar_client.MessageId.earliest)
    for number in range(20):
        message = reader.read_next(10_000)
        assert message.data() == b"v%d" % number
        # A text is a key as Pulsar's own clients write it; other bytes are in base64.
        key = message.partition_key()
        if number % 2:
            assert (key, message.ordering_key()) == (f"k{number}", f"k{number}")
        else:
            assert base64.b64decode(key) == b"k\xff%d" % number
        assert message.properties() == {"trace": f"t{number}", "kafka~n~none": ""}
        assert message.event_timestamp() == 1000 + number
    last = reader.read_next(10_000)
    assert (last.data(), last.partition_key(), last.event_timestamp()) == (b"", "", 5000)
    reader.close()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_kafka_reads_what_pulsar_wrote(
    gateway: str, topic: Any, client: Any, compression: str, batched: bool
) -> None:
    name = topic()
    producer = client.create_producer(
        full(name),
        compression_type=getattr(pulsar_client.CompressionType, compression),
        batching_enabled=batched,
        batching_max_publish_delay_ms=50,
    )
    for number in range(20):
        producer.send_async(
            b"v%d" % number * 50,
            None,
            partition_key=f"k{number}",
            ordering_key="ordered" if number % 2 else None,
            properties={"a": "1", "b": str(number)},
            event_timestamp=1000 + number,
        )
    producer.flush()
    producer.send(b"without anything")
    producer.close()
    consumer = Consumer({"bootstrap.servers": gateway, **ALONE})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[Any] = []
    while len(found) < 21:
        got = consumer.consume(21 - len(found), 15)
        assert got
        found += got
    consumer.close()
    assert [message.offset() for message in found] == list(range(21))
    for number, message in enumerate(found[:20]):
        assert message.error() is None
        assert message.value() == b"v%d" % number * 50
        assert message.key() == (b"ordered" if number % 2 else b"k%d" % number)
        assert sorted(message.headers()) == [("a", b"1"), ("b", b"%d" % number)]
        assert message.timestamp()[1] == 1000 + number
    assert (found[20].key(), found[20].headers()) == (None, None)
    assert found[20].timestamp()[1] > 1_600_000_000_000


def test_a_topic_without_partitions_is_partition_0(gateway: str, client: Any) -> None:
    name = "interop-alone"
    producer = client.create_producer(f"persistent://public/default/{name}")
    producer.send(b"from pulsar")
    kafka = Producer({"bootstrap.servers": gateway, "log_level": 0})
    kafka.produce(name, b"from kafka")
    assert kafka.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": gateway, **ALONE})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert [consumer.poll(15).value() for _ in range(2)] == [b"from pulsar", b"from kafka"]
    consumer.close()
    producer.close()


def test_a_name_that_kafka_does_not_know_hides_only_itself(gateway: str, topic: Any, client: Any) -> None:
    from confluent_kafka.admin import AdminClient

    odd = client.create_producer("persistent://public/default/with a space")
    name = topic()
    listed = AdminClient({"bootstrap.servers": gateway, "log_level": 0}).list_topics(timeout=20).topics
    assert name in listed
    assert not [each for each in listed if " " in each]
    odd.close()


def test_topics_of_another_namespace_are_reached_by_their_full_names(
    gateway: str, client: Any, pulsar: Any
) -> None:
    import urllib.request

    url = f"{pulsar.admin_url}/admin/v2/namespaces/public/interop"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=20).close()
    names = ["public/interop/orders", "persistent://public/interop/orders"]
    for name in names:
        kafka = Producer({"bootstrap.servers": gateway, "log_level": 0})
        kafka.produce(name, name.encode())
        assert kafka.flush(20) == 0
    reader = client.create_reader(
        "persistent://public/interop/orders-partition-0", pulsar_client.MessageId.earliest
    )
    assert [reader.read_next(10_000).data().decode() for _ in names] == names
    reader.close()
