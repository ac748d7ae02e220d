"""One reader of a partition: entries become Kafka batches as they come, and are held until they are taken.

The reader holds what it has read ahead, within its share of the gateway's budget. What was given to a client
is held until the client asks for what is behind it, so that it may ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from typing import Final, NamedTuple

from penstock.brokers.pulsar import Delivery, PulsarClient, Reader
from penstock.errors import ApiError, ClusterError, InternalError, PenstockError, PulsarRefused, WireError
from penstock.gateway.mapping import KafkaBatch, Undecodable, entry_to_batch, hole, placeholder
from penstock.gateway.mapping.undecodable import Reason
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.gateway.pulsar.offset_index import OffsetIndex
from penstock.wire.kafka import ErrorCode
from penstock.wire.pulsar import Entry, MessageId

__all__ = ["Stuck", "Tail"]

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
        index: OffsetIndex | None = None,
    ) -> None:
        self.start = offset
        """The first offset that can be asked for."""
        self.end = offset
        """The offset behind the last entry that was taken from the reader."""
        self.arrived = offset
        """The offset behind the last entry that came."""
        self.used = time.monotonic()
        """When it was last asked."""
        self.waiting = 0
        """How many wait for something to come."""
        self._limit = limit
        self._placeholders = placeholders
        self._compacted = compacted
        self._numbering = numbering
        self._index = index
        self._holes = compacted or not numbering.continuous
        self._undecodable: Counter[str] = Counter() if undecodable is None else undecodable
        self._held: deque[KafkaBatch] = deque()
        self._size = 0
        self._error: PenstockError | None = None
        self._ended = False
        self._reader: Reader[KafkaBatch | _Gap] | None = None

    async def open(
        self, client: PulsarClient, topic: str, place: MessageId, *, read_bytes: int | None = None
    ) -> None:
        """Begin to read at the entry that holds our offset, or before it."""
        self._reader = await client.reader(
            topic, start=place, read_compacted=self._compacted, convert=self._convert, read_bytes=read_bytes
        )

    async def close(self) -> None:
        """Stop reading; who waits hears of it."""
        if self._error is None:
            self._error = ClusterError("this reader was closed", next="ask again")
        self._held.clear()
        self._size = 0
        if self._reader is not None:
            await self._reader.close()

    # Asking

    @property
    def held_bytes(self) -> int:
        """What was read and not yet let go."""
        return self._size + (0 if self._reader is None else self._reader.held_bytes)

    def limit(self, size: int) -> None:
        """Read ahead no more than this from now on."""
        if self._reader is not None:
            self._reader.limit(size)

    def covers(self, offset: int) -> bool:
        """Say whether what is at an offset was held or will come next."""
        return self.start <= offset <= max(self.arrived, self.end)

    def has(self, offset: int) -> bool:
        """Say whether `read` would give something, or raise."""
        while not (self._held and self._held[-1].next_offset > offset) and self._take_one():
            pass
        return self._error is not None or bool(self._held and self._held[-1].next_offset > offset)

    def read(self, offset: int, max_bytes: int) -> list[KafkaBatch]:
        """Give batches from an offset on, at least one if any has come, about `max_bytes` of them."""
        self.used = time.monotonic()
        self._let_go(offset)
        while self._size < max_bytes and self._take_one():
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
        self.waiting += 1
        try:
            while not self.has(offset):
                await self._news()
        finally:
            self.waiting -= 1

    async def _news(self) -> None:
        if self._reader is None or self._ended:
            # Nothing will come any more; the one who asks waits as long as he wants.
            await asyncio.get_running_loop().create_future()
        else:
            with contextlib.suppress(PenstockError):
                await self._reader.arrival()

    async def last_message_id(self) -> MessageId:
        """Ask the broker for the last message of the topic."""
        assert self._reader is not None
        return await self._reader.last_message_id()

    async def is_at_end(self) -> bool:
        """Ask the broker whether everything that is in the topic has come."""
        assert self._reader is not None
        last, received = await self._reader.last_message_id(), self._reader.received
        return last.entry_id < 0 or (received is not None and last[:2] <= received[:2])

    def pass_by(self, end: int) -> None:
        """Go on behind offsets of which nothing is left; a batch without records tells clients so."""
        self._hold(hole(self.end, end))
        self.end, self.arrived = end, max(self.arrived, end)

    def _let_go(self, offset: int) -> None:
        while self._held and self._held[0].next_offset <= offset:
            batch = self._held.popleft()
            self._size -= len(batch.data)
            self.start = max(self.start, batch.next_offset)

    def _take_one(self) -> bool:
        """Take the next entry from the reader; False if there is none now."""
        if self._reader is None or self._error is not None or self._ended:
            return False
        try:
            item = self._reader.read_nowait()
            if item is not None:
                self._add(item)
        except PulsarRefused as exc:
            self._ended = exc.server_error == _TOPIC_TERMINATED
            self._error = None if self._ended else exc
            return False
        except (ApiError, ClusterError, WireError, InternalError) as exc:
            self._error = exc
            return False
        return item is not None

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
        if base >= 0:
            self.arrived = max(self.arrived, following)
        found = self._too_many(entry) or entry_to_batch(entry, base_offset=base, limit=self._limit)
        if isinstance(found, KafkaBatch):
            if self._index is not None:
                self._index.note(base, delivery.message_id)
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

    def _add(self, item: KafkaBatch | _Gap) -> None:
        if isinstance(item, _Gap):
            self._skip(item)
        elif item.next_offset > self.end:
            # The broker begins silently with what is left, if what was asked for has been removed.
            if item.base_offset > self.end and not self._holes:
                raise ApiError(f"offset {self.end} was removed", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            self.end = item.next_offset
            self._hold(item)

    def _hold(self, batch: KafkaBatch) -> None:
        self._held.append(batch)
        self._size += len(batch.data)

    def _skip(self, gap: _Gap) -> None:
        """Pass by what is not ours, or lies before our offset; anything else stands in the way."""
        verdict = gap.verdict
        if not verdict.may_leave_hole and (gap.next_offset < 0 or gap.next_offset > self.end):
            self._undecodable[verdict.reason.value] += 1
            raise Stuck(
                f"offset {self.end} cannot be read ({verdict}); seek {_past(gap)}",
                error_code=ErrorCode.CORRUPT_MESSAGE,
            )
        if gap.next_offset > self.end:
            self.pass_by(gap.next_offset)


def _past(gap: _Gap) -> str:
    return "past it" if gap.next_offset < 0 else f"to {gap.next_offset}"
