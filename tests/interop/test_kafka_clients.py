"""Kafka's foreign clients in their default settings, each reading what another wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.server

COUNT = 300
HEADERS = [("text", b"plain"), ("bytes", b"\xff\x00"), ("text", b"again")]
ALONE = {
    "group.id": "alone",
    "enable.auto.commit": False,
    "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 300,
    "log_level": 0,
}
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]], int]


def row(number: int) -> Row:
    key = None if number % 3 == 0 else b"key-%d" % number
    return number, key, b"value-%d" % number, HEADERS, 1_700_000_000_000 + number


def write_confluent(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    failed: list[Any] = []
    for number in range(COUNT):
        _, key, value, headers, timestamp = row(number)
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            headers=headers,
            timestamp=timestamp,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failed


def read_confluent(bootstrap: str, topic: str) -> list[Row]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, **ALONE})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    while len(found) < COUNT:
        got = consumer.consume(COUNT - len(found), 15)
        assert got, f"{len(found)} of {COUNT}"
        assert not [message.error() for message in got if message.error()]
        found += [(m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in got]
    consumer.close()
    return found


def write_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type="lz4"
        ) as producer:
            sent = []
            for number in range(COUNT):
                _, key, value, headers, timestamp = row(number)
                sent.append(
                    await producer.send(
                        topic, value, key=key, partition=0, headers=headers, timestamp_ms=timestamp
                    )
                )
            await asyncio.gather(*sent)

    asyncio.run(run())


def read_aiokafka(bootstrap: str, topic: str) -> list[Row]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> list[Row]:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            async with asyncio.timeout(30):
                got = [await consumer.getone() for _ in range(COUNT)]
            return [(m.offset, m.key, m.value, list(m.headers), m.timestamp) for m in got]

    return asyncio.run(run())


def write_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    sent = []
    for number in range(COUNT):
        _, key, value, headers, timestamp = row(number)
        sent.append(
            producer.send(topic, value, key=key, partition=0, headers=headers, timestamp_ms=timestamp)
        )
    assert [future.get(30).offset for future in sent] == list(range(COUNT))
    producer.close()


def read_kafka_python(bootstrap: str, topic: str) -> list[Row]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=15_000, group_id=None
    )
    consumer.assign([TopicPartition(topic, 0)])
    found: list[Row] = []
    for m in consumer:
        found.append((m.offset, m.key, m.value, list(m.headers), m.timestamp))
        if len(found) == COUNT:
            break
    consumer.close()
    return found


WRITERS = {"confluent": write_confluent, "aiokafka": write_aiokafka, "kafka-python": write_kafka_python}
READERS = {"confluent": read_confluent, "aiokafka": read_aiokafka, "kafka-python": read_kafka_python}
MODULES = {"confluent": "confluent_kafka", "aiokafka": "aiokafka", "kafka-python": "kafka"}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
def test_one_client_reads_what_another_wrote(gateway: str, topic: Any, writer: str, reader: str) -> None:
    for name in (writer, reader):
        pytest.importorskip(MODULES[name])
    name = topic()
    WRITERS[writer](gateway, name)
    assert READERS[reader](gateway, name) == [row(number) for number in range(COUNT)]


def test_the_end_of_a_partition_is_told_at_its_end(gateway: str, topic: Any) -> None:
    """Tools that read to the end stop at the first one that they are told."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    name = topic()
    for _ in range(3):
        write_confluent(gateway, name)
    consumer = Consumer({"bootstrap.servers": gateway, "enable.partition.eof": True, **ALONE})
    consumer.assign([TopicPartition(name, 0, 0)])
    seen = 0
    while (message := consumer.poll(15)) is not None:
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        seen += 1
    assert seen == 3 * COUNT
    consumer.close()


def test_settings_are_added_to_taken_from_and_replaced(gateway: str, topic: Callable[..., str]) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
    )

    admin, name = AdminClient({"bootstrap.servers": gateway, "log_level": 0}), topic()

    def told() -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        found = admin.describe_configs([resource])[resource].result(30)
        is_set = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: entry.value for key, entry in found.items() if entry.source == is_set}

    def change(how: AlterConfigOpType, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=how)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    change(AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert set(told()["cleanup.policy"].split(",")) == {"delete", "compact"}
    change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    assert told() == {"cleanup.policy": "compact"}
    # AlterConfigs, as kafkajs and sarama ask for it: what is not named is taken back.
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, set_config={"segment.ms": "600000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(30)
    assert told() == {"segment.ms": "600000"}
