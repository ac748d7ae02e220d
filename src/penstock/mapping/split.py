"""Records of a batch under other offset deltas: a batch as several, a part of one, or all at one offset.

Only what is right in itself is split: anything else stays whole, for the mapping to refuse with its reason.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import RecordsError
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches, write_batch_head
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.kernels import (
    BYTES,
    INT,
    OUT,
    PAIR,
    ByteArray,
    copy,
    kernel,
    read_varint,
    varint_size,
    write_varint,
)
from penstock.wire.kernels.records import record_starts

__all__ = ["at_one_offset", "slice_records", "split_batch"]

_COMPRESSION = 0x07
_SEQUENCES = 1 << 31
_BAD = -1
_GROWTH = 2
"""A record does not grow: its offset gets smaller. Room for a length that is written before it."""


@kernel(PAIR(BYTES, INT, INT, INT, INT, INT, OUT))
def _renumbered(
    data: ByteArray, pos: int, end: int, count: int, first: int, step: int, out: ByteArray
) -> tuple[int, int]:
    """Copy records whose offsets begin at `first` so that they begin at 0; give both positions.

    With a `step` of 0 all of them get offset 0, with 1 they keep their distances.
    """
    at = 0
    for _ in range(count):
        length, pos = read_varint(data, pos, end)
        if pos < 0 or length < 1 or length > end - pos:
            return _BAD, at
        stop = pos + length
        _, offset_at = read_varint(data, pos + 1, stop)
        if offset_at < 0:
            return _BAD, at
        offset, rest = read_varint(data, offset_at, stop)
        if rest < 0 or offset < first:
            return _BAD, at
        head, tail = offset_at - pos, stop - rest
        delta = (offset - first) * step
        size = head + varint_size(delta) + tail
        if len(out) - at < size + 10:
            return _BAD, at
        at = write_varint(out, at, size)
        at = copy(data, pos, out, at, head)
        at = write_varint(out, at, delta)
        at = copy(data, rest, out, at, tail)
        pos = stop
    return pos, at


def split_batch(batch: RecordBatch, *, most: int, limit: int) -> list[RecordBatch]:
    """Give batches of at most `most` records; `limit` bounds what a compressed batch may inflate to."""
    if batch.record_count <= most or batch.last_offset_delta != batch.record_count - 1:
        return [batch]
    try:
        batch.check()
        records = as_array(batch.records(limit))
    except RecordsError:
        return [batch]
    parts, pos = [], 0
    for first in range(0, batch.record_count, most):
        count = min(most, batch.record_count - first)
        out = np.empty(HEAD_SIZE + len(records) - pos + _GROWTH * count + 16, np.uint8)
        pos, size = _renumbered(records, pos, len(records), count, first, 1, out[HEAD_SIZE:])
        if pos < 0:
            return [batch]
        parts.append(_part(batch, first, count, memoryview(out.data)[: HEAD_SIZE + size]))
    return parts if pos == len(records) else [batch]


def slice_records(records: Buffer, first: int, count: int) -> memoryview:
    """Return `count` records, the one with offset delta `first` becoming that with delta 0.

    `records` are those of one batch, with deltas 0, 1, 2 and so on. Raises RecordsError if they cannot be
    read.
    """
    data = as_array(records)
    starts = np.empty(first + count, np.int64)
    if record_starts(data, first + count, 0, first + count, starts) != first + count:
        raise _unreadable()
    return _copied(data, int(starts[first]), count, first, 1)


def at_one_offset(records: Buffer, count: int) -> memoryview:
    """Return the records of a batch with all their offset deltas 0. Raises RecordsError."""
    return _copied(as_array(records), 0, count, 0, 0)


def _copied(data: ByteArray, pos: int, count: int, first: int, step: int) -> memoryview:
    out = np.empty(len(data) - pos + _GROWTH * count + 16, np.uint8)
    pos, size = _renumbered(data, pos, len(data), count, first, step, out)
    if pos < 0:
        raise _unreadable()
    return memoryview(out.data)[:size]


def _unreadable() -> RecordsError:
    return RecordsError("the records of a batch cannot be read", error_code=ErrorCode.INVALID_RECORD)


def _part(batch: RecordBatch, first: int, count: int, data: memoryview) -> RecordBatch:
    idempotent = batch.producer_id >= 0
    write_batch_head(
        data,
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        record_count=count,
        attributes=batch.attributes & ~_COMPRESSION,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        # The sequence counts records, and begins again at 0 after 31 bits.
        base_sequence=(batch.base_sequence + first) % _SEQUENCES if idempotent else -1,
    )
    [part] = read_batches(data)
    return part
