"""The engine against a Kafka in memory that fails at any call: every record once, every count exact."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.brokers.outage import OutageLog
from penstock.errors import (
    CheckpointMismatch,
    JobFailed,
    KafkaRefused,
    OffsetOutOfRange,
    ProducerFenced,
    Refused,
    UnknownSchemas,
    Unreachable,
)
from penstock.pipeline.delivery import loop, loop_run, partition_reader, range_delivery, source_cluster
from penstock.pipeline.delivery import sink as sink_module
from penstock.pipeline.delivery.loop import Loop
from penstock.pipeline.delivery.loop_run import ProgressReport
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.range_delivery import run_range, run_ranges
from penstock.pipeline.delivery.range_progress import Belonging, Owner, read_belonging
from penstock.pipeline.delivery.same_topic import refuse_other_topic
from penstock.pipeline.evaluators.kernel import batch_router

TOPIC, FETCH = "in", 3
HELD = 4
"""So many records the machine holds before it puts them out."""
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
    begun: set[str | None] = field(default_factory=set)
    """The transactional ids whose transaction is open."""
    stable: int | None = None
    """Where a transaction of another producer begins in the log that is still open."""
    fails: Callable[[], bool] = lambda: False
    settings: Any = None
    id: str | None = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def call(self) -> None:
        if self.fails():
            raise Unreachable("the broker is gone")

    def partitions(self, topic: str, *, refresh: bool = False) -> int:
        return len(self.log)

    def end(self, part: int) -> int:
        """Give where readers of committed records stop."""
        log = self.log[part]
        return len(log) if self.stable is None else min(self.stable, len(log))

    def try_refresh(self, topics: Any = ()) -> None:
        return None

    def topic_id(self, topic: str) -> str | None:
        self.call()
        return self.id


class Writer:
    """A transactional producer, or without a name one whose records count when they are flushed."""

    expired = was_refused = False

    def __init__(self, memory: Memory, name: str | None = None, **_: Any) -> None:
        self.memory, self.name, self.waiting = memory, name, list[tuple[str, int]]()
        memory.call()
        self.epoch = memory.epochs[name or ""] = memory.epochs[name or ""] + 1
        memory.begun.discard(name)

    def begin(self) -> None:
        self.waiting.clear()
        self.memory.begun.add(self.name)

    def send(self, topic: str, partition: int, body: int) -> None:
        self.memory.call()
        assert self.name is None or self.name in self.memory.begun, "written outside of a transaction"
        self.waiting.append((topic, body))

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
        self.memory.begun.discard(self.name)
        self.memory.call()  # the answer is lost, and the transaction is not

    def abort(self) -> None:
        self.waiting.clear()
        self.memory.begun.discard(self.name)

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
                until = min(at + FETCH, self.memory.end(part))
                self.at[part][0] = until
                yield SimpleNamespace(
                    topic=TOPIC,
                    partition=part,
                    first=at,
                    next_offset=until,
                    last_stable_offset=self.memory.end(part),
                    data=list(enumerate(log[at:until], at)),
                    aborted=(),
                )

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.at.setdefault(partition, [offset, None])[0] = offset

    def close(self) -> None:
        return None


class Copy:
    """A machine that sends each record on, the bad ones to the dead letters; it holds some until a flush."""

    collects = holds = is_full = False
    held: ClassVar[dict[int, int]] = {}
    limits: ClassVar[list[dict[int, int]]] = []
    """What each one was told of how large batches may be."""

    def __init__(
        self, program: Any, stage: Any, partitions: Any, put: Callable[[Any], None], **more: Any
    ) -> None:
        self.limits.append(dict(more["limits"]))
        self.counts: Counter[str] = Counter()
        self.put = put
        self.waiting: list[Any] = []

    def feed(self, data: Any, *, topic: str, partition: int, first: int, end: int, now: int) -> None:
        for offset, number in data:
            if first <= offset < end:
                bad = number % BAD == 0
                self.counts.update({"n_in": 1, "n_dead" if bad else "n_out": 1})
                self.waiting.append(SimpleNamespace(target=int(bad), partition=0, body=number))
        while len(self.waiting) > HELD:
            self.put(self.waiting.pop(0))

    def flush(self, *, now: int) -> None:
        while self.waiting:
            self.put(self.waiting.pop(0))


class Collect:
    """The same as a router that collects: a few records in each flush, and none open while it routes them."""

    collects = True
    memory: ClassVar[Memory | None] = None

    def __init__(
        self, program: Any, stage: Any, partitions: Any, put: Callable[[Any], None], **more: Any
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.put = put
        self.rows: list[tuple[int, int, int]] = []

    @property
    def holds(self) -> bool:
        return bool(self.rows)

    @property
    def held(self) -> dict[int, int]:
        return {part: offset for part, offset, _ in reversed(self.rows)}

    @property
    def is_full(self) -> bool:
        return len(self.rows) > 2 * HELD

    def feed(self, data: Any, *, topic: str, partition: int, first: int, end: int, now: int) -> None:
        self.rows += [(partition, offset, number) for offset, number in data if first <= offset < end]

    def flush(self, *, now: int) -> None:
        assert self.memory is not None
        assert not self.memory.begun, "routed while a transaction is open"
        rows, self.rows = self.rows[:HELD], self.rows[HELD:]
        for _, _, number in rows:
            bad = number % BAD == 0
            self.counts.update({"n_in": 1, "n_dead" if bad else "n_out": 1})
            self.put(SimpleNamespace(target=int(bad), partition=0, body=number))


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (range_delivery, sink_module, loop):
        monkeypatch.setattr(module, "GroupOffsets", Bookmark)
    monkeypatch.setattr(sink_module, "TransactionalProducer", Writer)
    monkeypatch.setattr(sink_module, "Producer", Writer)
    monkeypatch.setattr(source_cluster, "Fetcher", Reader)
    monkeypatch.setattr(batch_router, "BatchRouter", Copy)
    monkeypatch.setattr(partition_reader, "ReferenceBatchRouter", Collect)
    monkeypatch.setattr(partition_reader, "visible", lambda data, aborted: [data])
    monkeypatch.setattr(source_cluster, "Cluster", lambda memory, **_: memory)
    monkeypatch.setattr(
        source_cluster, "earliest", lambda memory, topic: dict.fromkeys(memory.log, memory.begin)
    )

    def latest(memory: Memory, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        return {part: memory.end(part) if read_committed else len(log) for part, log in memory.log.items()}

    monkeypatch.setattr(source_cluster, "latest", latest)


def work(memory: Memory, *, has_kernel: bool = True, **more: Any) -> Any:
    Collect.memory = memory
    targets = (SimpleNamespace(topic="out", sink=0), SimpleNamespace(topic="dead", sink=0))
    settings = {
        "exactly_once": True,
        "source_id": "c",
        "outputs": {},
        "pulsar_outputs": {},
        "progress": None,
        "has_outputs": False,
        "plan": None,
        "pulsar": None,
        "now": None,
        "on_data_loss": "stop",
        "shadow": 0,
        "belonging": Belonging(),
        **more,
    }
    return SimpleNamespace(
        program=SimpleNamespace(targets=targets, has_kernel=has_kernel, receipts=frozenset()),
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
    size=st.integers(1, 40),
    start=st.integers(0, 5),
    moments=MOMENTS,
    longest=st.sampled_from([-1.0, 9.0]),
    has_kernel=st.booleans(),
)
def test_a_range_is_done_once_whenever_it_fails(
    size: int, start: int, moments: list[int], longest: float, has_kernel: bool
) -> None:
    memory = Memory({0: list(range(start + size + 3))}, fails=failing(moments))
    span, before = OffsetRange(0, start, start + size), range_delivery._LONGEST
    range_delivery._LONGEST = longest  # type: ignore[misc]  # a transaction for each fetch, or one for all
    try:
        told: Any = work(memory, has_kernel=has_kernel)
        counts = until_it_works(lambda: run_range(told, span, memory))  # type: ignore[arg-type]
        again = until_it_works(lambda: run_range(told, span, memory))  # type: ignore[arg-type]
    finally:
        range_delivery._LONGEST = before  # type: ignore[misc]
    numbers = range(start, start + size)
    assert memory.out == [number for number in numbers if number % BAD]
    assert memory.dead == [number for number in numbers if not number % BAD]
    assert (counts["n_in"], counts["n_dead"]) == (size, len(memory.dead))
    assert again == counts


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    moments=MOMENTS,
    longest=st.sampled_from([-1.0, 9.0]),
    has_kernel=st.booleans(),
)
def test_a_loop_does_everything_once_whenever_it_fails(
    sizes: list[int], moments: list[int], longest: float, has_kernel: bool
) -> None:
    log = {part: [1000 * part + number for number in range(size)] for part, size in enumerate(sizes)}
    memory = Memory(log, fails=failing(moments))
    beats: list[ProgressReport] = []
    before = loop_run._LONGEST
    loop_run._LONGEST = longest  # type: ignore[misc]  # a transaction for each fetch, or one for all
    try:
        told = work(memory, has_kernel=has_kernel)
        until_it_works(lambda: Loop(told, beats.append, stop=Event(), once=True).run())
    finally:
        loop_run._LONGEST = before  # type: ignore[misc]
    for part, records in log.items():
        assert [each for each in memory.out if each // 1000 == part] == [
            each for each in records if each % BAD
        ]
        assert [each for each in memory.dead if each // 1000 == part] == [
            each for each in records if not each % BAD
        ]


def test_without_transactions_nothing_is_lost() -> None:
    # More moments than there are calls: each of them fails once.
    for moment in range(60):
        memory = Memory({0: list(range(20))}, fails=failing([moment]))
        span = OffsetRange(0, 0, 20)
        until_it_works(lambda: run_range(work(memory, exactly_once=False), span, memory))  # type: ignore[arg-type]  # noqa: B023
        assert {*memory.out, *memory.dead} == set(range(20))


@pytest.mark.parametrize("longest", [-1.0, 9.0])
@pytest.mark.parametrize("is_loop", [False, True])
def test_what_fails_leaves_no_transaction_open(
    is_loop: bool, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed records would wait for its time-out, and whoever asks for the marks too."""
    for module in (range_delivery, loop_run):
        monkeypatch.setattr(module, "_LONGEST", longest)
    span, seen = OffsetRange(0, 0, 20), 0
    for moment in range(60):
        memory = Memory({0: list(range(20))}, fails=failing([moment]))
        try:
            if is_loop:
                Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
            else:
                run_range(work(memory), span, memory)  # type: ignore[arg-type]
        except Unreachable:
            seen += bool(memory.epochs)
        assert memory.begun == set()
    assert seen > 10, "few of the failures were in a transaction"


def test_once_does_not_wait_for_an_open_transaction_of_somebody_else() -> None:
    """What is behind its beginning is not there yet: the next run has it."""
    memory, stop, calls = Memory({0: list(range(1, 20))}, stable=12), Event(), iter(range(1000))

    def fails() -> bool:
        if next(calls, None) is None:
            stop.set()
        return False

    memory.fails = fails
    Loop(work(memory), lambda beat: None, stop=stop, once=True).run()
    assert not stop.is_set(), "it waits for what cannot come"
    assert sorted((*memory.out, *memory.dead)) == list(range(1, 13))
    memory.stable = None
    Loop(work(memory), lambda beat: None, stop=stop, once=True).run()
    assert sorted((*memory.out, *memory.dead)) == list(range(1, 20))


def test_who_was_shut_out_cannot_commit() -> None:
    memory = Memory({0: list(range(20))})
    old = sink_module.TransactionalSink(work(memory), memory, "0")  # type: ignore[arg-type]
    old.put(SimpleNamespace(target=0, partition=0, body=1))  # type: ignore[arg-type]
    run_range(work(memory), OffsetRange(0, 0, 20), memory)  # type: ignore[arg-type]
    with pytest.raises(ProducerFenced):
        old.commit({})
    assert Counter([*memory.out, *memory.dead]) == Counter(range(20))


def test_a_partition_that_is_cut_is_refused_where_its_marks_matter() -> None:
    memory = Memory({0: list(range(20))})
    halves = [OffsetRange(0, 0, 10, is_cut=True), OffsetRange(0, 10, 20, is_cut=True)]
    for one in (halves, halves[:1]):
        with pytest.raises(Refused, match="cut"):
            run_ranges(work(memory), one)
    with pytest.raises(Refused, match="cut"):
        run_ranges(work(memory, exactly_once=False), [OffsetRange(0, 0, 10), OffsetRange(0, 10, 20)])
    assert memory.out == []
    assert run_ranges(work(memory, exactly_once=False), halves)["n_in"] == 20


def test_the_parts_of_a_partition_do_not_take_the_marks_of_others_for_their_own() -> None:
    """The second half is done first; the first one fails at each of its moments, and is done again."""
    first, second = OffsetRange(0, 0, 10, is_cut=True), OffsetRange(0, 10, 20, is_cut=True)
    for moment in range(40):
        memory = Memory({0: list(range(20))})
        run_range(work(memory, exactly_once=False), second, memory)  # type: ignore[arg-type]
        assert {*memory.out, *memory.dead} == set(range(10, 20))
        memory.fails = failing([moment])
        found = until_it_works(lambda: run_range(work(memory, exactly_once=False), first, memory))  # type: ignore[arg-type]  # noqa: B023
        assert {*memory.out, *memory.dead} == set(range(20))
        assert found["n_in"] == 10
        memory.fails = lambda: False
        assert Bookmark(memory, "g").committed(TOPIC) == {}


def test_a_part_is_done_as_a_whole_whatever_was_marked_before() -> None:
    """The mark is of a run that did not cut; its counts are of another range."""
    memory = Memory({0: list(range(20))})
    Bookmark(memory, "g").commit({(TOPIC, 0): GroupOffset(5, "")})
    part = OffsetRange(0, 0, 10, is_cut=True)
    assert run_range(work(memory, exactly_once=False), part, memory)["n_in"] == 10  # type: ignore[arg-type]
    assert {*memory.out, *memory.dead} == set(range(10))


def test_records_that_are_gone_stop_a_range_or_are_counted() -> None:
    memory = Memory({0: list(range(20))}, begin=8)
    with pytest.raises(JobFailed, match="OffsetOutOfRange"):
        run_range(work(memory), OffsetRange(0, 5, 12), memory)  # type: ignore[arg-type]
    allowed = work(memory, on_data_loss="continue")
    counts = run_range(allowed, OffsetRange(0, 5, 12), memory)  # type: ignore[arg-type]
    assert (counts["n_lost"], counts["n_in"]) == (3, 4)
    # A range that is gone as a whole is done: nothing of it can come any more.
    memory.begin = 20
    assert run_range(allowed, OffsetRange(0, 12, 18), memory)["n_lost"] == 6  # type: ignore[arg-type]


def test_a_topic_that_lost_its_end_stops_a_range_whatever_is_allowed() -> None:
    memory = Memory({0: list(range(3))})
    with pytest.raises(JobFailed, match="ends at 3"):
        run_range(work(memory, on_data_loss="continue"), OffsetRange(0, 5, 9), memory)  # type: ignore[arg-type]


def test_a_loop_that_is_shut_out_says_so() -> None:
    memory = Memory({0: list(range(5))})
    taken = iter([None])

    def takes_over() -> bool:
        # Somebody else begins under the same name while this one is at work.
        if memory.epochs and next(taken, False) is None:
            memory.epochs["g/c/in/loop"] += 1
        return False

    memory.fails = takes_over
    with pytest.raises(JobFailed, match="took over"):
        Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
    assert memory.out == []


def away_for(memory: Memory, failures: int, stop: Event) -> Callable[[], bool]:
    """Fail so often in a row after the first record, then work, and end when all is done."""
    left = iter(range(failures))

    def fails() -> bool:
        if {*memory.out, *memory.dead} == set(memory.log[0]):
            stop.set()
        return bool(memory.out) and next(left, None) is not None

    return fails


def test_a_loop_without_an_end_goes_on_when_its_cluster_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.001)
    memory, stop = Memory({0: list(range(1, 40))}), Event()
    memory.fails = away_for(memory, 8, stop)
    Loop(work(memory), lambda beat: None, stop=stop, anew=True).run()
    assert Counter([*memory.out, *memory.dead]) == Counter(range(1, 40))
    assert memory.groups["g", 0].offset == 39
    assert len([each for each in caplog.records if "lost" in each.getMessage()]) == 1


@pytest.mark.parametrize(("later", "reason"), [(1.0, None), (90.0, "loading")])
def test_a_coordinator_that_loads_is_a_part_of_the_return_of_its_cluster(
    later: float, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that passes is a new outage only if the last one ended a while ago."""
    now, found = 0.0, list[str | None]()
    outage = OutageLog(logging.getLogger("test"), "kafka", clock=lambda: now)
    refused = KafkaRefused("loading", error_code=14, retriable=True)
    runs: Iterator[Exception | None] = iter([refused, None])

    def run_once(self: Loop) -> None:
        if (failure := next(runs)) is not None:
            raise failure
        found.append(outage.reason)

    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(Loop, "_run_once", run_once)
    outage.failed("connection refused")
    outage.worked()
    now = later
    Loop(work(Memory({})), lambda beat: None, stop=Event(), outage=outage).run()
    assert found == [reason]
    assert outage.seconds_since_end == later


@pytest.mark.parametrize("end", [{"once": True}, {"until_idle": 60.0}])
def test_a_loop_with_an_end_gives_up(end: dict[str, Any]) -> None:
    memory, stop = Memory({0: list(range(1, 40))}), Event()
    memory.fails = away_for(memory, 8, stop)
    with pytest.raises(Unreachable):
        Loop(work(memory), lambda beat: None, stop=stop, **end).run()


def test_a_loop_ends_when_it_is_asked_to_while_its_cluster_is_away(caplog: pytest.LogCaptureFixture) -> None:
    memory, stop = Memory({0: list(range(5))}), Event()

    def fails() -> bool:
        stop.set()
        return True

    memory.fails = fails
    Loop(work(memory), lambda beat: None, stop=stop).run()
    assert "done again by the next run" in caplog.text


@pytest.mark.parametrize("rival", [False, True])
def test_a_loop_whose_transaction_took_too_long_goes_on_unless_another_one_took_over(
    rival: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, stop, commits = Memory({0: list(range(1, 6))}), Event(), iter(range(9))

    class Slow(Writer):
        expired = True

        def commit(self, **what: Any) -> None:
            if next(commits, None) == 1:
                if rival:
                    memory.groups["g", 0] = GroupOffset(0, '{"start":0,"counts":{},"run":"other"}')
                raise ProducerFenced("fenced", error_code=47)
            super().commit(**what)
            if memory.out:
                stop.set()

    monkeypatch.setattr(sink_module, "TransactionalProducer", Slow)
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.001)
    running = Loop(work(memory), lambda beat: None, stop=stop)
    if rival:
        with pytest.raises(JobFailed, match="another loop took over"):
            running.run()
    else:
        running.run()
    assert memory.out == ([] if rival else [1, 2, 3, 4, 5])


def test_a_loop_with_nothing_to_do_keeps_its_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    # offsets.retention.minutes: a broker forgets the offsets of a group without members that commits nothing.
    monkeypatch.setattr(loop_run, "_KEEPING", -1.0)
    memory, stop, turns = Memory({0: list(range(5))}), Event(), iter(range(5))

    def forgets() -> bool:
        is_idle = len(memory.out) + len(memory.dead) == 5
        if is_idle and next(turns, None) is None:
            stop.set()
        elif is_idle:
            memory.groups.clear()
        return False

    memory.fails = forgets
    Loop(work(memory), lambda beat: None, stop=stop).run()
    assert memory.groups["g", 0].offset == 5


# Whose the marks are

FIRST = Belonging(Owner.of(None, [("large", "k/out")]))
SECOND = Belonging(Owner.of(None, [("small", "k/out")]))


def looped(memory: Memory, belonging: Belonging, **options: Any) -> None:
    Loop(work(memory, belonging=belonging), lambda beat: None, stop=Event(), once=True, **options).run()


def test_a_loop_of_another_pipeline_does_not_take_the_place_of_the_first() -> None:
    memory = Memory({0: list(range(1, 6))})
    looped(memory, FIRST)
    with pytest.raises(CheckpointMismatch, match="another pipeline") as caught:
        looped(memory, SECOND)
    assert "the pipeline with the routes large" in str(caught.value.why)
    assert "the pipeline with the routes small" in str(caught.value.why)
    assert memory.out == list(range(1, 6))


def test_it_belongs_to_a_pipeline_before_the_first_record() -> None:
    memory = Memory({0: [], 1: []})
    beats: list[ProgressReport] = []
    Loop(work(memory, belonging=FIRST), beats.append, stop=Event(), once=True).run()
    assert beats == []
    assert {read_belonging(mark.metadata).owner for mark in memory.groups.values()} == {FIRST.owner}
    assert [mark.offset for mark in memory.groups.values()] == [0, 0]
    with pytest.raises(CheckpointMismatch):
        looped(memory, SECOND)


def test_another_pipeline_takes_over_if_that_is_wanted_and_goes_on_there() -> None:
    memory = Memory({0: list(range(1, 4))})
    looped(memory, FIRST)
    memory.log[0] += [4, 5]
    looped(memory, SECOND, take_over=True)
    assert memory.out == [1, 2, 3, 4, 5]
    with pytest.raises(CheckpointMismatch):
        looped(memory, FIRST)


@pytest.mark.parametrize(
    "text", ["", '{"start":3,"counts":{}}', "no json", '{"by":5}', '{"by":{"name":1}}', "[]"]
)
def test_marks_of_an_older_version_or_of_a_tool_are_taken_as_ones_own(text: str) -> None:
    memory = Memory({0: list(range(1, 6))}, groups={("g", 0): GroupOffset(3, text)})
    looped(memory, FIRST)
    assert memory.out == [4, 5]
    assert read_belonging(memory.groups["g", 0].metadata).owner == FIRST.owner


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (Owner.of("a", [("r", "out")]), Owner.of("a", [("s", "other")]), True),
        (Owner.of("a", [("r", "out")]), Owner.of("b", [("r", "out")]), False),
        (Owner.of(None, [("r", "out")]), Owner.of("b", [("r", "out")]), True),
        (Owner.of(None, [("r", "out"), ("s", "out")]), Owner.of(None, [("s", "out"), ("t", "x")]), True),
        (Owner.of(None, [("r", "out")]), Owner.of(None, [("r", "other")]), False),
        (Owner.of(None, [("r", "out")]), Owner.of(None, [("s", "out")]), False),
    ],
)
def test_which_pipelines_are_the_same(old: Owner, new: Owner, same: bool) -> None:
    assert new.is_same(old) is same
    assert old.is_same(new) is same


def test_whose_a_mark_is_fits_beside_an_offset_however_many_routes_there_are() -> None:
    routes = [(f"{chr(0x1F600)}-{number}-{'x' * 50}", f"server/{'topic' * 40}") for number in range(500)]
    own = Owner.of("n" * 100, routes)
    counts = {f"n_{number}": 2**60 for number in range(12)}
    text = loop_run.RangeProgress(2**60, 2**60, counts, Belonging(own, "A" * 22).text).text
    assert len(text.encode()) < 4096
    found = read_belonging(text)
    assert found.owner is not None
    assert (found.owner.name, found.owner.label, found.topic_id) == (own.name, own.label, "A" * 22)


def kept(owner: Owner) -> Owner:
    """Give an owner as a mark has it."""
    found = read_belonging(loop_run.RangeProgress(0, 0, more=Belonging(owner).text).text).owner
    assert found is not None
    return found


def test_any_of_a_hundred_routes_is_enough_to_know_a_pipeline_by() -> None:
    routes = [(f"route-{number}", "k/out") for number in range(100)]
    whole = Owner.of(None, routes)
    assert kept(whole) == whole
    for route in routes:
        assert Owner.of(None, [route]).is_same(kept(whole))


def test_a_pipeline_that_grows_stays_the_same_however_many_routes_it_gets() -> None:
    routes = [(f"route-{number}", "k/out") for number in range(1000)]
    whole = Owner.of(None, routes)
    assert whole.is_same(kept(whole))
    assert all(whole.is_same(kept(Owner.of(None, [route]))) for route in routes)


# Topics that are deleted and made again


def test_a_topic_that_is_made_again_while_a_loop_reads_it_ends_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_run, "_GROWTH", -1.0)
    memory = Memory({0: list(range(1, 6))}, id="old")
    turns = iter(range(20))

    def remade() -> bool:
        if next(turns, None) == 10:
            memory.id = "new"
        return False

    memory.fails = remade
    running = Loop(work(memory, belonging=Belonging(topic_id="old")), lambda beat: None, stop=Event())
    with pytest.raises(JobFailed, match="made again") as caught:
        running.run()
    assert caught.value.next is not None
    assert "--fresh-checkpoint" in caught.value.next


@pytest.mark.parametrize("found", [None, "old"])
def test_a_topic_that_is_the_same_or_away_for_a_moment_is_none_of_it(found: str | None) -> None:
    memory: Any = Memory({}, id=found)
    refuse_other_topic(memory, TOPIC, "old")
    refuse_other_topic(memory, TOPIC, None)
    memory.fails = lambda: True
    refuse_other_topic(memory, TOPIC, "other")


@pytest.mark.parametrize("retriable", [True, False])
def test_a_refusal_for_good_is_told_and_another_is_waited_out(retriable: bool) -> None:
    class Refusing(Memory):
        def topic_id(self, topic: str) -> str | None:
            raise KafkaRefused("no", error_code=29, retriable=retriable)

    memory: Any = Refusing({})
    if retriable:
        refuse_other_topic(memory, TOPIC, "old")
    else:
        with pytest.raises(KafkaRefused):
            refuse_other_topic(memory, TOPIC, "old")


def test_an_id_that_is_computed_from_the_name_ends_no_loop_when_a_gateway_is_upgraded() -> None:
    memory: Any = Memory({}, id="z1F125UNQMKaAbNdytGHag")
    refuse_other_topic(memory, TOPIC, "b2vUrm8MWl6ahl8NWx2aUw")


# Refused records


class Refusing(Writer):
    """Refuses what it is given, when it is flushed or committed, if 5 is among it."""

    refusals: ClassVar[Counter[str]] = Counter()

    def _look(self) -> None:
        if any(body == 5 for _, body in self.waiting):
            self._refuse()

    def _refuse(self) -> None:
        self.refusals["n"] += 1
        assert self.refusals["n"] < 10, "the same again and again"
        self.was_refused = True
        raise KafkaRefused("a batch was refused", error_code=87)

    def flush(self) -> None:
        self._look()
        super().flush()

    def commit(self, *, group: str, offsets: Mapping[tuple[str, int], GroupOffset]) -> None:
        self._look()
        super().commit(group=group, offsets=offsets)

    def abort(self) -> None:
        super().abort()
        self.was_refused = False

    def settle(self) -> None:
        self.waiting.clear()


class RefusingAtOnce(Refusing):
    """Hears of the refusal while a fetch is still being fed."""

    def send(self, topic: str, partition: int, body: int) -> None:
        super().send(topic, partition, body)
        self._look()


LEARNT = {0: 500}
"""What narrowing finds out about the size of batches."""


@pytest.fixture(params=[Refusing, RefusingAtOnce])
def redone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The ranges that were narrowed; each is done at once."""
    found: list[tuple[int, int, int]] = []

    def redo(
        work: Any, memory: Memory, outlet: Any, part: int, start: int, end: int, commit: Any, clock: Any
    ) -> Any:
        found.append((part, start, end))
        memory.out += [number for number in memory.log[part][start:end] if number != 5]
        memory.dead.append(5)
        commit(end, {"n_in": end - start, "n_dead": 1})
        return LEARNT

    for module in (range_delivery, loop_run):
        monkeypatch.setattr(module, "redo", redo)
    monkeypatch.setattr(sink_module, "Producer", request.param)
    monkeypatch.setattr(sink_module, "TransactionalProducer", request.param)
    monkeypatch.setattr(Refusing, "refusals", Counter())
    monkeypatch.setattr(Copy, "limits", [])
    return found


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_loop_narrows_the_one_short_transaction_that_is_refused(
    redone: list[tuple[int, int, int]], exactly_once: bool
) -> None:
    """Without transactions the refusal comes with the last commit, behind which nothing is left to read."""
    memory = Memory({0: [1, 2, 3, 4, 5, 6, 8, 9, 10]})
    counts: Counter[str] = Counter()

    def tell(beat: ProgressReport) -> None:
        counts.update(beat.counts)

    Loop(work(memory, exactly_once=exactly_once), tell, stop=Event(), once=True).run()
    assert redone == [(0, 3, 6)]
    assert (memory.out, memory.dead) == ([1, 2, 3, 4, 6, 8, 9, 10], [5])
    assert memory.groups["g", 0].offset == 9
    assert (counts["n_in"], counts["n_dead"]) == (9, 1)
    # In short transactions first, then behind what was narrowed; from there on batches are smaller.
    assert Copy.limits == [{}, {}, LEARNT]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_range_narrows_the_one_short_transaction_that_is_refused(
    redone: list[tuple[int, int, int]], exactly_once: bool
) -> None:
    memory: Any = Memory({0: [1, 2, 3, 4, 5, 6, 8, 9, 10]})
    counts = run_range(work(memory, exactly_once=exactly_once), OffsetRange(0, 0, 9), memory)
    assert redone == [(0, 3, 6)]
    assert (memory.out, memory.dead) == ([1, 2, 3, 4, 6, 8, 9, 10], [5])
    assert (counts["n_in"], counts["n_dead"]) == (9, 1)
    assert Copy.limits == [{}, {}, LEARNT]


@pytest.mark.parametrize("by_loop", [False, True])
def test_a_refusal_in_the_middle_of_a_fetch_is_narrowed_with_that_fetch(
    redone: list[tuple[int, int, int]], by_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fed last is not behind us yet, and is among what was refused."""
    monkeypatch.setitem(globals(), "HELD", 0)
    memory: Any = Memory({0: [1, 2, 3, 4, 5, 6, 8, 9, 10]})
    if by_loop:
        Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
    else:
        run_range(work(memory), OffsetRange(0, 0, 9), memory)
    assert redone == [(0, 3, 6)]
    assert (memory.out, memory.dead) == ([1, 2, 3, 4, 6, 8, 9, 10], [5])


def test_what_lies_behind_a_range_is_not_narrowed_with_it(redone: list[tuple[int, int, int]]) -> None:
    """A fetch has whole batches, also beyond the end."""
    memory: Any = Memory({0: [1, 2, 3, 4, 5, 6, 8, 9, 10]})
    counts = run_range(work(memory), OffsetRange(0, 0, 5), memory)
    assert redone == [(0, 3, 5)]
    assert (memory.out, memory.dead, counts["n_in"]) == ([1, 2, 3, 4], [5], 5)
    assert memory.groups["g", 0].offset == 5


def test_records_that_are_gone_are_counted_once_though_others_are_refused(
    redone: list[tuple[int, int, int]],
) -> None:
    memory: Any = Memory({0: [1, 2, 3, 5, 6, 8]}, begin=2)
    counts = run_range(work(memory, on_data_loss="continue"), OffsetRange(0, 0, 6), memory)
    assert redone != []
    assert (counts["n_lost"], counts["n_in"]) == (2, 4)


def test_time_that_was_lost_with_a_refusal_is_no_silence(
    redone: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(range_delivery, "monotonic", lambda: now[0])
    refuse = Refusing._refuse

    def refuse_late(self: Refusing) -> None:
        now[0] += 2 * range_delivery._PATIENCE
        refuse(self)

    monkeypatch.setattr(Refusing, "_refuse", refuse_late)
    memory: Any = Memory({0: [1, 2, 3, 4, 5, 6]})
    assert run_range(work(memory), OffsetRange(0, 0, 6), memory)["n_in"] == 6


def test_a_new_partition_is_among_those_that_are_gone_back_to() -> None:
    memory: Any = Memory({0: [1, 2], 1: [3]})
    found = partition_reader.PartitionReader(work(memory), memory, lambda output: None, {0: 2})
    found.add(1)
    assert found.reached == found.positions == {0: 2, 1: 0}


class Little(Copy):
    """Has room for one record at a time."""

    def feed(self, data: Any, *, topic: str, partition: int, first: int, end: int, now: int) -> int | None:
        asked = [(offset, number) for offset, number in data if first <= offset < end]
        super().feed(asked[:1], topic=topic, partition=partition, first=first, end=end, now=now)
        return asked[1][0] if len(asked) > 1 else None


def test_what_a_router_has_no_room_for_is_fetched_again() -> None:
    memory: Any = Memory({0: [1, 2, 3, 4, 5, 6, 7]})
    put: list[Any] = []
    router = Little(None, None, None, put.append, limits={})
    found = partition_reader.PartitionReader(work(memory), memory, router, {0: 1}, {0: 6})
    seen = []
    while found.waiting:
        assert found.poll(0.0)
        seen.append((found.done, found.reached))
    router.flush(now=0)
    assert [row.body for row in put] == [2, 3, 4, 5, 6]
    assert seen == [({0: at}, {0: at}) for at in range(2, 7)]


class Denied(Refusing):
    """Is refused for another reason than its records."""

    def _look(self) -> None:
        raise KafkaRefused("no right", error_code=29)


@pytest.mark.parametrize("by_loop", [False, True])
def test_a_refusal_that_is_not_for_the_sake_of_records_is_not_narrowed(
    redone: list[tuple[int, int, int]], by_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "TransactionalProducer", Denied)
    memory: Any = Memory({0: [1, 2, 3]})
    with pytest.raises(KafkaRefused, match="no right"):
        if by_loop:
            Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
        else:
            run_range(work(memory), OffsetRange(0, 0, 3), memory)
    assert redone == []


class Unreadable(Collect):
    """Meets a schema that is not known until it was learnt."""

    known: ClassVar[set[str]] = set()

    def flush(self, *, now: int) -> None:
        if self.rows and not self.known:
            raise UnknownSchemas("onOrder", ["id:5"])
        super().flush(now=now)


@pytest.mark.parametrize("once", [False, True])
def test_schemas_that_records_name_are_looked_up_and_a_registry_that_is_away_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, once: bool
) -> None:
    monkeypatch.setattr(partition_reader, "ReferenceBatchRouter", Unreadable)
    monkeypatch.setattr(Unreadable, "known", set())
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.001)
    memory, stop, asked = Memory({0: list(range(1, 5))}), Event(), list[str]()
    told = work(memory, has_kernel=False)

    def learnt(unknown: UnknownSchemas) -> Any:
        asked.extend(unknown.tokens)
        if len(asked) < 3:
            raise Unreachable("the registry does not answer")
        Unreadable.known.add("id:5")
        return told

    outage = OutageLog(logging.getLogger("penstock.test"), "registry")
    running = Loop(told, lambda _: stop.set(), stop=stop, once=once, outage=outage, learnt=learnt)
    if once:
        # It has an end, and who started it sees why it cannot be reached.
        with pytest.raises(Unreachable):
            running.run()
        assert (memory.out, asked) == ([], ["id:5"])
        return
    running.run()
    assert (memory.out, asked, outage.reason) == ([1, 2, 3, 4], ["id:5"] * 3, None)
    assert "the registry does not answer" in caplog.text


@pytest.mark.parametrize("has_kernel", [True, False])
def test_once_ends_although_the_topic_gets_a_partition_meanwhile(
    monkeypatch: pytest.MonkeyPatch, has_kernel: bool
) -> None:
    """What a partition that came later has is not of this run, which would never end with it."""
    monkeypatch.setattr(loop_run, "_GROWTH", 0.0)
    memory, calls = Memory({0: list(range(1, 60))}), iter(range(10**9))

    def grows() -> bool:
        if next(calls) == 8:
            memory.log[1] = [1001, 1002]
        return False

    memory.fails = grows
    Loop(work(memory, has_kernel=has_kernel), lambda beat: None, stop=Event(), once=True).run()
    assert 1 in memory.log, "it got one while this ran"
    assert sorted(memory.out + memory.dead) == list(range(1, 60))


def test_idle_is_not_who_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that leads the partition is silent, and then answers: until then nothing is known."""
    memory, silent = Memory({0: list(range(1, 60))}), iter(range(30))

    class Silent(Reader):
        def poll(self, timeout: float) -> Iterator[Any]:
            return super().poll(timeout) if next(silent, None) is None else iter(())

    monkeypatch.setattr(source_cluster, "Fetcher", Silent)
    Loop(work(memory), lambda beat: None, stop=Event(), until_idle=0.0).run()
    assert sorted(memory.out + memory.dead) == list(range(1, 60))


class Leaves(Copy):
    """A machine that takes a record at a time: the rest of a fetch is left for the next transaction."""

    is_spent = False

    @property
    def is_full(self) -> bool:  # type: ignore[override]
        return self.is_spent

    def feed(self, data: Any, *, topic: str, partition: int, first: int, end: int, now: int) -> int | None:
        if self.is_spent:
            return first
        rows = [row for row in data if row[0] >= first]
        super().feed(rows[:1], topic=topic, partition=partition, first=first, end=end, now=now)
        self.is_spent = True
        return first + 1 if len(rows) > 1 else None

    def flush(self, *, now: int) -> None:
        super().flush(now=now)
        self.is_spent = False


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_a_full_machine_leaves_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(batch_router, "BatchRouter", Leaves)
    memory = Memory({part: list(range(100 * part + 1, 100 * part + 20)) for part in range(partitions)})
    wanted = sorted(number for log in memory.log.values() for number in log)
    Loop(work(memory), lambda beat: None, stop=Event(), once=True).run()
    assert sorted(memory.out + memory.dead) == wanted
    memory.out, memory.dead, memory.groups = [], [], {}
    counts = run_ranges(work(memory), [OffsetRange(part, 0, 19) for part in range(partitions)])
    assert (counts["n_in"], sorted(memory.out + memory.dead)) == (len(wanted), wanted)


def test_a_transaction_of_a_task_that_took_too_long_is_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Writer):
        def commit(self, **_: Any) -> None:
            self.expired = True
            raise ProducerFenced("the transaction is over", error_code=90)

    monkeypatch.setattr(sink_module, "TransactionalProducer", Late)
    with pytest.raises(Unreachable, match="took longer") as caught:
        run_ranges(work(Memory({0: [1, 2, 3]})), [OffsetRange(0, 0, 3)])
    assert "ProducerFenced" not in "".join(traceback.format_exception(caught.value))
