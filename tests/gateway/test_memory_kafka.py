"""Foreign clients on the in-memory twin: the gateway's protocol code without a broker behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from penstock.gateway.dispatch import HANDLERS, advertised
from penstock.testing import MemoryKafka
from penstock.wire.kafka import APIS

# librdkafka wants a group even to read alone, and when it is closed waits a session for its coordinator.
ALONE = {
    "group.id": "alone",
    "enable.auto.commit": False,
    "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 300,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def memory() -> Iterator[MemoryKafka]:
    with MemoryKafka() as server:
        yield server


@pytest.fixture(scope="module")
def admin(memory: MemoryKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": memory.bootstrap, "log_level": 0})


def make(admin: AdminClient, name: str, partitions: int = 1) -> str:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    return name


def read_all(memory: MemoryKafka, topic: str, count: int) -> list[object]:
    consumer = Consumer({"bootstrap.servers": memory.bootstrap, **ALONE})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[object] = []
    while len(found) < count:
        got = consumer.consume(count - len(found), 10)
        assert got, f"only {len(found)} of {count} came"
        assert not any(message.error() for message in got)
        found += got
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_bit_for_bit(memory: MemoryKafka, admin: AdminClient, compression: str) -> None:
    topic = make(admin, f"round-trip-{compression}")
    options = {"bootstrap.servers": memory.bootstrap, "compression.type": compression, "log_level": 0}
    producer = Producer({**options, "enable.idempotence": True, "linger.ms": 5})
    headers = [("h", b"\xff\x00"), ("h", None), ("e", b"")]
    for number in range(500):
        key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"\xffkey"
        value = None if number % 5 == 0 else b"v" * number
        producer.produce(topic, value, key, headers=headers, timestamp=number + 1)
    assert producer.flush(10) == 0
    found = read_all(memory, topic, 500)
    assert [message.offset() for message in found] == list(range(500))
    for number, message in enumerate(found):
        assert message.key() == (None if number % 3 == 0 else b"" if number % 3 == 1 else b"\xffkey")
        assert message.value() == (None if number % 5 == 0 else b"v" * number)
        assert message.headers() == headers
        assert message.timestamp()[1] == number + 1


def test_aiokafka_reads_what_it_wrote(memory: MemoryKafka) -> None:
    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=memory.bootstrap, enable_idempotence=True) as producer:
            for number in range(100):
                await producer.send_and_wait("aio", b"%d" % number)
        async with AIOKafkaConsumer(bootstrap_servers=memory.bootstrap) as consumer:
            consumer.assign([AioPartition("aio", 0)])
            await consumer.seek_to_beginning()
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(100)]

    assert asyncio.run(run()) == [b"%d" % number for number in range(100)]


def test_a_fetch_waits_for_records_that_come_later(memory: MemoryKafka, admin: AdminClient) -> None:
    topic = make(admin, "later")
    consumer = Consumer({"bootstrap.servers": memory.bootstrap, "fetch.wait.max.ms": 10_000, **ALONE})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    producer = Producer({"bootstrap.servers": memory.bootstrap, "log_level": 0})
    producer.produce(topic, b"late")
    assert producer.flush(10) == 0
    message = consumer.poll(5)
    assert message is not None
    assert message.value() == b"late"


def test_topics_are_made_grown_described_and_removed(memory: MemoryKafka, admin: AdminClient) -> None:
    topic = make(admin, "managed", 2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    with pytest.raises(KafkaException) as shrunk:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    assert shrunk.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    configs = next(iter(admin.describe_configs([ConfigResource("topic", topic)]).values())).result(10)
    assert configs["cleanup.policy"].value == "delete"
    assert [node.port for node in admin.describe_cluster().result(10).nodes] == [memory.storage.address.port]
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [("managed/not", KafkaError.TOPIC_EXCEPTION), ("twice", KafkaError.TOPIC_ALREADY_EXISTS)],
)
def test_a_topic_that_cannot_be_is_refused(
    memory: MemoryKafka, admin: AdminClient, topic: str, code: int
) -> None:
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        make(admin, topic)
    with pytest.raises(KafkaException) as refused:
        make(admin, topic)
    assert refused.value.args[0].code() == code


def test_offsets_are_found_by_place_and_time(memory: MemoryKafka, admin: AdminClient) -> None:
    topic = make(admin, "offsets")
    producer = Producer({"bootstrap.servers": memory.bootstrap, "batch.num.messages": 1, "log_level": 0})
    for timestamp in (100, 300, 200):
        producer.produce(topic, b"v", timestamp=timestamp)
        assert producer.flush(10) == 0
    where = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(next(iter(admin.list_offsets({where: spec}).values())).result(10).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(150)) == 1
    assert offset(OffsetSpec.for_timestamp(301)) == -1


def test_every_handler_serves_what_kafka_serves_from_its_lowest_version() -> None:
    for key, handler in HANDLERS.items():
        assert handler.lowest == APIS[key].lowest
        assert handler.highest <= APIS[key].highest
    produce = next(row for row in advertised() if row[0] == 0)
    assert produce[1] == 0
