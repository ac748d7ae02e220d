"""Produce and Fetch: what goes in comes out, in order, as often and as much as the protocol says."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = [
    {"key": None, "value": None, "timestamp": 0},
    {"key": b"", "value": b"", "timestamp": 1},
    {"key": b"k", "value": b"v", "headers": [("a", b"b")]},
    {"key": b"\xff\x00", "value": bytes(range(256)), "headers": [("h", b"\xff"), ("h", None), ("h", b"")]},
    {"key": "é".encode(), "value": b"x" * 10_000, "headers": [("kafka~x", b"1"), ("", b"2")]},
]
PLAIN = 1_700_000_000_000


def shape(record: Any) -> tuple[Any, ...]:
    return record.key, record.value, list(record.headers), record.timestamp


@pytest.mark.parametrize("codec", CODECS)
def test_records_return_bit_for_bit(wire: Any, batch: Any, records: Any, codec: str) -> None:
    topic = wire.create()
    assert wire.produce(topic, batch(RECORDS, compression=CODECS[codec])).base_offset == 0
    found = records(wire.fetch(topic, 0))
    assert [record.offset for record in found] == list(range(len(RECORDS)))
    want = [{"timestamp": PLAIN, "headers": []} | row for row in RECORDS]
    assert [shape(record) for record in found] == [
        (row["key"], row["value"], row["headers"], row["timestamp"]) for row in want
    ]


def test_a_record_without_a_time(cluster: Any, wire: Any, batch: Any, records: Any) -> None:
    topic = wire.create()
    before = int(time.time() * 1000)
    wire.produce(topic, batch([{"timestamp": -1}]))
    [record] = records(wire.fetch(topic, 0))
    assert (record.timestamp >= before - 1000) == cluster.expects("timestamp-minus-one")


def test_a_compressed_batch_comes_as_it_is_kept(cluster: Any, wire: Any, batch: Any) -> None:
    topic = wire.create()
    wire.produce(topic, batch([{"value": b"x" * 1000}], compression=CODECS["gzip"]))
    fetched = bytes(wire.fetch(topic, 0).records)
    assert bool(fetched[22] & 7) == cluster.expects("compression-kept")


@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_is_answered_with_its_offset(wire: Any, batch: Any, acks: int) -> None:
    topic = wire.create()
    offsets = [wire.produce(topic, batch([{}] * 3), acks=acks).base_offset for _ in range(3)]
    assert offsets == [0, 3, 6]


def test_acks_0_has_no_answer_and_is_stored_although_the_client_leaves(
    cluster: Any, wire: Any, batch: Any, records: Any, fields: Any
) -> None:
    topic = wire.create()
    other = cluster.connect()
    for number in range(5):
        other.send(0, 9, **fields["produce"](topic, batch([{"value": b"%d" % number}]), acks=0))
    other.close()
    got: list[bytes] = []
    while len(got) < 5:
        fetched = records(wire.fetch(topic, len(got)))
        assert fetched, got
        got += [record.value for record in fetched]
    assert got == [b"0", b"1", b"2", b"3", b"4"]


def test_acks_that_do_not_exist_are_refused(wire: Any, batch: Any) -> None:
    assert wire.produce(wire.create(), batch([{}]), acks=2).error_code == 21


def test_pipelined_appends_keep_their_order_from_the_first_on(
    wire: Any, batch: Any, records: Any, fields: Any
) -> None:
    topic = wire.create()
    asked = [wire.send(0, 9, **fields["produce"](topic, batch([{"value": b"%d" % n}]))) for n in range(50)]
    answers = [wire.answer() for _ in asked]
    assert [correlation for correlation, _ in answers] == asked
    rows = [answer.responses[0].partition_responses[0] for _, answer in answers]
    assert [row.base_offset for row in rows] == list(range(50))
    values: list[bytes] = []
    while len(values) < 50:
        values += [record.value for record in records(wire.fetch(topic, len(values)))]
    assert values == [b"%d" % number for number in range(50)]


def test_a_request_sees_what_the_one_before_it_did(wire: Any, batch: Any, fields: Any) -> None:
    topic = wire.create()
    wire.send(0, 9, **fields["produce"](topic, batch([{}] * 7)))
    row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    wire.send(2, 7, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [row]}])
    wire.answer()
    assert wire.answer()[1].topics[0].partitions[0].offset == 7


# Idempotence


def test_a_repeated_batch_is_answered_with_its_offset(wire: Any, batch: Any, records: Any) -> None:
    topic, (pid, epoch) = wire.create(), wire.producer_id()
    first = batch([{"value": b"a"}] * 3, producer_id=pid, epoch=epoch, sequence=0)
    second = batch([{"value": b"b"}] * 2, producer_id=pid, epoch=epoch, sequence=3)
    assert wire.produce(topic, first).base_offset == 0
    assert wire.produce(topic, second).base_offset == 3
    for again, offset in ((first, 0), (second, 3), (first, 0)):
        answer = wire.produce(topic, again)
        assert (answer.error_code, answer.base_offset) == (0, offset)
    assert wire.find(topic, -1)[1] == 5


def test_a_repeated_batch_in_the_same_breath_is_stored_once(wire: Any, batch: Any, fields: Any) -> None:
    topic, (pid, epoch) = wire.create(), wire.producer_id()
    data = batch([{}], producer_id=pid, epoch=epoch, sequence=0)
    for _ in range(3):
        wire.send(0, 9, **fields["produce"](topic, data))
    rows = [wire.answer()[1].responses[0].partition_responses[0] for _ in range(3)]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0)] * 3
    assert wire.find(topic, -1)[1] == 1


def test_a_gap_in_the_sequence_is_refused(wire: Any, batch: Any) -> None:
    topic, (pid, epoch) = wire.create(), wire.producer_id()
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=0)).error_code == 0
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=2)).error_code == 45
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=1)).base_offset == 1


def test_an_old_repetition(cluster: Any, wire: Any, batch: Any) -> None:
    topic, (pid, epoch) = wire.create(), wire.producer_id()
    for sequence in range(8):
        wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=sequence))
    answer = wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=0))
    assert answer.error_code == cluster.expects("old-duplicate")
    assert wire.find(topic, -1)[1] == 8


def test_an_older_epoch_is_refused_and_a_newer_begins_at_0(wire: Any, batch: Any) -> None:
    topic, (pid, epoch) = wire.create(), wire.producer_id()
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch + 1, sequence=0)).error_code == 0
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch, sequence=0)).error_code == 47
    assert wire.produce(topic, batch([{}], producer_id=pid, epoch=epoch + 2, sequence=0)).base_offset == 1


# What cannot be taken


def test_a_wrong_checksum_is_refused(wire: Any, batch: Any) -> None:
    broken = bytearray(batch([{"value": b"value"}]))
    broken[-1] ^= 0xFF
    assert wire.produce(wire.create(), bytes(broken)).error_code == 2


def test_a_batch_over_the_limit_of_the_topic_is_refused(wire: Any, batch: Any) -> None:
    topic = wire.create(max_message_bytes="100000")
    assert wire.produce(topic, batch([{"value": b"x" * 98_000}])).error_code == 0
    assert wire.produce(topic, batch([{"value": b"x" * 102_000}])).error_code == 10
    assert wire.produce(topic, batch([{}])).base_offset == 1


def test_a_bomb_is_refused_and_the_connection_lives(wire: Any, batch: Any) -> None:
    topic = wire.create(max_message_bytes="1000000")
    bomb = batch([{"value": bytes(30_000_000)}], compression=CODECS["gzip"])
    answer = wire.produce(topic, bomb)
    assert answer.error_code in (0, 10)
    assert wire.produce(topic, batch([{}])).error_code == 0


@pytest.mark.parametrize(("topic", "partition"), [("nobody-made-this", 0), (None, 7)])
def test_a_partition_that_is_not_there(wire: Any, batch: Any, topic: str | None, partition: int) -> None:
    topic = topic or wire.create()
    assert wire.produce(topic, batch([{}]), partition=partition).error_code == 3
    assert wire.fetch(topic, 0, partition=partition).error_code == 3
    assert wire.find(topic, -1, partition)[0] == 3


# Fetch


def test_a_fetch_from_the_middle_of_a_batch(wire: Any, batch: Any, records: Any) -> None:
    topic = wire.create()
    for start in (0, 5, 10):
        wire.produce(topic, batch([{"value": b"%d" % (start + n)} for n in range(5)]))
    found = records(wire.fetch(topic, 7))
    # A batch is given whole; a client leaves out what it did not ask for.
    assert [record.offset for record in found if record.offset >= 7] == list(range(7, 15))
    assert all(record.value == b"%d" % record.offset for record in found)


@pytest.mark.parametrize("offset", [-5, 6, 1_000_000])
def test_an_offset_outside_of_the_log(wire: Any, batch: Any, offset: int) -> None:
    topic = wire.create()
    wire.produce(topic, batch([{}] * 5))
    assert wire.fetch(topic, offset).error_code == 1


def test_a_time_behind_all_records_is_found_nowhere_and_at_once(wire: Any, batch: Any) -> None:
    topic = wire.create()
    wire.produce(topic, batch([{}]))
    began = time.monotonic()
    assert wire.find(topic, int(time.time() * 1000) + 3_600_000) == (0, -1, -1)
    assert time.monotonic() - began < 20


def test_a_fetch_waits_no_longer_than_it_was_told(wire: Any, batch: Any) -> None:
    topic = wire.create()
    wire.produce(topic, batch([{}]))
    assert not wire.fetch(topic, 1, max_wait=1).records
    began = time.monotonic()
    answer = wire.fetch(topic, 1, max_wait=700)
    assert 0.6 < time.monotonic() - began < 20
    assert (answer.error_code, answer.high_watermark, answer.records or b"") == (0, 1, b"")


def test_a_fetch_ends_when_a_record_comes(
    cluster: Any, wire: Any, batch: Any, records: Any, fields: Any
) -> None:
    topic = wire.create()
    assert wire.fetch(topic, 0, max_wait=1).error_code == 0
    wire.send(1, 12, **fields["fetch"](topic, 0, max_wait=25_000))
    other = cluster.connect()
    other.produce(topic, batch([{"value": b"late"}]))
    began = time.monotonic()
    answer = wire.answer()[1].responses[0].partitions[0]
    assert time.monotonic() - began < 20
    assert [record.value for record in records(answer)] == [b"late"]
    other.close()


def test_a_fetch_waits_for_enough_bytes(
    cluster: Any, wire: Any, batch: Any, records: Any, fields: Any
) -> None:
    topic = wire.create()
    wire.produce(topic, batch([{"value": b"x" * 500}]))
    wire.send(1, 12, **fields["fetch"](topic, 0, max_wait=20_000, min_bytes=1_500))
    other = cluster.connect()
    for _ in range(3):
        other.produce(topic, batch([{"value": b"x" * 500}]))
    other.close()
    found = records(wire.answer()[1].responses[0].partitions[0])
    assert len(found) >= 3
    assert [record.offset for record in found] == list(range(len(found)))


def test_a_fetch_gives_about_what_was_asked_and_always_one_batch(wire: Any, batch: Any, records: Any) -> None:
    topic = wire.create()
    for _ in range(10):
        wire.produce(topic, batch([{"value": b"x" * 10_000}]))
    few = records(wire.fetch(topic, 0, partition_max_bytes=25_000))
    assert 1 <= len(few) <= 3
    assert len(records(wire.fetch(topic, 0, max_bytes=1, partition_max_bytes=1))) == 1
    again = records(wire.fetch(topic, 0, partition_max_bytes=25_000))
    assert [record.offset for record in again] == [record.offset for record in few]


def test_many_partitions_in_one_request(wire: Any, batch: Any, records: Any, fields: Any) -> None:
    topic, count = wire.create(24), 24
    data = [{"index": n, "records": batch([{"value": b"%d" % n}])} for n in range(count)]
    asked = fields["produce"](topic, b"") | {"topic_data": [{"name": topic, "partition_data": data}]}
    answers = wire.ask(0, 9, **asked).responses[0].partition_responses
    assert {(row.index, row.error_code, row.base_offset) for row in answers} == {
        (n, 0, 0) for n in range(count)
    }
    row = fields["fetch"](topic, 0)["topics"][0]["partitions"][0]
    rows = [row | {"partition": n} for n in range(count)]
    full = fields["fetch"](topic, 0) | {"topics": [{"topic": topic, "partitions": rows}]}
    got: dict[int, bytes] = {}
    for _ in range(20):
        for part in wire.ask(1, 12, **full).responses[0].partitions:
            for record in records(part):
                got[part.partition_index] = record.value
        if len(got) == count:
            break
    assert got == {n: b"%d" % n for n in range(count)}
    bounded = wire.ask(1, 12, **(full | {"max_bytes": 1})).responses[0].partitions
    assert sum(1 for part in bounded if part.records) == 1


def test_topics_by_their_ids(wire: Any, batch: Any, records: Any, fields: Any) -> None:
    topic = wire.create()
    about = wire.ask(
        3, 12, topics=[{"topic_id": UUID(int=0), "name": topic}], allow_auto_topic_creation=False
    )
    topic_id = about.topics[0].topic_id
    assert topic_id != UUID(int=0)
    asked = fields["produce"](topic, batch([{"value": b"by id"}]))
    asked["topic_data"][0]["topic_id"] = topic_id
    assert wire.ask(0, 13, **asked).responses[0].partition_responses[0].base_offset == 0
    wanted = fields["fetch"](topic, 0)
    wanted["topics"][0]["topic_id"] = topic_id
    answer = wire.ask(1, 13, **wanted).responses[0]
    assert answer.topic_id == topic_id
    assert [record.value for record in records(answer.partitions[0])] == [b"by id"]


def test_a_topic_id_that_nobody_has(wire: Any, batch: Any, fields: Any) -> None:
    nobody = UUID(int=12345)
    asked = fields["produce"]("", batch([{}]))
    asked["topic_data"][0]["topic_id"] = nobody
    assert wire.ask(0, 13, **asked).responses[0].partition_responses[0].error_code == 100
    wanted = fields["fetch"]("", 0)
    wanted["topics"][0]["topic_id"] = nobody
    assert wire.ask(1, 13, **wanted).responses[0].partitions[0].error_code == 100


def test_a_fetch_session_that_nobody_opened(wire: Any, fields: Any) -> None:
    asked = fields["fetch"](wire.create(), 0) | {"session_id": 77, "session_epoch": 3}
    assert wire.ask(1, 12, **asked).error_code == 70
