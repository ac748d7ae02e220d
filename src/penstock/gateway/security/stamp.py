"""The header `source-identity` on produced records (spec 004): the authenticated principal, and no other.

What a client has sent under this name, in whatever case, is left out of each record of a batch; the name of
the principal is put behind the other headers. Everything else of the records is copied as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import numpy as np

from penstock.errors import RecordsError
from penstock.gateway.ports import Appended, Found, Log, Slice
from penstock.wire.buffer import as_array
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches, write_batch_head
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.kernels import (
    BYTES,
    INT,
    OUT,
    PAIR,
    ByteArray,
    byte_at,
    copy,
    kernel,
    part,
    read_varint,
    varint_size,
    write_varint,
)

__all__ = ["HEADER", "StampedLog", "stamp"]

HEADER: Final = b"source-identity"
_NAME = np.frombuffer(HEADER, np.uint8)
_NAME_SIZE = len(HEADER)
_A, _Z, _LOWER = ord("A"), ord("Z"), 32
_BAD = -21
"""The records break their format."""
_COMPRESSION: Final = 0x07
_GROWTH: Final = 16
"""What the numbers of a record may grow by."""
_SMALLEST_RECORD: Final = 7


@part(INT(BYTES, INT, INT))
def _is_name(data: ByteArray, pos: int, size: int) -> int:
    if size != _NAME_SIZE:
        return 0
    for i in range(size):
        byte = byte_at(data, pos + i)
        if _A <= byte <= _Z:
            byte += _LOWER
        if byte != byte_at(_NAME, i):
            return 0
    return 1


@part(PAIR(BYTES, INT, INT))
def _sized(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Step over something with its size in front, -1 for null; give the size and the position behind."""
    if pos < 0:
        return 0, _BAD
    size, pos = read_varint(data, pos, end)
    if pos < 0 or size < -1 or size > end - pos:
        return 0, _BAD
    return size, pos + max(size, 0)


@part(PAIR(BYTES, INT, INT))
def _header(data: ByteArray, pos: int, stop: int) -> tuple[int, int]:
    """Step over a header; give whether it is ours, and the position behind it."""
    size, value = _sized(data, pos, stop)
    if value < 0 or size < 0:
        return 0, _BAD
    ours = _is_name(data, value - size, size)
    _, behind = _sized(data, value, stop)
    return ours, behind


@part(PAIR(BYTES, INT, INT, INT))
def _kept(data: ByteArray, pos: int, stop: int, count: int) -> tuple[int, int]:
    """Count the headers that are kept, and their bytes; an error instead of the bytes."""
    kept = size = 0
    for _ in range(count):
        ours, behind = _header(data, pos, stop)
        if behind < 0:
            return 0, _BAD
        if not ours:
            kept += 1
            size += behind - pos
        pos = behind
    return (kept, size) if pos == stop else (0, _BAD)


@part(INT(BYTES, INT, INT, INT, OUT, INT))
def _copy_kept(data: ByteArray, pos: int, stop: int, count: int, out: ByteArray, at: int) -> int:
    for _ in range(count):
        ours, behind = _header(data, pos, stop)
        if not ours:
            at = copy(data, pos, out, at, behind - pos)
        pos = behind
    return at


@part(INT(BYTES, INT, INT))
def _headers_at(data: ByteArray, pos: int, stop: int) -> int:
    """Give where the count of the headers is, of a record whose attributes are at `pos`."""
    # KIP-98: attributes, timestamp delta, offset delta, key, value, headers.
    _, pos = read_varint(data, pos + 1, stop)
    if pos >= 0:
        _, pos = read_varint(data, pos, stop)
    _, pos = _sized(data, pos, stop)
    _, pos = _sized(data, pos, stop)
    return pos


@part(PAIR(BYTES, INT, INT, BYTES, OUT, INT))
def _stamp_record(
    data: ByteArray, pos: int, end: int, own: ByteArray, out: ByteArray, at: int
) -> tuple[int, int]:
    """Copy one record; give the positions behind it in input and output, an error instead of the first."""
    length, body = read_varint(data, pos, end)
    if body < 0 or length < 1 or length > end - body:
        return _BAD, at
    stop = body + length
    counted = _headers_at(data, body, stop)
    if counted < 0:
        return _BAD, at
    count, first = read_varint(data, counted, stop)
    if first < 0 or count < 0 or count > (stop - first) // 2:
        return _BAD, at
    kept, size = _kept(data, first, stop, count)
    if size < 0:
        return _BAD, at
    new_count = kept + int(len(own) > 0)
    at = write_varint(out, at, counted - body + varint_size(new_count) + size + len(own))
    at = copy(data, body, out, at, counted - body)
    at = write_varint(out, at, new_count)
    at = _copy_kept(data, first, stop, count, out, at)
    return stop, copy(own, 0, out, at, len(own))


@kernel(INT(BYTES, INT, BYTES, OUT, INT))
def _stamp_records(data: ByteArray, count: int, own: ByteArray, out: ByteArray, at: int) -> int:
    """Copy all records to out[at:]; give the position behind them, or an error."""
    pos = 0
    for _ in range(count):
        pos, at = _stamp_record(data, pos, len(data), own, out, at)
        if pos < 0:
            return pos
    return at if pos == len(data) else _BAD


def _own_header(identity: str | None) -> ByteArray:
    if identity is None:
        return np.empty(0, np.uint8)
    out, value = np.empty(2 * _GROWTH + _NAME_SIZE + 4 * len(identity), np.uint8), identity.encode()
    at = write_varint(out, 0, _NAME_SIZE)
    at = copy(_NAME, 0, out, at, _NAME_SIZE)
    at = write_varint(out, at, len(value))
    return out[: copy(np.frombuffer(value, np.uint8), 0, out, at, len(value))]


def stamp(batch: RecordBatch, identity: str | None, *, limit: int) -> RecordBatch:
    """Give the batch with the header on each record, not compressed; None only takes it off.

    `limit` bounds what a compressed batch may inflate to.
    """
    batch.check()
    records, own = as_array(batch.records(limit)), _own_header(identity)
    if not 0 <= batch.record_count * _SMALLEST_RECORD <= len(records):
        raise _broken()
    out = np.empty(HEAD_SIZE + len(records) + batch.record_count * (_GROWTH + len(own)), np.uint8)
    try:
        end = _stamp_records(records, batch.record_count, as_array(own.tobytes()), out, HEAD_SIZE)
    except IndexError:  # the second wall: the kernel's own checks should have seen it
        end = _BAD
    if end < 0:
        raise _broken()
    view = out.data[:end]
    write_batch_head(
        view,
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        record_count=batch.record_count,
        partition_leader_epoch=batch.partition_leader_epoch,
        attributes=batch.attributes & ~_COMPRESSION,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return next(read_batches(view))


def _broken() -> RecordsError:
    return RecordsError("a record batch cannot be read", error_code=ErrorCode.INVALID_RECORD)


class StampedLog:
    """A log whose records say who has produced them."""

    def __init__(self, log: Log, identity: str | None, *, limit: int) -> None:
        self._log = log
        self._identity = identity
        self._limit = limit

    def append(self, topic: str, partition: int, batch: RecordBatch) -> Awaitable[Appended]:
        """Stamp a batch, and begin to append it."""
        return self._log.append(topic, partition, stamp(batch, self._identity, limit=self._limit))

    def refused(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Note a batch that was refused."""
        self._log.refused(topic, partition, batch)

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on."""
        return await self._log.read(topic, partition, offset, max_bytes)

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        """Find an offset by time or place."""
        return await self._log.find(topic, partition, timestamp)

    async def arrival(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the log holds this offset."""
        await self._log.arrival(topic, partition, offset)

    async def trim(self, topic: str, partition: int, offset: int) -> int:
        """Remove what is before an offset."""
        return await self._log.trim(topic, partition, offset)
