"""A connection to a Pulsar broker that writes in transactions, by commands of the wire.

pulsar-client has no transactions, and our own client has no use for them.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from penstock.wire.framing import FrameBuffer
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

__all__ = ["ABORT", "COMMIT", "UNKNOWN_MARKER", "Transactions", "Txn"]

# Commands that the gateway has no use for, so they are not in its .proto: the type is also the field.
NEW_TXN, ADD_PARTITION, END_TXN, TC_CONNECT = 50, 52, 56, 62
COMMIT, ABORT = 0, 1
UNKNOWN_MARKER = 99
"""A marker type that no broker knows: no consumer is shown such an entry."""

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

    def __init__(self, service_url: str, *, has_coordinator: bool = True) -> None:
        """Without a coordinator it only writes plainly: a broker need not have transactions for that."""
        host, _, port = service_url.removeprefix("pulsar://").partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._frames = FrameBuffer(limit=1 << 24)
        self._requests = 0
        self._sequence = 0
        self._producers: dict[str, int] = {}
        self._socket.sendall(encode_command(CommandConnect(client_version="test", protocol_version=20)))
        self._until(BaseCommand.CONNECTED)
        if has_coordinator:
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
