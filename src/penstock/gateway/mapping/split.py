"""A Kafka batch with more records than can be numbered, as several batches that hold the same records.

Only what is right in itself is split: anything else stays whole, for the mapping to refuse with its reason.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import RecordsError
from penstock.wire.buffer import as_array
from penstock.wire.kafka import RecordBatch, read_batches, write_batch_head
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

__all__ = ["split_batch"]

_COMPRESSION = 0x07
_SEQUENCES = 1 << 31
_BAD = -1
_GROWTH = 2
"""A record does not grow: its offset gets smaller. Room for a length that is written before it."""


@kernel(PAIR(BYTES, INT, INT, INT, INT, OUT))
def _renumbered(
    data: ByteArray, pos: int, end: int, count: int, first: int, out: ByteArray
) -> tuple[int, int]:
    """Copy records whose offsets begin at `first` so that they begin at 0; give both positions."""
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
        size = head + varint_size(offset - first) + tail
        if len(out) - at < size + 10:
            return _BAD, at
        at = write_varint(out, at, size)
        at = copy(data, pos, out, at, head)
        at = write_varint(out, at, offset - first)
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
        pos, size = _renumbered(records, pos, len(records), count, first, out[HEAD_SIZE:])
        if pos < 0:
            return [batch]
        parts.append(_part(batch, first, count, memoryview(out.data)[: HEAD_SIZE + size]))
    return parts if pos == len(records) else [batch]


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
