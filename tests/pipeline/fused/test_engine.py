"""The engine against a Kafka in memory that fails at any call: every record once, every count exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.errors import JobFailed, OffsetOutOfRange, ProducerFenced, Refused, Unreachable
from penstock.pipeline.fused import engine, feed, loop, outlet
from penstock.pipeline.fused.engine import run_range, run_ranges
from penstock.pipeline.fused.loop import Beat, Loop
from penstock.pipeline.fused.spans import Span

TOPIC, FETCH = "in", 3
BAD = 7
"""Every record of this number is a dead letter."""


@dataclass
class Memory:
    """A broker: the log of one topic, what is committed of the outputs, and who may write."""

    log: dict[int, list[int]]
    begin: int = 0
    out: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    groups: dict[tuple[str, int], GroupOffset] = field(default_factory=dict)
    epochs: Counter[str] = field(default_factory=Counter)
    fails: Callable[[], bool] = lambda: False
    settings: Any = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def call(self) -> None:
        if self.fails():
            raise Unreachable("the broker is gone")

    def partitions(self, topic: str, *, refresh: bool = False) -> int:
        return len(self.log)


class Writer:
    """A transactional producer, or without a name one whose records count at once."""

    def __init__(self, memory: Memory, name: str | None = None, **_: Any) -> None:
        self.memory, self.name, self.waiting = memory, name, list[tuple[str, int]]()
        memory.call()
        self.epoch = memory.epochs[name or ""] = memory.epochs[name or ""] + 1

    def begin(self) -> None:
        self.waiting.clear()

    def send(self, topic: str, partition: int, body: int) -> None:
        self.memory.call()
        self.waiting.append((topic, body))
        if self.name is None:
            self.flush()

    def flush(self) -> None:
        self.memory.call()
        for topic, body in self.waiting:
            getattr(self.memory, topic).append(body)
        self.waiting.clear()

    def commit(self, *, group: str, offsets: Mapping[tuple[str, int], GroupOffset]) -> None:
        self.memory.call()
        if self.memory.epochs[self.name or ""] != self.epoch:
            raise ProducerFenced("fenced", error_code=90)
        for topic, body in self.waiting:
            getattr(self.memory, topic).append(body)
        self.waiting.clear()
        self.memory.groups |= {(group, part): found for (_, part), found in offsets.items()}
        self.memory.call()  # the answer is lost, and the transaction is not

    def abort(self) -> None:
        self.waiting.clear()

    def close(self) -> None:
        return None


class Bookmark:
    """The offsets of a group."""

    def __init__(self, memory: Memory, group: str) -> None:
        self.memory, self.group = memory, group

    def committed(self, topic: str) -> dict[int, GroupOffset]:
        self.memory.call()
        return {part: found for (group, part), found in self.memory.groups.items() if group == self.group}

    def commit(self, offsets: Mapping[tuple[str, int], GroupOffset]) -> None:
        self.memory.call()
        self.memory.groups |= {(self.group, part): found for (_, part), found in offsets.items()}


class Reader:
    """A fetcher that gives a few records at a time."""

    def __init__(self, memory: Memory, wanted: Any, **_: Any) -> None:
        self.memory, self.at = memory, {each.partition: [each.offset, each.end] for each in wanted}

    def poll(self, timeout: float) -> Iterator[Any]:
        self.memory.call()
        for part, (at, end) in list(self.at.items()):
            log = self.memory.log[part]
            if at < self.memory.begin or at > len(log):
                raise OffsetOutOfRange(TOPIC, part, offset=at, log_start=self.memory.begin, log_end=len(log))
            if end is None or at < end:
                until = min(at + FETCH, len(log))
                self.at[part][0] = until
                yield SimpleNamespace(
                    topic=TOPIC,
                    partition=part,
                    first=at,
                    next_offset=until,
                    last_stable_offset=len(log),
                    data=list(enumerate(log[at:until], at)),
                    aborted=(),
                )

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.at.setdefault(partition, [offset, None])[0] = offset

    def close(self) -> None:
        return None


class Copy:
    """A machine that sends each record on, the bad ones to the dead letters."""

    def __init__(
        self, program: Any, stage: Any, partitions: Any, put: Callable[[Any], None], *, shadow: int
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.put = put

    def feed(self, data: Any, *, topic: str, partition: int, first: int, end: int) -> None:
        for offset, number in data:
            if first <= offset < end:
                bad = number % BAD == 0
                self.counts.update({"n_in": 1, "n_dead" if bad else "n_out": 1})
                self.put(SimpleNamespace(target=int(bad), partition=0, body=number))

    def flush(self) -> None:
        return None


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engine, outlet, loop):
        monkeypatch.setattr(module, "GroupOffsets", Bookmark)
    monkeypatch.setattr(outlet, "TransactionalProducer", Writer)
    monkeypatch.setattr(outlet, "Producer", Writer)
    monkeypatch.setattr(feed, "Fetcher", Reader)
    monkeypatch.setattr(feed, "Machine", Copy)
    monkeypatch.setattr(feed, "visible", lambda data, aborted: [data])
    for module in (engine, loop):
        monkeypatch.setattr(module, "Cluster", lambda memory: memory)
    monkeypatch.setattr(loop, "earliest", lambda memory, topic: dict.fromkeys(memory.log, memory.begin))
    monkeypatch.setattr(
        loop, "latest", lambda memory, topic, **_: {part: len(log) for part, log in memory.log.items()}
    )


def work(memory: Memory, **more: Any) -> Any:
    targets = (SimpleNamespace(topic="out"), SimpleNamespace(topic="dead"))
    settings = {"exactly_once": True, "on_data_loss": "stop", "shadow": 0, **more}
    return SimpleNamespace(
        program=SimpleNamespace(targets=targets),
        stage=None,
        settings=memory,
        topic=TOPIC,
        group="g",
        **settings,
    )


def failing(moments: list[int]) -> Callable[[], bool]:
    """Fail at these calls, counted from the last failure."""
    left, calls = iter(moments), Counter[str]()
    waits = [next(left, None)]

    def fails() -> bool:
        calls["n"] += 1
        if waits[0] is None or calls["n"] <= waits[0]:
            return False
        calls.clear()
        waits[0] = next(left, None)
        return True

    return fails


def until_it_works(run: Callable[[], Any]) -> Any:
    while True:
        try:
            return run()
        except Unreachable:
            continue


MOMENTS = st.lists(st.integers(0, 40), max_size=12)


@given(
    size=st.integers(1, 40), start=st.integers(0, 5), moments=MOMENTS, longest=st.sampled_from([-1.0, 9.0])
)
def test_a_range_is_done_once_whenever_it_fails(
    size: int, start: int, moments: list[int], longest: float
) -> None:
    memory = Memory({0: list(range(start + size + 3))}, fails=failing(moments))
    span, before = Span(0, start, start + size), engine._LONGEST
    engine._LONGEST = longest  # type: ignore[misc]  # a transaction for each fetch, or one for all
    try:
        counts = until_it_works(lambda: run_range(work(memory), span, memory))  # type: ignore[arg-type]
        again = until_it_works(lambda: run_range(work(memory), span, memory))  # type: ignore[arg-type]
    finally:
        engine._LONGEST = before  # type: ignore[misc]
    numbers = range(start, start + size)
    assert memory.out == [number for number in numbers if number % BAD]
    assert memory.dead == [number for number in numbers if not number % BAD]
    assert (counts["n_in"], counts["n_dead"]) == (size, len(memory.dead))
    assert again == counts


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=3), moments=MOMENTS)
def test_a_loop_does_everything_once_whenever_it_fails(sizes: list[int], moments: list[int]) -> None:
    log = {part: [1000 * part + number for number in range(size)] for part, size in enumerate(sizes)}
    memory = Memory(log, fails=failing(moments))
    beats: list[Beat] = []
    until_it_works(lambda: Loop(work(memory), beats.append, stop=Event(), once=True).run())
    for part, records in log.items():
        assert [each for each in memory.out if each // 1000 == part] == [
            each for each in records if each % BAD
        ]
        assert [each for each in memory.dead if each // 1000 == part] == [
            each for each in records if not each % BAD
        ]


def test_without_transactions_nothing_is_lost() -> None:
    for moment in range(30):
        memory = Memory({0: list(range(20))}, fails=failing([moment]))
        span = Span(0, 0, 20)
        until_it_works(lambda: run_range(work(memory, exactly_once=False), span, memory))  # type: ignore[arg-type]  # noqa: B023
        assert {*memory.out, *memory.dead} == set(range(20))


def test_who_was_shut_out_cannot_commit() -> None:
    memory = Memory({0: list(range(20))})
    old = outlet.Exact(work(memory), memory, "0")  # type: ignore[arg-type]
    old.put(SimpleNamespace(target=0, partition=0, body=1))  # type: ignore[arg-type]
    run_range(work(memory), Span(0, 0, 20), memory)  # type: ignore[arg-type]
    with pytest.raises(ProducerFenced):
        old.commit({})
    assert Counter([*memory.out, *memory.dead]) == Counter(range(20))


def test_a_partition_that_is_split_is_refused() -> None:
    memory = Memory({0: list(range(20))})
    halves = [Span(0, 0, 10), Span(0, 10, 20)]
    with pytest.raises(Refused, match="split"):
        run_ranges(work(memory), halves)
    assert memory.out == []
    assert run_ranges(work(memory, exactly_once=False), halves)["n_in"] == 20


def test_records_that_are_gone_stop_a_range_or_are_counted() -> None:
    memory = Memory({0: list(range(20))}, begin=8)
    with pytest.raises(JobFailed, match="OffsetOutOfRange"):
        run_range(work(memory), Span(0, 5, 12), memory)  # type: ignore[arg-type]
    allowed = work(memory, on_data_loss="continue")
    counts = run_range(allowed, Span(0, 5, 12), memory)  # type: ignore[arg-type]
    assert (counts["n_lost"], counts["n_in"]) == (3, 4)
    # A range that is gone as a whole is done: nothing of it can come any more.
    memory.begin = 20
    assert run_range(allowed, Span(0, 12, 18), memory)["n_lost"] == 6  # type: ignore[arg-type]


def test_a_topic_that_lost_its_end_stops_a_range_whatever_is_allowed() -> None:
    memory = Memory({0: list(range(3))})
    with pytest.raises(JobFailed, match="ends at 3"):
        run_range(work(memory, on_data_loss="continue"), Span(0, 5, 9), memory)  # type: ignore[arg-type]


def test_a_loop_that_is_shut_out_says_so() -> None:
    memory = Memory({0: list(range(5))})
    taken = iter([None])

    def takes_over() -> bool:
        # Somebody else begins under the same name while this one is at work.
        if memory.epochs and next(taken, False) is None:
            memory.epochs["g.in.loop"] += 1
        return False

    memory.fails = takes_over
    with pytest.raises(JobFailed, match="took over"):
        Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
    assert memory.out == []


def test_a_loop_with_nothing_to_do_keeps_its_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    # offsets.retention.minutes: a broker forgets the offsets of a group without members that commits nothing.
    monkeypatch.setattr(loop, "_KEEPING", -1.0)
    memory, stop, turns = Memory({0: list(range(5))}), Event(), iter(range(5))

    def forgets() -> bool:
        if memory.out and next(turns, None) is None:
            stop.set()
        elif memory.out:
            memory.groups.clear()
        return False

    memory.fails = forgets
    Loop(work(memory), lambda beat: None, stop=stop).run()
    assert memory.groups["g", 0].offset == 5
