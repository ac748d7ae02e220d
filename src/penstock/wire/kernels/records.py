"""The records of a Kafka batch, format v2 (KIP-98), where they stand: nothing is copied.

A record is its length, attributes, timestamp and offset (both from those of the batch), key, value and
headers; all numbers are zigzag varints, and a length of -1 is a null.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, INTS, PAIR, ByteArray, IntArray, kernel
from penstock.wire.kernels.varint import read_varint

__all__ = [
    "BAD_RECORD",
    "FIELDS",
    "F_HEADERS",
    "F_HEADERS_AT",
    "F_KEY",
    "F_KEY_SIZE",
    "F_OFFSET",
    "F_TIMESTAMP",
    "F_VALUE",
    "F_VALUE_SIZE",
    "HEADER_FIELDS",
    "locate_headers",
    "locate_records",
    "read_blob",
    "read_record",
    "record_starts",
]

BAD_RECORD = -1
"""The bytes are not a record."""

F_OFFSET = 0
F_TIMESTAMP = 1
F_KEY = 2
F_KEY_SIZE = 3
F_VALUE = 4
F_VALUE_SIZE = 5
F_HEADERS = 6
"""How many headers there are."""
F_HEADERS_AT = 7
FIELDS = 8
"""What is noted of a record; sizes of what is null are -1."""
HEADER_FIELDS = 4
"""What is noted of a header: name and its size, value and its size."""


@kernel(PAIR(BYTES, INT, INT))
def read_blob(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read a length; give it and where its bytes begin, BAD_RECORD if they leave data[pos:end]."""
    size, pos = read_varint(data, pos, end)
    if pos < 0 or size < -1 or size > end - pos:
        return 0, BAD_RECORD
    return size, pos


@kernel(INT(BYTES, INT, INT, INTS, INT))
def read_record(data: ByteArray, pos: int, end: int, fields: IntArray, at: int) -> int:
    """Note the record at data[pos] in fields[at:]; give the position behind it, or BAD_RECORD."""
    length, pos = read_varint(data, pos, end)
    if pos < 0 or length < 1 or length > end - pos:
        return BAD_RECORD
    stop = pos + length
    fields[at + F_TIMESTAMP], pos = read_varint(data, pos + 1, stop)
    fields[at + F_OFFSET], pos = read_varint(data, pos, stop)
    if pos < 0:
        return BAD_RECORD
    size, pos = read_blob(data, pos, stop)
    if pos < 0:
        return BAD_RECORD
    fields[at + F_KEY] = pos
    fields[at + F_KEY_SIZE] = size
    size, pos = read_blob(data, pos + max(size, 0), stop)
    if pos < 0:
        return BAD_RECORD
    fields[at + F_VALUE] = pos
    fields[at + F_VALUE_SIZE] = size
    count, pos = read_varint(data, pos + max(size, 0), stop)
    # A header takes two bytes or more, so that a count beyond this is not worth a loop.
    if pos < 0 or count < 0 or count > (stop - pos) // 2:
        return BAD_RECORD
    fields[at + F_HEADERS] = count
    fields[at + F_HEADERS_AT] = pos
    return stop


@kernel(INT(BYTES, INTS, INTS))
def locate_records(data: ByteArray, starts: IntArray, fields: IntArray) -> int:
    """Note the records that begin at `starts`; give how many headers they have, or BAD_RECORD."""
    headers = 0
    for i in range(len(starts)):
        if read_record(data, starts[i], len(data), fields, i * FIELDS) < 0:
            return BAD_RECORD
        headers += fields[i * FIELDS + F_HEADERS]
    return headers


@kernel(INT(BYTES, INTS, INTS, INTS))
def locate_headers(data: ByteArray, starts: IntArray, fields: IntArray, found: IntArray) -> int:
    """Note the headers of located records, one behind the other; give how many, or BAD_RECORD."""
    at = 0
    for record in range(len(starts)):
        i = record * FIELDS
        length, body = read_varint(data, starts[record], len(data))
        stop = body + length
        pos = fields[i + F_HEADERS_AT]
        for _ in range(fields[i + F_HEADERS]):
            size, pos = read_blob(data, pos, stop)
            if pos < 0 or size < 0:
                return BAD_RECORD
            found[at] = pos
            found[at + 1] = size
            size, pos = read_blob(data, pos + size, stop)
            if pos < 0:
                return BAD_RECORD
            found[at + 2] = pos
            found[at + 3] = size
            pos += max(size, 0)
            at += HEADER_FIELDS
    return at // HEADER_FIELDS


@kernel(INT(BYTES, INT, INT, INT, INTS))
def record_starts(data: ByteArray, count: int, first: int, end: int, starts: IntArray) -> int:
    """Note where records begin whose offset in the batch is first or more and below end; give how many."""
    pos = 0
    found = 0
    for _ in range(count):
        length, body = read_varint(data, pos, len(data))
        if body < 0 or length < 1 or length > len(data) - body:
            return BAD_RECORD
        _, offset_at = read_varint(data, body + 1, body + length)
        offset, behind = read_varint(data, offset_at, body + length)
        if behind < 0:
            return BAD_RECORD
        if first <= offset < end:
            starts[found] = pos
            found += 1
        pos = body + length
    return found
