"""The payload of a Pulsar entry to Kafka records (spec 001, Message).

Reads a batch entry, uncompressed, or one message that is not in a batch, and writes records of
format v2 (KIP-98) with the batch index as offset delta. A message that compaction took out of its
batch leaves a hole, as compaction does in Kafka.
"""

from __future__ import annotations

import numpy as np

from penstock.mapping.escape import header_size, unescape, write_header
from penstock.wire.kernels import (
    BYTES,
    INT,
    INTS,
    OUT,
    ByteArray,
    IntArray,
    base64_decoded_size,
    base64_size,
    byte_at,
    copy,
    decode_base64,
    kernel,
    part,
    read_field,
    varint_size,
    write_varint,
)

__all__ = [
    "BAD_KEY",
    "BAD_SIZE",
    "BASE_TIMESTAMP",
    "FACTS",
    "KEPT",
    "MAX_TIMESTAMP",
    "MESSAGE",
    "NO_SPACE",
    "TRAILING",
    "entry_to_records",
    "message_to_record",
]

BAD_SIZE = -11
"""A size that is negative, missing, or larger than what is left."""
BAD_KEY = -12
"""A partition key marked as base64 that is not."""
TRAILING = -14
"""Bytes are left behind the last message."""
NO_SPACE = -15
"""The output or the room for properties is too small."""

MESSAGE = 0
"""Fact: the message being read, which is the one at fault after an error."""
KEPT = 1
"""Fact: records written."""
BASE_TIMESTAMP = 2
"""Fact: the timestamp of the first record, -1 if there is none."""
MAX_TIMESTAMP = 3
"""Fact: the largest timestamp."""

# What a message says, by slot; slot 0 receives the fields that do not matter here.
_PAYLOAD_SIZE = 8
_COMPACTED_OUT = 9
_EVENT_TIME = 10
_KEY_IS_BASE64 = 11
_NULL_VALUE = 12
_NULL_KEY = 13
_KEY = 14
_KEY_SIZE = 15
_ORDERING = 16
_ORDERING_SIZE = 17
_HEADERS = 18
_HEADERS_SIZE = 19
_SLOTS = 20
_PROPERTY = 255
FACTS = _SLOTS

_VARINT = 0
_LENGTH = 2
_PROPERTY_NAME = 0x0A
_PROPERTY_VALUE = 0x12
_PER_HEADER = 5
_NO_EVENT_TIME = -1


def _table(**fields: tuple[int, int, int]) -> ByteArray:
    table = np.zeros(256, np.uint8)
    for number, wire, slot in fields.values():
        table[number << 3 | wire] = slot
    return table


SINGLE = _table(
    properties=(1, _LENGTH, _PROPERTY),
    partition_key=(2, _LENGTH, _KEY),
    payload_size=(3, _VARINT, _PAYLOAD_SIZE),
    compacted_out=(4, _VARINT, _COMPACTED_OUT),
    event_time=(5, _VARINT, _EVENT_TIME),
    partition_key_b64_encoded=(6, _VARINT, _KEY_IS_BASE64),
    ordering_key=(7, _LENGTH, _ORDERING),
    null_value=(9, _VARINT, _NULL_VALUE),
    null_partition_key=(10, _VARINT, _NULL_KEY),
)
"""Where SingleMessageMetadata, the head of a message in a batch, says what."""

ENTRY = _table(
    properties=(4, _LENGTH, _PROPERTY),
    partition_key=(6, _LENGTH, _KEY),
    event_time=(12, _VARINT, _EVENT_TIME),
    partition_key_b64_encoded=(17, _VARINT, _KEY_IS_BASE64),
    ordering_key=(18, _LENGTH, _ORDERING),
    null_value=(25, _VARINT, _NULL_VALUE),
    null_partition_key=(30, _VARINT, _NULL_KEY),
)
"""Where MessageMetadata, the head of a message that is not in a batch, says the same."""


@part(INT(INTS))
def _forget(said: IntArray) -> int:
    """Clear what the message before has said."""
    for slot in range(_PAYLOAD_SIZE, _SLOTS):
        said[slot] = 0
    said[_PAYLOAD_SIZE] = -1
    said[_EVENT_TIME] = _NO_EVENT_TIME
    said[_KEY_SIZE] = -1
    said[_ORDERING_SIZE] = -1
    return 0


@part(INT(BYTES, INT, INT, INTS, INTS))
def _property(data: ByteArray, pos: int, end: int, said: IntArray, room: IntArray) -> int:
    """Remember one KeyValue of data[pos:end] in `room`; give `end` or an error."""
    row = said[_HEADERS] * _PER_HEADER
    if row + _PER_HEADER > len(room):
        return NO_SPACE
    name = value = pos
    name_size = value_size = 0
    while pos < end:
        tag, start, size, pos = read_field(data, pos, end)
        if pos < 0:
            return pos
        if tag == _PROPERTY_NAME:
            name, name_size = start, size
        elif tag == _PROPERTY_VALUE:
            value, value_size = start, size
    letter, name_size, value_size = unescape(data, name, name_size, value, value_size)
    room[row] = letter
    room[row + 1] = name
    room[row + 2] = name_size
    room[row + 3] = value
    room[row + 4] = value_size
    said[_HEADERS] += 1
    said[_HEADERS_SIZE] += header_size(name_size, value_size)
    return pos


@part(INT(BYTES, INT, INT, BYTES, INTS, INTS))
def _listen(data: ByteArray, pos: int, end: int, table: ByteArray, said: IntArray, room: IntArray) -> int:
    """Take in the metadata data[pos:end] of one message; give `end` or an error."""
    _forget(said)
    while pos < end:
        tag, value, size, pos = read_field(data, pos, end)
        if pos < 0:
            return pos
        slot = byte_at(table, tag) if tag < len(table) else 0
        if slot == _PROPERTY:
            error = _property(data, value, value + size, said, room)
            if error < 0:
                return error
        elif slot > 0:
            said[slot] = value
            if tag & 7 == _LENGTH:
                said[slot + 1] = size
    return pos


@part(INT(BYTES, INTS))
def _choose_key(data: ByteArray, said: IntArray) -> int:
    """Leave the key in the slots of the partition key, decoded size included; give 0 or an error."""
    if said[_ORDERING_SIZE] >= 0:
        # "Ordering key has higher priority."
        said[_KEY] = said[_ORDERING]
        said[_KEY_SIZE] = said[_ORDERING_SIZE]
        said[_KEY_IS_BASE64] = 0
    elif said[_NULL_KEY]:
        said[_KEY_SIZE] = -1
    if said[_KEY_SIZE] >= 0 and said[_KEY_IS_BASE64]:
        said[_KEY_SIZE] = base64_decoded_size(data, said[_KEY], said[_KEY] + said[_KEY_SIZE])
        if said[_KEY_SIZE] < 0:
            return BAD_KEY
    return 0


@part(INT(BYTES, INTS, OUT, INT))
def _write_key(data: ByteArray, said: IntArray, out: ByteArray, at: int) -> int:
    at = write_varint(out, at, said[_KEY_SIZE])
    if said[_KEY_SIZE] >= 0 and said[_KEY_IS_BASE64]:
        return decode_base64(data, said[_KEY], said[_KEY] + base64_size(said[_KEY_SIZE]), out, at)
    return copy(data, said[_KEY], out, at, max(said[_KEY_SIZE], 0))


@part(INT(INTS, INT))
def _timestamp(said: IntArray, publish_time: int) -> int:
    """Choose the time of a record and take it into the facts."""
    # "Event time has higher priority." Kafka has no times before 0: they mean that there is none.
    timestamp = said[_EVENT_TIME] if said[_EVENT_TIME] >= 0 else publish_time
    if said[KEPT] == 0:
        said[BASE_TIMESTAMP] = timestamp
    said[MAX_TIMESTAMP] = max(said[MAX_TIMESTAMP], timestamp)
    return int(timestamp - said[BASE_TIMESTAMP])


@part(INT(BYTES, BYTES, INT, INT, INT, INTS, INTS, OUT, INT))
def _write_record(
    head: ByteArray,
    body: ByteArray,
    value: int,
    index: int,
    publish_time: int,
    said: IntArray,
    room: IntArray,
    out: ByteArray,
    at: int,
) -> int:
    """Write the record of a message: metadata in `head`, value at body[value]."""
    error = _choose_key(head, said)
    if error < 0:
        return error
    delta = _timestamp(said, publish_time)
    value_size = -1 if said[_NULL_VALUE] else said[_PAYLOAD_SIZE]
    length = 1 + varint_size(delta) + varint_size(index)
    length += varint_size(said[_KEY_SIZE]) + max(said[_KEY_SIZE], 0)
    length += varint_size(value_size) + max(value_size, 0)
    length += varint_size(said[_HEADERS]) + said[_HEADERS_SIZE]
    if len(out) - at < length + 5:
        return NO_SPACE
    at = write_varint(out, at, length)
    out[at] = 0
    at = write_varint(out, at + 1, delta)
    at = write_varint(out, at, index)
    at = _write_key(head, said, out, at)
    at = write_varint(out, at, value_size)
    at = copy(body, value, out, at, max(value_size, 0))
    at = write_varint(out, at, said[_HEADERS])
    for row in range(0, said[_HEADERS] * _PER_HEADER, _PER_HEADER):
        at = write_header(
            head, room[row], room[row + 1], room[row + 2], room[row + 3], room[row + 4], out, at
        )
    said[KEPT] += 1
    return at


@part(INT(INTS))
def _begin(said: IntArray) -> int:
    said[MESSAGE] = 0
    said[KEPT] = 0
    said[BASE_TIMESTAMP] = -1
    said[MAX_TIMESTAMP] = -1
    return 0


@kernel(INT(BYTES, INT, INT, INT, INT, INTS, INTS, OUT, INT))
def entry_to_records(
    data: ByteArray,
    pos: int,
    end: int,
    count: int,
    publish_time: int,
    facts: IntArray,
    room: IntArray,
    out: ByteArray,
    at: int,
) -> int:
    """Carry the `count` messages of a batch entry over to out[at:]; give the position behind, or an error.

    `facts` has FACTS numbers and is filled in; `room` holds five numbers for each property of a message.
    """
    _begin(facts)
    for index in range(count):
        facts[MESSAGE] = index
        if end - pos < 4:
            return BAD_SIZE
        size = byte_at(data, pos) << 24 | byte_at(data, pos + 1) << 16
        size |= byte_at(data, pos + 2) << 8 | byte_at(data, pos + 3)
        pos += 4
        if size > end - pos:
            return BAD_SIZE
        pos = _listen(data, pos, pos + size, SINGLE, facts, room)
        if pos < 0:
            return pos
        payload = facts[_PAYLOAD_SIZE]
        if payload < 0 or payload > end - pos:
            return BAD_SIZE
        if facts[_COMPACTED_OUT] == 0:
            at = _write_record(data, data, pos, index, publish_time, facts, room, out, at)
            if at < 0:
                return at
        pos += payload
    return at if pos == end else TRAILING


@kernel(INT(BYTES, INT, INT, BYTES, INT, INT, INT, INTS, INTS, OUT, INT))
def message_to_record(
    head: ByteArray,
    pos: int,
    end: int,
    body: ByteArray,
    value: int,
    value_end: int,
    publish_time: int,
    facts: IntArray,
    room: IntArray,
    out: ByteArray,
    at: int,
) -> int:
    """Carry one message that is in no batch: MessageMetadata head[pos:end], payload body[value:value_end]."""
    _begin(facts)
    error = _listen(head, pos, end, ENTRY, facts, room)
    if error < 0:
        return error
    facts[_PAYLOAD_SIZE] = value_end - value
    return _write_record(head, body, value, 0, publish_time, facts, room, out, at)
