"""One reader of a partition: entries become Kafka batches as they come, and are held within a budget.

A batch is held until a client asks for what is behind it, so that a client may ask again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery, PulsarClient, Reader
from penstock.errors import ApiError, ClusterError, PenstockError, PulsarRefused, WireError
from penstock.gateway.mapping import KafkaBatch, Undecodable, entry_to_batch, placeholder
from penstock.gateway.mapping.undecodable import Reason
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import Entry, MessageId

__all__ = ["Stuck", "Tail"]

_BUDGET: Final = 8 * 1024 * 1024
_TOPIC_TERMINATED: Final = 15
"""Pulsar's ServerError.TopicTerminatedError: nothing will come any more."""


class Stuck(ApiError):
    """An entry that cannot be read stands in the way; the message names the offset to seek past."""


class _Gap(NamedTuple):
    """Offsets without records: of an entry that cannot be read, or that was not meant for us."""

    next_offset: int
    verdict: Undecodable


class Tail:
    """Batches of a partition from an offset on, in order."""

    def __init__(
        self,
        *,
        offset: int,
        limit: int,
        placeholders: bool,
        compacted: bool = False,
        undecodable: Counter[str] | None = None,
        numbering: Numbering = BY_INDEX,
    ) -> None:
        self.start = offset
        """The first offset that can be asked for."""
        self.end = offset
        """The offset behind the last entry that came."""
        self.used = time.monotonic()
        self._limit = limit
        self._placeholders = placeholders
        self._compacted = compacted
        self._numbering = numbering
        self._holes = compacted or not numbering.continuous
        self._undecodable: Counter[str] = Counter() if undecodable is None else undecodable
        self._held: deque[KafkaBatch] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._error: PenstockError | None = None
        self._reader: Reader[KafkaBatch | _Gap] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def open(self, client: PulsarClient, topic: str, place: MessageId) -> None:
        """Begin to read at the entry that holds our offset."""
        self._reader = await client.reader(
            topic, start=place, read_compacted=self._compacted, convert=self._convert
        )
        self._pump = asyncio.create_task(self._fill(self._reader))

    async def close(self) -> None:
        """Stop reading."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._reader is not None:
            await self._reader.close()

    # Asking

    def covers(self, offset: int) -> bool:
        """Say whether what is at an offset was held or will come next."""
        return self.start <= offset <= self.end

    def has(self, offset: int) -> bool:
        """Say whether `read` would give something, or raise."""
        return self._error is not None or bool(self._held and self._held[-1].next_offset > offset)

    def read(self, offset: int, max_bytes: int) -> list[KafkaBatch]:
        """Give batches from an offset on, at least one if any is held, about `max_bytes` of them."""
        self.used = time.monotonic()
        self._let_go(offset)
        if not self._held and self._error is not None:
            raise self._error
        taken: list[KafkaBatch] = []
        size = 0
        for batch in self._held:
            size += len(batch.data)
            if taken and size > max_bytes:
                break
            taken.append(batch)
        return taken

    async def arrival(self, offset: int) -> None:
        """Wait until there is something behind an offset, or reading has failed."""
        while not self.has(offset):
            self._news.clear()
            await self._news.wait()

    def _let_go(self, offset: int) -> None:
        while self._held and self._held[0].next_offset <= offset:
            batch = self._held.popleft()
            self._size -= len(batch.data)
            self.start = max(self.start, batch.next_offset)
        if self._size < _BUDGET:
            self._room.set()

    # From Pulsar

    def _convert(self, delivery: Delivery) -> KafkaBatch | _Gap:
        """Convert while the bytes are in the socket's buffer."""
        entry = delivery.entry
        if isinstance(entry, WireError):
            return _Gap(-1, Undecodable(Reason.CORRUPT, str(entry), 1, True))
        base = self._numbering.first_offset(delivery)
        following = base + min(entry.num_messages, self._numbering.largest_batch)
        if base < 0 and not entry.is_marker:
            return _Gap(-1, Undecodable(Reason.UNNUMBERED, "the entry has no offset", 1, True))
        found = self._too_many(entry) or entry_to_batch(entry, base_offset=base, limit=self._limit)
        if isinstance(found, KafkaBatch):
            return found
        if self._placeholders and not found.may_leave_hole:
            self._undecodable[found.reason.value] += 1
            return placeholder(found, base_offset=base, timestamp=entry.publish_time)
        return _Gap(following if base >= 0 else 0, found)

    def _too_many(self, entry: Entry) -> Undecodable | None:
        most = self._numbering.largest_batch
        if entry.num_messages <= most:
            return None
        detail = f"{entry.num_messages} messages in one entry, and offsets for {most}"
        return Undecodable(Reason.UNNUMBERED, detail)

    async def _fill(self, reader: Reader[KafkaBatch | _Gap]) -> None:
        try:
            while True:
                await self._room.wait()
                self._add(await reader.read())
        except PulsarRefused as exc:
            if exc.server_error != _TOPIC_TERMINATED:
                self._fail(exc)
        except (ApiError, ClusterError, WireError) as exc:
            self._fail(exc)

    def _fail(self, exc: PenstockError) -> None:
        self._error = exc
        self._news.set()

    def _add(self, item: KafkaBatch | _Gap) -> None:
        if isinstance(item, _Gap):
            self._skip(item)
        elif item.next_offset > self.end:
            # The broker begins silently with what is left, if what was asked for has been removed.
            if item.base_offset > self.end and not self._holes:
                raise ApiError(f"offset {self.end} was removed", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            self.end = item.next_offset
            self._held.append(item)
            self._size += len(item.data)
            if self._size >= _BUDGET:
                self._room.clear()
            self._news.set()

    def _skip(self, gap: _Gap) -> None:
        """Pass by what is not ours, or lies before our offset; anything else stands in the way."""
        verdict = gap.verdict
        if not verdict.may_leave_hole and (gap.next_offset < 0 or gap.next_offset > self.end):
            self._undecodable[verdict.reason.value] += 1
            raise Stuck(
                f"offset {self.end} cannot be read ({verdict}); seek {_past(gap)}",
                error_code=ErrorCode.CORRUPT_MESSAGE,
            )
        self.end = max(self.end, gap.next_offset)
        self._news.set()


def _past(gap: _Gap) -> str:
    return "past it" if gap.next_offset < 0 else f"to {gap.next_offset}"
