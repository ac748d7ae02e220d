"""A Pulsar of one topic in memory: it numbers, deduplicates, answers late, and has only so much room."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

import pytest

from penstock.brokers.pulsar import Delivery, Receipt
from penstock.errors import ClusterError, InternalError, PenstockError, Unreachable
from penstock.wire.pulsar import Entry, MessageId

LEDGER = 5
NOWHERE = MessageId(-1, -1)


class FakeProducer:
    """Buffers what it is given; the broker takes it when the test says, or at the next turn of the loop."""

    def __init__(self, pulsar: FakePulsar, topic: str, name: str) -> None:
        self.pulsar, self.topic, self.name = pulsar, topic, name
        self.last_sequence_id = pulsar.highest.get((topic, name), -1)
        self.error: PenstockError | None = None
        self.window: deque[tuple[int, int, bytes, asyncio.Future[Receipt]]] = deque()
        self.flushes = 0
        self._room = asyncio.Event()

    def has_room(self) -> bool:
        return len(self.window) < self.pulsar.window

    async def room(self, size: int) -> None:
        self._check()
        while not self.has_room():
            self._room.clear()
            await self._room.wait()
            self._check()

    def send_nowait(self, *said: Any) -> asyncio.Future[Receipt] | None:
        self._check()
        if not self.has_room():
            return None
        buffer, start, end, count, _, first, last = said
        if first is None:
            first = self.window[-1][1] + 1 if self.window else self.last_sequence_id + 1
            last = first
            self.last_sequence_id = first
        if self.window and first <= self.window[-1][1]:
            raise InternalError(f"sequence id {first} does not follow {self.window[-1][1]}")
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.window.append((first, last, bytes(buffer[start:end]), receipt))
        self.pulsar.counts[receipt] = count
        if self.pulsar.answers:
            asyncio.get_running_loop().call_soon(self.take)
        return receipt

    def take(self) -> None:
        """Let the broker take the oldest entry that is under way, and answer it."""
        if self.window:
            first, last, payload, receipt = self.window.popleft()
            receipt.set_result(self.pulsar.store(self, first, last, payload, self.pulsar.counts.pop(receipt)))
            self._room.set()

    def fail(self, error: PenstockError, *, stored: bool = False) -> None:
        """Fail the oldest entry that is under way; it may be stored all the same."""
        first, last, payload, receipt = self.window.popleft()
        if stored:
            self.pulsar.store(self, first, last, payload, self.pulsar.counts[receipt])
        receipt.set_exception(error)
        receipt.exception()
        self._room.set()

    def time_out(self) -> None:
        """Fail everything that is under way, as the producer does when the oldest has waited too long."""
        while self.window:
            self.fail(Unreachable("no receipt came"))

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    async def flush(self) -> None:
        self.flushes += 1
        waiting = [receipt for *_, receipt in self.window]
        await asyncio.gather(*map(asyncio.shield, waiting), return_exceptions=True)

    async def close(self) -> None:
        self.error = ClusterError("this producer was closed")
        while self.window:
            self.fail(self.error)
        self.pulsar.open.pop((self.topic, self.name), None)
        self._room.set()


class StoredEntry(NamedTuple):
    """One entry of a topic."""

    producer: str
    sequence: int
    count: int
    last_index: int
    payload: bytes


class EntryIndex(NamedTuple):
    """What the admin API tells of an entry."""

    last_index: int
    num_messages: int


class FakeReader:
    """Gives the entries from a place on, and then waits for ever."""

    def __init__(self, entries: list[StoredEntry], start: MessageId, convert: Any) -> None:
        self._entries, self._at, self._convert = entries, max(start.entry_id, 0), convert
        self.received: MessageId | None = None

    def __len__(self) -> int:
        return 0

    async def last_message_id(self) -> MessageId:
        return MessageId(LEDGER, len(self._entries) - 1)

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if self._at >= len(self._entries):
            await asyncio.Event().wait()
        entry, self.received = self._entries[self._at], MessageId(LEDGER, self._at)
        self._at += 1
        nothing = memoryview(b"")
        head = Entry(
            broker_index=entry.last_index,
            broker_timestamp=-1,
            sequence_id=entry.sequence,
            highest_sequence_id=entry.sequence + entry.count - 1,
            publish_time=1,
            compression=0,
            uncompressed_size=-1,
            num_messages=entry.count,
            is_batch=True,
            is_encrypted=False,
            is_marker=False,
            chunks=-1,
            chunk_id=-1,
            producer_name=memoryview(entry.producer.encode()),
            metadata=nothing,
            payload=memoryview(entry.payload),
            crc=-1,
            checked=nothing,
        )
        return self._convert(Delivery(self.received, 0, head, nothing))

    def __aiter__(self) -> FakeReader:
        return self

    async def __anext__(self) -> Any:
        return await self.read()

    async def close(self) -> None:
        return None


class FakePulsar:
    """Client and admin in one."""

    def __init__(self) -> None:
        self.answers = True
        """Whether entries are taken by themselves."""
        self.window = 1000
        self.deduplicates = True
        self.entries: dict[str, list[StoredEntry]] = {}
        """What is stored, by topic."""
        self.highest: dict[tuple[str, str], int] = {}
        self.open: dict[tuple[str, str], FakeProducer] = {}
        self.opened: list[str] = []
        self.counts: dict[Any, int] = {}
        self.asked: list[str] = []
        """The questions to the admin API."""
        self.by_time: MessageId | None = None
        """Where the admin says that a publish time is."""
        self.unreadable: PenstockError | None = None
        """Why nothing can be read, if so."""
        self.reads: list[MessageId] = []
        self.gate = asyncio.Event()
        """Producers open only while it is set."""
        self.gate.set()
        self._names = 0

    # The client

    async def producer(self, topic: str, *, name: str | None = None) -> FakeProducer:
        await self.gate.wait()
        await asyncio.sleep(0)
        if name is None:
            self._names += 1
            name = f"chosen-{self._names}"
        if (topic, name) in self.open:
            raise ClusterError(f"producer {name} is busy")
        made = self.open[topic, name] = FakeProducer(self, topic, name)
        self.opened.append(name)
        return made

    async def partitions(self, topic: str) -> int:
        await asyncio.sleep(0)
        return 3

    async def reader(
        self, topic: str, *, start: MessageId, convert: Any, read_bytes: int | None = None
    ) -> FakeReader:
        await asyncio.sleep(0)
        self.reads.append(start)
        if self.unreadable is not None:
            raise self.unreadable
        return FakeReader(self.entries.get(topic, []), start, convert)

    async def read_entry(self, topic: str, place: MessageId, convert: Any) -> Any:
        self.asked.append("entry")
        reader = await self.reader(topic, start=place, convert=convert)
        return await reader.read()

    # The broker

    def store(self, producer: FakeProducer, first: int, last: int, payload: bytes, count: int) -> Receipt:
        key = (producer.topic, producer.name)
        if self.deduplicates and first <= self.highest.get(key, -1):
            return Receipt(first, NOWHERE, 1)
        self.highest[key] = last if self.deduplicates else -1
        entries = self.entries.setdefault(producer.topic, [])
        index = (entries[-1].last_index if entries else -1) + count
        entries.append(StoredEntry(producer.name, first, count, index, payload))
        return Receipt(first, MessageId(LEDGER, len(entries) - 1), 1)

    def values(self, topic: str) -> list[bytes]:
        """The last byte of each entry: the tests write values of one byte."""
        return [entry.payload[-1:] for entry in self.entries.get(topic, ())]

    # The admin

    async def entry_index(self, topic: str, place: MessageId) -> Any:
        self.asked.append("entry_index")
        await asyncio.sleep(0)
        return EntryIndex(self.entries[topic][place.entry_id].last_index, 1)

    async def message_id_by_time(self, topic: str, publish_time: int) -> MessageId | None:
        await asyncio.sleep(0)
        return self.by_time

    async def stats(self, topic: str, *, internal: bool = False) -> Any:
        await asyncio.sleep(0)
        return {"ledgers": [{"ledgerId": LEDGER}]}

    async def properties(self, topic: str) -> dict[str, str]:
        self.asked.append(f"properties {topic}")
        await asyncio.sleep(0)
        return {}

    async def policy(self, topic: str, name: str) -> Any:
        self.asked.append(f"policy {topic} {name}")
        await asyncio.sleep(0)
        return None


@pytest.fixture
def fake_pulsar() -> type[FakePulsar]:
    return FakePulsar
