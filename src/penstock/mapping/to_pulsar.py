"""Kafka records to the payload of one Pulsar batch entry (spec 001, Message).

Reads the records of a batch, uncompressed (KIP-98, record format v2), and writes for each record
the size of its SingleMessageMetadata in four bytes, the SingleMessageMetadata, and the value.
"""

from __future__ import annotations

from numba import types

from penstock.mapping.escape import escape_of, write_property
from penstock.wire.kernels import (
    BYTES,
    INT,
    INTS,
    OUT,
    PAIR,
    ByteArray,
    IntArray,
    base64_size,
    copy,
    encode_base64,
    is_utf8,
    kernel,
    part,
    read_varint,
    write_u32,
    write_uvarint,
)

__all__ = [
    "BAD_LENGTH",
    "BAD_OFFSET",
    "BAD_TIMESTAMP",
    "EMPTY_VALUES",
    "FACTS",
    "KEYLESS",
    "MAX_TIMESTAMP",
    "NO_SPACE",
    "RECORD",
    "TRAILING",
    "records_to_entry",
]

BAD_LENGTH = -11
"""A length that is negative, or larger than what is left."""
BAD_OFFSET = -12
"""The offset deltas are not 0, 1, 2 and so on."""
BAD_TIMESTAMP = -13
"""Base timestamp and delta do not fit in 64 bits together."""
TRAILING = -14
"""Bytes are left behind the last record, or inside one."""
NO_SPACE = -15
"""The output is too small: try again with a larger one."""

RECORD = 0
"""Fact: the record being read, which is the one at fault after an error."""
MAX_TIMESTAMP = 1
"""Fact: the largest timestamp, -1 if no record has one."""
KEYLESS = 2
"""Fact: records with a null key."""
EMPTY_VALUES = 3
"""Fact: records with a value that is empty and not null."""
FACTS = 4

_HIGHEST = (1 << 63) - 1
_LOWEST = -(1 << 63)

# Tags of SingleMessageMetadata.
_PARTITION_KEY = 2 << 3 | 2
_PAYLOAD_SIZE = 3 << 3
_EVENT_TIME = 5 << 3
_KEY_IS_BASE64 = 6 << 3
_ORDERING_KEY = 7 << 3 | 2
_NULL_VALUE = 9 << 3

# What a record needs at most: its own bytes, three times because of base64, and tags and lengths.
_RECORD_SLACK = 64
_HEADER_SLACK = 32

_TRIPLE = types.UniTuple(INT, 3)


@part(PAIR(BYTES, INT, INT))
def _read_size(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read the length of a key or value, -1 for null, and check that so much is there."""
    size, pos = read_varint(data, pos, end)
    if pos >= 0 and (size < -1 or size > end - pos):
        return 0, BAD_LENGTH
    return size, pos


@part(INT(INT, INT))
def _behind(pos: int, size: int) -> int:
    """Step over a key or value; an error stays one."""
    return pos + max(size, 0) if pos >= 0 else pos


@part(INT(INT, INT))
def _sum_overflows(base: int, delta: int) -> int:
    if delta > 0:
        return int(base > _HIGHEST - delta)
    return int(base < _LOWEST - delta)


@part(INT(INT, INT, INT))
def _check_head(delta: int, expected: int, overflows: int) -> int:
    if delta != expected:
        return BAD_OFFSET
    return BAD_TIMESTAMP if overflows else 0


@part(_TRIPLE(BYTES, INT, INT, INT, OUT, INT))
def _properties(
    data: ByteArray, pos: int, stop: int, count: int, out: ByteArray, at: int
) -> tuple[int, int, int]:
    """Write the headers as properties; give an error or 0, and the two positions."""
    for _ in range(count):
        name_size, name = _read_size(data, pos, stop)
        if name_size < 0 and name >= 0:
            return BAD_LENGTH, pos, at
        value_size, value = _read_size(data, _behind(name, name_size), stop)
        if value < 0:
            return value, pos, at
        letter = escape_of(data, name, name_size, value, value_size)
        at = write_property(data, letter, name, name_size, value, value_size, out, at)
        pos = _behind(value, value_size)
    return (0, pos, at) if pos == stop else (TRAILING, pos, at)


@part(INT(BYTES, INT, INT, INT, INT, OUT, INT))
def _fields(
    data: ByteArray, key: int, key_size: int, value_size: int, timestamp: int, out: ByteArray, at: int
) -> int:
    """Write the fields of SingleMessageMetadata after its properties, in the order of their numbers."""
    is_text = 1
    if key_size >= 0:
        # "If a Kafka message has a key, both ordering key and partition key are set." Pulsar compacts by the
        # partition key, so a text is written as Pulsar's own clients write it.
        is_text = is_utf8(data, key, key + key_size)
        out[at] = _PARTITION_KEY
        if is_text:
            at = write_uvarint(out, at + 1, key_size)
            at = copy(data, key, out, at, key_size)
        else:
            at = write_uvarint(out, at + 1, base64_size(key_size))
            at = encode_base64(data, key, key + key_size, out, at)
    out[at] = _PAYLOAD_SIZE
    at = write_uvarint(out, at + 1, max(value_size, 0))
    if timestamp >= 0:
        # Present also when it is 0, which is a time and not the lack of one.
        out[at] = _EVENT_TIME
        at = write_uvarint(out, at + 1, timestamp)
    if not is_text:
        out[at] = _KEY_IS_BASE64
        out[at + 1] = 1
        at += 2
    if key_size >= 0:
        out[at] = _ORDERING_KEY
        at = write_uvarint(out, at + 1, key_size)
        at = copy(data, key, out, at, key_size)
    if value_size < 0:
        # "If the field of a Kafka message is NULL, the converted Pulsar message is NULL."
        out[at] = _NULL_VALUE
        out[at + 1] = 1
        at += 2
    return at


@part(PAIR(BYTES, INT, INT, INT, INT, OUT, INT, INTS))
def _record(
    data: ByteArray, pos: int, end: int, index: int, base: int, out: ByteArray, at: int, facts: IntArray
) -> tuple[int, int]:
    """Carry one record over; give the positions behind it in input and output."""
    length, pos = read_varint(data, pos, end)
    if pos < 0:
        return pos, at
    if length < 1 or length > end - pos:
        return BAD_LENGTH, at
    stop = pos + length
    # KIP-98: the attributes of a record are one byte, and no bit of it is used.
    delta, pos = read_varint(data, pos + 1, stop)
    offset, pos = read_varint(data, pos, stop)
    key_size, key = _read_size(data, pos, stop)
    value_size, value = _read_size(data, _behind(key, key_size), stop)
    count, pos = read_varint(data, _behind(value, value_size), stop)
    if pos < 0:
        return pos, at
    bad = _check_head(offset, index, _sum_overflows(base, delta))
    if bad < 0:
        return bad, at
    if count < 0 or count > (stop - pos) // 2:
        return BAD_LENGTH, at
    if len(out) - at < 3 * length + _HEADER_SLACK * count + _RECORD_SLACK:
        return NO_SPACE, at
    timestamp = base + delta
    bad, pos, behind = _properties(data, pos, stop, count, out, at + 4)
    if bad < 0:
        return bad, at
    behind = _fields(data, key, key_size, value_size, timestamp, out, behind)
    write_u32(out, at, behind - at - 4)
    facts[MAX_TIMESTAMP] = max(facts[MAX_TIMESTAMP], timestamp)
    facts[KEYLESS] += int(key_size < 0)
    facts[EMPTY_VALUES] += int(value_size == 0)
    return stop, copy(data, value, out, behind, max(value_size, 0))


@kernel(INT(BYTES, INT, INT, INT, INT, OUT, INT, INTS))
def records_to_entry(
    data: ByteArray, pos: int, end: int, count: int, base: int, out: ByteArray, at: int, facts: IntArray
) -> int:
    """Carry `count` records of data[pos:end] over to out[at:]; give the position behind, or an error.

    `base` is the base timestamp of the batch; `facts` has FACTS numbers and is filled in.
    """
    facts[MAX_TIMESTAMP] = -1
    facts[KEYLESS] = 0
    facts[EMPTY_VALUES] = 0
    for index in range(count):
        facts[RECORD] = index
        pos, at = _record(data, pos, end, index, base, out, at, facts)
        if pos < 0:
            return pos
    return at if pos == end else TRAILING
