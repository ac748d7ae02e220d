"""What a partition remembers of idempotent producers: the last five batches of each (KIP-98)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["Sequences"]

_REMEMBERED: Final = 5
_PRODUCERS: Final = 10_000
_WRAP: Final = 1 << 31
"""Kafka's sequence is 31 bits wide and begins again at 0."""


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int | None = None
    """Extended to 64 bits; None until the first batch."""
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First sequence, records and offset of the newest batches."""


class Sequences:
    """The idempotent producers of one partition, the least used forgotten first."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def check(self, batch: RecordBatch) -> int | None:
        """Give the offset of a batch that was stored before, or None if it is the next one."""
        producer = self._producer(batch)
        for first, count, offset in producer.batches:
            if (first % _WRAP, count) == (batch.base_sequence, batch.record_count):
                return offset
        expected = producer.next_sequence
        if expected is not None and batch.base_sequence != expected % _WRAP:
            behind = (batch.base_sequence - expected) % _WRAP > _WRAP // 2
            error = ErrorCode.DUPLICATE_SEQUENCE_NUMBER if behind else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            raise ApiError(f"sequence {batch.base_sequence}, not {expected % _WRAP}", error_code=error)
        return None

    def begin(self, batch: RecordBatch) -> int:
        """Count a batch that is being stored; give its first sequence, extended to 64 bits."""
        producer = self._producer(batch)
        first = batch.base_sequence if producer.next_sequence is None else producer.next_sequence
        producer.next_sequence = first + batch.record_count
        return first

    def stored(self, producer_id: int, epoch: int, first: int, count: int, offset: int) -> None:
        """Remember where a batch went."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer.epoch == epoch:
            producer.batches = [*producer.batches, (first, count, offset)][-_REMEMBERED:]

    def failed(self, producer_id: int, epoch: int, first: int) -> None:
        """Expect a batch once more that was not stored."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer.epoch == epoch and producer.next_sequence is not None:
            producer.next_sequence = min(producer.next_sequence, first)

    def _producer(self, batch: RecordBatch) -> _Producer:
        producer = self._producers.get(batch.producer_id)
        if producer is not None and batch.producer_epoch < producer.epoch:
            raise ApiError("a newer producer has this id", error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        if producer is None or batch.producer_epoch > producer.epoch:
            producer = self._producers[batch.producer_id] = _Producer(batch.producer_epoch)
        self._producers.move_to_end(batch.producer_id)
        if len(self._producers) > _PRODUCERS:
            self._producers.popitem(last=False)
        return producer
