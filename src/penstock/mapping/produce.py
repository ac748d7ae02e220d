"""A Kafka batch as it was produced to a Pulsar batch entry ready to be sent (spec 001, Produce Messages)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.errors import RecordsError
from penstock.mapping import to_pulsar as kernel
from penstock.wire.buffer import as_array
from penstock.wire.kafka import ErrorCode, RecordBatch
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels import BAD_VARINT, TRUNCATED, ByteArray

__all__ = ["DEFAULT_HEADROOM", "PulsarBatch", "batch_to_entry", "body_to_entry"]

DEFAULT_HEADROOM = 512
"""Free bytes before the payload, for the head of the SEND frame."""

_PER_RECORD = 32
_SLACK = 1024
# Length, attributes, timestamp, offset, null key, null value, no headers: a byte each.
_SMALLEST_RECORD = 7

_REASONS = {
    TRUNCATED: "ends too early",
    BAD_VARINT: "has a number of more than 64 bits",
    kernel.BAD_LENGTH: "has a length that cannot be",
    kernel.BAD_OFFSET: "has an offset that does not follow the one before",
    kernel.BAD_TIMESTAMP: "has a timestamp of more than 64 bits",
    kernel.TRAILING: "is followed by bytes that belong to no record",
}


class PulsarBatch(NamedTuple):
    """The payload of an entry, buffer[start:end], and what its metadata must say."""

    buffer: ByteArray
    start: int
    end: int
    num_messages: int
    publish_time: int
    """The largest timestamp of a record, or now if none has one."""
    keyless: int
    """Records with a null key, which a compacted topic cannot take."""
    empty_values: int
    """Records with an empty value, which Pulsar's compaction would take for deletes."""

    @property
    def payload(self) -> memoryview:
        """Give the payload alone."""
        return self.buffer.data[self.start : self.end]


def batch_to_entry(
    batch: RecordBatch, *, now: int, limit: int, headroom: int = DEFAULT_HEADROOM
) -> PulsarBatch:
    """Check a produced batch and carry it over; raise RecordsError if it cannot be taken.

    `limit` bounds what a compressed batch may inflate to, `now` is the time in milliseconds.
    """
    _check(batch)
    batch.check()
    records, count = as_array(batch.records(limit)), batch.record_count
    return _entry(records, count, batch.base_timestamp, now, headroom)


def body_to_entry(body: BatchBody, *, now: int, headroom: int = DEFAULT_HEADROOM) -> PulsarBatch:
    """Carry over records that were made here and have no head of a batch; raise RecordsError as above."""
    return _entry(as_array(body.records), body.count, body.base_timestamp, now, headroom)


def _entry(records: ByteArray, count: int, base_timestamp: int, now: int, headroom: int) -> PulsarBatch:
    if count * _SMALLEST_RECORD > len(records):
        raise _refused(f"has {len(records)} bytes for {count} records")
    out, end, said = _convert(records, count, base_timestamp, headroom)
    if end < 0:
        raise _refused(f"cannot be read: record {said[kernel.RECORD]} {_REASONS[end]}")
    return PulsarBatch(
        out,
        headroom,
        end,
        count,
        said[kernel.MAX_TIMESTAMP] if said[kernel.MAX_TIMESTAMP] >= 0 else now,
        said[kernel.KEYLESS],
        said[kernel.EMPTY_VALUES],
    )


def _convert(
    records: ByteArray, count: int, base_timestamp: int, headroom: int
) -> tuple[ByteArray, int, list[int]]:
    """Run the kernel, with a larger output if keys or headers grow more than usual."""
    room = headroom + len(records) + len(records) // 2 + _PER_RECORD * count + _SLACK
    facts = np.empty(kernel.FACTS, np.int64)
    end = kernel.NO_SPACE
    while end == kernel.NO_SPACE:
        out = np.empty(room, np.uint8)
        try:
            end = kernel.records_to_entry(
                records, 0, len(records), count, base_timestamp, out, headroom, facts
            )
        except IndexError:  # the second wall: the kernel's own checks should have seen it
            end = kernel.BAD_LENGTH
        room *= 2
    return out, end, facts.tolist()


def _check(batch: RecordBatch) -> None:
    """Refuse what a producer may not send, as Kafka does."""
    if batch.attributes:
        _check_attributes(batch)
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise _refused(f"counts {batch.record_count} records, its last offset {batch.last_offset_delta}")


def _check_attributes(batch: RecordBatch) -> None:
    if batch.is_control:
        raise _refused("is a transaction marker, which clients may not write")
    if batch.is_log_append_time:
        raise _refused("has the broker's timestamp type", ErrorCode.INVALID_TIMESTAMP)


def _refused(what: str, error_code: ErrorCode = ErrorCode.INVALID_RECORD) -> RecordsError:
    return RecordsError(f"a record batch {what}", error_code=error_code)
