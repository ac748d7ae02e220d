"""Whatever ends a partition or a read, no reader stays attached to the broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import ApiError, ClusterError, Unreachable
from penstock.gateway.pulsar.read_ahead import ReadAhead
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata


def test_a_reader_that_is_being_closed_is_closed_when_the_partition_is(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        # An encrypted entry cannot be read: the reader that met it is closed in the background.
        world.topic.store(MessageMetadata(encryption_algo="x", num_messages_in_batch=1), b"secret")
        partition = world.partition()
        assert len((await partition.read(0, 1)).batches) == 1
        with pytest.raises(ApiError, match="seek to 2"):
            await partition.arrival(1)
            await partition.read(1, 1000)
        assert world.topic.attached == 1
        await partition.close()
        assert world.topic.attached == 0

    run(main)


def test_an_idle_reader_is_closed_when_the_partition_is_closed_in_that_moment(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        budget = ReadAhead()
        partition = world.partition(read_ahead=budget)
        await partition.read(0, 1000)
        for tail in partition._tails:
            tail.used -= 60
        partition.sweep()
        await partition.close()
        assert (world.topic.attached, budget.used) == (0, 0)

    run(main)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_reader_that_was_being_opened_does_not_outlive_the_partition(run: Any, cancelled: bool) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        world.topic.subscribing = asyncio.Event()
        budget = ReadAhead()
        partition = world.partition(read_ahead=budget)
        reading = asyncio.create_task(partition.read(0, 1000))
        while "CommandSubscribe" not in world.topic.requests:
            await asyncio.sleep(0)
        if cancelled:
            reading.cancel()
        await partition.close()
        world.topic.subscribing.set()
        [outcome] = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError if cancelled else ApiError)
        assert (world.topic.attached, budget.share) == (0, 12 << 20)
        assert not partition._tails

    run(main)


def test_a_search_that_found_what_it_wants_leaves_no_reader(run: Any) -> None:
    async def main(world: Any) -> None:
        for _ in range(100):
            world.topic.write(b"x" * 50_000)
        budget = ReadAhead()
        partition = world.partition(read_ahead=budget)
        found = await partition.find(1_700_000_000_010)
        assert found.offset == 10
        assert (world.topic.attached, budget.used) == (0, 0)

    run(main)


def test_a_search_that_fails_leaves_no_reader(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        await partition.end()
        world.topic.failing = Unreachable("away")
        with pytest.raises(ClusterError):
            await partition.find(5)

    run(main)


def test_one_who_waits_at_a_partition_that_is_closed_hears_of_it(run: Any) -> None:
    async def main(world: Any) -> None:
        world.topic.write(b"a")
        partition = world.partition()
        await partition.read(1, 1000)
        waiting = asyncio.create_task(partition.arrival(1))
        await asyncio.sleep(0)
        await partition.close()
        async with asyncio.timeout(30):
            await waiting

    run(main)


def test_a_broker_that_cannot_be_asked_ends_the_read_and_not_the_entry(run: Any) -> None:
    """An entry that needs a question is not lost when there is no answer: the client asks again."""

    async def main(world: Any) -> None:
        topic = world.topic
        topic.write(b"a")
        topic.marker(numbers=10)
        partition = world.partition()
        assert len((await partition.read(0, 1000)).batches) == 1
        topic.failing = Unreachable("away")
        topic.write(*[b"t"] * 4, txn=1, counted=False)
        await partition.arrival(1)
        with pytest.raises(Unreachable):
            await partition.read(1, 1000)
        topic.failing = None
        await partition.arrival(1)
        assert (await partition.read(1, 1000)).next_offset == 12

    run(main)
