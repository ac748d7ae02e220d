"""What the sink makes of the answers of a broker, and which records it leaves out; the broker is a fake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pulsar_rows import batch_of, body_of

from penstock.brokers.pulsar import Receipt
from penstock.errors import ClusterError, JobFailed, ProducerFenced, PulsarRefused, RecordRefused, Unreachable
from penstock.pipeline.delivery.pulsar import sink as pulsar_sink
from penstock.pipeline.delivery.pulsar.producer_names import ORDINAL_BITS, PulsarTarget, SinkBatch, SinkSource
from penstock.pipeline.delivery.pulsar.producer_tail import StoredIds
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError

Patch = pytest.MonkeyPatch
Answer = Callable[[int], Receipt]
LIMIT = 1000
"""Bytes of a payload that the topic takes."""


def stored(sequence_id: int) -> Receipt:
    return Receipt(sequence_id, MessageId(1, 1), 1)


@dataclass
class Broker:
    """A cluster with one topic, that does what it is given when the test calls or posts something."""

    last: list[int]
    """What it tells of the name, at each opening."""
    answer: Answer = stored
    refuses: ClusterError | None = None
    """What it says to the opening of a producer."""
    held: bool = False
    """Whether what is posted waits for `turn`."""
    sent: list[int] = field(default_factory=list)
    """The first ids of the entries that came."""
    publish_times: list[int] = field(default_factory=list)
    looked: list[int | None] = field(default_factory=list)
    """How far back the topic was looked through, each time."""
    entries: list[set[int]] = field(default_factory=list)
    """What a look finds, each time; the last one for ever."""
    is_complete: bool = True
    """Whether the topic holds all since the mark."""

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = SimpleNamespace(producer=self.producer)
        self._posted: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def post(self, work: Callable[..., object], *arguments: Any) -> None:
        self._posted.append((work, arguments))
        if not self.held:
            self.turn()

    def turn(self, most: int = 1000) -> None:
        """Do what was posted first, and tell the receipts."""
        posted, self._posted = self._posted[:most], self._posted[most:]
        for work, arguments in posted:
            work(*arguments)
        self.loop.run_until_complete(asyncio.sleep(0))

    async def producer(self, topic: str, *, name: str = "", owns_name: bool = False) -> Any:
        if self.refuses is not None:
            raise self.refuses
        told = self.last.pop(0) if len(self.last) > 1 else self.last[0]
        return SimpleNamespace(
            topic=topic,
            name=name,
            last_sequence_id=told,
            max_message_bytes=LIMIT + 512,
            send_nowait=self._send,
            close=self._close,
        )

    def _send(self, buffer: Any, start: int, end: int, count: int, time: int, first: int, *_: Any) -> Any:
        self.sent.append(first)
        self.publish_times.append(time)
        done = self.loop.create_future()
        try:
            done.set_result(self.answer(first))
        except ClusterError as exc:
            done.set_exception(exc)
        return done

    async def _close(self) -> None:
        pass

    async def find(
        self, cluster: object, topic: str, name: str, *, enough: object, since: int | None = None
    ) -> StoredIds:
        self.looked.append(since)
        found = self.entries.pop(0) if len(self.entries) > 1 else self.entries[0]
        return StoredIds(max(found, default=-1), frozenset(found), is_whole_log=True)

    async def has_all(self, cluster: object, topic: str, name: str, since: int | None) -> bool:
        assert since == 77, "the time of the mark"
        return self.is_complete


@pytest.fixture
def open_sink(monkeypatch: Patch) -> Iterator[Callable[..., PulsarSink]]:
    monkeypatch.setattr(pulsar_sink, "_RETRY_SECONDS", 0.0)
    loops: list[asyncio.AbstractEventLoop] = []

    def make(broker: Broker, *, first: int = 0, **said: Any) -> PulsarSink:
        loops.append(broker.loop)
        monkeypatch.setattr(pulsar_sink, "find_stored", broker.find)
        monkeypatch.setattr(pulsar_sink, "has_all_since", broker.has_all)
        source = SinkSource(run="r", topic="in", incarnation="1", partition=0, first=first, since=77)
        targets = [PulsarTarget(topic="out", partitions=0)]
        cluster: Any = broker
        return PulsarSink(cluster, targets, source, limits={}, **said)

    yield make
    for loop in loops:
        loop.close()


Open = Callable[..., PulsarSink]


def id_of(index: int) -> int:
    return index << ORDINAL_BITS


def rows(first: int, count: int) -> SinkBatch:
    return batch_of([b"x"] * count, first)


def test_an_id_that_the_broker_tells_is_believed_when_its_entry_was_seen(open_sink: Open) -> None:
    """A broker that failed to store an entry tells its id until it has noticed that."""
    broker = Broker([id_of(6), id_of(4)], entries=[{id_of(4)}])
    sink = open_sink(broker, first=3)
    sink.put(rows(3, 5))
    assert (sink.left_out, broker.sent) == (2, [id_of(5)])
    assert broker.looked == [None, None], "an id that is told is there, however old"


@pytest.mark.parametrize("is_complete", [True, False])
def test_an_id_whose_entry_is_not_there(open_sink: Open, monkeypatch: Patch, is_complete: bool) -> None:
    """It was acknowledged and removed; where nothing was removed since the mark, a write has failed."""
    monkeypatch.setattr(pulsar_sink, "_TAIL_SECONDS", 0.05)
    broker = Broker([id_of(4)], entries=[set()], is_complete=is_complete)
    sink = open_sink(broker, first=3)
    if is_complete:
        with pytest.raises(JobFailed, match="cannot be found"):
            sink.put(rows(3, 5))
    else:
        sink.put(rows(3, 5))
        assert (sink.left_out, broker.sent) == (2, [id_of(5)])


def test_the_id_of_the_first_record_of_a_range_is_looked_for(open_sink: Open) -> None:
    broker = Broker([id_of(3), -1], entries=[set(), set()])
    sink = open_sink(broker, first=3)
    sink.put(rows(3, 2))
    assert broker.sent == [id_of(3)]


def test_ids_before_the_range_are_not_looked_for(open_sink: Open) -> None:
    broker = Broker([id_of(3) - 1], entries=[set()])
    open_sink(broker, first=3).put(rows(3, 2))
    assert (broker.sent, broker.looked) == ([id_of(3)], [])


def test_a_forgotten_name_is_looked_for_as_far_back_as_the_mark(open_sink: Open) -> None:
    broker = Broker([-1], entries=[{id_of(3)}])
    sink = open_sink(broker, first=3)
    sink.put(rows(3, 2))
    assert (sink.left_out, broker.sent, broker.looked) == (1, [id_of(4)], [77])


def test_a_range_that_was_not_begun_is_begun_after_a_restart(open_sink: Open) -> None:
    broker = Broker([-1], entries=[{id_of(0)}])
    sink = open_sink(broker)
    sink._source = replace(sink._source or pytest.fail("no source"), begun=False)
    sink.put(rows(0, 1))
    assert broker.looked == []
    sink.restart()
    sink.put(rows(0, 2))
    # Nothing of it is older than the sink.
    assert broker.looked == [sink._made] and broker.sent == [id_of(0), id_of(1)]


def test_nothing_is_sent_behind_an_entry_that_failed(open_sink: Open) -> None:
    """It would be stored, and the next attempt would leave out what is missing before it."""

    def answer(first: int) -> Receipt:
        raise Unreachable("away")

    broker = Broker([-1], answer, entries=[set()], held=True)
    sink = open_sink(broker)
    sink.put(rows(0, 1))
    sink.put(rows(1, 1))
    broker.turn(1)
    broker.turn()
    assert broker.sent == [id_of(0)]


def test_what_a_receipt_says_is_raised_by_who_flushes(open_sink: Open) -> None:
    def answer(first: int) -> Receipt:
        raise PulsarRefused("full", server_error=ServerError.UNKNOWN_ERROR, retriable=True)

    sink = open_sink(Broker([-1], answer, entries=[set()]))
    sink.put(rows(0, 1))
    with pytest.raises(Unreachable, match="full"):
        sink.flush()


@pytest.mark.parametrize(("is_there", "is_complete"), [(True, True), (False, True), (False, False)])
def test_a_duplicate_after_a_reconnect_is_looked_for(
    open_sink: Open, is_there: bool, is_complete: bool
) -> None:
    """Readers that keep up may have had it removed: that is seen by what else is missing since the mark."""
    broker = Broker([-1], lambda first: Receipt(first, MessageId(-1, -1), 2), entries=[set()])
    sink = open_sink(broker)
    sink.put(rows(0, 2))
    broker.entries, broker.is_complete = [{id_of(1)} if is_there else set()], is_complete
    if is_there or not is_complete:
        sink.flush()
    else:
        with pytest.raises(JobFailed, match="dropped records as duplicates"):
            sink.flush()


def test_a_duplicate_that_was_sent_once_is_of_somebody_else(open_sink: Open) -> None:
    broker = Broker([-1], lambda first: Receipt(first, MessageId(-1, -1), 1), entries=[set()])
    sink = open_sink(broker)
    sink.put(rows(0, 1))
    with pytest.raises(JobFailed, match="dropped records as duplicates"):
        sink.flush()


@pytest.mark.parametrize("at", range(5))
def test_the_record_that_is_too_large_is_named(open_sink: Open, at: int) -> None:
    values: list[bytes | None] = [b"x"] * 5
    values[at] = b"x" * LIMIT
    batch = replace(rows(0, 5), body=body_of(values))
    sink = open_sink(Broker([-1], entries=[set()]))
    checked = sink.check(batch)
    assert checked is not None and [number for number, _ in checked.error.records] == [at]
    with pytest.raises(RecordRefused) as caught:
        sink.put(batch)
    assert caught.value.record == at and sink.was_refused


def test_who_was_shut_out_does_not_wait_for_a_name(open_sink: Open) -> None:
    busy = PulsarRefused("busy", server_error=ServerError.PRODUCER_BUSY, retriable=True)

    def check() -> None:
        raise ProducerFenced("another one", error_code=ErrorCode.PRODUCER_FENCED)

    sink = open_sink(Broker([-1], refuses=busy), check=check, name_wait=0.5)
    with pytest.raises(ProducerFenced):
        sink.put(rows(0, 1))


def test_records_without_a_time_are_published_now(open_sink: Open) -> None:
    broker = Broker([-1], entries=[set()])
    sink = open_sink(broker)
    batch = rows(0, 1)
    sink.put(replace(batch, body=replace(batch.body, base_timestamp=-1, max_timestamp=-1)))
    assert abs(broker.publish_times[0] - 1000 * time.time()) < 60_000
