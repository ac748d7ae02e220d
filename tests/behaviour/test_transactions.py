"""Topics that hold Pulsar transactions, written by commands of the wire: every client gets to their end.

A transaction and its markers take numbers of the log that hold no record, an open one hides what is behind,
and Pulsar gives a batch of n records that is sent in a transaction one number instead of n.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.embedded.pulsar import Pulsar
from penstock.wire.framing import FrameBuffer
from penstock.wire.kafka import read_batches
from penstock.wire.pulsar import SendReceipt, decode_command, encode_command
from penstock.wire.pulsar.entry import encode_send
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandProducer,
    CommandSend,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
)

pytestmark = pytest.mark.server

# Commands that the gateway has no use for, so they are not in its .proto: the type is also the field.
NEW_TXN, ADD_PARTITION, END_TXN, TC_CONNECT = 50, 52, 56, 62
COMMIT, ABORT = 0, 1
UNKNOWN_MARKER = 99
"""A marker type that no broker knows: no consumer is shown such an entry."""
OUT_OF_RANGE = 1

Txn = tuple[int, int]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(fields: dict[int, int | bytes]) -> bytes:
    """Write a Protocol Buffers message."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def fields_of(data: bytes) -> dict[int, int | bytes]:
    """Read a Protocol Buffers message of numbers and bytes."""
    found: dict[int, int | bytes] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        value = number()
        if tag & 7 == 0:
            found[tag >> 3] = value
        else:
            found[tag >> 3] = data[at : at + value]
            at += value
    return found


class Transactions:
    """A connection to the broker that writes plainly, in transactions, and behind anchors."""

    def __init__(self, service_url: str) -> None:
        host, _, port = service_url.removeprefix("pulsar://").partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._frames = FrameBuffer(limit=1 << 24)
        self._requests = 0
        self._sequence = 0
        self._producers: dict[str, int] = {}
        self._socket.sendall(encode_command(CommandConnect(client_version="test", protocol_version=20)))
        self._until(BaseCommand.CONNECTED)
        self._find_coordinator()

    def close(self) -> None:
        self._socket.close()

    def _find_coordinator(self) -> None:
        """Look up the topic of the coordinator, which lets the broker serve it: a moment later, maybe."""
        deadline = time.monotonic() + 60
        while True:
            self._look_up("persistent://pulsar/system/transaction_coordinator_assign-partition-0")
            answer = self._answer(TC_CONNECT, {2: 0})
            if 2 not in answer:
                return
            assert answer[2] == ServerError.SERVICE_NOT_READY, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def begin(self, topic: str) -> Txn:
        answer = self._ask(NEW_TXN, {2: 60_000})
        txn = (int(answer.get(3, 0)), int(answer.get(2, 0)))
        self._ask(ADD_PARTITION, {2: txn[1], 3: txn[0], 4: topic.encode()})
        return txn

    def end(self, txn: Txn, action: int) -> None:
        self._ask(END_TXN, {2: txn[1], 3: txn[0], 4: action})

    def send(
        self, topic: str, *values: bytes, txn: Txn | None = None, hidden: bool = False, **said: Any
    ) -> None:
        """Write one entry; `hidden` names the transaction in the metadata only, as behind an anchor."""
        if topic not in self._producers:
            self._open(topic)
        self._sequence += 1
        metadata = MessageMetadata(
            producer_name="test", sequence_id=self._sequence, publish_time=int(time.time() * 1000), **said
        )
        send = CommandSend(producer_id=self._producers[topic], sequence_id=self._sequence)
        if txn is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn
            if not hidden:
                send.txnid_most_bits, send.txnid_least_bits = txn
        payload = b""
        if "marker_type" not in said:
            metadata.num_messages_in_batch = send.num_messages = len(values)
            for value in values:
                head = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
                payload += len(head).to_bytes(4, "big") + head + value
        self._socket.sendall(encode_send(send, metadata, payload))
        self._until(BaseCommand.SEND_RECEIPT)

    def run(self, topic: str, *values: bytes, action: int = COMMIT, anchored: bool = False) -> None:
        """Write one batch in a transaction of its own."""
        txn = self.begin(topic)
        if anchored:
            self.send(topic, txn=txn, marker_type=UNKNOWN_MARKER)
        self.send(topic, *values, txn=txn, hidden=anchored)
        self.end(txn, action)

    def _look_up(self, topic: str) -> None:
        self._requests += 1
        self._socket.sendall(encode_command(CommandLookupTopic(topic=topic, request_id=self._requests)))
        self._until(BaseCommand.LOOKUP_RESPONSE)

    def _open(self, topic: str) -> None:
        self._look_up(topic)
        self._producers[topic] = len(self._producers)
        self._requests += 1
        command = CommandProducer(
            topic=topic, producer_id=self._producers[topic], request_id=self._requests, txn_enabled=True
        )
        self._socket.sendall(encode_command(command))
        self._until(BaseCommand.PRODUCER_SUCCESS)

    def _ask(self, kind: int, body: dict[int, int | bytes]) -> dict[int, int | bytes]:
        answer = self._answer(kind, body)
        assert 4 not in answer, (kind, answer)
        return answer

    def _answer(self, kind: int, body: dict[int, int | bytes]) -> dict[int, int | bytes]:
        self._requests += 1
        command = message({1: kind, kind: message({1: self._requests} | body)})
        head = (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big")
        self._socket.sendall(head + command)
        return fields_of(self._until(kind + 1))

    def _until(self, kind: int) -> bytes:
        """Read commands up to one of a kind; give its body if it is not in the .proto."""
        while True:
            for frame in self._frames.frames():
                command = decode_command(frame)
                if isinstance(command, SendReceipt):
                    assert kind == BaseCommand.SEND_RECEIPT
                    return b""
                if command.type == BaseCommand.PING:
                    self._socket.sendall(message_frame(BaseCommand.PONG))
                elif command.type == kind:
                    size = int.from_bytes(frame[:4], "big")
                    body = fields_of(bytes(frame[4 : 4 + size]))[kind]
                    assert isinstance(body, bytes)
                    return body
                else:
                    raise AssertionError(f"{command} instead of {kind}")
            data = self._socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self._frames.receive(data)


def message_frame(kind: int) -> bytes:
    command = message({1: kind, kind: b""})
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


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
