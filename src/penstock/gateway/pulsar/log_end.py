"""The end of a log: up to where readers are given records, and up to where something is stored.

The two differ while a transaction is open: Pulsar gives readers nothing behind its first message, whoever
wrote it. Offsets behind the last record that hold none (markers, aborted transactions) are of the part that
can be read, for there is nothing to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.brokers.pulsar.admin import EntryHead, NoEntry
from penstock.brokers.pulsar.ledgers import last_before
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.wire.pulsar import LATEST, MessageId

__all__ = ["Ends", "LogEnd"]

_HIDDEN_ENTRIES: Final = 64
"""Markers in a row that are looked at to find the last entry that readers are given."""


class Ends(NamedTuple):
    """Where a log ends."""

    readable: int
    """The offset behind all that readers are given now, the high watermark; -1 if they are given nothing."""
    last: int
    """The offset behind the last entry, the largest that may be asked for."""


class LogEnd:
    """What is known of the end of one partition."""

    def __init__(self, client: PulsarClient, admin: Admin, topic: str, counter: OffsetCounter) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._counter = counter
        self._readable = -1
        self.is_held_back = False
        """Whether a transaction was open when the broker was last asked."""
        self.asked = 0.0
        """When that was."""

    @property
    def known(self) -> int:
        """Give the end of what can be read, without asking: what was just produced is in it."""
        own = 0 if self.is_held_back else self._counter.next_offset or 0
        return max(own, self._readable, 0)

    async def ask(self, last_given: Callable[[], Awaitable[MessageId]] | None = None) -> Ends:
        """Ask the broker, whoever has written.

        `last_given` asks for the last message that readers are given, if there is a reader to do that.
        """
        last = await self._admin.last_message_id(self._topic)
        self.asked = time.monotonic()
        head = None if last is None else await self.head(last)
        if last is None or head is None:
            end = await self._of_empty(last)
            return self._found(Ends(end, end), held_back=False)
        behind = self._behind(last, head)
        if not head.is_held_back:
            return self._found(Ends(behind, self._last_known(last, behind)), held_back=False)
        given = await (last_given or self._last_given)()
        head = await self.head(given)
        readable = -1 if head is None else self._behind(given, head)
        # What clients were taken past before the transaction began stays behind them.
        readable = max(readable, min(self._readable, behind))
        return self._found(Ends(readable, self._last_known(last, behind)), held_back=True)

    def _found(self, ends: Ends, *, held_back: bool) -> Ends:
        self._readable, self.is_held_back = ends.readable, held_back
        return ends

    def _last_known(self, last: MessageId, behind: int) -> int:
        known, following = self._counter.last, self._counter.next_offset
        if known is None or following is None or known[:2] < last[:2]:
            return behind
        return max(following, behind)

    async def _last_given(self) -> MessageId:
        reader = await self._client.reader(self._topic, start=LATEST)
        try:
            return await reader.last_message_id()
        finally:
            await reader.close()

    async def head(self, place: MessageId) -> EntryHead | None:
        """Read the head of an entry; None if it is not there, because it was removed or never written.

        Raises ClusterError for one that cannot be read now: a log does not end before it.
        """
        if place.entry_id < 0:
            return None
        try:
            found = await self._admin.entry_head(self._topic, place)
        except NoEntry:
            return None
        return found if self._has_offset(found) else None

    async def without_hidden(self, place: MessageId) -> MessageId:
        """Give the last entry up to a place that readers are given; -1:-1 if they are given none.

        Pulsar counts markers of a type that it does not know as messages, and gives them to no reader.
        """
        for _ in range(_HIDDEN_ENTRIES):
            head = await self.head(place)
            if head is None or not head.is_hidden:
                break
            place = await self._before(place)
        return place

    async def index_before(self, place: MessageId) -> int | None:
        """Give the last index of the entry before one; None if it is not there any more."""
        head = await self.head(await self._before(place))
        return None if head is None or head.index is None else head.index.last_index

    async def _before(self, place: MessageId) -> MessageId:
        if place.entry_id > 0:
            return MessageId(place.ledger_id, place.entry_id - 1)
        return last_before(await self._admin.stats(self._topic, internal=True), place.ledger_id)

    async def behind(self, given: MessageId) -> int:
        """Give the offset behind the last message that readers are given, or a larger one that is known."""
        known, following = self._counter.last, self._counter.next_offset
        if following is not None and known is not None and known[:2] >= given[:2] >= (0, 0):
            return following
        head = await self.head(given)
        return await self._of_empty(given) if head is None else self._behind(given, head)

    # How offsets are counted

    def _has_offset(self, head: EntryHead) -> bool:
        return head.index is not None

    def _behind(self, place: MessageId, head: EntryHead) -> int:
        """Give the offset behind an entry."""
        assert head.index is not None
        last_index, messages = head.index
        self._counter.learn(place, messages, last_index=last_index)
        return last_index + 1

    async def _of_empty(self, last: MessageId | None) -> int:
        """A topic whose ledgers were all trimmed still has an end: the broker keeps the last index.

        What was counted here is not asked: somebody may have deleted the topic and made it again.
        """
        stats = await self._admin.stats(self._topic, internal=True)
        index = (stats.get("properties") or {}).get("index", "-1")
        return int(index) + 1 if str(index).lstrip("-").isdigit() else 0
