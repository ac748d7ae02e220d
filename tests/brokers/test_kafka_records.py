"""Records of a topic on the real Kafka: read once as they are there now, and written with an answer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.kafka_records import follow, publish, scan, scan_messages
from penstock.brokers.start import Start, StartKind
from penstock.errors import ClusterError, ConfigError
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka

pytestmark = pytest.mark.server

BEGIN = Start(StartKind.BEGINNING)
NOW = time.time_ns() // 1_000_000
"""Retention deletes what is older."""

NASTY = (
    KafkaRecord(value=b"v", key=b"k", headers=(("a", b"1"), ("a", None), ("b", b"\xff\x00")), timestamp=NOW),
    KafkaRecord(value=None, key=b"", headers=()),
    KafkaRecord(value=b"", key=None, headers=(("", b""),)),
)


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"records-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(kafka.client_options())
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def content(record: KafkaRecord) -> tuple[object, ...]:
    return record.value, record.key, record.headers


def test_what_is_written_is_read(kafka: Kafka, topic: str) -> None:
    records = [_at(record, topic, number) for number, record in enumerate(NASTY)]
    sizes: list[int] = []
    assert publish(kafka.client_options(), records) == 3
    found = sorted(scan(kafka.client_options(), topic, on_size=sizes.append), key=lambda r: r.partition or 0)
    assert [content(record) for record in found] == [content(record) for record in NASTY]
    assert [(record.topic, record.partition, record.offset) for record in found] == [
        (topic, number, 0) for number in range(3)
    ]
    assert found[0].timestamp == NOW
    assert sizes == [3]


def test_a_scan_ends_at_what_was_there_at_its_start(kafka: Kafka, topic: str) -> None:
    options = kafka.client_options()
    publish(options, [_at(KafkaRecord(value=b"%d" % n), topic, 0) for n in range(5)])
    reading = scan(options, topic)
    first = next(reading)
    publish(options, [_at(KafkaRecord(value=b"late"), topic, 0)])
    assert [first.value, *(record.value for record in reading)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_scan_of_messages_gives_what_is_taken_of_them(kafka: Kafka, topic: str) -> None:
    publish(kafka.client_options(), [_at(KafkaRecord(value=b"%d" % n), topic, 0) for n in range(5)])
    found = scan_messages(kafka.client_options(), topic, lambda message: (message.offset(), message.value()))
    assert list(found) == [(n, b"%d" % n) for n in range(5)]


def test_an_empty_topic_has_no_records(kafka: Kafka, topic: str) -> None:
    assert list(scan(kafka.client_options(), topic)) == []


def test_aborted_records_and_markers_do_not_hold_a_scan_up(kafka: Kafka, topic: str) -> None:
    from confluent_kafka import Producer

    publish(kafka.client_options(), [_at(KafkaRecord(value=b"kept"), topic, 0)])
    producer = Producer({**kafka.client_options(), "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    assert [record.value for record in scan(kafka.client_options(), topic)] == [b"kept"]


def test_a_topic_that_is_not_there(kafka: Kafka) -> None:
    with pytest.raises(ClusterError, match="cannot read topic"):
        list(scan(kafka.client_options(), "no-such-topic"))


def test_a_record_that_is_refused_is_an_error(kafka: Kafka, topic: str) -> None:
    large = KafkaRecord(value=bytes(2_000_000), topic=topic)
    with pytest.raises(ClusterError, match=r"refused \(0 written\)"):
        publish({**kafka.client_options(), "message.max.bytes": "5000000"}, [large])


def test_wrong_options_are_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError):
        list(scan({"no.such.option": "1"}, "topic"))


def _at(record: KafkaRecord, topic: str, partition: int) -> KafkaRecord:
    from dataclasses import replace

    return replace(record, topic=topic, partition=partition)


def test_how_large_a_record_may_be_is_for_its_topic_to_say(kafka: Kafka, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    record = KafkaRecord(topic=topic, value=b"x" * 1_500_000)
    with pytest.raises(ClusterError, match=r"refused \(0 written\)") as refused:
        publish(kafka.client_options(), [record])
    assert "MSG_SIZE_TOO_LARGE" in str(refused.value.why)
    assert "max.message.bytes" in str(refused.value.next)
    larger = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[larger])
    admin = AdminClient(kafka.client_options())
    admin.incremental_alter_configs([resource])[resource].result(30)
    assert publish(kafka.client_options(), [record]) == 1


@pytest.mark.slow
def test_who_follows_a_topic_goes_on_after_a_restart_and_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from penstock.embedded.kafka import Kafka

    with Kafka() as kafka, caplog.at_level(logging.INFO, "penstock.brokers.kafka_records"):
        options = kafka.client_options()
        KafkaAdmin(options).create_topic("followed", partitions=1, replicas=1, settings={})
        found: list[bytes | None] = []
        follower = Thread(
            target=lambda: found.extend(each.value for each in islice(follow(options, "followed", BEGIN), 2)),
            daemon=True,
        )
        publish(options, [KafkaRecord(value=b"before", topic="followed")])
        follower.start()
        await_line(lambda: found == [b"before"])
        kafka.stop()
        await_line(lambda: "lost" in caplog.text)
        kafka.start()
        await_line(lambda: "back after" in caplog.text)
        publish(options, [KafkaRecord(value=b"after", topic="followed")])
        follower.join(60)
        assert found == [b"before", b"after"]


def await_line(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)
