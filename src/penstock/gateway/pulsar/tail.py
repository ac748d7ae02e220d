"""One reader of a partition: entries become Kafka batches as they come, and wait here within a budget."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final

from penstock.brokers.pulsar import Delivery, PulsarClient, Reader
from penstock.errors import ApiError, ClusterError, WireError
from penstock.gateway.mapping import KafkaBatch, Undecodable, entry_to_batch, placeholder
from penstock.gateway.mapping.undecodable import Reason
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import MessageId

__all__ = ["Stuck", "Tail"]

_BUDGET: Final = 8 * 1024 * 1024


class Stuck(ApiError):
    """An entry that cannot be read stands in the way; the message names the offset to seek past."""


class Tail:
    """Batches of a partition from an offset on, in order; taken once."""

    def __init__(
        self, *, next_offset: int, limit: int, placeholders: bool, undecodable: Counter[str] | None = None
    ) -> None:
        self.next_offset = next_offset
        """What `take` will give next; entries may begin below it."""
        self._limit = limit
        self._placeholders = placeholders
        self._undecodable: Counter[str] = Counter() if undecodable is None else undecodable
        self._waiting: deque[KafkaBatch] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._error: Exception | None = None
        self._reader: Reader[KafkaBatch | Undecodable | int] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def open(self, client: PulsarClient, topic: str, place: MessageId) -> None:
        """Begin to read at the entry that holds our offset."""
        self._reader = await client.reader(topic, start=place, convert=self._convert)
        self._pump = asyncio.create_task(self._fill(self._reader))

    async def close(self) -> None:
        """Stop reading."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._reader is not None:
            await self._reader.close()

    @property
    def first_offset(self) -> int | None:
        """The offset of the first batch that waits."""
        return self._waiting[0].base_offset if self._waiting else None

    def take(self, max_bytes: int) -> list[KafkaBatch]:
        """Take batches, at least one if any waits, about `max_bytes` of them."""
        if not self._waiting and self._error is not None:
            raise self._error
        taken: list[KafkaBatch] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0].data) <= max_bytes):
            batch = self._waiting.popleft()
            size += len(batch.data)
            taken.append(batch)
            self.next_offset = batch.next_offset
        self._size -= size
        if self._size < _BUDGET:
            self._room.set()
        return taken

    async def wait(self) -> None:
        """Wait until something can be taken, or reading has failed."""
        while not self._waiting and self._error is None:
            self._news.clear()
            await self._news.wait()

    # From Pulsar

    def _convert(self, delivery: Delivery) -> KafkaBatch | Undecodable | int:
        """Convert while the bytes are in the socket's buffer; a number is what is skipped."""
        entry = delivery.entry
        if isinstance(entry, WireError):
            return Undecodable(Reason.CORRUPT, str(entry), 1, True)
        if entry.first_index < 0:
            return Undecodable(Reason.CORRUPT, "the broker keeps no index for this entry", 1, True)
        found = entry_to_batch(entry, base_offset=entry.first_index, limit=self._limit)
        if isinstance(found, KafkaBatch):
            return found
        if found.may_leave_hole:
            return entry.first_index + found.num_messages
        if self._placeholders:
            self._undecodable[found.reason.value] += 1
            return placeholder(found, base_offset=entry.first_index, timestamp=entry.publish_time)
        return found

    async def _fill(self, reader: Reader[KafkaBatch | Undecodable | int]) -> None:
        try:
            while True:
                await self._room.wait()
                self._add(await reader.read())
        except (ApiError, ClusterError, WireError) as exc:
            self._error = exc
            self._news.set()

    def _add(self, item: KafkaBatch | Undecodable | int) -> None:
        if isinstance(item, Undecodable):
            self._undecodable[item.reason.value] += 1
            offset = self._waiting[-1].next_offset if self._waiting else self.next_offset
            raise Stuck(
                f"offset {offset} cannot be read ({item.reason.value}: {item.detail}); seek past it",
                error_code=ErrorCode.CORRUPT_MESSAGE,
            )
        if isinstance(item, KafkaBatch):
            if item.next_offset <= self.next_offset:
                return
            self._waiting.append(item)
            self._size += len(item.data)
            if self._size >= _BUDGET:
                self._room.clear()
            self._news.set()
