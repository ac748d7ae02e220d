"""Pulsar cursors at Kafka offsets: a group's subscription stands before the first record it has not read.

Whole entries are passed by moving the cursor; records inside a batch by acknowledging them with an ack set,
for which the broker needs `acknowledgmentAtBatchIndexLevelEnabled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.errors import ClusterError
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["Cursors", "Spot", "parse_mark"]


@dataclass(frozen=True, slots=True)
class Spot:
    """The first record that a group has not read, and how many its entry holds."""

    message: MessageId
    batch_size: int = 0

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

    async def marks(self, topic: str) -> Mapping[str, MessageId]:
        """Give where the cursors of a topic stand."""
        stats = await self._admin.stats(topic, internal=True)
        # Here the broker writes names as in a URL.
        found = {
            unquote_plus(name): parse_mark(each.get("markDeletePosition")) for name, each in _cursors(stats)
        }
        return {name: mark for name, mark in found.items() if mark is not None}

    async def is_in_use(self, topic: str, name: str) -> bool:
        """Say whether somebody reads a subscription now."""
        subscription = (await self._admin.stats(topic)).get("subscriptions", {}).get(name, {})
        return bool(subscription.get("consumers"))

    async def place(self, topic: str, name: str, offset: int, *, exists: bool) -> None:
        """Move the cursor of a group to an offset; make it if there is none."""
        spot = await self._spot(topic, offset)
        if exists:
            await self._admin.reset_cursor(topic, name, spot.entry)
        else:
            await self._admin.create_subscription(topic, name, spot.entry)
            # What is made stands behind the entry that was named.
            await self._admin.reset_cursor(topic, name, spot.entry)
        if spot.is_inside:
            await self._acknowledge(topic, name, spot)

    async def _acknowledge(self, topic: str, name: str, spot: Spot) -> None:
        """Acknowledge the first records of a batch, by a consumer that is sent nothing."""
        consumer = await self._client.silent_consumer(topic, name)
        try:
            last = spot.message._replace(batch_index=spot.message.batch_index - 1)
            await consumer.acknowledge_up_to(last, batch_size=spot.batch_size)
        finally:
            await consumer.close()

    async def _spot(self, topic: str, offset: int) -> Spot:
        place = await self._admin.message_id_by_index(topic, offset)
        if place is None:
            last = await self._admin.last_message_id(topic)
            if last is None or last.entry_id < 0:
                return _START
            return Spot(MessageId(last.ledger_id, last.entry_id + 1))
        if place.entry_id < 0:
            # Somewhere in the first entry, or before it.
            place = await self._first_entry(topic)
        return _START if place is None else await self._within(topic, place, offset)

    async def _within(self, topic: str, place: MessageId, offset: int) -> Spot:
        entry = await self._admin.entry_index(topic, place)
        if entry is None:
            return Spot(place)
        index = max(offset - (entry.last_index - entry.num_messages + 1), 0)
        return Spot(place._replace(batch_index=index), entry.num_messages)

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
                entry = await self._admin.entry_index(topic, mark)
                return None if entry is None else entry.last_index + 1
            entry = await self._admin.entry_index(topic, mark._replace(entry_id=0))
            return None if entry is None else entry.last_index - entry.num_messages + 1
        except ClusterError:
            return None

    async def remove(self, topic: str, name: str) -> None:
        """Delete the subscription of a group."""
        await self._admin.delete_subscription(topic, name)


def _cursors(stats: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    found = stats.get("cursors")
    return list(found.items()) if isinstance(found, dict) else []
