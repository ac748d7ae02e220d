"""Looking for a time in the records of one batch."""

from __future__ import annotations

from penstock.errors import RecordsError
from penstock.gateway.ports import Found
from penstock.wire.buffer import Buffer
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["first_at"]


def first_at(batch: RecordBatch, timestamp: int, *, limit: int, start: int = 0) -> Found | None:
    """Find the first record from an offset on that has at least this timestamp.

    `limit` bounds what the batch may inflate to.
    """
    data, pos = batch.records(limit), 0
    try:
        for _ in range(batch.record_count):
            length, pos = _varint(data, pos)
            delta, inner = _varint(data, pos + 1)
            offset_delta, _ = _varint(data, inner)
            offset, time = batch.base_offset + offset_delta, batch.base_timestamp + delta
            if time >= timestamp and offset >= start:
                return Found(offset=offset, timestamp=time)
            pos += length
    except IndexError as exc:
        raise RecordsError("a record batch ends too early", error_code=ErrorCode.CORRUPT_MESSAGE) from exc
    return None


def _varint(data: Buffer, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
