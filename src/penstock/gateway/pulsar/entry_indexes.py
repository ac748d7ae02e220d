"""The broker's index of an entry of ours, when it cannot be counted because others write too.

A lone gap costs one question to the broker: the entry is read. Several in a second mean that another writer
is busy: then a reader follows the partition and knows the index of every entry, until there was no gap for
some seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from typing import Final

from penstock.brokers.pulsar import Admin, Delivery, PulsarClient, Reader
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ClusterError, PenstockError
from penstock.wire.pulsar import Entry, MessageId

__all__ = ["EntryIndexes"]

log = logging.getLogger("penstock.gateway")

_BUSY: Final = 3
"""Gaps within a second that make another writer a busy one."""
_QUIET_SECONDS: Final = 5.0
_PATIENCE: Final = 2.0
"""Seconds until the broker is asked for what should have come by reading."""
_REMEMBERED: Final = 10_000
_READ_BYTES: Final = 1024 * 1024

_Place = tuple[int, int]


def _index_of(delivery: Delivery) -> tuple[_Place, int]:
    entry = delivery.entry
    return delivery.message_id[:2], entry.broker_index if isinstance(entry, Entry) else -1


class EntryIndexes:
    """Finds out indexes for the writer of one partition."""

    def __init__(self, client: PulsarClient, admin: Admin, topic: str) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._gaps: deque[float] = deque([0.0] * _BUSY, maxlen=_BUSY)
        self._seen: OrderedDict[_Place, int] = OrderedDict()
        self._newest: _Place = (-1, -1)
        self._moved = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    @property
    def is_following(self) -> bool:
        """Whether another writer is busy, so that a reader follows the partition."""
        return self._follower is not None

    async def last_index(self, place: MessageId) -> int:
        """Give the index of the last message of an entry; raise ClusterError if the broker keeps none."""
        self._gaps.append(time.monotonic())
        if self._follower is not None:
            found = await self._read(place[:2])
            if found is not None:
                return found
        elif self._gaps[-1] - self._gaps[0] < 1.0:
            self._follower = watched(asyncio.create_task(self._follow(place)))
        return await self._ask(place)

    async def sweep(self) -> None:
        """Stop following when nobody else has written for some seconds."""
        if time.monotonic() - self._gaps[-1] > _QUIET_SECONDS:
            await self.close()

    async def close(self) -> None:
        """Stop following."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

    async def _ask(self, place: MessageId) -> int:
        """Read the entry; if that does not work ask the admin API, which knows why."""
        try:
            async with asyncio.timeout(_PATIENCE):
                seen, index = await self._client.read_entry(self._topic, place, _index_of)
            if seen == place[:2] and index >= 0:
                return index
        except (ClusterError, TimeoutError) as exc:
            log.debug("entry %s of %s could not be read: %s", place, self._topic, exc)
        found = await self._admin.entry_index(self._topic, place)
        if found is None:
            raise ClusterError(
                f"the broker keeps no index for {self._topic}",
                next="set brokerEntryMetadataInterceptors to AppendIndexMetadataInterceptor",
            )
        return found.last_index

    # Following

    async def _read(self, place: _Place) -> int | None:
        """Wait until an entry has come by; None if it has no index or takes long."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._newest < place and self._follower is not None:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return None
        return self._seen.get(place)

    async def _follow(self, place: MessageId) -> None:
        """Read the heads of entries from a place on; if that fails the broker is asked again."""
        reader: Reader[None] | None = None
        try:
            reader = await self._client.reader(
                self._topic, start=place, convert=self._note, read_bytes=_READ_BYTES
            )
            async for _ in reader:
                pass
        except PenstockError as exc:
            log.debug("%s is not followed any more: %s", self._topic, exc)
        finally:
            if self._follower is asyncio.current_task():
                # Whatever ended it: nobody waits for what will not come.
                self._follower = None
            self._seen.clear()
            self._newest = (-1, -1)
            self._moved.set()
            if reader is not None:
                await reader.close()

    def _note(self, delivery: Delivery) -> None:
        place, entry = delivery.message_id[:2], delivery.entry
        if isinstance(entry, Entry) and entry.broker_index >= 0:
            self._seen[place] = entry.broker_index
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        self._newest = max(self._newest, place)
        self._moved.set()
