"""The records of fetched batches as a machine takes them, and any of them as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from penstock.errors import RecordsError
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.pipeline.evaluators.reference.reading import UnreadBatch
from penstock.record import Headers, KafkaRecord
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

__all__ = ["HELD", "INFLATED", "Body", "Skip", "bodies_of", "corrupt"]

INFLATED: Final = 64 << 20
"""Bytes that a compressed batch may inflate to."""
HELD: Final = 64 << 20
"""Inflated bytes behind which no further batch is inflated: a fetch may hold a thousand."""

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
    unread: str | None = None
    """Why the batch was not inflated; then a record without anything stands for it."""

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

    def kafka_records(self, starts: IntArray, topic: str | None, partition: int | None) -> list[KafkaRecord]:
        """Return the records that begin at `starts`, with their origin; RecordsError if there are none."""
        if self.unread is not None:
            origin = {"topic": topic, "partition": partition, "timestamp": self.base_timestamp}
            return [UnreadBatch(self.unread, offset=at, **origin) for at in self.offsets(starts).tolist()]
        fields = np.empty(len(starts) * FIELDS, np.int64)
        count = locate_records(self.records, starts, fields)
        places = np.empty(max(count, 0) * HEADER_FIELDS, np.int64)
        if count < 0 or locate_headers(self.records, starts, fields, places) < 0:
            raise corrupt(-1 if partition is None else partition, self.base_offset)
        data, found = self._bytes(starts), iter(places.tolist())
        append, base, base_time = self.append_timestamp, self.base_offset, self.base_timestamp
        records = list[KafkaRecord]()
        for row in fields.reshape(-1, FIELDS).tolist():
            key, key_size, value, value_size = row[F_KEY], row[F_KEY_SIZE], row[F_VALUE], row[F_VALUE_SIZE]
            record = KafkaRecord(
                key=None if key_size < 0 else bytes(data[key : key + key_size]),
                value=None if value_size < 0 else bytes(data[value : value + value_size]),
                headers=_headers(data, found, row[F_HEADERS]),
                topic=topic,
                partition=partition,
                offset=row[F_OFFSET] + base,
                timestamp=base_time + row[F_TIMESTAMP] if append is None else append,
            )
            records.append(record)
        return records

    def _bytes(self, starts: IntArray) -> bytes | memoryview:
        """Return the bytes to cut records out of: a copy is quicker, if many of the records are wanted.

        A large body, which is looked at in many parts, is not copied for each of them.
        """
        is_worth_it = len(starts) * _WORTH_A_COPY >= self.count and (
            len(self.records) <= _LARGE or len(starts) == self.count
        )
        return self.records.tobytes() if is_worth_it else self.records.data


_WORTH_A_COPY: Final = 32
"""To slice bytes is quicker than to slice a view by more than a copy of so many records takes."""
_LARGE: Final = 1 << 20
_MOST_NAMES: Final = 1024
_MOST_NAME: Final = 128
_names: Final[dict[bytes, str]] = {}
"""Names of headers that came before, as text."""


def _headers(data: bytes | memoryview, numbers: Iterator[int], count: int) -> Headers:
    """Cut headers out; each has four numbers: start and size of its name and of its value."""
    if not count:
        return ()
    headers = []
    for name, length, value, size in islice(zip(numbers, numbers, numbers, numbers, strict=True), count):
        raw = bytes(data[name : name + length])
        text = _names.get(raw)
        headers.append(
            (
                _name(raw) if text is None else text,
                None if size < 0 else bytes(data[value : value + size]),
            )
        )
    return tuple(headers)


def _name(raw: bytes) -> str:
    # A header's name is text by protocol; Kafka's own client replaces other bytes, too.
    text = raw.decode("utf-8", "replace")
    if len(_names) < _MOST_NAMES and len(raw) <= _MOST_NAME:
        _names[raw] = text
    return text


def corrupt(partition: int, offset: int) -> RecordsError:
    """Give the error of a batch whose records cannot be read."""
    return RecordsError(
        "a record batch holds bytes that are no records",
        error_code=ErrorCode.CORRUPT_MESSAGE,
        where=f"partition {partition}, offset {offset}",
    )


def bodies_of(data: Buffer, first: int, end: int, skip: Skip | None, limit: int) -> Iterator[Body]:
    """Cut fetched bytes into the bodies that have offsets from `first` up to `end`, checksums looked at.

    Markers of transactions are passed over. For a batch that inflates to more than `limit` stands a body of
    one record, which becomes a dead letter.
    """
    for batch in read_batches(data):
        beyond = batch.base_offset >= end or batch.base_offset + batch.last_offset_delta < first
        if beyond or batch.is_control or (skip is not None and skip(batch)):
            continue
        batch.check()
        try:
            records = batch.records(limit)
        except RecordsError as exc:
            if exc.error_code != ErrorCode.MESSAGE_TOO_LARGE:
                raise
            yield _unread(batch, first, end, exc)
            continue
        yield Body(
            records=as_array(records),
            count=batch.record_count,
            base_offset=batch.base_offset,
            base_timestamp=batch.base_timestamp,
            append_timestamp=batch.max_timestamp if batch.is_log_append_time else None,
            first=first - batch.base_offset,
            end=end - batch.base_offset,
        )


def _unread(batch: RecordBatch, first: int, end: int, error: RecordsError) -> Body:
    """Give what stands for a batch that is too large to be inflated, at the first of its offsets here."""
    at = max(first - batch.base_offset, 0)
    last = batch.base_offset + batch.last_offset_delta
    return Body(
        records=as_array(numbered(record_bytes(None, b"", ()), at)),
        count=1,
        base_offset=batch.base_offset,
        base_timestamp=batch.max_timestamp,
        append_timestamp=None,
        first=first - batch.base_offset,
        end=end - batch.base_offset,
        unread=f"{error.what}: {batch.record_count} records, offsets {batch.base_offset} to {last}",
    )
