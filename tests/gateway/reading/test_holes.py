"""Offsets that hold no record: hidden from readers, held back, removed; on the real partition and reader."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.ports import EARLIEST, LATEST, Slice
from penstock.gateway.pulsar.packed import PENSTOCK
from penstock.gateway.pulsar.packed_partition import PackedPartition
from penstock.gateway.pulsar.partition import Partition
from penstock.mapping import hole
from penstock.wire.kafka import ErrorCode, read_batches
from penstock.wire.pulsar import MessageId

Found = list[tuple[int, int]]
"""Base offset and number of records of each batch that has any."""


async def fetch(partition: Partition, offset: int) -> tuple[Slice, Found, int]:
    """Read as a Fetch does: what there is, or what comes next; with the position behind it."""
    found = await partition.read(offset, 1 << 20)
    if not found.batches:
        async with asyncio.timeout(30):
            await partition.arrival(offset)
        found = await partition.read(offset, 1 << 20)
    batches = [read_batches(bytes(data)) for data in found.batches]
    heads = [next(iter(batch)) for batch in batches]
    last = heads[-1]
    return (
        found,
        [(each.base_offset, each.record_count) for each in heads if each.record_count],
        last.base_offset + last.last_offset_delta + 1,
    )


async def read_to(partition: Partition, offset: int, end: int) -> Found:
    """Read on until an offset, as a client that waits for it does."""
    every: Found = []
    while offset < end:
        _, found, following = await fetch(partition, offset)
        assert following > offset
        every += found
        offset = following
    assert offset == end
    return every


def plain_batches(topic: Any) -> tuple[Found, int]:
    topic.write(b"a", b"b", b"c")
    topic.write(b"d")
    return [(0, 3), (3, 1)], 4


def marker_first(topic: Any) -> tuple[Found, int]:
    topic.marker()
    topic.write(b"a", b"b")
    return [(1, 2)], 3


def marker_between(topic: Any) -> tuple[Found, int]:
    topic.write(b"a")
    topic.marker()
    topic.write(b"b")
    return [(0, 1), (2, 1)], 3


def marker_last(topic: Any) -> tuple[Found, int]:
    topic.write(b"a", b"b")
    topic.marker()
    return [(0, 2)], 3


def unknown_markers_last(topic: Any) -> tuple[Found, int]:
    topic.write(b"a", b"b")
    topic.marker(known=False)
    topic.roll()
    topic.marker(known=False)
    topic.marker(known=False, numbers=1_000_000)
    return [(0, 2)], 1_000_004


def only_markers(topic: Any) -> tuple[Found, int]:
    topic.marker(known=False)
    topic.marker()
    return [], 2


def aborted_everywhere(topic: Any) -> tuple[Found, int]:
    topic.aborted(b"x", b"y")
    topic.write(b"a", b"b")
    topic.aborted(b"x", b"y", counted=True)
    topic.write(b"c")
    topic.aborted(b"x")
    return [(2, 2), (7, 1)], 10


def one_number_for_a_batch(topic: Any) -> tuple[Found, int]:
    """As an application writes batches in transactions: one placeholder each."""
    topic.write(b"a", b"b", b"c")
    topic.write(*[b"t"] * 5, txn=1, counted=False)
    topic.marker()
    topic.aborted(*[b"t"] * 5)
    topic.write(*[b"t"] * 5, txn=3, counted=False)
    topic.marker()
    topic.write(b"d", b"e", b"f")
    return [(0, 3), (3, 1), (7, 1), (9, 3)], 12


def one_number_first(topic: Any) -> tuple[Found, int]:
    topic.write(*[b"t"] * 5, txn=1, counted=False)
    topic.marker()
    topic.write(b"a")
    return [(0, 1), (2, 1)], 3


def one_number_behind_holes(topic: Any) -> tuple[Found, int]:
    """The numbers before it leave room for all of its messages, and it has one all the same."""
    topic.write(b"a")
    topic.marker(numbers=10)
    topic.write(*[b"t"] * 4, txn=1, counted=False)
    topic.marker()
    topic.roll()
    topic.marker()
    topic.roll()
    topic.write(*[b"t"] * 2, txn=2, counted=False)
    return [(0, 1), (11, 1), (14, 1)], 15


def counted_in_transactions(topic: Any) -> tuple[Found, int]:
    """As behind an anchor: every message has its number although the batch is in a transaction."""
    topic.write(b"a", b"b", b"c")
    topic.marker(known=False)
    topic.write(*[b"t"] * 5, txn=1)
    topic.write(*[b"t"] * 2, txn=1)
    topic.marker()
    topic.roll()
    topic.write(*[b"t"] * 2, txn=2)
    topic.marker()
    return [(0, 3), (4, 5), (9, 2), (12, 2)], 15


CASES = [
    plain_batches,
    marker_first,
    marker_between,
    marker_last,
    unknown_markers_last,
    only_markers,
    aborted_everywhere,
    one_number_for_a_batch,
    one_number_first,
    one_number_behind_holes,
    counted_in_transactions,
]


@pytest.mark.parametrize("write", CASES)
def test_every_record_is_read_once_and_the_end_is_reached(run: Any, write: Any) -> None:
    async def main(world: Any) -> None:
        expected, end = write(world.topic)
        partition = world.partition()
        assert (await partition.find(LATEST)).offset == end
        assert (await partition.find(EARLIEST)).offset == 0
        for offset in {0, min(2, end - 1), end // 2, end - 1}:
            left = [(base, count) for base, count in expected if base + count > offset]
            assert await read_to(partition, offset, end) == left, offset
        assert (await partition.read(end, 1000)).high_watermark == end
        with pytest.raises(ApiError) as caught:
            await partition.read(end + 1, 1000)
        assert caught.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


@pytest.mark.parametrize("write", CASES)
def test_one_who_waits_at_the_end_gets_the_next_record(run: Any, write: Any) -> None:
    async def main(world: Any) -> None:
        _, end = write(world.topic)
        partition = world.partition()
        assert (await partition.read(end, 1000)).batches == ()
        waiting = asyncio.create_task(partition.arrival(end))
        await asyncio.sleep(0)
        world.topic.marker()
        world.topic.write(b"next", b"one")
        async with asyncio.timeout(30):
            await waiting
        found, batches, following = await fetch(partition, end)
        assert (batches, following, found.high_watermark) == ([(end + 1, 2)], end + 3, end + 3)

    run(main)


def test_placeholders_of_one_number_are_counted_whatever_the_policy(run: Any) -> None:
    async def main(world: Any) -> None:
        one_number_behind_holes(world.topic)
        counts: Counter[str] = Counter()
        await read_to(world.partition(undecodable=counts), 0, 15)
        assert counts == {"unnumbered": 2}

    run(main)


def test_a_record_that_is_on_its_way_is_not_taken_for_a_hole(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        partition = world.partition()
        assert await read_to(partition, 0, 1) == [(0, 1)]
        topic.is_stalled = True
        topic.write(b"slow")
        assert (await partition.find(LATEST)).offset == 2
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await partition.arrival(1)
        assert (await partition.read(1, 1000)).batches == ()
        topic.resume()
        assert await read_to(partition, 1, 2) == [(1, 1)]

    run(main)


# Transactions that are open


def test_an_open_transaction_holds_the_end_back(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a", b"b")
        topic.marker()
        partition = world.partition()
        assert (await partition.find(LATEST)).offset == 3
        assert await read_to(partition, 0, 3) == [(0, 2)]
        topic.write(b"open", txn=1, is_open=True)
        topic.write(b"behind")
        # What clients were taken past stays behind them.
        assert (await partition.find(LATEST)).offset == 3
        for offset in (3, 4, 5):
            found = await partition.read(offset, 1000)
            assert (found.batches, found.high_watermark) == ((), max(offset, 3))
        with pytest.raises(ApiError):
            await partition.read(6, 1000)
        other = world.partition()
        assert (await other.find(LATEST)).offset == 2
        assert (await other.read(0, 1000)).high_watermark == 2
        topic.end_transaction()
        for each, start, left in [(partition, 3, []), (other, 0, [(0, 2)])]:
            assert (await each.find(LATEST)).offset == 6
            assert await read_to(each, start, 6) == [*left, (3, 1), (4, 1)]

    run(main)


def test_what_was_produced_here_behind_an_open_transaction_is_not_the_end(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        partition = world.partition()
        assert await read_to(partition, 0, 1) == [(0, 1)]
        topic.write(b"open", txn=1, is_open=True)
        place = topic.write(b"ours")
        partition.counter.learn(place, 1, last_index=2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await partition.arrival(1)
        assert (await partition.read(1, 1000)).high_watermark == 1
        topic.end_transaction()
        assert await read_to(partition, 1, 4) == [(1, 1), (2, 1)]

    run(main)


def test_a_log_that_begins_with_an_open_transaction_is_empty(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"open", txn=1, is_open=True)
        partition = world.partition()
        assert (await partition.find(LATEST)).offset == 0
        assert (await partition.read(0, 1000)).high_watermark == 0
        world.topic.end_transaction()
        assert (await partition.find(LATEST)).offset == 2
        assert await read_to(partition, 0, 2) == [(0, 1)]

    run(main)


def test_everything_is_removed_but_what_is_open(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a", b"b")
        topic.write(b"open", txn=1, is_open=True)
        partition = world.partition()
        assert await partition.trim(-1) == 2
        assert "truncate" not in topic.asked
        topic.end_transaction()
        assert await read_to(partition, 2, 4) == [(2, 1)]
        assert await partition.trim(-1) == 4
        assert "truncate" in topic.asked

    run(main)


# Removed


def test_only_what_lies_before_the_start_of_the_log_is_out_of_range(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a", b"b")
        topic.marker()
        topic.roll()
        topic.marker()
        topic.write(b"c")
        partition = world.partition()
        # A ledger begins with a hole: nothing was removed.
        assert await read_to(partition, 0, 5) == [(0, 2), (4, 1)]
        assert await read_to(partition, 3, 5) == [(4, 1)]
        late = world.partition()
        assert (await late.find(EARLIEST)).offset == 0
        topic.trim()
        with pytest.raises(ApiError) as caught:
            # The start that is known is an old one: the broker is asked again where the ledger is another.
            await fetch(late, 1)
        assert caught.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read_to(late, 3, 5) == [(4, 1)]

    run(main)


def test_a_reader_whose_ledger_is_removed_is_out_of_range(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        partition = world.partition()
        assert await read_to(partition, 0, 1) == [(0, 1)]
        topic.is_stalled = True
        topic.write(b"lost")
        topic.roll()
        topic.write(b"kept")
        topic.trim()
        topic.resume()
        with pytest.raises(ApiError) as caught:
            await fetch(partition, 1)
        assert caught.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read_to(partition, 2, 3) == [(2, 1)]

    run(main)


def test_a_reader_goes_on_in_the_next_ledger_without_asking(run: Any) -> None:
    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        partition = world.partition()
        assert await read_to(partition, 0, 1) == [(0, 1)]
        topic.roll()
        topic.write(b"b")
        waiting = asyncio.create_task(partition.arrival(1))
        topic.asked.clear()
        await waiting
        found = await partition.read(1, 1000)
        assert (len(found.batches), topic.asked.count("stats")) == (1, 0)

    run(main)


# Batches without records


@pytest.mark.parametrize("size", [1, 1000, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 1 << 49])
def test_a_hole_of_any_size_is_one_batch(size: int) -> None:
    base = 7
    made = hole(base, base + size)
    [read] = read_batches(bytes(made.data))
    assert read.record_count == 0
    assert read.base_offset + read.last_offset_delta + 1 == made.next_offset == base + size
    assert read.base_offset >= base
    assert (read.base_offset == base) == (size <= 1 << 31)


def test_packed_offsets_many_ledgers_apart_are_passed(run: Any) -> None:
    """A marker that is delivered, and one that is not, behind ledgers with more than 2^31 offsets."""

    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        topic.ledgers[500] = 0
        topic.marker(known=False)
        partition = world.partition(PackedPartition)
        first, end = PENSTOCK.pack(MessageId(5, 0, 0)), PENSTOCK.pack(MessageId(500, 0, 0)) + 1
        assert end - first > 1 << 31
        assert (await partition.find(LATEST)).offset == end
        assert await read_to(partition, first, end) == [(first, 1)]

    run(main, numbered=False)
