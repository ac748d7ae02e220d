"""What a partition remembers of idempotent producers: the last five batches of each (KIP-98).

Kafka's sequence is 31 bits wide and begins again at 0; Pulsar's is 64 bits wide and must grow. A sequence is
extended to the one nearest to what is expected.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["Sequences"]

_REMEMBERED: Final = 5
_PRODUCERS: Final = 10_000
_WRAP: Final = 1 << 31


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int | None = None
    """Extended to 64 bits; None until something is known."""
    maybe_stored: int = -1
    """The highest sequence that may be on Pulsar although we did not hear so."""
    stored: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """First sequence, records and offset of the newest batches."""
    under_way: dict[tuple[int, int], tuple[asyncio.Future[int], asyncio.Future[Any]]] = field(
        default_factory=dict
    )
    """First sequence and records to the offset and the receipt that will come."""

    def extended(self, sequence: int) -> int:
        """Give the 64-bit sequence nearest to the one that is expected."""
        if self.next_sequence is None:
            return sequence
        distance = (sequence - self.next_sequence + _WRAP // 2) % _WRAP - _WRAP // 2
        return max(self.next_sequence + distance, sequence)

    def has_failed(self) -> bool:
        """Say whether a batch failed whose failure was not told yet."""
        return any(
            receipt.done() and (receipt.cancelled() or receipt.exception() is not None)
            for _, receipt in self.under_way.values()
        )


class Sequences:
    """The idempotent producers of one partition, the least used forgotten first."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def opened(self, producer_id: int, epoch: int, last_sequence: int) -> None:
        """Take what Pulsar knows of a producer: the highest sequence it has stored, or -1."""
        producer = self._of(producer_id, epoch)
        producer.maybe_stored = max(producer.maybe_stored, last_sequence)
        if producer.next_sequence is None and last_sequence >= 0:
            producer.next_sequence = last_sequence + 1

    def check_epoch(self, batch: RecordBatch) -> None:
        """Refuse a producer whose id a newer one has taken over."""
        self._of(batch.producer_id, batch.producer_epoch)

    def find(self, batch: RecordBatch) -> int | asyncio.Future[int] | None:
        """Give the offset of a batch that came before, now or later; None if it is the next one."""
        producer = self._of(batch.producer_id, batch.producer_epoch)
        first, expected = producer.extended(batch.base_sequence), producer.next_sequence
        for seen, count, offset in producer.stored:
            if (seen, count) == (first, batch.record_count) and offset >= 0:
                return offset
        if (first, batch.record_count) in producer.under_way:
            return producer.under_way[first, batch.record_count][0]
        if expected is None or (first == expected and not producer.has_failed()):
            return None
        behind = first < expected
        # A client takes DUPLICATE_SEQUENCE_NUMBER for success: it is stored, and nobody remembers where.
        error = ErrorCode.DUPLICATE_SEQUENCE_NUMBER if behind else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        raise ApiError(f"sequence {batch.base_sequence}, not {expected % _WRAP}", error_code=error)

    def is_next(self, batch: RecordBatch) -> bool:
        """Say whether a batch is the next one of a producer that is known."""
        producer = self._still(batch)
        return (
            producer is not None
            and producer.next_sequence is not None
            and producer.extended(batch.base_sequence) == producer.next_sequence
            and not producer.has_failed()
        )

    def next_of(self, batch: RecordBatch) -> int:
        """Give the sequence of a batch, extended to 64 bits."""
        return self._of(batch.producer_id, batch.producer_epoch).extended(batch.base_sequence)

    def begun(self, batch: RecordBatch, offset: asyncio.Future[int], receipt: asyncio.Future[Any]) -> None:
        """Count a batch that is being stored."""
        producer = self._of(batch.producer_id, batch.producer_epoch)
        first = producer.extended(batch.base_sequence)
        producer.next_sequence = first + batch.record_count
        producer.under_way[first, batch.record_count] = (offset, receipt)

    def stored(self, batch: RecordBatch, first: int, offset: int) -> None:
        """Remember where a batch went."""
        producer = self._still(batch)
        if producer is not None:
            producer.under_way.pop((first, batch.record_count), None)
            producer.stored.append((first, batch.record_count, offset))
            producer.next_sequence = max(producer.next_sequence or 0, first + batch.record_count)

    def failed(self, batch: RecordBatch, first: int) -> None:
        """Expect a batch once more of which nobody knows whether it was stored."""
        producer = self._still(batch)
        if producer is not None:
            producer.under_way.pop((first, batch.record_count), None)
            producer.maybe_stored = max(producer.maybe_stored, first + batch.record_count - 1)
            producer.next_sequence = min(producer.next_sequence or first, first)

    def may_be_stored(self, batch: RecordBatch, first: int) -> bool:
        """Say whether it can be that a batch was stored by an attempt of which we heard nothing."""
        producer = self._still(batch)
        return producer is not None and first + batch.record_count - 1 <= producer.maybe_stored

    def _still(self, batch: RecordBatch) -> _Producer | None:
        producer = self._producers.get(batch.producer_id)
        return producer if producer is not None and producer.epoch == batch.producer_epoch else None

    def _of(self, producer_id: int, epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise ApiError("a newer producer has this id", error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        if producer is None or epoch > producer.epoch:
            producer = self._producers[producer_id] = _Producer(epoch)
        self._producers.move_to_end(producer_id)
        if len(self._producers) > _PRODUCERS:
            self._producers.popitem(last=False)
        return producer
