"""Where a reader of topics on one Pulsar stands, with the methods that jobs use of `KafkaOffsets`.

Offsets are positions of `pulsar_log`: the broker's index, or place numbers where it keeps none. Any number
of threads may use one object: all work is done by the thread of its `PulsarCluster`, on one connection to
each broker. Consumers of durable subscriptions are held open; they ask for no messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from copy import copy
from threading import Event
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote_plus

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.pulsar.ledgers import ledger_ids, place_before_end
from penstock.errors import PenstockError, Unreachable
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings, partition_name
from penstock.pipeline.delivery.pulsar.log import Numbering, PulsarLog, PulsarPosition, packed, unpacked
from penstock.pipeline.delivery.pulsar.subscription import PulsarSubscription
from penstock.wire.pulsar import EARLIEST, MessageId

__all__ = ["PulsarOffsets"]

T = TypeVar("T")
_AT_ONCE: Final = 32
"""Partitions that are asked at a time: a broker that loads many at once answers none of them in time."""


class PulsarOffsets:
    """A client that looks at topics as a reader sees them, and moves the cursors of subscriptions."""

    def __init__(self, settings: PulsarSettings, *, timeout: float = 60.0, stop: Event | None = None) -> None:
        """`timeout` bounds each call in seconds, over all partitions; Unreachable after it.

        When `stop` is set, what waits for a broker ends soon.
        """
        self.cluster = PulsarCluster(settings, stop=stop)
        self._timeout = timeout
        self._subscriptions: dict[tuple[str, str, int], PulsarSubscription] = {}
        """By topic, name and partition."""
        self._watched: dict[str, str] = {}
        """The subscription through which a topic is asked for its end."""
        self._numbering: dict[str, Numbering] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close consumers and connections; subscriptions stay."""
        self.cluster.close()

    def within(self, seconds: float) -> PulsarOffsets:
        """Return the same client, whose calls take so long at most."""
        other = copy(self)
        other._timeout = seconds
        return other

    # Facts about a topic

    def partitions(self, topic: str) -> int:
        """Count the partitions of a topic; 0 for one without, and for one that is not there."""
        return self._call(self.cluster.client.partitions(topic))

    def created(self, topic: str) -> Mapping[int, str] | None:
        """Return when each partition was created, 0 for a topic without; None if it is not there.

        Nothing where the broker keeps no times.
        """
        found = self._call(self._created(topic))
        return None if found is None else {part: time for part, time in found.items() if time is not None}

    def incarnation(self, topic: str) -> str:
        """Return what the topic has no more when it is deleted and made again; empty if nobody knows."""
        return self._call(self._incarnation(topic))

    def numbering(self, topic: str) -> Numbering:
        """Return what positions in a topic are made of: the broker's index if all partitions have it."""
        return self._call(self._find_numbering(topic))

    def earliest(self, topic: str) -> Offsets:
        """Return the position of the first message that each partition still has."""
        found = self._call(self._each(topic, lambda log: log.find_earliest()))
        return {part: position.index for part, position in found.items()}

    def latest(self, topic: str) -> Offsets:
        """Return the position behind the last message of each partition that readers are given now.

        A partition whose subscription is open costs one question if nothing has come since the last one.
        """
        found = self._call(self._each(topic, self._latest))
        return {part: position.index for part, position in found.items()}

    def sizes(self, topic: str, partitions: Mapping[int, int]) -> dict[int, float]:
        """Return the bytes of a message on average, by partition, given how many messages each holds."""

        async def size(log: PulsarLog) -> float:
            stats = await self.cluster.admin.stats(log.name, internal=True)
            return float(stats.get("totalSize") or 0) / max(partitions[log.partition], 1)

        return self._call(self._each(topic, size, only=partitions))

    def newest_places(self, topic: str, entries: int, size: int) -> Offsets:
        """Return positions with about so many entries of each partition behind them, or so many bytes.

        For topics without the broker's index, whose positions cannot be counted back from the end.
        """

        async def place(log: PulsarLog) -> int:
            stats = await self.cluster.admin.stats(log.name, internal=True)
            per_entry = int(stats.get("totalSize") or 0) / max(int(stats.get("numberOfEntries") or 0), 1)
            found = place_before_end(stats, min(size, int(entries * per_entry)))
            first = (await log.find_earliest()).index
            return first if found.entry_id < 0 else max(first, packed(found.ledger_id, found.entry_id))

        return self._call(self._each(topic, place))

    def behind_entries(self, topic: str, positions: Offsets) -> Offsets:
        """Return the index behind the entry that holds each of these; none where that cannot be said."""

        async def behind(log: PulsarLog) -> int:
            place = await self._entry_of(log, positions[log.partition])
            head = None if place.entry_id < 0 else await log.head(place)
            return -1 if head is None or head.index is None else head.index.last_index + 1

        found = self._call(self._each(topic, behind, only=positions))
        return {part: end for part, end in found.items() if end > positions[part]}

    # Subscriptions

    def subscribe(self, topic: str, name: str) -> None:
        """Make the subscription of each partition that has none, at its first message, and `watch` it."""
        self._call(self._each(topic, lambda log: self._subscription(log, name)))
        self.watch(topic, name)

    def watch(self, topic: str, name: str) -> None:
        """Ask for the end of a topic through a subscription from now on; new partitions get it, too."""
        self._watched[topic] = name

    def has_acknowledged(self, topic: str, name: str) -> bool:
        """Return whether a subscription is there and has acknowledged anything of any partition."""

        async def moved(log: PulsarLog) -> bool:
            cursors = (await self.cluster.admin.stats(log.name, internal=True)).get("cursors") or {}
            # Names are encoded there as in a form.
            cursor = {unquote_plus(each): found for each, found in cursors.items()}.get(name) or {}
            _, _, entry = str(cursor.get("markDeletePosition") or "").rpartition(":")
            return entry.isdecimal() or int(cursor.get("messagesConsumedCounter") or 0) > 0

        return any(self._call(self._each(topic, moved)).values())

    def commit(self, group: str, topic: str, offsets: Offsets) -> None:
        """Acknowledge everything before these offsets under the subscription `group`; it never goes back."""

        async def acknowledge(log: PulsarLog) -> None:
            subscription = await self._subscription(log, group)
            index = offsets[log.partition]
            if index <= subscription.committed.index:
                return
            position = await self._position(log, index, await self._find_numbering(topic))
            if position is not None:
                await self._held(log, group, subscription.acknowledge(position))

        self._call(self._each(topic, acknowledge, only=offsets))

    # On the cluster's thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.cluster.call(work, timeout=self._timeout)
        except TimeoutError as exc:
            raise Unreachable(
                f"Pulsar did not answer within {self._timeout:g} s", where=self.cluster.settings.service_url
            ) from exc

    async def _each(
        self,
        topic: str,
        ask: Callable[[PulsarLog], Awaitable[T]],
        only: Mapping[int, object] | None = None,
    ) -> dict[int, T]:
        count = await self.cluster.client.partitions(topic)

        async def one(part: int) -> T:
            async with self._turns:
                return await ask(PulsarLog(self.cluster, topic, part, count))

        parts = [part for part in range(max(count, 1)) if only is None or part in only]
        asked = [asyncio.ensure_future(one(part)) for part in parts]
        try:
            return dict(zip(parts, await asyncio.gather(*asked), strict=True))
        finally:
            for each in asked:
                each.cancel()

    async def _created(self, topic: str) -> dict[int, str | None] | None:
        # Asked first: a question about a partition may create it, where the broker is set so.
        tenant, namespace, _ = topic.removeprefix("persistent://").split("/", 2)
        count = await self.cluster.client.partitions(topic)
        if not count and topic not in await self.cluster.admin.topics(f"{tenant}/{namespace}"):
            return None
        return await self._each(topic, lambda log: self.cluster.admin.created(log.name))

    async def _incarnation(self, topic: str) -> str:
        # That of the first partition: others may come later, and none goes alone.
        count = await self.cluster.client.partitions(topic)
        return await self.cluster.admin.created(partition_name(topic, 0, count)) or ""

    async def _subscription(self, log: PulsarLog, name: str) -> PulsarSubscription:
        key = (log.topic, name, log.partition)
        if key not in self._subscriptions:
            self._subscriptions[key] = await PulsarSubscription.open(log, name)
        return self._subscriptions[key]

    async def _held(self, log: PulsarLog, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Do something with an open subscription; one that fails is opened anew the next time."""
        try:
            return await work
        except PenstockError:
            self._subscriptions.pop((log.topic, name, log.partition), None)
            raise

    async def _latest(self, log: PulsarLog) -> PulsarPosition:
        name = self._watched.get(log.topic)
        if name is None:
            return await log.find_latest()
        subscription = await self._subscription(log, name)
        return await self._held(log, name, subscription.find_latest())

    async def _find_numbering(self, topic: str) -> Numbering:
        if topic not in self._numbering:
            found = await self._each(topic, lambda log: log.find_numbering())
            is_indexed = Numbering.PLACE not in found.values()
            self._numbering[topic] = Numbering.INDEX if is_indexed else Numbering.PLACE
        return self._numbering[topic]

    async def _entry_of(self, log: PulsarLog, index: int) -> MessageId:
        """Return the entry that holds an index, or the first one; -1:-1 if there is none."""
        place = await log.place_of(index) or MessageId(-1, -1)
        if place == EARLIEST:
            ledgers = ledger_ids(await self.cluster.admin.stats(log.name, internal=True))
            place = MessageId(ledgers[0], 0) if ledgers else place
        return place

    async def _position(self, log: PulsarLog, index: int, numbering: Numbering) -> PulsarPosition | None:
        """Return an index with the entry before it; None if there is none that can be acknowledged."""
        if index <= 0:
            return None
        if numbering is Numbering.PLACE:
            # Ranges end behind whole entries here: a place in a batch is behind the last of its messages.
            place = unpacked(index)
            entry = place.entry_id if place.batch_index else place.entry_id - 1
            return PulsarPosition(index, place.ledger_id, entry) if entry >= 0 else None
        place = await self._entry_of(log, index - 1)
        head = None if place.entry_id < 0 else await log.head(place)
        if head is None or head.index is None:
            return None
        last, count = head.index
        if last < index:
            return PulsarPosition(index, place.ledger_id, place.entry_id)
        first = last - count + 1
        if first < index:
            return PulsarPosition(index, place.ledger_id, place.entry_id, index - first, count)
        # It begins behind the position: what is before it holds nothing, or is gone.
        return PulsarPosition(index, place.ledger_id, place.entry_id - 1) if place.entry_id else None
