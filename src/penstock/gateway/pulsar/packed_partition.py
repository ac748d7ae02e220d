"""A partition whose offsets are packed message ids: for brokers that keep no index.

An offset is a place, so a place is found by arithmetic. Offsets grow and are not continuous: behind the last
message of an entry comes the first of the next one. A batch of more than 4096 records becomes several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from penstock.brokers.pulsar import Delivery
from penstock.brokers.pulsar.admin import EntryHead
from penstock.errors import ApiError
from penstock.gateway.ports import Appended
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.log_end import LogEnd
from penstock.gateway.pulsar.numbering import Numbering
from penstock.gateway.pulsar.packed import PENSTOCK
from penstock.gateway.pulsar.partition import Partition
from penstock.mapping.split import split_batch
from penstock.wire.kafka import ErrorCode, RecordBatch
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["PACKED", "PackedPartition"]

_FULL: Final = (1 << PENSTOCK.entry_bits) - (1 << 14)
"""The entry at which a ledger is closed, while there are numbers for what is under way."""


class _PackedCounter(OffsetCounter):
    """Knows the offset of an entry by its place."""

    def count(self, place: MessageId, messages: int) -> int:
        """Give the offset of the first message of an entry."""
        try:
            first = PENSTOCK.pack(place._replace(batch_index=0))
        except ApiError as exc:
            why = f"the batch is stored and has no offset: {exc.what}"
            raise ApiError(why, error_code=ErrorCode.POLICY_VIOLATION) from exc
        self.counted += 1
        if self.last is None or place[:2] >= self.last[:2]:
            self.last, self.next_offset = place, first + messages
        return first


def _packed(delivery: Delivery) -> int:
    try:
        return PENSTOCK.pack(delivery.message_id._replace(batch_index=0))
    except ApiError:
        return -1


PACKED: Final = Numbering(_packed, _PackedCounter, continuous=False, largest_batch=PENSTOCK.largest_batch)
"""By the message id: offsets grow, with holes between the entries."""


class _PackedEnd(LogEnd):
    """Knows the end by the place of the last message: of an empty topic, the first place in its ledger."""

    def _has_offset(self, head: EntryHead) -> bool:
        return True

    def _behind(self, place: MessageId, head: EntryHead) -> int:
        known, following = self._counter.last, self._counter.next_offset
        if known is not None and following is not None and known[:2] == place[:2]:
            return following
        # A batch that others wrote may be larger than there are numbers.
        index = min(max(place.batch_index, 0), PENSTOCK.largest_batch - 1)
        return PENSTOCK.pack(place._replace(batch_index=index)) + 1

    async def _of_empty(self, last: MessageId | None) -> int:
        if last is not None and last.ledger_id >= 0:
            return _first_in(last.ledger_id)
        # Everything was removed: what was last is only known here.
        if self._counter.next_offset is not None:
            return self._counter.next_offset
        return _first_place(await self._admin.stats(self._topic, internal=True))


class PackedPartition(Partition):
    """A partition of which the broker keeps no index."""

    _numbering = PACKED
    _end_kind = _PackedEnd
    _closed_ledger = -1

    def append(self, batch: RecordBatch) -> asyncio.Future[Appended]:
        """Take a batch, in pieces if it has more records than an entry has numbers for."""
        self._close_full_ledger()
        if batch.record_count <= PENSTOCK.largest_batch:
            return self.writer.append(batch)
        parts = split_batch(batch, most=PENSTOCK.largest_batch, limit=self._limit)
        stored = asyncio.gather(*map(self.writer.append, parts), return_exceptions=True)
        return asyncio.ensure_future(_first(stored))

    def _close_full_ledger(self) -> None:
        """Begin a new ledger before the numbers for entries run out: brokers roll over by time, too."""
        last = self._counter.last
        if last is not None and last.entry_id >= _FULL and last.ledger_id != self._closed_ledger:
            self._closed_ledger = last.ledger_id
            self._in_background(self._admin.unload(self._topic))

    async def _find_start(self, stats: Mapping[str, Any]) -> int:
        # A log that was emptied begins at its end, although a new ledger is open already.
        return min(_first_place(stats), (await self._end.ask()).last)

    async def _place(self, offset: int) -> MessageId:
        return PENSTOCK.unpack(offset) if offset else EARLIEST


def _first_place(stats: Mapping[str, Any]) -> int:
    return _first_in(min((int(ledger["ledgerId"]) for ledger in stats.get("ledgers", ())), default=0))


def _first_in(ledger: int) -> int:
    return PENSTOCK.pack(MessageId(ledger, 0, 0))


async def _first(parts: Awaitable[list[Appended | BaseException]]) -> Appended:
    """Give where the first part went, once all are stored; raise if one is not.

    A part that is stored and has no known offset is a success to the client: it tells nothing of the others.
    """
    results = await parts
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=_is_duplicate):
        raise error
    [first, *_] = [result for result in results if isinstance(result, Appended)]
    return first


def _is_duplicate(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
