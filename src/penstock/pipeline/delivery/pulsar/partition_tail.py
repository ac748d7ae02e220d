"""The entries of one Pulsar partition from a position on, as record batches; the asyncio side of a reader.

What comes has the shape of what the Kafka fetcher gives (`Fetched`), so that one router takes both. Between
two entries indexes may be missing: Pulsar numbers what readers are never given, too (markers, aborted
transactions), and compaction removes. Only the start of the log tells whether something was removed that
should have been read; it is asked where a ledger ends, for ledgers are removed whole. Behind the first
message of an open transaction a broker gives nothing: there a log ends for readers (`last_stable_offset`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from penstock.brokers.kafka_raw.fetched import Fetched
from penstock.brokers.pulsar import Reader
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import OffsetOutOfRange, PenstockError, PulsarRefused
from penstock.mapping import KafkaBatch
from penstock.pipeline.delivery.pulsar.entries import (
    Decoded,
    EntryDecoder,
    RejectedEntry,
    Undecided,
    size_of,
)
from penstock.pipeline.delivery.pulsar.log import Numbering, PulsarLog, PulsarPosition, packed, unpacked
from penstock.pipeline.delivery.same_topic import deleted_topic, refuse_other_incarnation
from penstock.wire.pulsar import EARLIEST, MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["SILENCE_SECONDS", "FetchedEntries", "PartitionTail"]

_NEVER: Final = 2**63 - 1
SILENCE_SECONDS: Final = 0.2
"""After so long without an entry the broker is asked whether there are more."""
_END_SECONDS: Final = 1.0
"""So long an answer about the end of the log holds."""
_NOTHING: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class FetchedEntries(Fetched):
    """Batches of one partition, and entries that could not become one."""

    rejected: tuple[RejectedEntry, ...] = ()
    position: PulsarPosition = PulsarPosition(0)
    """`next_offset` with the entry before it: what to acknowledge, and where to go on quickly."""


class PartitionTail:
    """The asynchronous part of reading one partition; everything runs on the cluster's thread."""

    def __init__(
        self,
        log: PulsarLog,
        first: PulsarPosition,
        end: int | None,
        *,
        numbering: Numbering,
        max_bytes: int,
        read_bytes: int,
        inflated: int,
    ) -> None:
        self.log = log
        self.position = first
        self.end = _NEVER if end is None else end
        self.halted = False
        """Whether it waits for a `seek`: the log does not have its position."""
        self._numbering = numbering
        self._max_bytes = max_bytes
        self._read_bytes = read_bytes
        self._inflated = inflated
        self._decoder = self._new_decoder()
        self._reader: Reader[Decoded] | None = None
        self._opened_at = EARLIEST
        self._ledger = -1
        """Of the entry that was taken last."""
        self._waiting: tuple[Decoded, int] | None = None
        """An entry that was taken from the reader and is behind what was given."""
        self._is_terminated = False
        self._stable = first.index
        self._log_start = -1
        self._asked = 0.0
        self._came = 0.0
        """When an entry was last taken, or reading began."""
        self._learning: asyncio.Task[None] | None = None
        self._unchecked: MessageId | None = None
        """The entry before the position, as long as it is not known whether it is still that entry."""
        self._created: str | None = None
        """When the log was created, as it was told when a reader without an end was first opened."""
        self._reconnects = 0
        """How often the reader had come back when the log was last seen to be the same."""

    @property
    def done(self) -> bool:
        """Whether the end is reached, or nothing can be read before a `seek`."""
        return self.halted or self.position.index >= self.end

    @property
    def is_attached(self) -> bool:
        """Whether the broker has the reader now."""
        return self._reader is not None and self._reader.is_attached

    async def seek(self, index: int) -> None:
        """Go on at another index."""
        await self.close()
        self.position, self.halted = PulsarPosition(index), False
        self._decoder = self._new_decoder()
        self._waiting, self._ledger, self._is_terminated = None, -1, False

    async def close(self) -> None:
        """Close the reader; what was read ahead is dropped."""
        if self._learning is not None:
            self._learning.cancel()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    def _new_decoder(self) -> EntryDecoder:
        log = self.log
        return EntryDecoder(
            log.topic,
            log.partition,
            name=log.name,
            numbering=self._numbering,
            inflated=self._inflated,
            first=self.position.index,
        )

    # Opening

    async def open(self) -> None:
        """Begin to read at the entry that holds the position, or before it."""
        if self._reader is None:
            self._came = time.monotonic()
            self._unchecked = self.position.place
            if self.end == _NEVER and self._created is None:
                self._created = await self.log.cluster.admin.created(self.log.name)
            self._reconnects = 0
            await self._open_at(self._unchecked or await self._start())

    async def _start(self) -> MessageId:
        index = self.position.index
        if self._numbering is Numbering.PLACE:
            return unpacked(index) if index else EARLIEST
        if index <= 0:
            return EARLIEST
        place = await self.log.place_of(index)
        if place is not None:
            return place
        ends = await self.log.ends()
        if index > ends.last:
            await self._out_of_range(index, ends.last)
        # At the end, or at indexes that hold nothing: what is before is passed by.
        return await self.log.place_of(index - 1) or EARLIEST

    async def _open_at(self, place: MessageId) -> None:
        self._ledger, self._opened_at = place.ledger_id, place
        self._reader = await self.log.cluster.client.reader(
            self.log.name,
            start=place,
            convert=self._decoder.decode,
            size_of=size_of,
            read_bytes=self._read_bytes,
            # A topic that was deleted under a running job stays deleted.
            create=False,
        )

    # Reading

    async def poll(self, timeout: float) -> FetchedEntries | None:
        """Wait for entries; None if none came in time, without records if only the end of the log is news.

        Raises JobFailed if the topic was deleted since the job looked at it.
        """
        try:
            return await self._poll(timeout)
        except PulsarRefused as exc:
            if exc.server_error != ServerError.TOPIC_NOT_FOUND:
                raise
            raise deleted_topic(self.log.topic) from exc

    async def _poll(self, timeout: float) -> FetchedEntries | None:
        until = time.monotonic() + timeout
        while not self.done:
            await self.open()
            before = self._stable
            found = await self._take()
            if found is not None:
                self._learn_end()
                return found
            if self._reader is None:
                continue  # what it read was not behind the position: it is opened anew
            left = until - time.monotonic()
            if not await self.arrival(min(max(left, 0.0), SILENCE_SECONDS)):
                passed = await self._look_at_end()
                if passed is not None or self._stable != before:
                    return self._fetched(self.position.index if passed is None else passed, [], [])
                if left <= 0:
                    break
        return None

    async def arrival(self, seconds: float) -> bool:
        """Wait for an entry; return whether one has come."""
        assert self._reader is not None
        if self._is_terminated:
            await asyncio.sleep(seconds)
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._reader.arrival()
        except TimeoutError:
            return False
        except PulsarRefused as exc:
            if exc.server_error != ServerError.TOPIC_TERMINATED_ERROR:
                raise
            self._is_terminated = True
            return False
        return True

    async def _take(self) -> FetchedEntries | None:
        """Take what has come, up to the bytes of one answer, at least one entry."""
        first, size, counted = self.position.index, 0, 0
        batches: list[memoryview] = []
        rejected: list[RejectedEntry] = []
        moved = False
        while size < self._max_bytes and self.position.index < self.end:
            taken = self._next()
            if taken is None:
                break
            item, held = taken
            if self._needs_answer(item):
                if batches or rejected or moved:
                    # What was taken is not held up by a question to the broker, nor lost by an error.
                    self._waiting = taken
                    break
                try:
                    settled = await self._settled(item)
                except PenstockError:
                    # Taken from the reader already: it is the next one again, unless a `seek` follows.
                    self._waiting = taken
                    raise
                if settled is None:
                    break
                item = settled
            counted += held
            content = item.content
            if content.base_offset >= self.end:  # type: ignore[union-attr]
                # Nothing is there between the position and the end.
                self._waiting = taken
                counted -= held
                self.position, moved = replace(self.position, index=self.end), True
                break
            moved |= self._pass(item)
            if isinstance(content, KafkaBatch) and content.next_offset > first:
                batches.append(content.data)
                size += len(content.data)
            elif isinstance(content, RejectedEntry) and content.base_offset >= first:
                # Of the range in which it begins, so that it is rejected once.
                rejected.append(content)
                size += len(content.raw)
        # Copied before the memory counts as free: more is on its way while the caller works.
        fetched = self._fetched(first, batches, rejected) if moved or rejected else None
        self._release(counted)
        self._came = time.monotonic() if fetched is not None else self._came
        return fetched

    def _next(self) -> tuple[Decoded, int] | None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            return waiting
        assert self._reader is not None
        try:
            taken = self._reader.take_nowait()
        except PulsarRefused as exc:
            if exc.server_error != ServerError.TOPIC_TERMINATED_ERROR:
                raise
            self._is_terminated = True
            return None
        return taken

    def _pass(self, item: Decoded) -> bool:
        """Go behind an entry, or to the end if that is inside of it; return whether the position moved."""
        content, place = item.content, item.place
        assert not isinstance(content, Undecided | PenstockError)
        self._ledger = place.ledger_id
        if content.next_offset <= self.position.index:
            return False
        index = min(content.next_offset, self.end)
        inside = index < content.next_offset
        self.position = PulsarPosition(
            index,
            place.ledger_id,
            place.entry_id,
            index - content.base_offset if inside else 0,
            item.messages if inside else 0,
        )
        return True

    def _release(self, size: int) -> None:
        if size and self._reader is not None:
            self._reader.release(size)

    def _fetched(
        self, first: int, batches: list[memoryview], rejected: list[RejectedEntry]
    ) -> FetchedEntries:
        position = self.position
        stable = max(self._stable, self._decoder.arrived, position.index)
        return FetchedEntries(
            topic=self.log.topic,
            partition=self.log.partition,
            first=first,
            next_offset=position.index,
            high_watermark=stable,
            last_stable_offset=stable,
            log_start=self._log_start,
            data=memoryview(b"".join(batches)) if batches else _NOTHING,
            aborted=(),
            rejected=tuple(rejected),
            position=position,
        )

    # What only the broker can answer

    def _needs_answer(self, item: Decoded) -> bool:
        return (
            self._unchecked is not None
            or self._is_reattached
            or isinstance(item.content, Undecided | PenstockError)
            or self._may_be_behind_removed(item)
        )

    @property
    def _is_reattached(self) -> bool:
        """Whether a reader without an end has come back to a topic that may be another one by now.

        Ranges are short; who plans them looks at the topic.
        """
        reader = self._reader
        return self._created is not None and reader is not None and reader.reconnects > self._reconnects

    def _may_be_behind_removed(self, item: Decoded) -> bool:
        # The broker begins silently with what is left, if what was asked for has been removed.
        content = item.content
        assert not isinstance(content, PenstockError)
        return (
            self._numbering is Numbering.INDEX
            and content.base_offset > self.position.index
            and item.place.ledger_id != self._ledger
        )

    async def _settled(self, item: Decoded) -> Decoded | None:
        """Ask the broker what an entry is; None if the reader has to be opened at another place.

        Raises what the decoder found wrong with the log, and JobFailed if it is another one than before.
        """
        if isinstance(item.content, PenstockError):
            raise item.content
        if self._is_reattached:
            assert self._reader is not None
            reconnects = self._reader.reconnects
            found = await self.log.cluster.admin.created(self.log.name)
            refuse_other_incarnation(self.log.topic, self._created, found)
            self._reconnects = reconnects
        if self._unchecked is not None and item.place[:2] != self._unchecked[:2]:
            # Ids of ledgers are not used again: the entry before the position is gone. Only the broker can
            # say where to go on.
            await self.seek(self.position.index)
            return None
        self._unchecked = None
        content = item.content
        if isinstance(content, Undecided):
            item = item._replace(content=content.settled(await self.log.index_before(item.place)))
        if self._may_be_behind_removed(item):
            start = await self.log.start()
            if self.position.index < start:
                await self._out_of_range(self.position.index, self._decoder.arrived)
        return item

    async def _out_of_range(self, offset: int, log_end: int) -> None:
        self._log_start = await self.log.start()
        self.halted = True
        raise OffsetOutOfRange(
            self.log.topic,
            self.log.partition,
            offset=offset,
            log_start=self._log_start,
            log_end=max(log_end, self._log_start),
        )

    async def _look_at_end(self) -> int | None:
        """Ask where the log ends; return the former position if indexes that hold nothing were passed by."""
        now = time.monotonic()
        reader = self._reader
        if reader is None or not reader.is_attached or now - self._asked < _END_SECONDS:
            return None
        if now - self._came < SILENCE_SECONDS:
            return None
        self._asked = now
        last = await reader.last_message_id()
        if not self._has_come(last):
            last = await self.log.without_hidden(last)
        if not self._has_come(last) or len(reader) or self._waiting is not None:
            return None
        self._stable = max(self._decoder.arrived, self.position.index)
        if self.end == _NEVER:
            return None
        if self._numbering is Numbering.PLACE:
            if self.end > packed(last.ledger_id, max(last.entry_id, 0) + 1):
                return None  # the log ends before the range does
            before, self.position = self.position.index, replace(self.position, index=self.end)
            return before
        return await self._pass_hole()

    def _has_come(self, last: MessageId) -> bool:
        assert self._reader is not None
        received = self._reader.received
        if received is None:
            # What is before the first entry that was asked for does not come.
            return last.entry_id < 0 or last[:2] < self._opened_at[:2]
        return last.entry_id < 0 or last[:2] <= received[:2]

    async def _pass_hole(self) -> int | None:
        """Pass by indexes before the end of the range, all entries having come. Raises OffsetOutOfRange."""
        ends = await self.log.ends()
        before = self.position.index
        if ends.is_held_back:
            return None
        if ends.last < self.end:
            await self._out_of_range(self.end, ends.last)
        if before < await self.log.start():
            # Nothing came because nothing is left.
            await self._out_of_range(before, ends.last)
        # Looked at again: what was written meanwhile is on its way.
        assert self._reader is not None
        if not self._has_come(await self.log.without_hidden(await self._reader.last_message_id())):
            return None
        self.position = replace(self.position, index=self.end)
        return before

    def _learn_end(self) -> None:
        """Ask where the log ends while entries come, for the lag of who reads for ever; once in a while."""
        now = time.monotonic()
        if self.end == _NEVER and now - self._asked > _END_SECONDS and self._learning is None:
            self._asked = now
            self._learning = watched(asyncio.ensure_future(self._learned()))

    async def _learned(self) -> None:
        try:
            with suppress(PenstockError):
                assert self._reader is not None
                last = await self._reader.last_message_id()
                if not self._has_come(last):
                    self._stable = max(self._stable, (await self.log.find_latest(last)).index)
        finally:
            self._learning = None
