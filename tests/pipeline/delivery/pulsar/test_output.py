"""The sinks of one Pulsar cluster, the topics that they write to, and their tails; the cluster is a fake."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.brokers.pulsar import Delivery
from penstock.brokers.pulsar.admin import EntryHead
from penstock.errors import AccessDenied, Refused
from penstock.pipeline.delivery.pulsar import output as pulsar_output
from penstock.pipeline.delivery.pulsar import producer_tail
from penstock.pipeline.delivery.pulsar.output import PulsarOutput
from penstock.pipeline.delivery.pulsar.placement import Placement, target_key
from penstock.pipeline.delivery.pulsar.producer_names import SinkBatch, SinkSource, producer_name
from penstock.pipeline.delivery.pulsar.producer_tail import StoredIds, find_stored
from penstock.pipeline.delivery.pulsar.targets import inspect_topics, require_deduplication
from penstock.pipeline.evaluators.kernel.batch_builder import Output
from penstock.pipeline.ports import Target
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.pulsar import EARLIEST, MessageId, read_entry
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata

TARGETS = (Target(topic="a", sink=1), Target(topic="k", sink=0), Target(topic="dead", sink=1))


class Sink:
    """What was opened for a source partition, and what it was given."""

    made: list[Sink]
    was_refused = False

    def __init__(self, cluster: object, targets: Any, source: SinkSource | None, **more: object) -> None:
        self.targets, self.source, self.more = targets, source, more
        self.batches: list[SinkBatch] = []
        self.is_closed = False
        Sink.made.append(self)

    def put(self, batch: SinkBatch) -> None:
        self.batches.append(batch)

    def restart(self) -> None:
        self.batches.clear()

    def moved(self, first: int, since: int | None) -> None:
        assert self.source is not None
        self.source = replace(self.source, first=first, since=since)

    def close(self) -> None:
        self.is_closed = True


def output_to(
    monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool = True, targets: tuple[Target, ...] = TARGETS
) -> PulsarOutput:
    Sink.made = []
    monkeypatch.setattr(pulsar_output, "PulsarSink", Sink)
    work: Any = SimpleNamespace(
        program=SimpleNamespace(targets=targets),
        run="run",
        group="g",
        topic="in",
        belonging=SimpleNamespace(topic_id="id"),
    )
    return PulsarOutput(work, None, 1, exactly_once=exactly_once)  # type: ignore[arg-type]


def output(target: int, source: int = 0, *, is_late: bool = False) -> Output:
    return Output(target, 0, BatchBody(b"", 1, 0, 0), source, np.array([1], np.int64), is_late)


PLACED = Placement({target_key(TARGETS[0]): 4, target_key(TARGETS[2]): 0}, "token", 77)


def test_letters_of_refused_records_have_a_producer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = output_to(monkeypatch)
    made.place(0, PLACED, 5, begun=False)
    for each in (output(0), output(2), output(2, is_late=True)):
        made.put(each)
    [sink] = Sink.made
    written = [sink.targets[batch.target] for batch in sink.batches]
    assert [(each.topic, each.partitions, each.label) for each in written] == [
        ("a", 4, ""),
        ("dead", 0, ""),
        ("dead", 0, "refused"),
    ]
    source = sink.source
    assert source is not None and (source.first, source.begun, source.since) == (5, False, 77)
    assert (source.run, source.topic, source.incarnation, source.partition) == ("run", "in", "id", 0)
    names = {producer_name(source, each, 0) for each in sink.targets}
    others = {
        producer_name(SinkSource(run="run", topic="in", incarnation="other", partition=0, first=5), each, 0)
        for each in sink.targets
    }
    assert len(names) == 4 and not names & others


def test_what_a_topic_takes_holds_for_its_late_letters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = tuple(replace(each, limit=limit) for each, limit in zip(TARGETS, (10, 20, 30), strict=True))
    made = output_to(monkeypatch, targets=targets)
    made.place(0, PLACED, 5, begun=False)
    made.put(output(0))
    [sink] = Sink.made
    taken = [(target.topic, sink.more["limits"][at]) for at, target in enumerate(sink.targets)]
    assert taken == [("a", 10), ("a", 10), ("dead", 30), ("dead", 30)]


def test_a_topic_of_two_clusters_has_a_number_of_partitions_on_each() -> None:
    assert target_key(Target(topic="a", sink=1)) != target_key(Target(topic="a", sink=2))


def test_a_sink_that_is_opened_later_begins_at_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    made = output_to(monkeypatch)
    for part in (0, 1):
        made.place(part, PLACED, 5, begun=False)
    made.put(output(0))
    made.committed({1: 30, 7: 1}, {1: 99})
    made.restart()
    made.put(output(0, 1))
    found = [
        (each.source.partition, each.source.first, each.source.begun) for each in Sink.made if each.source
    ]
    assert found == [(0, 5, False), (1, 30, True)]
    made.committed({0: 40}, {0: 111})
    [source, _] = [each.source for each in Sink.made]
    assert source is not None and (source.first, source.since) == (40, 111), (
        "what is open knows the mark, too"
    )
    made.adopt({**PLACED.partitions, target_key(TARGETS[0]): 8})
    assert all(sink.is_closed for sink in Sink.made)
    made.put(output(0, 1))
    assert Sink.made[-1].targets[0].partitions == 8


def test_what_was_not_begun_before_is_looked_for_since_it_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error: else a topic would be looked through to its beginning, however much others wrote."""
    began = time.time_ns() // 1_000_000
    made = output_to(monkeypatch)
    made.place(0, Placement(PLACED.partitions), 5, begun=False)
    made.place(1, PLACED, 5, begun=True)
    for _ in range(2):
        made.restart()
    for part in (0, 1):
        made.put(output(0, part))
    new, old = (each.source for each in Sink.made)
    assert new is not None and new.begun and new.since is not None and new.since >= began
    assert old is not None and old.since == 77


def test_without_ids_one_sink_serves_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = output_to(monkeypatch, exactly_once=False)
    made.place(0, PLACED, 0, begun=False)
    for part in range(3):
        made.put(output(0, part))
    [sink] = Sink.made
    assert sink.source is None and len(sink.batches) == 3


# What the topics are like


def inspected(deduplicates: Any, size: Any = None) -> Any:
    async def answer(value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    policies = {"maxMessageSize": size, "deduplicationEnabled": deduplicates}
    cluster: Any = SimpleNamespace(
        call=asyncio.run,
        client=SimpleNamespace(max_message_bytes=lambda: answer(5000)),
        admin=SimpleNamespace(
            topics=lambda namespace: answer((f"persistent://{namespace}/t",)),
            partitioned_topics=lambda namespace: answer(()),
            policy=lambda topic, name, applied: answer(policies[name]),
        ),
    )
    topic = "persistent://public/default/t"
    return inspect_topics(cluster, {topic, f"{topic}-missing"})


@pytest.mark.parametrize(("size", "limit"), [(None, 4488), (0, 4488), (3000, 2488), (9000, 4488)])
def test_a_topic_takes_no_more_than_its_policy_and_the_broker(size: int | None, limit: int) -> None:
    found = inspected(True, size)
    assert [(topic[-1], each.limit) for topic, each in found.items()] == [("t", limit)]


@pytest.mark.parametrize("known", [None, False, AccessDenied("no")])
def test_a_topic_that_is_not_seen_to_deduplicate(known: Any) -> None:
    [(topic, found)] = inspected(known).items()
    with pytest.raises(AccessDenied if isinstance(known, AccessDenied) else Refused):
        require_deduplication(topic, found)


# What a producer has stored

NAME = "penstock-run-digest-0-1"


class Tail:
    """A cluster whose topic has these entries, by producer and time; the last `hidden` come to nobody."""

    def __init__(self, *entries: tuple[str, int], hidden: int = 0) -> None:
        self.client = self.admin = self
        self._entries = [
            MessageMetadata(producer_name=name, sequence_id=at, publish_time=time).SerializeToString()
            for at, (name, time) in enumerate(entries)
        ]
        self._given = len(entries) - hidden
        self.received: MessageId | None = None

    async def stats(self, topic: str, internal: bool) -> Any:
        return {"ledgers": [{"ledgerId": 9}], "currentLedgerEntries": 10, "currentLedgerSize": 300}

    async def ledger_ends(self, topic: str) -> dict[int, int]:
        return {9: 0}

    async def entry_head(self, topic: str, place: MessageId) -> EntryHead:
        return EntryHead(None, is_hidden=place.entry_id >= self._given, is_held_back=False)

    async def reader(
        self, topic: str, *, start: MessageId, create: bool, convert: Any = None, read_bytes: int = 0
    ) -> Tail:
        assert not create, "a look must not make the topic"
        self._convert, self._at, self.received = convert, max(start.entry_id, 0), None
        return self

    async def last_message_id(self) -> MessageId:
        return MessageId(9, len(self._entries) - 1)

    def __len__(self) -> int:
        return 0

    async def read(self) -> Any:
        if self._at >= self._given:
            await asyncio.sleep(3600)
        raw = self._entries[self._at]
        self.received, self._at = MessageId(9, self._at), self._at + 1
        data = memoryview(len(raw).to_bytes(4, "big") + raw)
        return self._convert(Delivery(self.received, 0, read_entry(data), data))

    async def close(self) -> None:
        pass


def stored_in(tail: Tail, since: int | None = None) -> StoredIds:
    return asyncio.run(find_stored(tail, "t", NAME, enough=lambda found: found.highest >= 0, since=since))  # type: ignore[arg-type]


def test_the_times_of_others_do_not_end_the_look_for_what_is_stored() -> None:
    """A gateway gives an entry the time of its records, which may be of last year."""
    others = ("somebody", 7), ("penstock-run2-digest-0-1", 7)
    assert stored_in(Tail((NAME, 2_000_000), *others), since=1_900_000).highest == 0
    own = ("penstock-run-digest-9-9", 7)
    assert stored_in(Tail((NAME, 2_000_000), own), since=1_900_000).highest == -1, "nothing is behind it"


def test_an_entry_that_is_given_to_no_reader_does_not_hide_what_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_tail, "_QUIET_SECONDS", 0.01)
    monkeypatch.setattr(producer_tail, "_SECONDS", 0.5)
    for since in (None, 1_900_000):
        tail = Tail((NAME, 2_000_000), ("somebody", 2_000_000), ("somebody", 2_000_000), hidden=2)
        assert stored_in(tail, since).highest == 0
    assert stored_in(Tail(("somebody", 7), hidden=1)).highest == -1


def found_with(
    monkeypatch: pytest.MonkeyPatch, oldest: int, since: int | None, ends: dict[int, int] | None = None
) -> list[MessageId]:
    """Look for an id that is nowhere; return where looks began, the last entry, windows, and all of it."""
    looks: list[MessageId] = []

    async def last(*_: object) -> MessageId:
        return MessageId(9, 9)

    async def look(cluster: object, topic: str, name: str, start: MessageId, end: MessageId) -> StoredIds:
        looks.append(start)
        return StoredIds(-1, frozenset(), is_whole_log=start == EARLIEST, oldest=oldest)

    async def stats(*_: object, internal: bool) -> Any:
        ledgers = [
            {"ledgerId": 7, "entries": 1 << 20, "size": 1 << 40},
            {"ledgerId": 9, "entries": 0, "size": 0},
        ]
        return {"ledgers": ledgers, "currentLedgerEntries": 10, "currentLedgerSize": 300}

    monkeypatch.setattr(producer_tail, "_last", last)
    monkeypatch.setattr(producer_tail, "_look", look)

    async def ledger_ends(topic: str) -> dict[int, int]:
        return ends or {}

    cluster: Any = SimpleNamespace(admin=SimpleNamespace(stats=stats, ledger_ends=ledger_ends))
    asyncio.run(find_stored(cluster, "t", "n", enough=lambda found: False, since=since))
    return looks


def test_a_topic_is_looked_through_as_far_back_as_the_mark_with_ten_minutes_for_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(found_with(monkeypatch, oldest=399_999, since=1_000_000)) == 1
    looks = found_with(monkeypatch, oldest=400_000, since=1_000_000)
    assert looks == sorted(looks, reverse=True) and looks[-1] == EARLIEST and len(looks) == 6
    assert len(found_with(monkeypatch, oldest=0, since=None)) == 6
    # The broker says when a ledger was closed: all that others have written before is not looked through.
    ends = {7: 399_998, 9: 399_999}
    assert found_with(monkeypatch, oldest=-1, since=1_000_000, ends=ends)[1:] == [MessageId(9, 0)]
    assert len(found_with(monkeypatch, oldest=-1, since=1_000_000, ends={7: 400_000, 9: 0})) == 6
    assert len(found_with(monkeypatch, oldest=-1, since=None, ends=ends)) == 6


def test_a_topic_that_goes_on_giving_entries_is_looked_through_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound for all of it would begin anew at each start, and never end on a large topic."""
    moved: list[float] = []

    class Limit:
        async def __aenter__(self) -> Limit:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        def reschedule(self, when: float) -> None:
            moved.append(when)

    monkeypatch.setattr(
        producer_tail, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": lambda _: Limit()})
    )

    class Reader:
        received: MessageId | None = None

        def __len__(self) -> int:
            return 0

        async def read(self) -> tuple[int, int]:
            entry = 0 if self.received is None else self.received.entry_id + 1
            self.received = MessageId(9, entry)
            return entry, 1000 + entry

        async def close(self) -> None:
            pass

    async def reader(*_: object, **__: object) -> Reader:
        return Reader()

    cluster: Any = SimpleNamespace(client=SimpleNamespace(reader=reader))
    found = asyncio.run(producer_tail._look(cluster, "t", NAME, EARLIEST, MessageId(9, 9)))
    assert (found.highest, found.oldest, found.is_whole_log) == (9, 1000, True)
    assert len(moved) == 10 and moved == sorted(moved)


def test_an_entry_that_waits_in_the_reader_is_looked_at() -> None:
    """The reader has received the last entry before all of what came is taken from it."""

    class Reader:
        received = MessageId(9, 9)

        def __init__(self) -> None:
            self.waiting = [(5, 1000), (7, 1001)]

        def __len__(self) -> int:
            return len(self.waiting)

        async def read(self) -> tuple[int, int]:
            return self.waiting.pop(0)

        async def close(self) -> None:
            pass

    async def reader(*_: object, **__: object) -> Reader:
        return Reader()

    cluster: Any = SimpleNamespace(client=SimpleNamespace(reader=reader))
    found = asyncio.run(producer_tail._look(cluster, "t", "n", EARLIEST, MessageId(9, 9)))
    assert (found.highest, found.entries) == (7, {5, 7})
