"""Indexes of entries: asked for while gaps are rare, read while another writer is busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import AccessDenied, ClusterError
from penstock.gateway.pulsar import entry_indexes as module
from penstock.gateway.pulsar.entry_indexes import EntryIndexes
from penstock.wire.pulsar import Entry, MessageId


def entry(index: int) -> Entry:
    said: dict[str, Any] = dict.fromkeys(Entry._fields, 0)
    return Entry(**(said | {"broker_index": index, "num_messages": 1}))


class FakeReader:
    """Gives what the test delivers."""

    def __init__(self, convert: Any) -> None:
        self._convert = convert
        self._came: asyncio.Queue[None] = asyncio.Queue()
        self.closed = False

    def deliver(self, place: MessageId, index: int) -> None:
        self._convert(type("Delivery", (), {"message_id": place, "entry": entry(index)}))
        self._came.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[None]:
        while True:
            await self._came.get()
            yield

    async def close(self) -> None:
        self.closed = True


class FakePulsar:
    """Client and admin: counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[MessageId] = []
        self.read: list[MessageId] = []
        self.unreadable: Exception | None = None
        self.delivered: MessageId | None = None
        self.readers: list[FakeReader] = []
        self.has_index = True

    async def entry_index(self, topic: str, place: MessageId) -> Any:
        self.asked.append(place)
        return type("Index", (), {"last_index": place.entry_id * 10}) if self.has_index else None

    async def read_entry(self, topic: str, place: MessageId, convert: Any) -> Any:
        self.read.append(place)
        if self.unreadable is not None:
            raise self.unreadable
        index = place.entry_id * 10 if self.has_index else -1
        return convert(type("Delivery", (), {"message_id": self.delivered or place, "entry": entry(index)}))

    async def reader(self, topic: str, *, start: MessageId, convert: Any, read_bytes: int) -> FakeReader:
        self.readers.append(FakeReader(convert))
        return self.readers[-1]


def run(work: Any) -> None:
    async def inside() -> None:
        pulsar = FakePulsar()
        indexes = EntryIndexes(pulsar, pulsar, "topic")  # type: ignore[arg-type]
        try:
            await work(pulsar, indexes)
        finally:
            await indexes.close()

    asyncio.run(inside())


async def made_busy(pulsar: FakePulsar, indexes: EntryIndexes) -> FakeReader:
    for number in range(3):
        assert await indexes.last_index(MessageId(1, number)) == number * 10
    async with asyncio.timeout(5):
        while not pulsar.readers:
            await asyncio.sleep(0)
    return pulsar.readers[0]


def test_lone_gaps_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100, 200, 2))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(times))))

    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        for number in range(5):
            assert await indexes.last_index(MessageId(1, number)) == number * 10
        assert (len(pulsar.read), len(pulsar.asked)) == (5, 0)
        assert not indexes.is_following

    run(work)


def test_a_busy_writer_is_followed_and_not_asked_about() -> None:
    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        reader = await made_busy(pulsar, indexes)
        asked = len(pulsar.read)
        waiting = asyncio.create_task(indexes.last_index(MessageId(1, 7)))
        reader.deliver(MessageId(1, 6), 66)
        reader.deliver(MessageId(1, 7), 77)
        assert await waiting == 77
        assert len(pulsar.read) == asked

    run(work)


def test_what_does_not_come_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)

    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        reader = await made_busy(pulsar, indexes)
        assert await indexes.last_index(MessageId(1, 9)) == 90
        reader.deliver(MessageId(2, 0), -1)
        assert await indexes.last_index(MessageId(1, 9)) == 90

    run(work)


def test_following_ends_when_nobody_else_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        reader = await made_busy(pulsar, indexes)
        await indexes.sweep()
        assert indexes.is_following
        monkeypatch.setattr(module, "_QUIET_SECONDS", -1.0)
        await indexes.sweep()
        assert not indexes.is_following
        assert reader.closed

    run(work)


def test_a_broker_without_an_index_is_refused() -> None:
    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        pulsar.has_index = False
        with pytest.raises(ClusterError, match="keeps no index"):
            await indexes.last_index(MessageId(1, 0))

    run(work)


@pytest.mark.parametrize("why", [ClusterError("no"), AccessDenied("no"), TimeoutError()])
def test_an_entry_that_cannot_be_read_is_asked_for(why: Exception) -> None:
    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        pulsar.unreadable = why
        assert await indexes.last_index(MessageId(1, 4)) == 40
        assert pulsar.asked == [MessageId(1, 4)]

    run(work)


def test_another_entry_that_comes_instead_tells_nothing() -> None:
    async def work(pulsar: FakePulsar, indexes: EntryIndexes) -> None:
        pulsar.delivered = MessageId(2, 0)
        assert await indexes.last_index(MessageId(1, 4)) == 40
        assert pulsar.asked == [MessageId(1, 4)]

    run(work)
