"""The memory of readers: what tails hold is in the budget until it is let go, and every client goes on."""

from __future__ import annotations

import asyncio
import time
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.gateway.apis import fetch as fetch_api
from penstock.gateway.handler import Request, Settings
from penstock.gateway.ports import Slice
from penstock.gateway.pulsar.entry_conversion import size_of
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.read_ahead import ReadAhead
from penstock.wire.kafka import read_batches
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

MIB = 1 << 20
VALUE = bytes(100_000)
ZLIB = 2


def fill(topic: Any, total: int, *, size: int = 100_000) -> int:
    """Write entries of one record; give their number."""
    count = total // size
    for _ in range(count):
        topic.write(bytes(size))
    return count


def taken(partition: Partition) -> int:
    """Count the memory that readers take, whatever the budget says."""
    return sum(
        sum(batch.held_bytes + 256 for batch, _ in tail._held)
        + sum(size_of(waiting.item) for waiting in tail._reader._queue)
        for tail in partition._tails
        if tail._reader is not None
    )


async def settled(partition: Partition) -> None:
    """Let everything come that was asked for."""
    before = -1
    while before != (before := sum(tail.held_bytes for tail in partition._tails)):
        for _ in range(20):
            await asyncio.sleep(0)


async def next_part(partition: Partition, offset: int) -> Slice:
    """Read what a client is given at an offset; wait for it if need be."""
    found = await partition.read(offset, 50 * MIB)
    if not found.batches:
        async with asyncio.timeout(25):
            await partition.arrival(offset)
        found = await partition.read(offset, 50 * MIB)
    assert found.batches
    return found


def test_a_read_gives_a_part_of_the_share_and_the_rest_stays_in_the_budget(run: Any) -> None:
    async def main(world: Any) -> None:
        count = fill(world.topic, 30 * MIB)
        budget = ReadAhead(limit=8 * MIB)
        partition = world.partition(read_ahead=budget)
        offset = 0
        while offset < count:
            found = await next_part(partition, offset)
            assert found.size <= 4 * MIB + 2 * len(VALUE)
            await settled(partition)
            # What is asked for first is a guess at the size of messages, and bounded by twice the share.
            assert budget.used <= (1.1 if offset else 2.0)
            offset = found.next_offset
        # Everything was let go, so that what comes next can be read.
        assert (await partition.read(offset, MIB)).batches == ()
        assert budget.used == 0

    run(main)


def test_it_reads_ahead_while_a_client_has_its_part(run: Any) -> None:
    async def main(world: Any) -> None:
        fill(world.topic, 30 * MIB)
        partition = world.partition(read_ahead=ReadAhead(limit=8 * MIB))
        first = await partition.read(0, 50 * MIB)
        while not first.is_limited:
            await partition.arrival(first.next_offset)
            first = await partition.read(0, 50 * MIB)
        await settled(partition)
        second = await partition.read(first.next_offset, 50 * MIB)
        assert second.size > 2 * MIB

    run(main)


def test_what_is_given_at_once_is_asked_for_again_and_is_the_same(run: Any) -> None:
    async def main(world: Any) -> None:
        fill(world.topic, 4 * MIB)
        partition = world.partition(read_ahead=ReadAhead(limit=MIB))
        await partition.read(0, MIB)
        await settled(partition)
        first, again = await partition.read(0, MIB), await partition.read(0, MIB)
        assert first.batches == again.batches != ()

    run(main)


@pytest.mark.parametrize("size", [1_000, 3 * MIB])
def test_every_client_goes_on_with_the_smallest_share(run: Any, size: int) -> None:
    """Also where one batch is larger than the share: it is given alone."""

    async def main(world: Any) -> None:
        count = fill(world.topic, 12 * size, size=size)
        budget = ReadAhead(limit=256 * 1024)
        partition = world.partition(read_ahead=budget)
        offset = 0
        while offset < count:
            found = await next_part(partition, offset)
            assert len(found.batches) == 1 or found.size < 256 * 1024
            offset = found.next_offset

    run(main)


def test_a_reader_that_waits_for_room_is_not_asked_for_the_end(run: Any) -> None:
    """It comes back when the client passes what it was given, and that is what the client is waiting for."""

    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(bytes(MIB))
        topic.subscribing = asyncio.Event()
        partition = world.partition(read_ahead=ReadAhead(limit=256 * 1024))
        reading = asyncio.create_task(partition.read(0, 50 * MIB))
        while "CommandSubscribe" not in topic.requests:
            await asyncio.sleep(0)
        for _ in range(6):
            # Others write, so that the end that is known here is an old one.
            topic.write(bytes(MIB))
        partition._end.asked = 0.0
        topic.subscribing.set()
        async with asyncio.timeout(25):
            found = await reading
        assert (found.next_offset, found.high_watermark) == (1, 7)
        assert [tail._reader.overflows for tail in partition._tails] == [1]
        while found.next_offset < 7:
            found = await next_part(partition, found.next_offset)

    run(main)


def test_compressed_entries_count_as_what_they_inflate_to(run: Any) -> None:
    async def main(world: Any) -> None:
        head = SingleMessageMetadata(payload_size=MIB).SerializeToString()
        plain = len(head).to_bytes(4, "big") + head + bytes(MIB)
        packed = zlib.compress(plain)
        assert len(packed) < 5_000
        for _ in range(64):
            metadata = MessageMetadata(
                compression=ZLIB, uncompressed_size=len(plain), num_messages_in_batch=1
            )
            world.topic.store(metadata, packed)
        budget = ReadAhead(limit=4 * MIB)
        partition = world.partition(read_ahead=budget)
        offset = 0
        while offset < 64:
            found = await next_part(partition, offset)
            await settled(partition)
            # A burst that was asked for before their size was known is bounded by twice the share.
            assert taken(partition) <= 2 * 4 * MIB + 2 * MIB
            assert budget.used == taken(partition) / (4 * MIB)
            assert found.size <= 3 * MIB + 1000
            offset = found.next_offset

    run(main)


def test_a_fetch_does_not_wait_for_more_than_is_given_at_once(run: Any) -> None:
    async def main(world: Any) -> None:
        fill(world.topic, 4 * MIB)
        partition = world.partition(read_ahead=ReadAhead(limit=256 * 1024))

        class Log:
            async def read(self, topic: str, index: int, offset: int, max_bytes: int) -> Any:
                return await partition.read(offset, max_bytes)

            async def arrival(self, topic: str, index: int, offset: int) -> None:
                await partition.arrival(offset)

        row = SimpleNamespace(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
        body = SimpleNamespace(
            session_id=0,
            max_wait_ms=50_000,
            min_bytes=10 * MIB,
            max_bytes=50 * MIB,
            topics=[SimpleNamespace(name="t", topic_id=None, partitions=[row])],
        )
        services: Any = SimpleNamespace(log=Log(), settings=Settings())
        begun = time.monotonic()
        assert fetch_api.API.handle is not None
        pieces = await fetch_api.API.handle(Request(12, body, "kafka"), services)
        assert pieces is not None
        assert sum(map(len, pieces)) > 100_000
        assert time.monotonic() - begun < 25

    run(main)


# More positions than readers


def test_more_clients_than_readers_in_a_partition_all_get_to_the_end(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        count = fill(topic, 260 * 1_000, size=1_000)
        budget = ReadAhead(limit=8 * MIB)
        partition = world.partition(read_ahead=budget)
        attached: list[int] = []

        async def consume(offset: int) -> list[int]:
            found: list[int] = []
            while offset < count:
                slice_ = await partition.read(offset, 5_000)
                attached.append(topic.attached)
                if not slice_.batches:
                    async with asyncio.timeout(30):
                        await partition.arrival(offset)
                    continue
                for data in slice_.batches:
                    [batch] = read_batches(bytes(data))
                    found.append(batch.base_offset)
                offset = slice_.next_offset
                await asyncio.sleep(0)
            return found

        starts = [10 * number for number in range(24)]
        found = await asyncio.gather(*map(consume, starts))
        assert found == [list(range(start, count)) for start in starts]
        assert len(partition._tails) <= 16
        # Those that are being closed are not gone yet.
        assert max(attached) <= 16 + 24
        assert budget.used <= 1.0

    run(main)


def test_a_reader_that_a_client_waits_at_is_not_the_one_that_goes(run: Any) -> None:
    async def main(world: Any) -> None:
        count = fill(world.topic, 40_000, size=1_000)
        partition = world.partition()
        assert (await partition.read(count, 1000)).batches == ()
        waiting = asyncio.create_task(partition.arrival(count))
        while not any(tail.waiting for tail in partition._tails):
            await asyncio.sleep(0)
        for offset in range(30):
            await partition.read(offset, 1)
        world.topic.write(b"next")
        async with asyncio.timeout(30):
            await waiting
        assert len((await partition.read(count, 1000)).batches) == 1

    run(main)
