"""Many offsets in one partition: reading, sweeping and removing them never holds the event loop for long."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from penstock.gateway.groups.group import Limits
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit, OffsetKey, Record, offset_record
from penstock.gateway.groups.shard import Shard
from penstock.wire.kafka import ErrorCode

OFFSETS = 30_000
LONGEST = 0.15
"""Seconds of processor time; each of these takes longer if it is done in one piece. The lease has 2.5 s."""


class Log:
    """A log that stores at once."""

    max_group_bytes = 5_000_000

    def __init__(self) -> None:
        self.count = 0

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        self.count += len(records)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def longest_block(work: Awaitable[object]) -> float:
    """Give the most processor time that the loop spent between two turns.

    Neither other processes count, nor the collection of what other tests have left.
    """
    gc.collect()
    gc.disable()
    longest, last = 0.0, time.thread_time()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        await work
        await asyncio.sleep(0)
    finally:
        gc.enable()
    watching.cancel()
    return longest


def records(groups: int) -> list[Record]:
    each = OFFSETS // groups
    commit = Commit(offset=1, committed_at=1)
    return [
        offset_record(OffsetKey(f"group-{number // each}", "orders", number % each), commit)
        for number in range(OFFSETS)
    ]


def test_reading_many_offsets_lets_others_run() -> None:
    async def work() -> None:
        shard = Shard(Log(), keeps_cursors=True)
        assert await longest_block(shard.load(records(300))) < LONGEST
        assert len(shard.groups) == 300
        assert sum(map(len, shard.commits.values())) == OFFSETS
        shard.close()

    asyncio.run(work())


def test_sweeping_many_offsets_lets_others_run() -> None:
    async def work() -> None:
        log = Log()
        shard = Shard(log, replace(Limits(), offsets_retention=10.0), keeps_cursors=True)
        await shard.load(records(1) + records(300))
        assert await longest_block(shard.forget_old(5_000)) < LONGEST
        assert log.count == 0
        assert await longest_block(shard.forget_old(20_000)) < LONGEST
        await asyncio.sleep(0)
        assert (shard.groups, shard.commits, shard.usage.all_bytes) == ({}, {}, 0)
        shard.close()

    asyncio.run(work())


def test_deleting_a_group_of_many_offsets_lets_others_run() -> None:
    async def work() -> None:
        shard = Shard(Log(), keeps_cursors=True)
        await shard.load(records(1))
        deleted: asyncio.Task[ErrorCode] = asyncio.create_task(shard.delete("group-0"))
        await asyncio.sleep(0)
        # Nobody comes between its tombstones.
        refused = await shard.commit("group-0", Identity(), {("orders", 0): Commit(offset=5)})
        assert refused == {("orders", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await shard.delete("group-0") == ErrorCode.GROUP_ID_NOT_FOUND
        assert await longest_block(deleted) < LONGEST
        assert deleted.result() == ErrorCode.NONE
        assert (shard.groups, shard.commits) == ({}, {})
        assert len(shard.offsets.leftover) == OFFSETS
        shard.close()

    asyncio.run(work())
