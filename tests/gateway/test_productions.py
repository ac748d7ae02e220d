"""Produce requests of one connection: their order, also when one has to wait, and their time-outs."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.errors import WireError
from penstock.gateway.apis.produce import Production
from penstock.gateway.connection import Slot
from penstock.gateway.handler import Request, Services, Settings
from penstock.gateway.ports import Appended, Topic
from penstock.gateway.productions import Productions
from penstock.wire.kafka import RecordBatch, RequestHeader, write_batch_head
from penstock.wire.kafka.produce_request import PartitionToProduce, ProduceRequest, TopicToProduce

KNOWN, ASKED, NEVER = UUID(int=1), UUID(int=2), UUID(int=3)
TIMED_OUT, TOO_LARGE, UNKNOWN_ID = 7, 10, 100


class Storage:
    """Topics and log: one topic is known, one must be asked for, and the answer waits for the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen = {KNOWN: Topic(name="known", topic_id=KNOWN, partitions=1)}
        self.begun: list[tuple[str, int]] = []
        self.appends: list[asyncio.Future[Appended]] = []
        self.refusals: list[tuple[str, int]] = []

    def known(self, topic_id: UUID) -> Topic | None:
        return self.seen.get(topic_id)

    async def by_id(self, topic_id: UUID) -> Topic | None:
        await self.gate.wait()
        if topic_id != NEVER:
            self.seen[topic_id] = Topic(name="asked", topic_id=topic_id, partitions=1)
        return self.known(topic_id)

    def refused(self, topic: str, partition: int, batch: RecordBatch) -> None:
        self.refusals.append((topic, batch.producer_id))

    def append(self, topic: str, partition: int, batch: RecordBatch) -> asyncio.Future[Appended]:
        self.begun.append((topic, batch.base_timestamp))
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]


class Owner:
    """Reads what a test has put into the frame of a slot: a topic's id, a number, a time-out."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.stopped: list[Exception] = []

    def read(self, slot: Slot) -> Request:
        topic_id, number, timeout = struct.unpack(">16sii", slot.frame)
        if number < 0:
            raise WireError("no request")
        part = PartitionToProduce(0, memoryview(batch(number)))
        topic = TopicToProduce("", UUID(bytes=topic_id), (part,))
        return Request(version=13, body=ProduceRequest(None, -1, timeout, (topic,)), listener="kafka")

    def produced(self, slot: Slot, production: Production, started: float) -> None:
        [body] = cast(Any, production.answer())
        self.answers.append(bytes(body))
        # The quick way says the same, or nothing.
        assert production.stored() == ((body,) if not error_of(body) else None)

    def stop(self, slot: Slot, exc: Exception) -> None:
        self.stopped.append(exc)


def batch(number: int) -> bytes:
    data = memoryview(bytearray(61) + b"\x0c\0\0\0\1\1\0")
    write_batch_head(
        data, base_offset=0, last_offset_delta=0, base_timestamp=number, max_timestamp=number, record_count=1
    )
    return bytes(data)


def slot(topic_id: UUID, number: int, timeout: int = 30_000) -> Slot:
    header = RequestHeader(api_key=0, api_version=13, correlation_id=number, client_id=None, body=8)
    return Slot(header, memoryview(struct.pack(">16sii", topic_id.bytes, number, timeout)), 24)


def error_of(answer: bytes) -> int:
    """One topic (16 bytes), one partition: its index and its error."""
    return int(struct.unpack_from(">h", answer, 1 + 16 + 1 + 4)[0])


def run(work: Any) -> None:
    async def inside() -> None:
        storage, owner, tasks = Storage(), Owner(), set[Any]()
        services = Services(
            topics=cast(Any, storage),
            log=cast(Any, storage),
            producers=cast(Any, None),
            cluster=cast(Any, None),
        )
        productions = Productions(owner, services, lambda one: tasks.add(asyncio.create_task(one)))
        await work(storage, owner, productions)
        for task in tasks:
            await task

    asyncio.run(inside())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_need_not_wait_begins_at_once() -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        for number in range(3):
            productions.begin(slot(KNOWN, number))
        assert storage.begun == [("known", 0), ("known", 1), ("known", 2)]
        for number, future in enumerate(storage.appends):
            future.set_result(Appended(base_offset=number, log_start_offset=0))
        await turns()
        assert [error_of(answer) for answer in owner.answers] == [0, 0, 0]

    run(work)


def test_nothing_overtakes_one_that_waits_and_afterwards_all_is_quick_again() -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        productions.begin(slot(ASKED, 0))
        productions.begin(slot(KNOWN, 1))
        productions.begin(slot(NEVER, 2))
        await turns()
        assert storage.begun == []
        storage.gate.set()
        await turns()
        assert storage.begun == [("asked", 0), ("known", 1)]
        assert [error_of(answer) for answer in owner.answers] == [UNKNOWN_ID]
        productions.begin(slot(KNOWN, 3))
        assert storage.begun[-1] == ("known", 3)

    run(work)


def test_a_client_that_does_not_wait_longer_is_answered() -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        productions.begin(slot(KNOWN, 0, timeout=20))
        productions.begin(slot(KNOWN, 1, timeout=60_000))
        async with asyncio.timeout(10):
            while not owner.answers:
                await asyncio.sleep(0.005)
        assert [error_of(answer) for answer in owner.answers] == [TIMED_OUT]
        assert [future.cancelled() for future in storage.appends] == [True, False]

    run(work)


@pytest.mark.parametrize("behind", [False, True], ids=["at once", "behind one that waits"])
def test_what_is_no_request_is_stopped(behind: bool) -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        if behind:
            productions.begin(slot(ASKED, 0))
        productions.begin(slot(KNOWN, -1))
        storage.gate.set()
        await turns()
        assert [type(error) for error in owner.stopped] == [WireError]

    run(work)


def test_a_later_request_with_a_shorter_time_out_does_not_wait_for_the_first_ones() -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        productions.begin(slot(KNOWN, 0, timeout=60_000))
        productions.begin(slot(KNOWN, 1, timeout=20))
        productions.begin(slot(KNOWN, 2, timeout=30_000))
        async with asyncio.timeout(10):
            while not owner.answers:
                await asyncio.sleep(0.005)
        assert [error_of(answer) for answer in owner.answers] == [TIMED_OUT]
        assert [future.cancelled() for future in storage.appends] == [False, True, False]
        productions.begin(slot(KNOWN, 3, timeout=20))
        async with asyncio.timeout(10):
            while len(owner.answers) < 2:
                await asyncio.sleep(0.005)
        assert [future.cancelled() for future in storage.appends] == [False, True, False, True]
        for future in (storage.appends[0], storage.appends[2]):
            future.set_result(Appended(base_offset=0, log_start_offset=0))
        await turns()
        assert len(owner.answers) == 4

    run(work)


def test_the_log_hears_of_a_batch_that_is_too_large_to_be_appended() -> None:
    async def work(storage: Storage, owner: Owner, productions: Productions) -> None:
        productions.services = replace(productions.services, settings=Settings(max_batch_bytes=60))
        productions.begin(slot(KNOWN, 0))
        assert [error_of(answer) for answer in owner.answers] == [TOO_LARGE]
        assert (storage.begun, storage.refusals) == ([], [("known", -1)])

    run(work)
