"""Topics that hold Pulsar transactions, written by commands of the wire: every client gets to their end.

A transaction and its markers take numbers of the log that hold no record, an open one hides what is behind,
and Pulsar gives a batch of n records that is sent in a transaction one number instead of n.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pulsar_transactions import ABORT, COMMIT, UNKNOWN_MARKER, Transactions

from penstock.embedded.pulsar import Pulsar
from penstock.wire.kafka import read_batches

pytestmark = pytest.mark.server

OUT_OF_RANGE = 1


# The tests


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with Pulsar(durable=False, transactions=True) as started:
        yield started


@pytest.fixture(scope="module")
def writer(server: Pulsar) -> Iterator[Transactions]:
    connection = Transactions(server.service_url)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def gateway_of(server: Pulsar, start_gateway: Any) -> Iterator[Any]:
    thread = start_gateway(server.service_url, server.admin_url)
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def wire(gateway_of: Any, connect: Any) -> Iterator[Any]:
    connection = connect(gateway_of.bootstrap)
    yield connection
    connection.close()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}-partition-0"


def numbered(name: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), number) for number in range(count)]


def consume(bootstrap: str, topic: str, offset: int) -> tuple[list[tuple[int, bytes | None]], int]:
    """Read with librdkafka up to the end of the partition; give the records, and the position at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "alone",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[tuple[int, bytes | None]] = []
    try:
        while len(found) < 1000:
            record = consumer.poll(30)
            assert record is not None, f"the end was not told after {found}"
            if record.error():
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                return found, record.offset()
            found.append((record.offset(), record.value()))
        raise AssertionError(f"it does not end: {found[:30]}")
    finally:
        consumer.close()


PLAIN = numbered("plain", 3)
TAIL = numbered("tail", 3)


def as_applications_write(writer: Transactions, topic: str) -> dict[int, bytes | None]:
    """Batches of five in transactions, which Pulsar gives one number each."""
    writer.send(topic, *PLAIN)
    for number, action in enumerate([COMMIT, ABORT, COMMIT]):
        writer.run(topic, *numbered(f"T{number}", 5), action=action)
    writer.send(topic, *TAIL)
    return {0: PLAIN[0], 1: PLAIN[1], 2: PLAIN[2], 3: None, 7: None, 9: TAIL[0], 10: TAIL[1], 11: TAIL[2]}


def message_by_message(writer: Transactions, topic: str) -> dict[int, bytes | None]:
    """Messages that are alone in their entry have right numbers."""
    writer.send(topic, *PLAIN)
    txn = writer.begin(topic)
    writer.send(topic, b"a", txn=txn)
    writer.send(topic, b"b", txn=txn)
    writer.end(txn, COMMIT)
    writer.run(topic, b"aborted", action=ABORT)
    writer.send(topic, *TAIL)
    expected: dict[int, bytes | None] = dict(enumerate([*PLAIN, b"a", b"b"]))
    return expected | {8 + number: value for number, value in enumerate(TAIL)}


def behind_anchors(writer: Transactions, topic: str) -> dict[int, bytes | None]:
    """Batches of which the broker counted every message although they are in a transaction."""
    writer.send(topic, *PLAIN)
    for number, action in enumerate([COMMIT, ABORT, COMMIT]):
        writer.run(topic, *numbered(f"T{number}", 5), action=action, anchored=True)
    writer.send(topic, *TAIL)
    expected: dict[int, bytes | None] = dict(enumerate(PLAIN))
    expected |= {4 + at: value for at, value in enumerate(numbered("T0", 5))}
    expected |= {18 + at: value for at, value in enumerate(numbered("T2", 5))}
    return expected | {24 + at: value for at, value in enumerate(TAIL)}


def hidden_first_and_last(writer: Transactions, topic: str) -> dict[int, bytes | None]:
    """An aborted transaction and its marker come first, a marker of an unknown kind last."""
    writer.run(topic, b"never", action=ABORT)
    writer.send(topic, b"only")
    writer.run(topic, b"neither", action=ABORT)
    writer.send(topic, marker_type=UNKNOWN_MARKER)
    return {2: b"only"}


def nothing_but_hidden(writer: Transactions, topic: str) -> dict[int, bytes | None]:
    writer.send(topic, marker_type=UNKNOWN_MARKER)
    writer.run(topic, b"never", action=ABORT)
    return {}


CASES = {
    as_applications_write: 12,
    message_by_message: 11,
    behind_anchors: 27,
    hidden_first_and_last: 6,
    nothing_but_hidden: 3,
}


def read_on(wire: Any, records: Any, topic: str, offset: int, end: int) -> list[tuple[int, bytes | None]]:
    """Fetch as a client does, behind the last batch each time, until the end."""
    found: list[tuple[int, bytes | None]] = []
    while offset < end:
        answer = wire.fetch(topic, offset)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, end, end)
        *_, last = read_batches(bytes(answer.records or b""))
        found += [(r.offset, r.value) for r in records(answer) if r.offset >= offset]
        offset = last.base_offset + last.last_offset_delta + 1
    assert offset == end
    return found


@pytest.mark.parametrize("write", CASES)
def test_every_record_is_read_once_and_the_end_is_reached(
    gateway_of: Any, wire: Any, writer: Transactions, records: Any, write: Any
) -> None:
    topic = wire.create()
    expected, end = list(write(writer, full(topic)).items()), CASES[write]
    assert wire.find(topic, -1)[:2] == (0, end)
    assert wire.find(topic, -2)[:2] == (0, 0)
    assert consume(gateway_of.bootstrap, topic, 0) == (expected, end)
    for offset in range(end + 1):
        left = [(at, value) for at, value in expected if at >= offset]
        assert read_on(wire, records, topic, offset, end) == left, offset
    # Who waits for the next record is given it, and nothing before it again.
    writer.send(full(topic), b"next")
    assert [(r.offset, r.value) for r in records(wire.fetch(topic, end))] == [(end, b"next")]
    assert wire.fetch(topic, end + 2).error_code == OUT_OF_RANGE


def test_messages_with_one_number_are_a_placeholder_that_is_counted(
    gateway_of: Any, wire: Any, writer: Transactions, records: Any
) -> None:
    topic = wire.create()
    as_applications_write(writer, full(topic))
    before = gateway_of.storage.undecodable["unnumbered"]
    found = {record.offset: record for record in records(wire.fetch(topic, 0))}
    (header,) = found[3].headers
    assert header[0] == "penstock.undecodable"
    assert header[1].startswith(b"unnumbered: the 5 messages of a batch in a transaction")
    assert (found[3].key, found[3].value) == (None, None)
    assert gateway_of.storage.undecodable["unnumbered"] == before + 2


def test_an_open_transaction_holds_the_high_watermark_back(
    wire: Any, writer: Transactions, records: Any, batch: Any
) -> None:
    topic = wire.create()
    writer.send(full(topic), b"before")
    assert [r.offset for r in records(wire.fetch(topic, 0))] == [0]
    txn = writer.begin(full(topic))
    writer.send(full(topic), b"open", txn=txn)
    assert wire.produce(topic, batch([{"value": b"behind"}])).base_offset == 2
    assert wire.find(topic, -1)[:2] == (0, 1)
    for offset in (1, 2, 3):
        answer = wire.fetch(topic, offset, max_wait=1500)
        assert (answer.error_code, records(answer)) == (0, [])
        assert answer.high_watermark == max(offset, 1)
    assert wire.fetch(topic, 4).error_code == OUT_OF_RANGE
    asked = wire.send(1, 12, **{**_fetch(topic, 1)})
    writer.end(txn, COMMIT)
    correlation, answer = wire.answer()
    assert correlation == asked
    found = records(answer.responses[0].partitions[0])
    found += records(wire.fetch(topic, found[-1].offset + 1)) if len(found) < 2 else []
    assert [(r.offset, r.value) for r in found] == [(1, b"open"), (2, b"behind")]
    assert wire.find(topic, -1)[:2] == (0, 4)


def _fetch(topic: str, offset: int) -> dict[str, Any]:
    row = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait": 20_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
