"""The raw client on a real Kafka, with Confluent's client as the other side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.topic_offsets import at_time, earliest, latest
from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.embedded.kafka import Kafka
from penstock.errors import KafkaRefused, MessageTooLarge, OffsetOutOfRange, ProducerFenced
from penstock.wire.kafka.batch_body import BatchBody

pytestmark = pytest.mark.server

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
Topic = Callable[..., str]
Body = Callable[..., BatchBody]
Keep = Callable[[Any], Any]
Values = dict[int, list[bytes]]
ReadAll = Callable[..., Values]


@pytest.fixture
def cluster(kafka: Kafka, open_cluster: Callable[..., Cluster]) -> Cluster:
    return open_cluster(kafka)


def foreign_write(kafka: Kafka, topic: str, values: Values, **options: Any) -> None:
    producer = confluent_kafka.Producer(kafka.client_options() | {"linger.ms": 50} | options)
    for partition, each in values.items():
        for value in each:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def foreign_read(kafka: Kafka, topic: str, count: int) -> Values:
    """Read a topic as a consumer of committed records."""
    consumer = confluent_kafka.Consumer(
        kafka.client_options() | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: Values = {}
    try:
        while sum(map(len, found.values())) < count:
            message = consumer.poll(60)
            assert message is not None and message.error() is None, f"{found} after a minute"
            found.setdefault(message.partition(), []).append(message.value())
    finally:
        consumer.close()
    return found


# The cluster


def test_a_topic_and_its_ends(kafka: Kafka, cluster: Cluster, new_topic: Topic) -> None:
    topic = new_topic(kafka, 3, {"max.message.bytes": "77777"})
    assert (cluster.partitions(topic), cluster.max_message_bytes(topic)) == (3, 77777)
    assert cluster.transactional
    admin = AdminClient(kafka.client_options())
    assert cluster.cluster_id == admin.describe_cluster().result(60).cluster_id
    foreign_write(kafka, topic, {1: [b"a", b"b"]})
    assert earliest(cluster, topic) == {0: 0, 1: 0, 2: 0}
    assert latest(cluster, topic) == {0: 0, 1: 2, 2: 0}
    now = time.time_ns() // 1_000_000
    assert at_time(cluster, topic, now - 3_600_000) == {0: 0, 1: 0, 2: 0}
    assert at_time(cluster, topic, now + 3_600_000) == {0: 0, 1: 2, 2: 0}


def test_a_topic_that_is_not_there(kafka: Kafka, open_cluster: Callable[..., Cluster]) -> None:
    with pytest.raises(KafkaRefused, match="UNKNOWN_TOPIC"):
        open_cluster(kafka, topic_timeout=0.5).partitions("raw-no-such-topic")


def test_offsets_of_a_group_are_kept_with_a_text(kafka: Kafka, cluster: Cluster, new_topic: Topic) -> None:
    topic = new_topic(kafka, 3)
    group = GroupOffsets(cluster, f"group-{topic}")
    assert group.committed(topic) == {}
    group.commit({(topic, 0): GroupOffset(5, "text"), (topic, 2): GroupOffset(7)})
    assert group.committed(topic) == {0: GroupOffset(5, "text"), 2: GroupOffset(7)}
    admin = AdminClient(kafka.client_options())
    seen = admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(f"group-{topic}")])
    parts = seen[f"group-{topic}"].result(60).topic_partitions
    assert {part.partition: part.offset for part in parts} == {0: 5, 2: 7}


# Fetching


def test_records_of_every_compression_are_read_in_order(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, read_all: ReadAll
) -> None:
    topic = new_topic(kafka, 3)
    values: Values = {part: [] for part in range(3)}
    for compression in COMPRESSIONS:
        more = {part: [b"%s-%d-%d" % (compression.encode(), part, n) for n in range(500)] for part in values}
        foreign_write(kafka, topic, more, **{"compression.type": compression})
        values = {part: values[part] + more[part] for part in values}
    assert read_all(cluster, topic, partition_max_bytes=4096, max_bytes=10_000) == values


def test_reading_begins_and_ends_within_batches(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, keep: Keep, values_of: Callable[[Fetched], list[bytes]]
) -> None:
    topic = new_topic(kafka)
    foreign_write(kafka, topic, {0: [b"%d" % n for n in range(100)]})
    fetcher = keep(Fetcher(cluster, [Wanted(topic, 0, 40, 60)]))
    found: list[bytes] = []
    for _ in range(60):
        for fetched in fetcher.poll(1.0):
            found += values_of(fetched)
        if not fetcher.waiting:
            break
    assert found[:20] == [b"%d" % n for n in range(40, 60)]
    assert fetcher.poll(0.0) == []


def test_a_record_larger_than_what_is_asked_for_is_read(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, read_all: ReadAll
) -> None:
    topic = new_topic(kafka, config={"max.message.bytes": "5000000"})
    large = bytes(range(256)) * 12_000
    foreign_write(kafka, topic, {0: [b"before", large, b"after"]}, **{"message.max.bytes": 5_000_000})
    assert read_all(cluster, topic, partition_max_bytes=1000) == {0: [b"before", large, b"after"]}


def test_deleted_records_are_told_and_stepped_over(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, keep: Keep, values_of: Callable[[Fetched], list[bytes]]
) -> None:
    topic = new_topic(kafka)
    foreign_write(kafka, topic, {0: [b"%d" % n for n in range(100)]})
    gone = confluent_kafka.TopicPartition(topic, 0, 70)
    admin = AdminClient(kafka.client_options())
    admin.delete_records([gone])[gone].result(60)
    fetcher = keep(Fetcher(cluster, [Wanted(topic, 0, 0, 100)]))
    with pytest.raises(OffsetOutOfRange) as caught:
        fetcher.poll(60)
    assert (caught.value.log_start, caught.value.log_end) == (70, 100)
    fetcher.seek(topic, 0, caught.value.log_start)
    found = [value for fetched in fetcher.poll(60) for value in values_of(fetched)]
    assert found == [b"%d" % n for n in range(70, 100)]


def test_an_idle_partition_tells_where_it_ends(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, keep: Keep
) -> None:
    topic = new_topic(kafka, 2)
    foreign_write(kafka, topic, {0: [b"a", b"b"]})
    fetcher = keep(Fetcher(cluster, [Wanted(topic, 0, 2)], max_wait=0.05))
    (idle,) = fetcher.poll(60)
    assert (len(idle.data), idle.high_watermark, idle.last_stable_offset) == (0, 2, 2)
    fetcher.seek(topic, 1, 0)
    assert {fetched.partition for _ in range(5) for fetched in fetcher.poll(60)} == {0, 1}


# Producing


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_are_written_in_order(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, body_of: Body, keep: Keep, compression: str
) -> None:
    topic = new_topic(kafka, 2)
    producer = keep(Producer(cluster, compression=compression, buffer_bytes=20_000))
    values: Values = {0: [], 1: []}
    for number in range(30):
        batch = [b"%d-%d" % (number, n) * 20 for n in range(20)]
        values[number % 2] += batch
        producer.send(topic, number % 2, body_of(*batch))
    producer.flush()
    assert foreign_read(kafka, topic, 600) == values


def test_a_batch_that_the_topic_does_not_take(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, body_of: Body, keep: Keep
) -> None:
    topic = new_topic(kafka, config={"max.message.bytes": "2000"})
    producer = keep(Producer(cluster))
    with pytest.raises(MessageTooLarge) as caught:
        producer.send(topic, 0, body_of(bytes(3000)))
        producer.flush()
    assert caught.value.where == f"{topic}-0"


# Transactions


def test_output_and_offsets_come_together_or_not_at_all(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, body_of: Body, keep: Keep, read_all: ReadAll
) -> None:
    topic, group = new_topic(kafka, 2), f"g-{new_topic(kafka)}"
    marks = GroupOffsets(cluster, group)
    producer = keep(TransactionalProducer(cluster, f"id-{topic}"))
    producer.begin()
    producer.send(topic, 0, body_of(b"a"))
    producer.send(topic, 1, body_of(b"b"))
    producer.commit(group=group, offsets={(topic, 0): GroupOffset(1, "first")})
    assert marks.committed(topic) == {0: GroupOffset(1, "first")}
    producer.begin()
    producer.send(topic, 0, body_of(b"never", b"seen"))
    producer.flush()
    producer.abort()
    producer.begin()
    producer.send(topic, 0, body_of(b"c"))
    producer.commit(group=group, offsets={(topic, 0): GroupOffset(2)})
    assert marks.committed(topic) == {0: GroupOffset(2)}
    assert read_all(cluster, topic) == {0: [b"a", b"c"], 1: [b"b"]}
    assert read_all(cluster, topic, read_committed=False)[0] == [b"a", b"never", b"seen", b"c"]
    assert foreign_read(kafka, topic, 3) == {0: [b"a", b"c"], 1: [b"b"]}


def test_what_is_committed_so_far_is_told_beside_an_open_transaction(
    kafka: Kafka, cluster: Cluster, new_topic: Topic
) -> None:
    import confluent_kafka

    topic, group = new_topic(kafka), f"g-{new_topic(kafka)}"
    marks = GroupOffsets(cluster, group)
    marks.commit({(topic, 0): GroupOffset(1, "so far")})
    where = {"bootstrap.servers": kafka.bootstrap}
    consumer = confluent_kafka.Consumer({**where, "group.id": group})
    left = confluent_kafka.Producer({**where, "transactional.id": f"id-{topic}"})
    left.init_transactions(30)
    left.begin_transaction()
    offsets = [confluent_kafka.TopicPartition(topic, 0, 9)]
    left.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    assert marks.committed(topic, stable=False) == {0: GroupOffset(1, "so far")}
    left.abort_transaction(30)
    assert marks.committed(topic) == {0: GroupOffset(1, "so far")}
    consumer.close()


def test_a_new_producer_fences_the_old_one_and_ends_what_it_left(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, body_of: Body, keep: Keep, read_all: ReadAll
) -> None:
    topic, group = new_topic(kafka), f"g-{new_topic(kafka)}"
    old = keep(TransactionalProducer(cluster, f"id-{topic}"))
    old.begin()
    old.send(topic, 0, body_of(b"orphan"))
    old.flush()
    new = keep(TransactionalProducer(cluster, f"id-{topic}"))
    with pytest.raises(ProducerFenced):
        old.send(topic, 0, body_of(b"orphan"))
        old.commit(group=group, offsets={(topic, 0): GroupOffset(9)})
    old.abort()
    with pytest.raises(ProducerFenced):
        old.begin()
    assert GroupOffsets(cluster, group).committed(topic) == {}
    new.begin()
    new.send(topic, 0, body_of(b"new"))
    new.commit()
    assert read_all(cluster, topic) == {0: [b"new"]}


def test_aborted_records_of_a_foreign_producer_are_not_seen(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, read_all: ReadAll
) -> None:
    topic = new_topic(kafka)
    producer = confluent_kafka.Producer(kafka.client_options() | {"transactional.id": f"id-{topic}"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        end = producer.abort_transaction if number % 2 else producer.commit_transaction
        end(60)
    assert read_all(cluster, topic) == {0: [b"0", b"2", b"4"]}


def test_an_open_transaction_ends_what_is_stable(
    kafka: Kafka, cluster: Cluster, new_topic: Topic, body_of: Body, keep: Keep, read_all: ReadAll
) -> None:
    topic = new_topic(kafka)
    producer = keep(TransactionalProducer(cluster, f"id-{topic}"))
    producer.begin()
    producer.send(topic, 0, body_of(b"a"))
    producer.flush()
    assert latest(cluster, topic) == {0: 1}
    assert latest(cluster, topic, read_committed=True) == {0: 0}
    producer.commit()
    assert read_all(cluster, topic) == {0: [b"a"]}
