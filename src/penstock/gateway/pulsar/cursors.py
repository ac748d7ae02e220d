"""Pulsar cursors at Kafka offsets: a group's subscription stands before the first record it has not read.

Whole entries are passed by moving the cursor; records inside a batch by acknowledging them with an ack set,
for which the broker needs `acknowledgmentAtBatchIndexLevelEnabled`.

Where a cursor stands inside an entry no statistics tell: a consumer is told, with the first entry it gets.
That somebody may have moved it is seen from statistics: the mark moves with whole entries, the cursor's own
log grows when it is reset, and a consumer that asks for entries leaves the time of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.errors import ClusterError
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["CursorState", "Cursors", "Seen", "Spot", "parse_mark"]

_PEEK_SECONDS: Final = 5.0


class Seen(NamedTuple):
    """What of a cursor's statistics changes when it is moved, by whatever means."""

    mark: MessageId
    version: tuple[int, int]
    """The last entry of the cursor's own log: ledger and entry."""
    flow: int
    """When a consumer last asked for entries, in milliseconds; 0 if none did since the broker loaded it."""


@dataclass(frozen=True, slots=True)
class CursorState:
    """A cursor as the statistics tell it."""

    seen: Seen
    in_use: bool
    """Whether a consumer has the subscription now."""
    backlog: int
    """Entries of which not everything is acknowledged."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The first record that a group has not read, and how many its entry holds."""

    message: MessageId
    batch_size: int = 0
    offset: int | None = None
    """The offset of the record; None if it is not known."""

    @property
    def entry(self) -> MessageId:
        """The entry of the record."""
        return self.message._replace(batch_index=-1)

    @property
    def is_inside(self) -> bool:
        """Whether a part of the entry was read."""
        return 0 < self.message.batch_index < self.batch_size


_START: Final = Spot(EARLIEST)


def parse_mark(text: Any) -> MessageId | None:
    """Read the mark of a cursor: the last entry of which everything was read; -1 before the first.

    >>> parse_mark("12:3")[:2], parse_mark("12:-1")[:2], parse_mark(None)
    ((12, 3), (12, -1), None)
    """
    ledger, _, entry = str(text).partition(":")
    try:
        return MessageId(int(ledger), int(entry))
    except ValueError:
        return None


class Cursors:
    """The cursors of all groups, by the names of partitions on Pulsar."""

    def __init__(self, client: PulsarClient, admin: Admin) -> None:
        self._client = client
        self._admin = admin

    async def states(self, topic: str) -> Mapping[str, CursorState]:
        """Tell the cursors of a topic; two requests."""
        stats, internal = await asyncio.gather(
            self._admin.stats(topic), self._admin.stats(topic, internal=True)
        )
        # Here the broker writes names as in a URL.
        cursors = {unquote_plus(name): each for name, each in _rows(internal, "cursors")}
        found = {}
        for name, each in _rows(stats, "subscriptions"):
            mark = parse_mark(cursors.get(name, {}).get("markDeletePosition"))
            if mark is not None:
                version = (
                    _number(cursors[name], "cursorLedger"),
                    _number(cursors[name], "cursorLedgerLastEntry"),
                )
                seen = Seen(mark, version, _number(each, "lastConsumedFlowTimestamp"))
                found[name] = CursorState(seen, bool(each.get("consumers")), _number(each, "msgBacklog"))
        return found

    async def in_use(self, topic: str) -> Mapping[str, bool]:
        """Name the subscriptions of a topic, and say which have consumers now; one request."""
        stats = await self._admin.stats(topic)
        return {name: bool(each.get("consumers")) for name, each in _rows(stats, "subscriptions")}

    async def place(self, topic: str, name: str, offset: int, *, exists: bool) -> int | None:
        """Move the cursor of a group to an offset; make it if there is none.

        Gives the offset at which it stands now; another one than wanted if the log begins or ends elsewhere,
        or if the broker does not acknowledge within entries; None if that is not known.
        """
        spot = await self._spot(topic, offset)
        if not exists:
            await self._admin.create_subscription(topic, name, spot.entry)
            # What is made stands behind the entry that was named.
        await self._admin.reset_cursor(topic, name, spot.entry)
        if not spot.is_inside or spot.offset is None:
            return spot.offset
        return spot.offset - spot.message.batch_index + await self._acknowledge(topic, name, spot)

    async def _acknowledge(self, topic: str, name: str, spot: Spot) -> int:
        """Acknowledge the first records of a batch; give the index in the batch where that has led."""
        consumer = await self._client.peeking_consumer(topic, name, create=False)
        try:
            last = spot.message._replace(batch_index=spot.message.batch_index - 1)
            await consumer.acknowledge_up_to(last, batch_size=spot.batch_size)
            found = await consumer.first_unread(within=_PEEK_SECONDS)
        finally:
            await consumer.close()
        if found.message_id[:2] != spot.message[:2]:
            raise ClusterError(
                f"subscription {name} of topic {topic} stands at another entry than it was put to"
            )
        return found.message_id.batch_index

    async def position(self, topic: str, name: str, state: CursorState) -> int | None:
        """Give the offset of the first record that is not acknowledged; None if it has none.

        Nobody may use the subscription: a consumer is attached to it for a moment. If there is no backlog in
        `state`, but one afterwards, what was produced meanwhile may be counted as acknowledged.
        """
        if state.backlog == 0:
            return await self._end(topic, state.seen.mark)
        consumer = await self._client.peeking_consumer(topic, name, create=False)
        try:
            found = await consumer.first_unread(within=_PEEK_SECONDS)
        finally:
            await consumer.close()
        entry = await self._admin.entry_index(topic, found.message_id)
        if entry is None:
            return None
        return entry.last_index - entry.num_messages + 1 + found.message_id.batch_index

    async def _end(self, topic: str, mark: MessageId) -> int | None:
        """Give the offset behind the mark of a cursor that has read everything.

        A mark may be of a ledger that is empty yet, or deleted: then it is the end of the log by now.
        """
        offset = await self.offset_of(topic, mark)
        if offset is not None:
            return offset
        last = await self._admin.last_message_id(topic)
        return None if last is None or last.entry_id < 0 else await self.offset_of(topic, last)

    async def _spot(self, topic: str, offset: int) -> Spot:
        place = await self._admin.message_id_by_index(topic, offset)
        if place is None:
            last = await self._admin.last_message_id(topic)
            if last is None or last.entry_id < 0:
                return _START
            behind = await self.offset_of(topic, last)
            if behind is None or behind > offset:
                # The last one may have been produced meanwhile.
                place = await self._admin.message_id_by_index(topic, offset)
            if place is None:
                return Spot(MessageId(last.ledger_id, last.entry_id + 1), offset=behind)
        if place.entry_id < 0:
            # Somewhere in the first entry, or before it.
            place = await self._first_entry(topic)
        return _START if place is None else await self._within(topic, place, offset)

    async def _within(self, topic: str, place: MessageId, offset: int) -> Spot:
        entry = await self._admin.entry_index(topic, place)
        if entry is None:
            return Spot(place)
        first = entry.last_index - entry.num_messages + 1
        index = max(offset - first, 0)
        return Spot(place._replace(batch_index=index), entry.num_messages, first + index)

    async def _first_entry(self, topic: str) -> MessageId | None:
        ledgers = (await self._admin.stats(topic, internal=True)).get("ledgers", [])
        # The last ledger is open and counts its entries as 0.
        for ledger in ledgers:
            if ledger.get("entries") or ledger is ledgers[-1]:
                return MessageId(int(ledger["ledgerId"]), 0)
        return None

    async def offset_of(self, topic: str, mark: MessageId) -> int | None:
        """Give the offset of the first record behind a mark; None if it cannot be said."""
        try:
            if mark.entry_id >= 0:
                return await self._offset_behind(topic, mark)
            entry = await self._admin.entry_index(topic, mark._replace(entry_id=0))
            return None if entry is None else entry.last_index - entry.num_messages + 1
        except ClusterError:
            return None

    async def _offset_behind(self, topic: str, place: MessageId) -> int | None:
        entry = await self._admin.entry_index(topic, place)
        return None if entry is None else entry.last_index + 1

    async def remove(self, topic: str, name: str) -> None:
        """Delete the subscription of a group."""
        await self._admin.delete_subscription(topic, name)


def _rows(stats: Mapping[str, Any], field: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = stats.get(field)
    return (
        [(name, each) for name, each in found.items() if isinstance(each, dict)]
        if isinstance(found, dict)
        else []
    )


def _number(row: Mapping[str, Any], field: str) -> int:
    found = row.get(field)
    return found if isinstance(found, int) else -1
