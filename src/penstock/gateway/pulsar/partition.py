"""One partition: its writer, the readers that follow its clients, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections import Counter
from typing import Final

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.errors import ApiError
from penstock.gateway.mapping import KafkaBatch
from penstock.gateway.ports import EARLIEST, LATEST, MAX_TIMESTAMP, Found, Slice
from penstock.gateway.pulsar.counting import OffsetCounter
from penstock.gateway.pulsar.tail import Tail
from penstock.gateway.pulsar.writer import Writer
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.pulsar import EARLIEST as FIRST_MESSAGE
from penstock.wire.pulsar import MessageId

__all__ = ["Partition"]

_TAILS: Final = 16
_START_VALID_FOR: Final = 5.0
_FIRST_ENTRY_WITHIN: Final = 5.0
_SCAN_BYTES: Final = 1 << 20
_TIME_MARGIN_MS: Final = 60_000
"""Publish times and record times differ by clocks and by how long a producer held a batch."""


class Partition:
    """What the gateway holds of one Pulsar topic."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        topic: str,
        *,
        max_batch_bytes: int,
        placeholders: bool,
        undecodable: Counter[str] | None = None,
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._limit = max_batch_bytes
        self._placeholders = placeholders
        self._undecodable = undecodable
        self.counter = self._counter = OffsetCounter()
        self._tails: list[Tail] = []
        self._closing: set[asyncio.Future[None]] = set()
        self._start = (0, -_START_VALID_FOR)
        self.writer = Writer(
            client,
            admin,
            topic,
            counter=self._counter,
            max_batch_bytes=max_batch_bytes,
            on_append=lambda: None,
        )

    async def close(self) -> None:
        """Close producers and readers."""
        await asyncio.gather(self.writer.close(), *(tail.close() for tail in self._tails))

    # The two ends

    async def end(self) -> int:
        """Give the offset behind the last record, also when others have written."""
        last = await self._admin.last_message_id(self._topic)
        if last is None or last.entry_id < 0:
            return self._counter.next_offset or await self._end_of_empty()
        known = self._counter.last
        if known is not None and known[:2] == last[:2] and self._counter.next_offset is not None:
            return self._counter.next_offset
        found = await self._admin.entry_index(self._topic, last)
        if found is None:
            return self._counter.next_offset or 0
        self._counter.learn(last, found.num_messages, last_index=found.last_index)
        return found.last_index + 1

    async def _end_of_empty(self) -> int:
        """A topic whose ledgers were all trimmed still has an end: what the index would be next."""
        return 0

    async def start(self) -> int:
        """Give the first offset that can be read; asked again every few seconds."""
        value, at = self._start
        if time.monotonic() - at >= _START_VALID_FOR:
            value = await self._find_start()
            self._start = (value, time.monotonic())
        return value

    async def _find_start(self) -> int:
        stats = await self._admin.stats(self._topic, internal=True)
        for ledger in stats.get("ledgers", ()):
            found = await self._admin.entry_index(self._topic, MessageId(ledger["ledgerId"], 0))
            if found is not None:
                return found.last_index - found.num_messages + 1
        return await self.end()

    # Reading

    async def read(self, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on; empty at the end."""
        tail = self._tail_at(offset)
        if tail is None:
            tail = await self._open(offset)
        try:
            batches = tail.take(max_bytes)
        finally:
            self._keep(tail)
        end = max(self._counter.next_offset or 0, tail.next_offset, offset)
        return Slice(
            batches=tuple(batch.data for batch in batches),
            high_watermark=end,
            log_start_offset=await self.start(),
        )

    async def arrival(self, offset: int) -> None:
        """Wait until there is something to read at an offset."""
        tail = next((tail for tail in self._tails if tail.next_offset <= offset), None)
        if tail is None:
            tail = await self._open(offset)
            self._keep(tail)
        await tail.wait()

    def _tail_at(self, offset: int) -> Tail | None:
        for tail in self._tails:
            if tail.next_offset == offset:
                self._tails.remove(tail)
                return tail
        return None

    def _keep(self, tail: Tail) -> None:
        self._tails.append(tail)
        while len(self._tails) > _TAILS:
            oldest = self._tails.pop(0)
            task = asyncio.ensure_future(oldest.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _open(self, offset: int) -> Tail:
        end = await self.end()
        if not await self.start() <= offset <= end:
            raise ApiError(f"offset {offset} is outside of the log", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        tail = Tail(
            next_offset=offset,
            limit=self._limit,
            placeholders=self._placeholders,
            undecodable=self._undecodable,
        )
        await tail.open(self._client, self._topic, await self._place(offset))
        if offset < end:
            # There is something to read: the client shall not wait for the next record to get it.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(tail.wait(), _FIRST_ENTRY_WITHIN)
        return tail

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
            return Found(offset=await self.start())
        return await (self._newest() if timestamp == MAX_TIMESTAMP else self._at_time(timestamp))

    async def _at_time(self, timestamp: int) -> Found:
        end = await self.end()
        place = await self._admin.message_id_by_time(self._topic, max(0, timestamp - _TIME_MARGIN_MS))
        async for batch in self._scan(place or FIRST_MESSAGE, end):
            if batch.max_timestamp >= timestamp:
                found = _first_at(batch, timestamp)
                if found is not None:
                    return found
        return Found()

    async def _newest(self) -> Found:
        best = Found()
        async for batch in self._scan(FIRST_MESSAGE, await self.end()):
            if batch.max_timestamp > best.timestamp:
                best = _first_at(batch, batch.max_timestamp) or best
        return best

    async def _scan(self, place: MessageId, end: int):  # type: ignore[no-untyped-def]
        tail = Tail(next_offset=0, limit=self._limit, placeholders=True)
        await tail.open(self._client, self._topic, place)
        try:
            while tail.next_offset < end:
                await tail.wait()
                for batch in tail.take(_SCAN_BYTES):
                    yield batch
        finally:
            await tail.close()

    async def trim(self, offset: int) -> int:
        """Remove everything; Pulsar cannot remove a part."""
        end = await self.end()
        if offset not in (-1, end):
            raise ApiError(
                "Pulsar can remove all records of a partition, not a part of them",
                error_code=ErrorCode.POLICY_VIOLATION,
            )
        await self._admin.truncate(self._topic)
        self._start = (end, time.monotonic())
        return end


def _first_at(batch: KafkaBatch, timestamp: int) -> Found | None:
    """Walk the records of one batch to the first with at least this timestamp."""
    data = batch.data
    base_timestamp = struct.unpack_from(">q", data, 27)[0]
    pos = HEAD_SIZE
    for _ in range(batch.record_count):
        length, pos = _varint(data, pos)
        delta, inner = _varint(data, pos + 1)
        offset_delta, _ = _varint(data, inner)
        if base_timestamp + delta >= timestamp:
            return Found(offset=batch.base_offset + offset_delta, timestamp=base_timestamp + delta)
        pos += length
    return None


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
