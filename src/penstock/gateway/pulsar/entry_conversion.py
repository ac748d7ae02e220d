"""Entries as they come become what a tail holds: batches with their offsets, or why there are none.

Pulsar gives a batch of n messages n numbers, but one if it was sent in a transaction: then the messages have
one offset together, and a placeholder stands for them. The numbers of the entries around it tell which of the
two it is; where they do not, because entries between are hidden from readers, the broker has to be asked.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery
from penstock.errors import WireError
from penstock.gateway.pulsar.numbering import Numbering
from penstock.gateway.pulsar.offset_index import OffsetIndex
from penstock.mapping import (
    KafkaBatch,
    OnUndecodable,
    Reason,
    Undecodable,
    entry_to_batch,
    placeholder,
)
from penstock.wire.pulsar import Entry, MessageId

__all__ = ["Converter", "Gap", "Item", "Unsure", "size_of"]

_ITEM_BYTES: Final = 256
"""What an entry that waits takes besides its batch."""


class Gap(NamedTuple):
    """Offsets without records: of an entry that cannot be read, or that was not meant for us."""

    base_offset: int
    next_offset: int
    """-1 if the entry has no offset."""
    verdict: Undecodable


class Unsure(NamedTuple):
    """A batch of a transaction: Pulsar counted all of its messages, or all of them as one."""

    counted: KafkaBatch | Gap
    as_one: KafkaBatch
    index_if_counted: int
    """The index of the entry before it, if its messages were counted."""


class Item(NamedTuple):
    """What waits in the queue of the reader."""

    place: MessageId
    content: KafkaBatch | Gap | Unsure


def size_of(item: Item) -> int:
    """Give the bytes that an item takes while it waits."""
    content = item.content
    if isinstance(content, Unsure):
        content = content.counted
    return _ITEM_BYTES + (content.held_bytes if isinstance(content, KafkaBatch) else 0)


class Converter:
    """Converts the entries of one reader, in their order."""

    def __init__(
        self,
        *,
        offset: int,
        limit: int,
        on_undecodable: OnUndecodable,
        undecodable: Counter[str],
        numbering: Numbering,
        index: OffsetIndex | None,
    ) -> None:
        self.arrived = offset
        """The offset behind the last entry that came."""
        self.came = time.monotonic()
        """When it came, at first when reading began."""
        self._limit = limit
        self._placeholders = on_undecodable is OnUndecodable.PLACEHOLDER
        self._undecodable = undecodable
        self._numbering = numbering
        self._index = index
        self._last: tuple[MessageId, int] | None = None
        """The entry that was converted last, and its index."""

    def convert(self, delivery: Delivery) -> Item:
        """Convert while the bytes are in the socket's buffer."""
        self.came = time.monotonic()
        place, entry = delivery.message_id, delivery.entry
        if isinstance(entry, WireError):
            return Item(place, Gap(-1, -1, Undecodable(Reason.CORRUPT, str(entry), 1, True)))
        base = self._numbering.first_offset(delivery)
        following = base + min(entry.num_messages, self._numbering.largest_batch)
        if entry.is_transactional and entry.num_messages > 1 and self._numbering.continuous:
            # The first index may be below 0: the entry has an index all the same.
            return Item(place, self._in_transaction(place, entry, base, following))
        self._last = (place, entry.broker_index)
        if base < 0 and not entry.is_marker:
            return Item(
                place, Gap(-1, -1, Undecodable(Reason.UNNUMBERED, "the entry has no offset", 1, True))
            )
        if base >= 0:
            self.arrived = max(self.arrived, following)
        content = self._content(entry, base, following)
        if self._index is not None and isinstance(content, KafkaBatch):
            self._index.note(base, place)
        return Item(place, content)

    def _content(self, entry: Entry, base: int, following: int) -> KafkaBatch | Gap:
        found = self._too_many(entry) or entry_to_batch(entry, base_offset=base, limit=self._limit)
        if isinstance(found, KafkaBatch):
            return found
        if self._placeholders and not found.may_leave_hole:
            self._undecodable[found.reason.value] += 1
            return placeholder(found, base_offset=base, timestamp=entry.publish_time)
        return Gap(base, following, found) if base >= 0 else Gap(0, 0, found)

    def _too_many(self, entry: Entry) -> Undecodable | None:
        most = self._numbering.largest_batch
        if entry.num_messages <= most:
            return None
        detail = f"{entry.num_messages} messages in one entry, and offsets for {most}"
        return Undecodable(Reason.UNNUMBERED, detail)

    def _in_transaction(
        self, place: MessageId, entry: Entry, base: int, following: int
    ) -> KafkaBatch | Gap | Unsure:
        """Convert a batch of a transaction, for which Pulsar may have counted one message only."""
        index, before = entry.broker_index, self._last
        self._last = (place, index)
        if index < 0:
            return Gap(-1, -1, Undecodable(Reason.UNNUMBERED, "the entry has no offset", 1, True))
        self.arrived = max(self.arrived, following)
        detail = f"the {entry.num_messages} messages of a batch in a transaction have one offset"
        as_one = placeholder(
            Undecodable(Reason.UNNUMBERED, detail), base_offset=index, timestamp=entry.publish_time
        )
        if base < 0 or not _may_be_counted(place, entry, before):
            self._undecodable[Reason.UNNUMBERED.value] += 1
            return as_one
        counted = self._content(entry, base, following)
        if before is not None and before[0][:2] == (place.ledger_id, place.entry_id - 1):
            return counted
        return Unsure(counted, as_one, base - 1)


def _may_be_counted(place: MessageId, entry: Entry, before: tuple[MessageId, int] | None) -> bool:
    """Say whether the index leaves room for all messages of an entry behind the entry seen before it.

    Entries between the two, which readers are not given, have an index each, or more.
    """
    if before is None or before[0].ledger_id != place.ledger_id:
        return True
    between = place.entry_id - before[0].entry_id - 1
    return entry.broker_index - before[1] - between >= entry.num_messages
