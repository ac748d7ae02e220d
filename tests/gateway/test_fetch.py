"""What a Fetch waits for: min_bytes as the protocol says, and a moment for more of an old log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ApiError
from penstock.gateway.apis.fetch import API
from penstock.gateway.dispatch import advertised
from penstock.gateway.handler import Request, Services
from penstock.gateway.ports import Slice
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode

BATCH = 1000


class ArrivingLog(MemoryStorage):
    """A log of which one batch more has come at each look."""

    def __init__(self, *, records: int, **slices: Any) -> None:
        super().__init__()
        self.records = records
        self.slices = slices
        self.reads = 0

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        self.reads += 1
        if partition:
            raise ApiError("not here", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Slice(
            batches=(bytes(BATCH),) * self.reads,
            high_watermark=self.records,
            log_start_offset=0,
            next_offset=offset + self.reads,
            **self.slices,
        )


def fetched(log: ArrivingLog, *, max_bytes: int = 1 << 20, partitions: int = 1) -> int:
    """Fetch from offset 0; give the bytes of the answer's batches."""
    wanted = [
        SimpleNamespace(partition=number, fetch_offset=0, partition_max_bytes=max_bytes)
        for number in range(partitions)
    ]
    body = SimpleNamespace(
        session_id=0,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[SimpleNamespace(topic_id=None, name="t", partitions=wanted)],
    )
    services = Services(topics=log, log=log, producers=log, cluster=log, versions=advertised())
    assert API.handle is not None
    pieces = asyncio.run(API.handle(Request(11, body, "listener"), services))  # type: ignore[arg-type]
    return sum(len(piece) for piece in pieces or () if len(piece) == BATCH)


def test_a_client_that_is_far_behind_gets_what_comes_in_a_moment() -> None:
    log = ArrivingLog(records=1_000_000)
    assert fetched(log) == 2 * BATCH
    assert log.reads == 2


def test_a_client_near_the_end_is_answered_at_once() -> None:
    log = ArrivingLog(records=1000)
    assert fetched(log) == BATCH
    assert log.reads == 1


@pytest.mark.parametrize("full", ["is_limited", "is_cut"])
def test_nothing_is_waited_for_where_no_more_would_be_given(full: str) -> None:
    log = ArrivingLog(records=1_000_000, **{full: True})
    assert fetched(log) == BATCH
    assert log.reads == 1


def test_nothing_is_waited_for_when_the_answer_is_large_enough() -> None:
    log = ArrivingLog(records=1_000_000)
    assert fetched(log, max_bytes=BATCH) == BATCH
    assert log.reads == 1


def test_an_error_of_a_partition_is_told_at_once() -> None:
    log = ArrivingLog(records=1_000_000)
    fetched(log, partitions=2)
    assert log.reads == 2  # once for each
