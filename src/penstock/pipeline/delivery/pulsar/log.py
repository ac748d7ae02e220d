"""One Pulsar topic, or one partition of it, as a log: its start and end, positions, and its incarnation.

The binary protocol answers what it can; the admin API is asked for what only it knows (the place of an index,
what readers are never given), once when something is opened or where a gap has to be judged, never per batch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery
from penstock.brokers.pulsar.admin import EntryHead, NoEntry
from penstock.brokers.pulsar.ledgers import last_before, last_index, ledger_ids
from penstock.errors import ClusterError, Refused
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, partition_name
from penstock.wire.pulsar import EARLIEST, LATEST, Entry, MessageId

__all__ = ["LogEnds", "Numbering", "PulsarLog", "PulsarPosition", "packed", "unpacked"]

_ENTRY_SECONDS: Final = 3.0
"""For one entry that the broker said is there; one that no reader is given never comes."""
_HIDDEN_ENTRIES: Final = 64
"""Markers in a row that are looked at to find the last entry that readers are given."""
_LEDGER_GONE: Final = "LedgerNotExistException"
"""What a broker says when it is asked for an index of a log of which everything was removed."""
_LEDGER_BITS: Final = 31
_ENTRY_BITS: Final = 20
"""A ledger is open for ten minutes at least, whatever comes: so many entries are 1700 a second."""
_BATCH_BITS: Final = 12
LARGEST_PACKED_BATCH: Final = 1 << _BATCH_BITS


class Numbering(Enum):
    """What positions in a log are made of."""

    INDEX = "index"
    """The broker-entry index: 0, 1, 2 and so on, one for each message."""
    PLACE = "place"
    """Ledger, entry and place in the batch, packed into one number that grows and is not continuous."""


def packed(ledger: int, entry: int) -> int:
    """Return the number of the first message of an entry where the broker keeps no index.

    >>> unpacked(packed(7, 3) + 2)
    MessageId(ledger_id=7, entry_id=3, batch_index=2, partition=-1)
    """
    if not (0 <= entry < 1 << _ENTRY_BITS and 0 <= ledger < 1 << _LEDGER_BITS):
        raise Refused(
            f"entry {ledger}:{entry} has no position",
            why="A log without the broker's index has positions "
            f"up to ledger 2^{_LEDGER_BITS} and entry 2^{_ENTRY_BITS}.",
            next="set brokerEntryMetadataInterceptors to AppendIndexMetadataInterceptor in the broker",
        )
    return (ledger << _ENTRY_BITS | entry) << _BATCH_BITS


def unpacked(position: int) -> MessageId:
    """Return the message at a position made by `packed`."""
    rest, batch = divmod(position, 1 << _BATCH_BITS)
    return MessageId(rest >> _ENTRY_BITS, rest & (1 << _ENTRY_BITS) - 1, batch)


@dataclass(frozen=True, slots=True)
class PulsarPosition:
    """Where reading goes on, and the entry before it, which makes that quick and can be acknowledged."""

    index: int
    """Of the next message to read."""
    ledger: int = -1
    entry: int = -1
    """The entry that holds the last message before `index`; -1 if it is not known."""
    taken: int = 0
    size: int = 0
    """If `index` is inside of that entry: its messages before `index`, and all of its messages; else 0."""

    @property
    def place(self) -> MessageId | None:
        """The entry before the position."""
        return None if self.entry < 0 else MessageId(self.ledger, self.entry)


class LogEnds(NamedTuple):
    """Where a log ends."""

    readable: int
    """The index behind all that readers are given now."""
    last: int
    """The index behind the last entry, whoever may read it."""
    is_held_back: bool
    """Whether an open transaction hides what is behind its first message."""


class PulsarLog:
    """Asks for facts of one log; all methods that are coroutines run on the cluster's thread."""

    def __init__(self, cluster: PulsarCluster, topic: str, partition: int, partitions: int) -> None:
        """`partitions` is 0 for a topic without partitions."""
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.name = partition_name(topic, partition, partitions)

    # For callers that block

    def earliest(self) -> PulsarPosition:
        """Return the position of the first message that readers are given."""
        return self.cluster.call(self.find_earliest())

    def latest(self) -> PulsarPosition:
        """Return the position behind the last message that readers are given now."""
        return self.cluster.call(self.find_latest())

    def incarnation(self) -> str:
        """Return what tells this log from one that was deleted and made again under the same name.

        Empty where the broker's metadata store keeps no times of creation.
        """
        return self.cluster.call(self.cluster.admin.created(self.name)) or ""

    # By the binary protocol

    async def find_earliest(self) -> PulsarPosition:
        """See `earliest`."""
        last = await self._last_given()
        if last.entry_id >= 0:
            found = await self._read(EARLIEST)
            if found is not None and not (found.is_transactional and found.num_messages > 1):
                return PulsarPosition(max(found.first_index, 0))
        return PulsarPosition(await self.start())

    async def find_latest(self, last: MessageId | None = None) -> PulsarPosition:
        """See `latest`; `last` is the last message that readers are given, if somebody has asked for it."""
        last = await self._last_given() if last is None else last
        if last.entry_id < 0:
            return PulsarPosition(await self.start())
        found = await self._read(last)
        if found is not None and found.broker_index >= 0:
            return PulsarPosition(found.broker_index + 1, last.ledger_id, last.entry_id)
        if found is not None:
            # A batch that has more messages than positions is rejected as one, and so ends with its entry.
            count = min(max(found.num_messages, 1), LARGEST_PACKED_BATCH)
            return PulsarPosition(packed(*last[:2]) + count, last.ledger_id, last.entry_id)
        head = await self.head(last)  # an entry that no reader is given
        if head is not None and head.index is not None:
            return PulsarPosition(head.index.last_index + 1, last.ledger_id, last.entry_id)
        known = (
            -1 if head is not None else last_index(await self.cluster.admin.stats(self.name, internal=True))
        )
        if known >= 0:
            # It was removed meanwhile. A place would be an index that no log ever reaches.
            return PulsarPosition(known + 1)
        return PulsarPosition(packed(last.ledger_id, last.entry_id + 1), last.ledger_id, last.entry_id)

    async def find_numbering(self) -> Numbering:
        """Return what positions are made of; an empty log has none and counts as one with an index."""
        last = await self._last_given()
        found = None if last.entry_id < 0 else await self._read(EARLIEST)
        return Numbering.PLACE if found is not None and found.broker_index < 0 else Numbering.INDEX

    async def _last_given(self) -> MessageId:
        reader = await self.cluster.client.reader(self.name, start=LATEST, read_bytes=1, create=False)
        try:
            return await reader.last_message_id()
        finally:
            await reader.close()

    async def _read(self, place: MessageId) -> Entry | None:
        """Read the head of an entry, or of the first behind it; None if none is given to readers."""

        def head(delivery: Delivery) -> Entry | None:
            return delivery.entry if isinstance(delivery.entry, Entry) else None

        try:
            async with asyncio.timeout(_ENTRY_SECONDS):
                return await self.cluster.client.read_entry(self.name, place, head)
        except TimeoutError:
            return None

    # By the admin API

    async def place_of(self, index: int) -> MessageId | None:
        """Return the entry that holds an index, EARLIEST if that is the first one; None behind the last."""
        try:
            found = await self.cluster.admin.message_id_by_index(self.name, index)
        except ClusterError as exc:
            if _LEDGER_GONE not in str(exc):
                raise
            return EARLIEST  # the broker looks into a ledger that it has removed: nothing before it is left
        return EARLIEST if found is not None and found.entry_id < 0 else found

    async def start(self) -> int:
        """Return the index of the first message that is left, whoever may read it."""
        stats = await self.cluster.admin.stats(self.name, internal=True)
        for ledger in ledger_ids(stats):
            head = await self.head(MessageId(ledger, 0))
            if head is not None and head.index is not None:
                last, count = head.index
                is_one = count > 1 and (head.is_hidden or await self._is_transactional(MessageId(ledger, 0)))
                return max(last if is_one else last - count + 1, 0)
        return last_index(stats) + 1

    async def _is_transactional(self, place: MessageId) -> bool:
        """Return whether an entry was sent in a transaction: Pulsar counts all of its messages as one."""
        found = await self._read(place)
        return found is not None and found.is_transactional

    async def holds_first(self) -> bool:
        """Return whether the first message ever is certainly left; never without the broker's index."""
        stats = await self.cluster.admin.stats(self.name, internal=True)
        for ledger in ledger_ids(stats):
            head = await self.head(MessageId(ledger, 0))
            if head is not None:
                return head.index is not None and head.index.last_index == head.index.num_messages - 1
        return False

    async def ends(self) -> LogEnds:
        """Return where the log ends now."""
        last = await self.cluster.admin.last_message_id(self.name)
        head = None if last is None or last.entry_id < 0 else await self.head(last)
        if last is None or head is None or head.index is None:
            end = last_index(await self.cluster.admin.stats(self.name, internal=True)) + 1
            return LogEnds(end, end, is_held_back=False)
        behind = head.index.last_index + 1
        if not head.is_held_back:
            return LogEnds(behind, behind, is_held_back=False)
        given = await self._last_given()
        given_head = None if given.entry_id < 0 else await self.head(given)
        index = None if given_head is None else given_head.index
        return LogEnds(0 if index is None else index.last_index + 1, behind, is_held_back=True)

    async def without_hidden(self, place: MessageId) -> MessageId:
        """Return the last entry up to a place that readers are given; -1:-1 if there is none.

        Pulsar counts markers of a type that it does not know as messages, and gives them to no reader.
        """
        for _ in range(_HIDDEN_ENTRIES):
            head = None if place.entry_id < 0 else await self.head(place)
            if head is None or not head.is_hidden:
                break
            place = await self._before(place)
        return place

    async def index_before(self, place: MessageId) -> int | None:
        """Return the last index of the entry before one; None if that is not there any more."""
        before = await self._before(place)
        head = None if before.entry_id < 0 else await self.head(before)
        return None if head is None or head.index is None else head.index.last_index

    async def _before(self, place: MessageId) -> MessageId:
        if place.entry_id > 0:
            return MessageId(place.ledger_id, place.entry_id - 1)
        return last_before(await self.cluster.admin.stats(self.name, internal=True), place.ledger_id)

    async def head(self, place: MessageId) -> EntryHead | None:
        """Return what the broker tells of an entry; None if it is not there. Raises ClusterError."""
        try:
            return await self.cluster.admin.entry_head(self.name, place)
        except NoEntry:
            return None


def no_index(name: str) -> ClusterError:
    """Return the error of a log whose entries have no index although positions are made of it."""
    return ClusterError(
        f"the broker keeps no index for {name}",
        why="The positions of this range are indexes; of a topic that was empty it could not be known.",
        next="set brokerEntryMetadataInterceptors to AppendIndexMetadataInterceptor in the broker; or run "
        "again, at least once",
    )
