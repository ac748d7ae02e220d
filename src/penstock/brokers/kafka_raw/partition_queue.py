"""The batches for one partition until they are acknowledged: sent in order, several at once, again in order.

Brokers tell repeats by producer id, epoch and sequence (KIP-98), and remember the last five batches; after a
crash only the last one. A batch that they have, and do not remember, they refuse as out of order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.brokers.kafka_raw.retry import pauses
from penstock.errors import PenstockError

__all__ = ["MOST_UNDER_WAY", "Batch", "PartitionQueue"]

MOST_UNDER_WAY = 5
_SEQUENCES = 1 << 31


@dataclass(eq=False, slots=True)
class Batch:
    """A framed batch, until when it must be acknowledged, and the sequence of its last record."""

    data: bytearray
    until: float
    last_sequence: int


class PartitionQueue:
    """Batches in order; the first `under_way` of them are sent."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.failure: PenstockError | None = None
        """Why the oldest batch is not there yet."""
        self.in_doubt = False
        """Whether the oldest batch was refused as out of order: the log has it, or has lost one before it."""
        self._batches: deque[Batch] = deque()
        self._under_way = 0
        self._next_sequence = 0
        self._proven = False
        self._rewinding = False
        self._retry_at = 0.0
        self._pauses: Iterator[float] = pauses()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def take_sequence(self, records: int) -> int:
        """Give the sequence of the next batch, which has so many records; it goes round after 2**31."""
        sequence = self._next_sequence
        self._next_sequence = (sequence + records) % _SEQUENCES
        return sequence

    def append(self, data: bytearray, until: float) -> None:
        """Put the batch at the end that has the sequences taken last."""
        self._batches.append(Batch(data, until, (self._next_sequence - 1) % _SEQUENCES))

    def can_send(self, now: float) -> bool:
        """Say whether the next batch may be sent now."""
        # A broker that does not know the producer takes any sequence: until it does, one at a time.
        most = MOST_UNDER_WAY if self._proven else 1
        waits = self._rewinding and self._under_way
        return self._under_way < min(most, len(self._batches)) and not waits and self._retry_at <= now

    def take(self) -> Batch:
        """Give the next batch to be sent."""
        self._rewinding = False
        self._under_way += 1
        return self._batches[self._under_way - 1]

    def acknowledged(self, batch: Batch) -> None:
        """Forget a batch: it is in the log."""
        self._under_way -= 1
        self._batches.remove(batch)
        self._proven = True
        if not self._rewinding:
            self.failure, self._retry_at = None, 0.0
            self._pauses = pauses()

    def withdraw(self, batch: Batch, records: int) -> None:
        """Forget the newest batch, which was refused: the next one gets its sequences."""
        self._under_way -= 1
        self._batches.remove(batch)
        self._next_sequence = (self._next_sequence - records) % _SEQUENCES

    def failed(self, exc: PenstockError) -> None:
        """Send a batch again, and all behind it, as soon as none is under way."""
        self._under_way -= 1
        self.postpone(exc)

    def postpone(self, exc: PenstockError) -> None:
        """Send nothing for a while."""
        self.failure = exc
        self._rewinding = self._rewinding or self._under_way > 0
        self._retry_at = time.monotonic() + next(self._pauses)

    def out_of_order(self, batch: Batch, exc: PenstockError) -> None:
        """Send a batch again that does not follow what the broker remembers, after those before it."""
        self.in_doubt = self.in_doubt or batch is self._batches[0]
        self.failed(exc)

    def found(self, last_sequence: int | None) -> int | None:
        """Forget the batches before the one that ends so, the last in the log; give their size.

        That one is sent again: it is remembered, and answered when all replicas in sync have it. None says
        that the oldest batch is not in the log.
        """
        self.in_doubt = False
        if last_sequence is None or not self._is_within(last_sequence):
            return None
        size = 0
        while self._is_within(last_sequence) and self._batches[0].last_sequence != last_sequence:
            size += len(self._batches.popleft().data)
        return size

    def _is_within(self, last_sequence: int) -> bool:
        # Sequences go round: which of two is the later one is told by the shorter way.
        ahead = (last_sequence - self._batches[0].last_sequence) % _SEQUENCES if self._batches else _SEQUENCES
        return ahead < _SEQUENCES // 2

    def overdue(self, now: float) -> bool:
        """Say whether the oldest batch should have been acknowledged by now."""
        return bool(self._batches) and now > self._batches[0].until
