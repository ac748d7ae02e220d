"""What a reader of a Pulsar partition asks its broker, and what it passes by; the broker is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import JobFailed, OffsetOutOfRange, PulsarRefused, Unreachable
from penstock.mapping import KafkaBatch
from penstock.pipeline.delivery.pulsar import partition_tail
from penstock.pipeline.delivery.pulsar.entries import Decoded, Undecided
from penstock.pipeline.delivery.pulsar.log import LogEnds, Numbering, PulsarPosition
from penstock.pipeline.delivery.pulsar.partition_tail import FetchedEntries, PartitionTail
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError

Patch = pytest.MonkeyPatch


def batch(ledger: int, entry: int, base: int, count: int = 1) -> Decoded:
    """An entry with so many messages."""
    data = memoryview(b"%d," % base)
    return Decoded(MessageId(ledger, entry), KafkaBatch(data, base, base + count, count, 0), count)


class Topic:
    """A log and its reader: what the reader has got, and what the broker answers; `on` is done when asked."""

    topic, partition, name = "t", 0, "t"

    def __init__(self, *entries: Decoded, start: int = 0, end: int = 100) -> None:
        self.waiting = list(entries)
        self.received: MessageId | None = entries[-1].place if entries else None
        self.last = self.received or MessageId(1, -1)
        self.asked: list[str] = []
        self.on: dict[str, Callable[[], None]] = {}
        self.before: int | None = None
        self._start, self._end = start, end
        self.is_attached, self.reconnects = True, 0
        self.cluster: Any = SimpleNamespace(client=SimpleNamespace(reader=self._open))

    def write(self, entry: Decoded) -> None:
        """Have an entry come to the reader."""
        self.waiting.append(entry)
        self.last = self.received = entry.place

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if (does := self.on.pop(what, None)) is not None:
            does()

    # The log

    async def start(self) -> int:
        self._note("start")
        return self._start

    async def ends(self) -> LogEnds:
        self._note("ends")
        return LogEnds(self._end, self._end, is_held_back=False)

    async def place_of(self, index: int) -> MessageId:
        return MessageId(1, 0)

    async def without_hidden(self, place: MessageId) -> MessageId:
        return place

    async def index_before(self, place: MessageId) -> int | None:
        self._note("index before")
        return self.before

    # The reader

    async def _open(self, *_: object, **__: object) -> Topic:
        return self

    def __len__(self) -> int:
        return len(self.waiting)

    def take_nowait(self) -> tuple[Decoded, int] | None:
        return (self.waiting.pop(0), 1) if self.waiting else None

    def release(self, size: int) -> None:
        pass

    async def last_message_id(self) -> MessageId:
        last = self.last
        self._note("last")
        return last

    async def arrival(self) -> None:
        if not self.waiting:
            await asyncio.Event().wait()

    async def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch: Patch) -> None:
    """The broker is asked for the end at once."""
    monkeypatch.setattr(partition_tail, "SILENCE_SECONDS", 0.0)
    monkeypatch.setattr(partition_tail, "_END_SECONDS", 0.0)


def tail_of(topic: Topic, first: int = 0, end: int | None = 100) -> PartitionTail:
    log: Any = topic
    sizes = {"max_bytes": 1 << 20, "read_bytes": 1 << 20, "inflated": 1 << 20}
    return PartitionTail(log, PulsarPosition(first), end, numbering=Numbering.INDEX, **sizes)


def polled(tail: PartitionTail, times: int = 1) -> list[FetchedEntries]:
    async def poll() -> list[FetchedEntries]:
        found = [await tail.poll(0.0) for _ in range(times)]
        return [each for each in found if each is not None]

    return asyncio.run(poll())


def data_of(found: list[FetchedEntries]) -> bytes:
    return b"".join(bytes(each.data) for each in found)


def test_indexes_that_hold_nothing_are_passed_by_at_the_end() -> None:
    tail = tail_of(Topic(batch(1, 0, 0)))
    found = polled(tail, 2)
    assert (data_of(found), tail.position.index, tail.done) == (b"0,", 100, True)


@pytest.mark.parametrize("moment", ["last", "ends", "start"])
def test_what_comes_while_the_end_is_looked_for_is_not_passed_by(moment: str) -> None:
    topic = Topic(batch(1, 0, 0))
    tail = tail_of(topic)
    polled(tail)
    later = batch(1, 1, 98)
    if moment == "last":
        topic.on[moment] = lambda: topic.write(later)
    else:
        # The broker has it, and it is on its way.
        topic.on[moment] = lambda: setattr(topic, "last", later.place)
    polled(tail)
    assert tail.position.index == 1
    if moment != "last":
        topic.write(later)
    assert data_of(polled(tail)) == b"98,"


def test_what_waits_behind_the_range_is_there_when_the_range_ends() -> None:
    topic = Topic(batch(1, 0, 0), batch(1, 1, 200))
    tail = tail_of(topic)
    assert data_of(polled(tail, 2)) == b"0," and tail.done


@pytest.mark.parametrize(("ledger", "start", "is_lost"), [(2, 5, True), (2, 1, False), (1, 5, False)])
def test_a_gap_at_the_end_of_a_ledger_is_looked_at(ledger: int, start: int, is_lost: bool) -> None:
    """Ledgers are removed whole: inside of one, indexes may be missing."""
    topic = Topic(batch(1, 0, 0), batch(ledger, 1, 7), start=start)
    tail = tail_of(topic)
    if is_lost:
        with pytest.raises(OffsetOutOfRange) as caught:
            polled(tail, 2)
        assert (caught.value.offset, caught.value.log_start) == (1, 5)
    else:
        assert data_of(polled(tail, ledger)) == b"0,7,"
    assert ("start" in topic.asked) is (ledger == 2)


def test_an_entry_that_the_broker_was_not_asked_about_comes_again() -> None:
    topic = Topic(batch(1, 0, 0), batch(2, 0, 7), start=1)
    tail = tail_of(topic)
    assert data_of(polled(tail)) == b"0,"

    def fails() -> None:
        raise Unreachable("away")

    topic.on["start"] = fails
    with pytest.raises(Unreachable):
        polled(tail)
    assert data_of(polled(tail)) == b"7,"


@pytest.mark.parametrize(("before", "base"), [(6, 7), (5, 7), (7, 8), (None, 8)])
def test_a_batch_of_a_transaction_is_counted_as_its_index_says(before: int | None, base: int) -> None:
    """With 7 and 8 for its two messages, the entry before it has index 6 at most."""
    counted, as_one = batch(1, 5, 7, 2).content, batch(1, 5, 8).content
    assert isinstance(counted, KafkaBatch) and isinstance(as_one, KafkaBatch)
    topic = Topic(Decoded(MessageId(1, 5), Undecided(counted, as_one, 6), 2))
    topic.before = before
    assert data_of(polled(tail_of(topic))) == b"%d," % base


@pytest.mark.parametrize("moment", ["open", "take_nowait", "arrival"])
def test_a_topic_that_is_deleted_is_named_so(moment: str, monkeypatch: Patch) -> None:
    topic = Topic(batch(1, 0, 0))
    tail = tail_of(topic, end=None if moment == "arrival" else 100)
    gone = PulsarRefused("no such topic", server_error=ServerError.TOPIC_NOT_FOUND, retriable=False)

    def refuse(*_: object, **__: object) -> Any:
        raise gone

    if moment == "open":
        topic.cluster.client.reader = refuse
    else:
        monkeypatch.setattr(topic, moment, refuse)
    if moment == "arrival":
        topic.waiting.clear()
        topic.cluster.admin = SimpleNamespace(created=lambda _: asyncio.sleep(0, "2026"))
    with pytest.raises(JobFailed, match="the topic was deleted while it was read"):
        polled(tail)
