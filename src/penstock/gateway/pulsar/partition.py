"""One partition: its writer, the readers that follow its clients, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from typing import Any, Final

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.brokers.pulsar.ledgers import place_before_end
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ApiError, PenstockError
from penstock.gateway.ports import EARLIEST, LATEST, MAX_TIMESTAMP, Appended, Found, Slice
from penstock.gateway.pulsar.log_end import LogEnd
from penstock.gateway.pulsar.names import refuse_own
from penstock.gateway.pulsar.newest import NEWEST_BYTES, Newest
from penstock.gateway.pulsar.numbering import BY_INDEX, Numbering
from penstock.gateway.pulsar.offset_index import OffsetIndex
from penstock.gateway.pulsar.read_ahead import ReadAhead
from penstock.gateway.pulsar.removed import mark_removed, removed_to
from penstock.gateway.pulsar.tail import Tail
from penstock.gateway.pulsar.writer import Writer
from penstock.gateway.scan import first_at
from penstock.mapping import KafkaBatch, OnUndecodable, PulsarBatch
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches
from penstock.wire.pulsar import EARLIEST as FIRST_MESSAGE
from penstock.wire.pulsar import MessageId

__all__ = ["Partition"]

_TAILS: Final = 16
_READ_ATTEMPTS: Final = 3
"""How often a read begins again, because its reader had to make room for others before it was used."""
_TAIL_IDLE: Final = 15.0
_ENTRY_HEAD: Final = 512
_START_VALID_FOR: Final = 5.0
_END_VALID_FOR: Final = 1.0
_FIRST_ENTRY_WITHIN: Final = 5.0
_LOOK_AGAIN: Final = 0.2
_SCAN_BYTES: Final = 1 << 20
_TIME_MARGIN_MS: Final = 60_000
"""Publish times and record times differ by clocks and by how long a producer held a batch."""


class Partition:
    """What the gateway holds of one Pulsar topic."""

    _numbering: Numbering = BY_INDEX
    _end_kind: type[LogEnd] = LogEnd

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        topic: str,
        *,
        max_batch_bytes: int,
        on_undecodable: OnUndecodable,
        undecodable: Counter[str] | None = None,
        read_ahead: ReadAhead | None = None,
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._limit = max_batch_bytes
        self._on_undecodable = on_undecodable
        self._undecodable = undecodable
        self.counter = self._counter = self._numbering.counter()
        self._end = self._end_kind(client, admin, topic, self._counter)
        self._index = OffsetIndex()
        self._read_ahead = read_ahead or ReadAhead()
        self._newest = Newest()
        self._tails: list[Tail] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        """What closes readers: it is never cancelled, for then a reader would stay attached to the broker."""
        self._closed = False
        self._start: tuple[int, float] | None = None
        self._removed_to = -1
        self.compacted = False
        """Whether Pulsar keeps only the newest message of each key."""
        self.is_own = False
        """Whether gateways keep their state in it: clients may only read it."""
        self.writer = Writer(
            client,
            admin,
            topic,
            counter=self._counter,
            max_batch_bytes=max_batch_bytes,
            check=self._check,
            numbering=self._numbering,
            stored=self._index.note,
            answer=lambda offset: Appended(base_offset=offset, log_start_offset=self.known_start),
        )

    async def close(self) -> None:
        """Close producers and readers."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for tail in [*self._tails]:
            self._remove(tail)
        await asyncio.gather(self.writer.close(), *self._closing)

    def append(self, batch: RecordBatch) -> asyncio.Future[Appended]:
        """Take a batch now, in the order of the calls; await where it went."""
        return self.writer.append(batch)

    def _check(self, entry: PulsarBatch) -> None:
        """Refuse what clients may not write, and what Pulsar would not store or would lose by compaction."""
        refuse_own(self.is_own)
        if entry.end - entry.start + _ENTRY_HEAD > self._limit:
            raise ApiError("the batch is too large for Pulsar", error_code=ErrorCode.MESSAGE_TOO_LARGE)
        if self.compacted and (entry.keyless or entry.empty_values):
            raise ApiError(
                "a compacted topic takes records with a key, and with a null value or one that is not empty",
                error_code=ErrorCode.INVALID_RECORD,
            )

    # The two ends

    async def end(self) -> int:
        """Give the offset behind the last record that readers are given, also when others have written."""
        asked = next((tail for tail in self._tails if tail.is_attached), None)
        ends = await self._end.ask(asked.last_message_id if asked else None)
        return ends.readable if ends.readable >= 0 else await self.start()

    @property
    def known_start(self) -> int:
        """The first offset that can be read, as far as it is known; -1 if not."""
        return -1 if self._start is None else self._start[0]

    async def start(self) -> int:
        """Give the first offset that can be read; looked up again every few seconds, in the background."""
        if self._start is None:
            await self._look_for_start()
        elif time.monotonic() - self._start[1] >= _START_VALID_FOR:
            self._start = (self._start[0], time.monotonic())
            self._in_background(self._look_for_start())
        return self.known_start

    async def _recent_start(self) -> int:
        """Give the first offset that can be read, as it was a few seconds ago at most."""
        if self._start is None or time.monotonic() - self._start[1] >= _START_VALID_FOR:
            await self._look_for_start()
        return self.known_start

    async def _look_for_start(self) -> None:
        stats = await self._admin.stats(self._topic, internal=True)
        self._removed_to = removed_to(stats)
        self._start = (max(await self._find_start(stats), self._removed_to), time.monotonic())

    async def _find_start(self, stats: Mapping[str, Any]) -> int:
        ledgers = [int(ledger["ledgerId"]) for ledger in stats.get("ledgers", ())]
        self._index.keep(ledgers)
        found = await self._first_in(ledgers)
        if found is not None:
            return found
        end = (await self._end.ask()).last
        # Looked at again: what is before that end may have come only now.
        found = await self._first_in(ledgers)
        return end if found is None else found

    async def _first_in(self, ledgers: Iterable[int]) -> int | None:
        for ledger in ledgers:
            found = await self._first_of(MessageId(ledger, 0))
            if found is not None:
                return found
        return None

    async def _first_of(self, entry: MessageId) -> int | None:
        head = await self._end.head(entry)
        if head is None or head.index is None:
            return None
        # Of a batch in a transaction Pulsar may have counted one message only, and less than 0 is no offset.
        return max(head.index.last_index - head.index.num_messages + 1, 0)

    async def fresh_start(self) -> int:
        """Give the first offset that can be read now, looked up for this answer."""
        await self._look_for_start()
        return self.known_start

    async def index_before(self, place: MessageId) -> int | None:
        """Give the last index of the entry before one; None if it is not there any more."""
        return await self._end.index_before(place)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        self._start_task(work, self._tasks)

    @staticmethod
    def _start_task(work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
        async def run() -> None:
            with contextlib.suppress(PenstockError):
                await work

        task = watched(asyncio.create_task(run()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        # One that is cancelled before it has begun would be told as never awaited.
        task.add_done_callback(lambda _: work.close())

    # Reading

    async def read(self, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on; empty at the end."""
        if offset < self._removed_to:
            raise ApiError(f"offset {offset} was removed", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        tail = await self._tail_for(offset)
        batches = self._read_from(tail, offset, max_bytes)
        if not batches and self._is_at_hole(tail, offset):
            await self._pass_hole(tail, offset)
            batches = self._read_from(tail, offset, max_bytes)
        following = batches[-1].next_offset if batches else offset
        end = max(self._end.known, tail.arrived, following)
        if batches and following == end and time.monotonic() - self._end.asked > _END_VALID_FOR:
            # Others may write: a client that believes to be at the end may stop there.
            end = max(end, await self._end_for(tail))
        return Slice(
            batches=tuple(batch.data for batch in batches),
            high_watermark=end,
            log_start_offset=await self.start(),
            next_offset=following,
            is_limited=bool(batches) and tail.is_full,
            is_cut=following < tail.arrived,
        )

    async def _tail_for(self, offset: int) -> Tail:
        """Give a reader at an offset; one that was closed to make room for others is opened again."""
        for _ in range(_READ_ATTEMPTS):
            tail = self._tail_at(offset) or await self._open(offset)
            if tail in self._tails:
                break
        return tail

    def _read_from(self, tail: Tail, offset: int, max_bytes: int) -> list[KafkaBatch]:
        try:
            return tail.read(offset, max_bytes)
        except PenstockError:
            self._remove(tail)
            raise

    def _is_at_hole(self, tail: Tail, offset: int) -> bool:
        """Say whether the log has offsets that the reader is given nothing for.

        What was just produced is on its way, so something must have had the time to come.
        """
        return (
            offset < self._end.known
            and tail.quiet_seconds >= _LOOK_AGAIN
            and time.monotonic() - tail.looked > _END_VALID_FOR
        )

    async def _pass_hole(self, tail: Tail, offset: int) -> None:
        """Take clients past the offsets behind the last record, if all records have come."""
        tail.looked = time.monotonic()
        end = await self.end()
        if offset >= end:
            return
        if await self._has_everything(tail) and not tail.has(offset) and tail.is_settled:
            tail.pass_by(end)

    async def _has_everything(self, tail: Tail) -> bool:
        """Ask the broker whether all records that readers are given have come."""
        if not tail.is_attached:
            return False
        last = await tail.last_message_id()
        return tail.has_received(last) or tail.has_received(await self._end.without_hidden(last))

    async def _end_for(self, tail: Tail) -> int:
        """Give the end; a reader that has everything knows it without the broker's index."""
        if self._end.is_held_back or not await tail.is_at_end():
            return await self.end()
        self._end.asked = time.monotonic()
        return tail.arrived

    async def arrival(self, offset: int) -> None:
        """Wait until there is something to read at an offset."""
        tail = await self._tail_for(offset)
        while offset < self._end.known:
            # It is on its way, or nothing is there to come.
            try:
                async with asyncio.timeout(_LOOK_AGAIN):
                    return await tail.arrival(offset)
            except TimeoutError:
                if self._is_at_hole(tail, offset):
                    await self._pass_hole(tail, offset)
        await tail.arrival(offset)

    def _tail_at(self, offset: int) -> Tail | None:
        fitting = [tail for tail in self._tails if tail.covers(offset)]
        return max(fitting, key=lambda tail: tail.start, default=None)

    def _remove(self, tail: Tail) -> None:
        if tail in self._tails:
            self._tails.remove(tail)
            self._read_ahead.remove(tail)
            self._start_task(tail.close(), self._closing)

    def sweep(self) -> None:
        """Close the readers that nobody has used for a while."""
        self._in_background(self.writer.sweep())
        oldest = time.monotonic() - _TAIL_IDLE
        for tail in [tail for tail in self._tails if tail.used < oldest and not tail.waiting]:
            self._remove(tail)

    async def _open(self, offset: int) -> Tail:
        tail = Tail(
            offset=offset,
            limit=self._limit,
            on_undecodable=self._on_undecodable,
            compacted=self.compacted,
            undecodable=self._undecodable,
            numbering=self._numbering,
            index=self._index,
            facts=self,
        )
        # A packed offset is a place by itself.
        place = self._index.find(offset) if self._numbering.continuous else None
        end = await (self._open_anew(tail, offset) if place is None else self._open_at(tail, place))
        if self._closed:
            # Closed meanwhile: nobody else would ever close this reader.
            await tail.close()
            raise ApiError("the partition was closed", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._tails.append(tail)
        self._read_ahead.add(tail, lambda: self._remove(tail))
        self._make_room(tail)
        if offset < end:
            await self._first_entry(tail, offset)
        return tail

    def _make_room(self, newest: Tail) -> None:
        """Close the reader that is used least if there are too many, rather one that nobody waits at."""
        if len(self._tails) > _TAILS:
            others = [tail for tail in self._tails if tail is not newest]
            self._remove(min(others, key=lambda each: (each.waiting > 0, each.used)))

    async def _first_entry(self, tail: Tail, offset: int) -> None:
        """Wait for what there is to read, for a client shall not have to wait for the next record to get it.

        What was there may have been removed by compaction: then nothing comes, and it is not waited for.
        """
        deadline = time.monotonic() + _FIRST_ENTRY_WITHIN
        while not tail.has(offset) and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(tail.arrival(offset), _LOOK_AGAIN)
                return
            if await self._has_everything(tail):
                return

    async def _open_anew(self, tail: Tail, offset: int) -> int:
        """Open a reader at a place that the broker looks up; give the end of the log."""
        start, ends = await asyncio.gather(self.start(), self._end.ask())
        self._check_range(offset, start, ends.last)
        place = await self._place(offset)
        await tail.open(self._client, self._topic, place, read_bytes=self._read_ahead.share)
        return ends.readable

    async def _open_at(self, tail: Tail, place: MessageId) -> int:
        """Open a reader at a place we remember; the end of the log tells whether it is still the same log."""
        start = await self.start()
        await tail.open(self._client, self._topic, place, read_bytes=self._read_ahead.share)
        try:
            end = await self._end.behind(await tail.last_message_id())
            if tail.start > end:
                # Behind the last record there may be offsets that hold none.
                end, last = await self._end.ask(tail.last_message_id)
                self._check_range(tail.start, start, last)
            self._check_range(tail.start, start, max(end, tail.start))
        except BaseException:
            await tail.close()
            raise
        return end

    def _check_range(self, offset: int, start: int, end: int) -> None:
        if not start <= offset <= end:
            self._index.clear()
            raise ApiError(f"offset {offset} is outside of the log", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)

    async def _place(self, offset: int) -> MessageId:
        """Find the entry that holds an offset; at the end, the last entry, of which nothing is wanted."""
        place = await self._admin.message_id_by_index(self._topic, offset)
        if place is None and offset > 0:
            place = await self._admin.message_id_by_index(self._topic, offset - 1)
        return place if place is not None and place.entry_id >= 0 else FIRST_MESSAGE

    # Finding

    async def find(self, timestamp: int) -> Found:
        """Find an offset by place or time."""
        if timestamp == LATEST:
            return Found(offset=await self.end())
        if timestamp == EARLIEST:
            return Found(offset=await self._recent_start())
        return await (self._find_newest() if timestamp == MAX_TIMESTAMP else self._at_time(timestamp))

    async def _at_time(self, timestamp: int) -> Found:
        end = await self.end()
        place = await self._admin.message_id_by_time(self._topic, max(0, timestamp - _TIME_MARGIN_MS))
        last = await self._admin.last_message_id(self._topic)
        if place is not None and last is not None and place[:2] > last[:2]:
            # Everything is older: a reader there would wait for what comes next.
            return Found()
        async with contextlib.aclosing(self._scan(place or FIRST_MESSAGE, end)) as batches:
            async for batch in batches:
                if batch.max_timestamp >= timestamp:
                    found = self._first_at(batch, timestamp)
                    if found is not None:
                        return found
        return Found()

    async def _find_newest(self) -> Found:
        """Look at what came since the last time, at first at the newest part."""
        end, newest = await self.end(), self._newest
        if newest.upto > end or 0 <= newest.found.offset < await self.start():
            # It was removed, or it is another log under the same name.
            newest = self._newest = Newest()
        if newest.upto < end:
            await self._look_at_new(newest, end)
        return newest.found

    async def _look_at_new(self, newest: Newest, end: int) -> None:
        if newest.upto < 0:
            place = place_before_end(await self._admin.stats(self._topic, internal=True), NEWEST_BYTES)
        else:
            place = await self._place(newest.upto)
        async with contextlib.aclosing(self._scan(place, end)) as batches:
            async for batch in batches:
                if batch.max_timestamp > newest.found.timestamp:
                    newest.found = self._first_at(batch, batch.max_timestamp) or newest.found
        newest.upto = end

    def _first_at(self, batch: KafkaBatch, timestamp: int) -> Found | None:
        [read] = read_batches(batch.data)
        return first_at(read, timestamp, limit=self._limit, start=self.known_start)

    async def _scan(self, place: MessageId, end: int) -> AsyncGenerator[KafkaBatch]:
        """Give the batches from an entry to the end, in order."""
        start = await self.start() if place == FIRST_MESSAGE else 0
        # Compacted: the first batch may have any offset, for the entry was not found by an offset.
        tail = Tail(
            offset=start,
            limit=self._limit,
            on_undecodable=OnUndecodable.PLACEHOLDER,
            compacted=True,
            numbering=self._numbering,
            facts=self,
        )
        await tail.open(self._client, self._topic, place, read_bytes=self._read_ahead.share)
        # In the budget, and closed like any other if it is in the way; then the client has to ask again.
        self._read_ahead.add(tail, lambda: self._start_task(tail.close(), self._closing))
        offset = start
        try:
            while offset < end:
                await self._first_entry(tail, offset)
                if not tail.has(offset):
                    # What is left are entries without records.
                    return
                for batch in tail.read(offset, _SCAN_BYTES):
                    yield batch
                    offset = batch.next_offset
        finally:
            self._read_ahead.remove(tail)
            await tail.close()

    async def trim(self, offset: int) -> int:
        """Remove what is before an offset, -1 for everything; give the start of what is left."""
        readable, last = await self._end.ask()
        if not -1 <= offset <= readable:
            raise ApiError(f"offset {offset} is outside of the log", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        offset = readable if offset == -1 else offset
        if offset == last:
            # Only ledgers that nobody writes to are removed: unloading closes the one in use.
            await self._admin.unload(self._topic)
            await self._admin.truncate(self._topic)
        elif offset > await self.start():
            await mark_removed(self._admin, self._topic, offset)
        await self._look_for_start()
        return self.known_start
