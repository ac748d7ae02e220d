"""The log of one partition as a Kafka leader keeps it: sequences, epochs, open and aborted transactions.

What is above the high watermark is not with all replicas: nobody reads it, nothing of it is acknowledged, and
a leader that dies may take it along.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.record_batch import RecordBatch, read_batch, write_batch_head

__all__ = ["Appended", "PartitionLog", "Producing"]

_REMEMBERED: Final = 5
"""Batches of a producer that a leader remembers."""
_SEQUENCES: Final = 1 << 31
_CONTROL: Final = 0x30
"""Attributes of a marker: transactional and control."""


@dataclass(slots=True)
class Producing:
    """What a leader remembers of a producer: first and last sequence and the offset of its last batches."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    open_at: int | None = None
    """Where its open transaction begins."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch: a code, and the offset behind it, from which it may be acknowledged."""

    code: int
    base: int = -1
    behind: int = 0


class PartitionLog:
    """Batches in order."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.high_watermark = 0
        self.producers: dict[int, Producing] = {}
        self.batches: list[RecordBatch] = []
        self._aborted: list[tuple[int, int, int]] = []
        """Producer, first offset and offset of the marker."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def end(self) -> int:
        """The offset of the next record."""
        last = self.batches[-1] if self.batches else None
        return last.base_offset + last.last_offset_delta + 1 if last else 0

    @property
    def last_stable(self) -> int:
        """Where the first open transaction begins, else the high watermark."""
        begins = [each.open_at for each in self.producers.values() if each.open_at is not None]
        return min([*begins, self.high_watermark])

    # Writing

    def is_open(self, producer_id: int) -> bool:
        """Say whether a producer has a transaction here."""
        found = self.producers.get(producer_id)
        return found is not None and found.open_at is not None

    def append(self, data: bytes) -> Appended:
        """Take a batch of a producer, once and in order."""
        batch = read_batch(memoryview(data))
        if batch.producer_id < 0:
            return self._write(data)
        known = self.producers.get(batch.producer_id)
        code = self._judged(known, batch)
        if isinstance(code, Appended):
            return code
        if code:
            return Appended(code)
        written = self._write(data)
        self._remember(self.batches[-1])
        return written

    def _judged(self, known: Producing | None, batch: RecordBatch) -> int | Appended:
        if known is None:
            return 0  # of a producer that is not known any sequence is taken
        if batch.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > known.epoch:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence else 0
        last = (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
        for first, end, base in known.batches:
            if (first, end) == (batch.base_sequence, last):
                return Appended(0, base, base + batch.last_offset_delta + 1)
        follows = batch.base_sequence == (known.last_sequence + 1) % _SEQUENCES
        return 0 if follows else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _write(self, data: bytes) -> Appended:
        base = self.end
        self.batches.append(read_batch(memoryview(struct.pack(">q", base) + data[8:])))
        return Appended(0, base, self.end)

    def _remember(self, batch: RecordBatch) -> None:
        known = self.producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            open_at = known.open_at if known else None
            known = self.producers[batch.producer_id] = Producing(batch.producer_epoch, open_at=open_at)
        if batch.is_control:
            if known.open_at is not None and not self._is_commit(batch):
                self._aborted.append((batch.producer_id, known.open_at, batch.base_offset))
            known.open_at = None
            return
        last = (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
        known.batches.append((batch.base_sequence, last, batch.base_offset))
        if batch.is_transactional and known.open_at is None:
            known.open_at = batch.base_offset

    def mark(self, producer_id: int, epoch: int, *, committed: bool) -> int:
        """Write the marker that ends a transaction; give the offset behind it."""
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return self.end
        body = BatchBody(_marker_record(committed), 1, 0, 0)
        data = memoryview(framed(body))
        write_batch_head(
            data,
            base_offset=0,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=1,
            attributes=_CONTROL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1,
        )
        self._write(bytes(data))
        self._remember(self.batches[-1])
        return self.end

    @staticmethod
    def _is_commit(batch: RecordBatch) -> bool:
        # Length, attributes, two deltas and the length of the key are one byte each; then version and type.
        return bool(bytes(batch.data)[61 + 8])

    def lose(self, end: int, *, forgetful: bool) -> None:
        """Another leader goes on from an offset, and may remember only the last batch of each producer."""
        self.batches = [batch for batch in self.batches if batch.base_offset < end]
        self._aborted.clear()
        self.producers.clear()
        for batch in self.batches:
            if batch.producer_id >= 0:
                self._remember(batch)
        if forgetful:
            for known in self.producers.values():
                while len(known.batches) > 1:
                    known.batches.popleft()

    # Reading

    def read(self, offset: int, limit: int, *, committed: bool) -> bytes:
        """Give whole batches from the one with an offset on: one at least, then up to so many bytes."""
        end = self.last_stable if committed else self.high_watermark
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            last = batch.base_offset + batch.last_offset_delta
            if last < offset:
                continue
            if batch.base_offset >= end or (found and size + len(batch.data) > limit):
                break
            found.append(bytes(batch.data))
            size += len(batch.data)
        return b"".join(found)

    def stored(self) -> list[RecordBatch]:
        """Give the batches that all replicas have."""
        return [batch for batch in self.batches if batch.base_offset < self.high_watermark]

    def committed(self) -> list[RecordBatch]:
        """Give the batches that count at the end: those of transactions only if they were committed."""
        found: list[RecordBatch] = []
        open_ones: dict[int, list[RecordBatch]] = {}
        for batch in self.stored():
            if batch.is_control:
                ended = open_ones.pop(batch.producer_id, [])
                found += ended if self._is_commit(batch) else []
            elif batch.is_transactional:
                open_ones.setdefault(batch.producer_id, []).append(batch)
            else:
                found.append(batch)
        return sorted(found, key=lambda batch: batch.base_offset)

    def aborted(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Give producer and first offset of the aborted transactions that reach into a range."""
        return [(who, first) for who, first, last in self._aborted if last >= begin and first < end]


def _marker_record(committed: bool) -> bytes:
    key, value = struct.pack(">hh", 0, committed), struct.pack(">hi", 0, 0)
    rest = bytes((0, 0, 0, len(key) << 1)) + key + bytes((len(value) << 1,)) + value + b"\0"
    return bytes((len(rest) << 1,)) + rest
