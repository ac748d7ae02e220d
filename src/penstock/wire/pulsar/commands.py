"""Commands of the Pulsar binary protocol, as frames out and as values in.

The type of a command is also the number of its field in BaseCommand, so that the class of its body
decides both. SEND_RECEIPT and MESSAGE, which come with every entry, are values of ours; every other
command is a `Command` with its Protocol Buffers message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import MissingExtra, WireError
from penstock.wire.buffer import as_array
from penstock.wire.kernels.protobuf import ERRORS
from penstock.wire.pulsar import hot
from penstock.wire.pulsar.message_id import MessageId

try:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from penstock.wire.pulsar.pulsar_pb2 import BaseCommand
except ImportError as exc:
    raise MissingExtra("gateway", "protobuf", purpose="speaking with Pulsar") from exc

__all__ = ["Command", "Message", "SendReceipt", "decode_command", "encode_command", "encode_flow"]

_SIZES = struct.Struct(">II")
_BY_CLASS = {
    field.message_type.full_name: field for field in BaseCommand.DESCRIPTOR.fields if field.message_type
}
_BY_TYPE = {field.number: field.name for field in _BY_CLASS.values()}
_FLOW = 11


class SendReceipt(NamedTuple):
    """The broker has stored an entry. An id of -1:-1 means that it has not: a duplicate was dropped."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    message_id: MessageId


class Message(NamedTuple):
    """The broker delivers an entry; `entry` is what `read_entry` reads, a view into the frame."""

    consumer_id: int
    message_id: MessageId
    redelivery_count: int
    entry: memoryview
    frame: memoryview = memoryview(b"")
    """The frame it came in: what is seldom asked for is read from there."""

    def ack_set(self) -> tuple[int, ...]:
        """Give 64-bit words, a bit for each message of the batch that is not acknowledged; () if none is."""
        size = int.from_bytes(self.frame[:4], "big")
        return tuple(_decode(BaseCommand.MESSAGE, self.frame[4 : 4 + size]).body.ack_set)


class Command(NamedTuple):
    """Any other command; `body` is its message, None if the type is not known here."""

    type: int
    body: Any


def encode_command(body: Any) -> bytes:
    """Write a command as a frame; the class of the body says which one.

    >>> from penstock.wire.pulsar.pulsar_pb2 import CommandPing
    >>> encode_command(CommandPing()).hex(" ")
    '00 00 00 09 00 00 00 05 08 12 92 01 00'
    """
    field = _BY_CLASS[body.DESCRIPTOR.full_name]
    command: Any = BaseCommand(type=field.number)
    getattr(command, field.name).MergeFrom(body)
    getattr(command, field.name).SetInParent()
    data: bytes = command.SerializeToString()
    return _SIZES.pack(len(data) + 4, len(data)) + data


def encode_flow(consumer_id: int, permits: int) -> bytes:
    """Write FLOW: let the broker send so many more messages."""
    body = b"\x08" + _uvarint(consumer_id) + b"\x10" + _uvarint(permits)
    data = bytes((0x08, _FLOW, _FLOW << 3 | 2, len(body))) + body
    return _SIZES.pack(len(data) + 4, len(data)) + data


def decode_command(frame: memoryview) -> SendReceipt | Message | Command:
    """Read the command of a frame (without the total size, as FrameBuffer gives it)."""
    found = np.empty(hot.COMMAND_SLOTS, np.int64)
    kind = hot.read_command(as_array(frame), found)
    if kind < 0:
        raise WireError(f"a Pulsar command {ERRORS[kind]}")
    if kind in _HOT:
        return _HOT[kind](found.tolist(), frame)
    return _decode(kind, frame[4 : int(found[hot.COMMAND_END])])


def _receipt(found: list[int], _: memoryview) -> SendReceipt:
    return SendReceipt(found[hot.OWNER], found[hot.SEQUENCE], found[hot.HIGHEST], _id(found))


def _message(found: list[int], frame: memoryview) -> Message:
    entry = frame[found[hot.COMMAND_END] :]
    return Message(found[hot.OWNER], _id(found), found[hot.REDELIVERIES], entry, frame)


_HOT: dict[int, Callable[[list[int], memoryview], SendReceipt | Message]] = {
    BaseCommand.SEND_RECEIPT: _receipt,
    BaseCommand.MESSAGE: _message,
}


def _id(found: list[int]) -> MessageId:
    return MessageId(found[hot.LEDGER], found[hot.ENTRY], found[hot.BATCH_INDEX], found[hot.PARTITION])


def _decode(kind: int, data: memoryview) -> Command:
    name = _BY_TYPE.get(kind)
    try:
        command: Any = BaseCommand.FromString(bytes(data))
    except DecodeError as exc:
        raise WireError(f"a Pulsar command of type {kind} cannot be read", why=str(exc)) from exc
    if name is not None and not (command.HasField(name) and command.IsInitialized()):
        raise WireError(f"a Pulsar command of type {kind} lacks its body or a part of it")
    return Command(kind, None if name is None else getattr(command, name))


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
