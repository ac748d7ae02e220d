"""The records of fetched batches as a machine takes them, and any of them as the Arrow batch of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import RecordsError
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.found import Texts, texts_at
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.record_batch import RecordBatch, read_batches
from penstock.wire.kernels import ByteArray, IntArray
from penstock.wire.kernels.records import (
    F_HEADERS,
    F_KEY,
    F_KEY_SIZE,
    F_OFFSET,
    F_TIMESTAMP,
    F_VALUE,
    F_VALUE_SIZE,
    FIELDS,
    HEADER_FIELDS,
    locate_headers,
    locate_records,
    record_starts,
)

__all__ = ["Body", "Skip", "bodies_of", "corrupt"]

Skip = Callable[[RecordBatch], bool]
"""Whether a batch is passed over, because its transaction was aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The records of one batch, inflated, and the range of offsets that is asked for."""

    records: ByteArray
    count: int
    base_offset: int
    base_timestamp: int
    append_timestamp: int | None
    """The time of all records, where the broker sets it."""
    first: int
    """Offsets count from that of the batch."""
    end: int

    @classmethod
    def whole(cls, records: ByteArray, count: int) -> Body:
        """Take records that were made here, all of them."""
        return cls(
            records=records,
            count=count,
            base_offset=0,
            base_timestamp=0,
            append_timestamp=None,
            first=0,
            end=count,
        )

    def starts(self) -> IntArray:
        """Give where the records of the range begin; RecordsError if the bytes are no records."""
        starts = np.empty(self.count, np.int64)
        found = record_starts(self.records, self.count, self.first, self.end, starts)
        if found < 0:
            raise corrupt(-1, self.base_offset)
        return starts[:found]

    def offsets(self, starts: IntArray) -> IntArray:
        """Give the offsets of the records that begin at `starts`."""
        fields = np.empty(len(starts) * FIELDS, np.int64)
        if locate_records(self.records, starts, fields) < 0:
            raise corrupt(-1, self.base_offset)
        return fields.reshape(-1, FIELDS)[:, F_OFFSET] + self.base_offset

    def arrow(self, starts: IntArray, topic: str, partition: int) -> pa.RecordBatch:
        """Give the records that begin at `starts` as a stage takes them."""
        rows = len(starts)
        fields = np.empty(rows * FIELDS, np.int64)
        headers = locate_records(self.records, starts, fields)
        if headers < 0:
            raise corrupt(partition, self.base_offset)
        table = fields.reshape(rows, FIELDS)
        columns = {
            "key": self._binary(table[:, F_KEY], table[:, F_KEY_SIZE]),
            "value": self._binary(table[:, F_VALUE], table[:, F_VALUE_SIZE]),
            "headers": self._headers(fields, headers, partition),
            "topic": pa.repeat(pa.scalar(topic, pa.utf8()), rows),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "offset": pa.array(table[:, F_OFFSET] + self.base_offset),
            "timestamp": pa.array(self._timestamps(table[:, F_TIMESTAMP])),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _timestamps(self, deltas: IntArray) -> IntArray:
        if self.append_timestamp is not None:
            return np.full(len(deltas), self.append_timestamp, np.int64)
        return deltas + self.base_timestamp

    def _binary(self, starts: IntArray, sizes: IntArray) -> pa.BinaryArray:
        return _view(texts_at(Texts(self.records, starts, sizes), sizes >= 0))

    def _headers(self, fields: IntArray, count: int, partition: int) -> pa.ListArray:
        found = np.empty(count * HEADER_FIELDS, np.int64)
        if locate_headers(self.records, fields, found) < 0:
            raise corrupt(partition, self.base_offset)
        table = found.reshape(count, HEADER_FIELDS)
        names = self._binary(table[:, 0], table[:, 1])
        pairs = pa.StructArray.from_arrays(
            [_texts(names), self._binary(table[:, 2], table[:, 3])], ["key", "value"]
        )
        counts = fields.reshape(-1, FIELDS)[:, F_HEADERS]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(HEADERS)


def _view(texts: pa.StringArray) -> pa.BinaryArray:
    return pa.Array.from_buffers(pa.binary(), len(texts), texts.buffers(), texts.null_count)


def _texts(names: pa.BinaryArray) -> pa.StringArray:
    try:
        return names.cast(pa.utf8())
    except pa.ArrowInvalid:
        # A header's name is text by protocol; Kafka's own client reads other bytes so, too.
        return pa.array([raw.decode("utf-8", "replace") for raw in names.to_pylist()], pa.utf8())


def corrupt(partition: int, offset: int) -> RecordsError:
    """Give the error of a batch whose records cannot be read."""
    return RecordsError(
        "a record batch holds bytes that are no records",
        error_code=ErrorCode.CORRUPT_MESSAGE,
        where=f"partition {partition}, offset {offset}",
    )


def bodies_of(data: Buffer, first: int, end: int, skip: Skip | None, limit: int) -> Iterator[Body]:
    """Cut fetched bytes into the bodies that have offsets from `first` up to `end`, checksums looked at.

    Markers of transactions are passed over; `limit` bounds what a batch may inflate to.
    """
    for batch in read_batches(data):
        beyond = batch.base_offset >= end or batch.base_offset + batch.last_offset_delta < first
        if beyond or batch.is_control or (skip is not None and skip(batch)):
            continue
        batch.check()
        yield Body(
            records=as_array(batch.records(limit)),
            count=batch.record_count,
            base_offset=batch.base_offset,
            base_timestamp=batch.base_timestamp,
            append_timestamp=batch.max_timestamp if batch.is_log_append_time else None,
            first=first - batch.base_offset,
            end=end - batch.base_offset,
        )
