"""What a partition remembers of idempotent producers: the last five batches of each (KIP-98).

Kafka's sequence is 31 bits wide and begins again at 0; Pulsar's is 64 bits wide and must grow. A sequence is
extended to the one nearest to what is expected.

A client takes DUPLICATE_SEQUENCE_NUMBER for success. So a batch behind what is expected is a duplicate only
if it is known to be stored: it was confirmed here without a gap. Any other one has to be found in the log
first, also if it ends with the highest sequence that Pulsar has: a broker counts what it has begun to store.
When such a batch comes to a gateway that has taken over, nothing later is sent until the log has the entry
that ends there. Entries are stored in order, so that settles all before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from penstock.errors import ApiError
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["Refusals", "Sequences", "Standing"]

_REMEMBERED: Final = 5
_PRODUCERS: Final = 10_000
_REFUSALS: Final = 10_000
"""Producers of all partitions together of which a refused batch is remembered."""
_LONGEST_NAME: Final = 1_000
"""No topic has a longer name, so what is refused for one need not be remembered."""
_NO_BYTES: Final = memoryview(b"")
_WRAP: Final = 1 << 31
_IN_FLIGHT_SECONDS: Final = 30.0
"""How long after a refusal its producer may still have later batches in flight: request.timeout.ms."""
_STALE_SECONDS: Final = 5.0
"""How long what Pulsar said when a producer was opened is believed while it is in doubt."""

_Key = tuple[str, int]
"""Topic and partition."""
_ProducerKey = tuple[int, int]
"""Id and epoch."""


class Standing(Enum):
    """Where a batch stands in the sequence of its producer."""

    NEXT = "it is the one to be stored next"
    STORED = "it is stored, and its offset is not known"
    TAKEN = "Pulsar has taken it, and may still be storing it for a gateway that is gone"
    PENDING = "it comes before one that Pulsar has taken and may still be storing"
    HELD = "it has to wait for others, which Pulsar may still be storing"
    BEHIND = "it comes before what is expected, and nothing here says that it is stored"
    OUT_OF_ORDER = "something before it is missing"


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int | None = None
    """Extended to 64 bits; None until something is known."""
    refused: int | None = None
    """The first batch that was refused while nothing was known: no later one may be stored before it."""
    refused_until: float = 0.0
    maybe_stored: int = -1
    """The highest sequence that may be on Pulsar although its receipt did not come."""
    pulsar_has: int = -1
    """The highest sequence that Pulsar had when the producer was opened."""
    opened_at: float = 0.0
    unsettled: int = -1
    """`pulsar_has` of a producer that is new here, until that entry is found or a later one is sent."""
    doubted_until: float = 0.0
    """From the first repetition on: another gateway had it in flight, so Pulsar may still be storing it."""
    confirmed: tuple[int, int] = (0, 0)
    """The newest sequences that are known to be stored without a gap, from the first to before the second."""
    broken: bool = False
    """Whether a later batch was stored after Pulsar refused one: from there on sequences mean nothing."""
    stored: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """First sequence, records and offset of the newest batches; offset -1 if it is not known."""
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

    def expected(self, now: float) -> int | None:
        """Give the sequence that may be stored next; None if any may."""
        if self.next_sequence is None and now < self.refused_until:
            return self.refused
        return self.next_sequence

    def has_failed(self) -> bool:
        """Say whether a batch failed whose failure was not told yet."""
        return any(
            receipt.done() and (receipt.cancelled() or receipt.exception() is not None)
            for _, receipt in self.under_way.values()
        )

    def has_under_way_from(self, first: int) -> bool:
        """Say whether a batch at or behind a sequence is on its way to Pulsar."""
        return any(other >= first for other, _ in self.under_way)

    def is_stored(self, first: int, count: int) -> bool:
        """Say whether a batch is known to be stored."""
        low, high = self.confirmed
        return low <= first and first + count <= high

    def behind(self, first: int, count: int) -> Standing:
        """Tell what is known of a batch before the expected one."""
        if self.is_stored(first, count):
            return Standing.STORED
        # One entry ends with the sequence that Pulsar names: this batch, or the last part of it.
        if first + count - 1 == self.pulsar_has:
            return Standing.TAKEN
        return Standing.PENDING if first + count - 1 < self.unsettled else Standing.BEHIND

    def is_doubted(self, now: float) -> bool:
        """Say whether a batch has come again that Pulsar has taken, and may still be storing."""
        return self.unsettled >= 0 and now < self.doubted_until

    def doubt(self, first: int, now: float) -> None:
        """Let nothing later be stored for a while, whatever Pulsar says when it is asked again."""
        if self.unsettled < 0:
            return
        if not self.doubted_until:
            self.doubted_until = now + _IN_FLIGHT_SECONDS
        elif now >= self.doubted_until:
            self.unsettled = -1
        self.refused = first if self.refused is None else min(first, self.refused)
        self.refused_until = now + _IN_FLIGHT_SECONDS

    def confirm(self, first: int, count: int) -> None:
        """Note that a batch is stored."""
        low, high = self.confirmed
        self.confirmed = (low if first == high and low < high else first, first + count)


class Sequences:
    """The idempotent producers of one partition, the least used forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._clock = clock

    def opened(self, producer_id: int, epoch: int, last_sequence: int) -> None:
        """Take what Pulsar knows of a producer: the highest sequence it has stored, or -1."""
        producer, now = self._of(producer_id, epoch), self._clock()
        producer.maybe_stored = max(producer.maybe_stored, last_sequence)
        producer.pulsar_has, producer.opened_at = last_sequence, now
        if producer.next_sequence is None or producer.is_doubted(now):
            producer.next_sequence = last_sequence + 1 if last_sequence >= 0 else None
            # A broker that names a lower number than before has gone back to what it has stored.
            producer.unsettled = last_sequence if last_sequence >= producer.unsettled else -1

    def check_epoch(self, batch: RecordBatch) -> None:
        """Refuse a producer whose id a newer one has taken over."""
        self._of(batch.producer_id, batch.producer_epoch)

    def find(self, batch: RecordBatch) -> int | asyncio.Future[int] | Standing:
        """Give the offset of a batch that came before, now or later; else where it stands."""
        producer, count = self._of(batch.producer_id, batch.producer_epoch), batch.record_count
        if producer.broken:
            return Standing.OUT_OF_ORDER
        first, expected = producer.extended(batch.base_sequence), producer.expected(self._clock())
        for seen, records, offset in producer.stored:
            if (seen, records) == (first, count):
                return offset if offset >= 0 else Standing.STORED
        if (first, count) in producer.under_way:
            return producer.under_way[first, count][0]
        if expected is None:
            return Standing.NEXT
        if producer.next_sequence is None:
            # All that is known is a refusal: batches before that one may still be waiting here.
            return Standing.NEXT if first <= expected else Standing.OUT_OF_ORDER
        if first < expected:
            producer.doubt(first, self._clock())
            return producer.behind(first, count)
        if producer.is_doubted(self._clock()):
            return Standing.HELD
        if first == expected and producer.has_under_way_from(first):
            # What was sent behind it is about to be given up, too. Clients take "out of order" for their next
            # batch as a loss of data, and do not send it again.
            return Standing.HELD
        return Standing.NEXT if first == expected and not producer.has_failed() else Standing.OUT_OF_ORDER

    def is_next(self, batch: RecordBatch) -> bool:
        """Say whether a batch is the next one of a producer that is known."""
        producer = self._still(batch)
        return (
            producer is not None
            and producer.next_sequence is not None
            and not producer.broken
            and producer.extended(batch.base_sequence) == producer.next_sequence
            and not producer.has_failed()
            and (producer.unsettled < 0 or not producer.is_doubted(self._clock()))
        )

    def unsettled(self, batch: RecordBatch) -> int:
        """Give the last sequence of what Pulsar may still be storing; -1 if there is nothing."""
        producer = self._still(batch)
        return -1 if producer is None else producer.unsettled

    def settled(self, batch: RecordBatch) -> None:
        """Take it as stored up to what Pulsar had: it stores in order."""
        producer = self._still(batch)
        if producer is not None:
            producer.unsettled = -1

    def is_stale(self, batch: RecordBatch) -> bool:
        """Say whether Pulsar should be asked once more what it has of a producer that is in doubt."""
        producer, now = self._still(batch), self._clock()
        return (
            producer is not None and producer.is_doubted(now) and now - producer.opened_at >= _STALE_SECONDS
        )

    def next_of(self, batch: RecordBatch) -> int:
        """Give the sequence of a batch, extended to 64 bits."""
        return self._of(batch.producer_id, batch.producer_epoch).extended(batch.base_sequence)

    def begun(self, batch: RecordBatch, offset: asyncio.Future[int], receipt: asyncio.Future[Any]) -> None:
        """Count a batch that is being stored."""
        producer = self._of(batch.producer_id, batch.producer_epoch)
        first = producer.extended(batch.base_sequence)
        producer.next_sequence, producer.unsettled = first + batch.record_count, -1
        producer.under_way[first, batch.record_count] = (offset, receipt)

    def stored(self, batch: RecordBatch, first: int, offset: int) -> None:
        """Remember where a batch went; -1 if only that it is stored is known."""
        producer = self._still(batch)
        if producer is None:
            return
        producer.under_way.pop((first, batch.record_count), None)
        if producer.broken:
            return
        behind = first + batch.record_count
        producer.stored.append((first, batch.record_count, offset))
        producer.confirm(first, batch.record_count)
        if producer.next_sequence is None or producer.next_sequence < behind:
            producer.next_sequence = behind

    def failed(self, batch: RecordBatch, first: int) -> None:
        """Expect a batch once more of which nobody knows whether it was stored."""
        producer = self._still(batch)
        if producer is not None:
            producer.under_way.pop((first, batch.record_count), None)
            producer.maybe_stored = max(producer.maybe_stored, first + batch.record_count - 1)
            self._expect_again(producer, first)

    def dropped(self, batch: RecordBatch, first: int) -> None:
        """Note a batch that Pulsar has dropped as a duplicate, and that could not be looked for.

        What was sent behind it is stored, and the client goes on behind that: then it is not expected once
        more, but looked for when it comes again.
        """
        producer = self._still(batch)
        if producer is not None:
            producer.under_way.pop((first, batch.record_count), None)
            producer.maybe_stored = max(producer.maybe_stored, first + batch.record_count - 1)
            if not producer.has_under_way_from(first):
                self._expect_again(producer, first)

    def rejected(self, batch: RecordBatch, first: int) -> None:
        """Expect a batch once more that Pulsar did not take.

        What was sent behind it is stored all the same. The client may give its sequences to other records
        (Java does when it drops a batch), so none of this producer's can be trusted until its epoch grows.
        """
        producer = self._still(batch)
        if producer is not None:
            producer.under_way.pop((first, batch.record_count), None)
            if producer.has_under_way_from(first):
                producer.broken = True
                producer.stored.clear()
            self._expect_again(producer, first)

    def refused(self, batch: RecordBatch) -> None:
        """Let nothing behind a batch that was refused before it was sent be taken for the first one.

        Of a producer that is known the batch is still expected. One that is not could begin with any.
        """
        known, now = self._producers.get(batch.producer_id), self._clock()
        if known is not None and batch.producer_epoch < known.epoch:
            return
        producer = self._of(batch.producer_id, batch.producer_epoch)
        if producer.next_sequence is None:
            before = producer.expected(now)
            sequence = batch.base_sequence
            producer.refused = sequence if before is None else min(before, sequence)
            producer.refused_until = now + _IN_FLIGHT_SECONDS

    def may_be_stored(self, batch: RecordBatch, first: int) -> bool:
        """Say whether it can be that a batch was stored by an attempt whose receipt did not come."""
        producer = self._still(batch)
        return producer is not None and first + batch.record_count - 1 <= producer.maybe_stored

    def _expect_again(self, producer: _Producer, first: int) -> None:
        if producer.next_sequence is None or first < producer.next_sequence:
            producer.next_sequence = first

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


class Refusals:
    """Batches that were refused while their partition was not open here, until it is or they are old.

    Of each producer only the first one matters: nothing behind it may be stored before it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._batches: OrderedDict[tuple[_Key, _ProducerKey], tuple[RecordBatch, float]] = OrderedDict()
        """The first batch of each producer in each partition and until when it counts, oldest first."""
        self._producers: dict[_Key, dict[_ProducerKey, None]] = {}
        self._clock = clock

    def __len__(self) -> int:
        return len(self._batches)

    def note(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Remember a batch of an idempotent producer, without its records."""
        if len(topic) > _LONGEST_NAME:
            return
        key, producer, now = (topic, partition), (batch.producer_id, batch.producer_epoch), self._clock()
        self._forget(now)
        known, _ = self._batches.get((key, producer), (batch, now))
        first = known if known.base_sequence < batch.base_sequence else batch
        self._batches[key, producer] = first._replace(data=_NO_BYTES), now + _IN_FLIGHT_SECONDS
        self._batches.move_to_end((key, producer))
        self._producers.setdefault(key, {})[producer] = None
        self._forget(now)

    def take(self, topic: str, partition: int) -> list[RecordBatch]:
        """Give what is remembered of a partition, and forget it."""
        key = (topic, partition)
        self._forget(self._clock())
        return [self._batches.pop((key, producer))[0] for producer in self._producers.pop(key, ())]

    def _forget(self, now: float) -> None:
        """Drop what is old, and the oldest of what is too much."""
        while self._batches:
            (key, producer), (_, until) = next(iter(self._batches.items()))
            if until >= now and len(self._batches) <= _REFUSALS:
                return
            del self._batches[key, producer], self._producers[key][producer]
            if not self._producers[key]:
                del self._producers[key]
