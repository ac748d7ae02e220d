"""In which order a fan-out to Kafka and Pulsar commits, and what its marks keep; the clusters are fakes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.errors import ProducerFenced
from penstock.pipeline.delivery import kafka_sink, range_delivery
from penstock.pipeline.delivery import loop as loop_module
from penstock.pipeline.delivery import loop_run as loop_run_module
from penstock.pipeline.delivery.kafka_sink import (
    FanOut,
    RepeatableProgress,
    Resumption,
    committed_marks,
    resume,
)
from penstock.pipeline.delivery.loop import Loop
from penstock.pipeline.delivery.loop_run import LoopRun
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.progress import ProgressKey, PulsarProgress
from penstock.pipeline.delivery.pulsar.placement import Placement, read_placement, target_key
from penstock.pipeline.delivery.range_clock import OpenRange, RangeClock, read_moment, read_open_range
from penstock.pipeline.delivery.range_progress import RangeProgress, read_mark
from penstock.pipeline.delivery.sink import IdempotentSink
from penstock.pipeline.delivery.source_cluster import SourceCluster
from penstock.pipeline.evaluators.kernel.batch_builder import Output
from penstock.wire.kafka.batch_body import BatchBody

PULSAR = SimpleNamespace(sink=1, topic="p")
KAFKA = SimpleNamespace(sink=0, topic="k")
KEY = target_key(PULSAR)  # type: ignore[arg-type]


class _Refused(Exception):
    """Kafka does not take a batch."""


class Transaction:
    """A transaction on Kafka."""

    expired = was_refused = False

    def __init__(self, fakes: Fakes, *_: object) -> None:
        self._fakes = fakes

    def close(self) -> None:
        pass

    def restart(self) -> None:
        pass

    def put(self, output: Output) -> None:
        pass

    def offer(self, output: Output) -> None:
        pass

    def flush(self) -> None:
        self._fakes.done.append("kafka has everything")
        if self._fakes.refuses:
            raise _Refused

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        self._fakes.done += ("commit", *(mark.text for mark in marks.values()))


class PulsarFake:
    """What writes to Pulsar."""

    was_refused = False

    def __init__(self, fakes: Fakes, *_: object, exactly_once: bool, check: object = None) -> None:
        self._fakes = fakes

    def restart(self) -> None:
        pass

    def flush(self) -> None:
        self._fakes.done.append("pulsar has everything")

    def place(self, partition: int, placement: Placement, first: int, *, begun: bool) -> None:
        self._fakes.placements.append(placement)
        self._fakes.done.append((partition, first, begun))

    def adopt(self, partitions: Mapping[str, int]) -> None:
        self._fakes.done.append(("adopt", dict(partitions)))

    def committed(self, offsets: Mapping[int, int], since: Mapping[int, int]) -> None:
        self._fakes.times.append(dict(since))


class Fakes:
    """Notes what is done, in its order; `partitions` is how many the target on Pulsar has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.partitions = 2
        self.refuses = False
        self.placements: list[Placement] = []
        self.times: list[dict[int, int]] = []
        monkeypatch.setattr(kafka_sink, "SourceSink", partial(Transaction, self))
        monkeypatch.setattr(kafka_sink, "PulsarOutput", partial(PulsarFake, self))

    def fan_out(self, *targets: Any, letters: Any = None) -> FanOut:
        """`letters` is the target with the dead letters of a route that calls a function."""
        routes = () if letters is None else (SimpleNamespace(dead=letters, invoker=object()),)
        work: Any = SimpleNamespace(
            program=SimpleNamespace(targets=targets, receipts=frozenset()),
            stage=SimpleNamespace(routes=routes),
            plan="p",
            pulsar=None,
            progress=None,
            pulsar_outputs={1: None},
            is_repeatable=True,
            topic="in",
            group="g",
        )
        cluster: Any = SimpleNamespace(
            pulsar=lambda sink: None, fixed_partitions={}, pulsar_partitions=lambda target: self.partitions
        )
        return FanOut(work, cluster, "0")


def partitions_in(text: str) -> Mapping[str, int]:
    kept = read_placement(text)
    assert kept is not None
    return kept.partitions


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return Fakes(monkeypatch)


@pytest.mark.parametrize(("targets", "every"), [([PULSAR], 1.0), ([PULSAR, KAFKA], 0.0)])
def test_pulsar_has_everything_before_the_mark(fakes: Fakes, targets: list[Any], every: float) -> None:
    fan_out = fakes.fan_out(*targets)
    assert fan_out.every == every
    fan_out.place(0, None, 5)
    fakes.done.clear()
    fan_out.commit({0: RangeProgress(5, 9)})
    assert fakes.done[:3] == ["pulsar has everything", "kafka has everything", "commit"]


def test_the_number_of_partitions_is_that_of_the_mark(fakes: Fakes) -> None:
    first = fakes.fan_out(PULSAR)
    assert not first.place(0, None, 5), "a mark has to say it before the first record"
    first.commit({0: RangeProgress(5, 5)})
    text = fakes.done[-1]
    kept = read_placement(text)
    assert kept is not None and kept.partitions == {KEY: 2}
    fakes.partitions = 4
    second = fakes.fan_out(PULSAR)
    fakes.done.clear()
    assert second.place(0, GroupOffset(5, text), 5)
    assert fakes.done == [(0, 5, True)]
    assert (fakes.placements[-1].partitions, fakes.placements[-1].token) == ({KEY: 2}, kept.token)
    second.commit({0: RangeProgress(5, 7)})
    assert partitions_in(fakes.done[-1]) == {KEY: 2}
    assert second.adopt_partitions()
    second.commit({0: RangeProgress(5, 9)})
    assert ("adopt", {KEY: 4}) in fakes.done
    assert partitions_in(fakes.done[-1]) == {KEY: 4}
    assert not second.adopt_partitions()


def kept_at(since: int) -> GroupOffset:
    return GroupOffset(0, f'{{"pulsar":{{"token":"t","since":{since},"partitions":{{"{KEY}":0}}}}}}')


def time_in(text: str) -> int:
    kept = read_placement(text)
    assert kept is not None and kept.since is not None
    return kept.since


def test_a_mark_keeps_its_time_until_it_passes_what_may_be_stored(fakes: Fakes) -> None:
    """A start that only claimed made the mark younger than the records behind it, which were not found."""
    fan_out, then = fakes.fan_out(PULSAR), 1_000_000
    assert fan_out.place(0, kept_at(then), 0)
    found = []
    for offset in (0, 50):
        fan_out.commit({0: RangeProgress(0, offset)})
        found.append(time_in(fakes.done[-1]))
    fan_out.stored_before({0: 70})
    for offset in (60, 70):
        fan_out.commit({0: RangeProgress(0, offset)})
        found.append(time_in(fakes.done[-1]))
    assert found[:3] == [then] * 3
    assert abs(found[3] - 1000 * time.time()) < 60_000
    assert fakes.times == [{0: each} for each in found], "sinks are opened by what the mark says"


def test_the_claim_of_a_loop_keeps_the_time_of_its_mark(fakes: Fakes) -> None:
    fan_out, then = fakes.fan_out(PULSAR), 1_000_000
    assert fan_out.place(0, kept_at(then), 0)
    run = LoopRun.__new__(LoopRun)
    run._outlet, run._more, run._may_be_stored = fan_out, "", {}
    run._feed = SimpleNamespace(positions={0: 0})  # type: ignore[assignment]
    run.wait_to_adopt({0: 10})
    run.claim({}, {})
    assert time_in(fakes.done[-1]) == then


def test_what_was_never_begun_has_the_time_of_each_mark(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(1, 9))
    monkeypatch.setattr(kafka_sink, "_milliseconds", lambda: next(moments))
    fan_out = fakes.fan_out(PULSAR)
    fan_out.place(0, None, 0)
    fan_out.commit({0: RangeProgress(0, 0)})
    assert time_in(fakes.done[-1]) == 1
    fan_out.stored_before({0: 20})
    for offset, since in ((10, 1), (20, 3)):
        fan_out.commit({0: RangeProgress(0, offset)})
        assert time_in(fakes.done[-1]) == since


@pytest.mark.parametrize("is_old", [True, False])
def test_a_mark_is_written_for_its_time_only_if_that_is_old(fakes: Fakes, is_old: bool) -> None:
    since = 5 if is_old else time.time_ns() // 1_000_000
    fan_out = fakes.fan_out(PULSAR)
    fan_out.place(0, kept_at(since), 0)
    assert fan_out.has_old_time(0) == is_old


@pytest.mark.parametrize("count", ["1e400", "-1", "1000000000", '"x"', "null", "[]"])
def test_a_number_of_partitions_that_nobody_kept_here(count: str) -> None:
    """Whoever may commit for the group may write anything: memory is not made by it."""
    text = '{"start":1,"counts":{"n_in":%s},"pulsar":{"token":"t","since":5,"partitions":{"a":%s}}}'
    assert read_placement(text % (1, count)) is None
    assert read_placement(text.replace('"since":5', f'"since":{count}') % (1, 4)) is None or count in (
        "-1",
        "1000000000",
    )
    assert read_mark(1, 5, text % (count, 4)).offset == 5
    kept = read_placement(text % (1, 0))
    assert kept is not None and kept.partitions == {"a": 0}


@pytest.mark.parametrize(("plan", "left_out"), [("p", {0: 7, 2: 30, 3: 12}), ("other", {0: 7, 2: 7, 3: 7})])
def test_a_range_goes_on_at_the_lowest_mark(
    monkeypatch: pytest.MonkeyPatch, plan: str, left_out: dict[int, int]
) -> None:
    """Clusters that are ahead are left out as far as they are, if the same program has brought them there."""
    text = '{"start":5,"counts":{"n_in":%d},"now":%d,"plan":"p"}'
    found = {
        0: {0: GroupOffset(7, text % (2, 70))},
        2: {0: GroupOffset(30, text % (25, 300))},
        3: {0: GroupOffset(12, text % (7, 120))},
    }
    monkeypatch.setattr(kafka_sink, "committed_marks", lambda *_, decided: found)
    placed: list[Any] = []

    def place(partition: int, mark: GroupOffset | None, first: int) -> bool:
        placed.append((partition, mark, first))
        return True

    work: Any = SimpleNamespace(plan=plan)
    outlet: Any = SimpleNamespace(sinks=(2, 3, 0), place=place)
    resumed = resume(work, 0, 5, None, outlet)  # type: ignore[arg-type]
    assert (resumed.mark.offset, resumed.mark.counts, resumed.mark.more) == (
        7,
        {"n_in": 2},
        f',"plan":"{plan}"',
    )
    assert (resumed.offsets, resumed.moment) == (left_out, 300)
    assert (resumed.first.offset, resumed.first.counts) == (30, {"n_in": 25})
    assert placed == [(0, found[0][0], 7)]


def test_a_mark_that_does_not_know_a_target_is_committed_before_the_first_record(fakes: Fakes) -> None:
    """A route to another topic was added: among how many partitions its records go must be durable first."""
    fan_out = fakes.fan_out(PULSAR, SimpleNamespace(sink=1, topic="q"))
    text = RangeProgress(5, 5, more=Placement({KEY: 2}, "t", 1).member).text
    assert not fan_out.place(0, GroupOffset(5, text), 5)
    assert fakes.done == [(0, 5, True)] and fakes.placements[-1].token == "t"


def test_the_number_of_a_mark_counts_before_that_of_another_partition(fakes: Fakes) -> None:
    fan_out = fakes.fan_out(PULSAR)
    for part, count in ((0, 4), (1, 8)):
        text = RangeProgress(5, 5, more=Placement({KEY: count}, "t", 1).member).text
        assert fan_out.place(part, GroupOffset(5, text), 5)
        assert fakes.placements[-1].partitions == {KEY: count}


def started(monkeypatch: pytest.MonkeyPatch, fan_out: FanOut, found: Any) -> None:
    """Let a loop begin whose partitions have these marks, by sink and partition, an offset and a number."""
    marks = {
        sink: {
            part: GroupOffset(
                at, RangeProgress(at, at, more=Placement({KEY: count}, f"t{part}", 1).member).text
            )
            for part, (at, count) in parts.items()
        }
        for sink, parts in found.items()
    }
    monkeypatch.setattr(loop_module, "source_earliest", lambda *_: {0: 0, 1: 0})
    loop = Loop.__new__(Loop)
    loop._work = SimpleNamespace(plan="p")  # type: ignore[assignment]
    loop._take_over, loop._anew = True, False
    loop._committed = lambda cluster, decided=(): marks  # type: ignore[method-assign]
    loop._start(None, fan_out)  # type: ignore[arg-type]


@pytest.mark.parametrize("grown", [0, 1])
def test_a_loop_divides_as_before_until_all_partitions_have_taken_over_more(
    monkeypatch: pytest.MonkeyPatch, fakes: Fakes, grown: int
) -> None:
    """Marks on Pulsar are one for each partition that is read: a crash may be between two of them.

    Behind the one that was not written there are records, divided as before: divided otherwise some of them
    would be written again, and others left out under the ids of their neighbours.
    """
    fan_out = fakes.fan_out(PULSAR)
    started(monkeypatch, fan_out, {0: {part: (50, 4 if part == grown else 2) for part in (0, 1)}})
    assert fan_out._cluster.fixed_partitions == {KEY: 2}
    fan_out.commit({0: RangeProgress(50, 60), 1: RangeProgress(50, 60)})
    assert [partitions_in(text) for text in fakes.done[-2:]] == [{KEY: 2}, {KEY: 2}]


def test_a_loop_divides_as_the_cluster_does_that_has_not_taken_over_more(
    monkeypatch: pytest.MonkeyPatch, fakes: Fakes
) -> None:
    """Its mark has caught up since with that of the one that has; what came then was divided as before."""
    monkeypatch.setattr(kafka_sink, "ProgressSink", partial(Transaction, fakes))
    monkeypatch.setattr(kafka_sink, "output_cluster", lambda cluster, sink: sink)
    fan_out = fakes.fan_out(PULSAR, KAFKA, SimpleNamespace(sink=2, topic="k"))
    started(monkeypatch, fan_out, {2: {0: (50, 4), 1: (9, 4)}, 0: {0: (50, 2), 1: (9, 2)}})
    assert fan_out._cluster.fixed_partitions == {KEY: 2}


def test_the_old_mark_of_a_cluster_that_is_written_again_does_not_say_how_records_are_divided(
    monkeypatch: pytest.MonkeyPatch, fakes: Fakes
) -> None:
    monkeypatch.setattr(kafka_sink, "ProgressSink", partial(Transaction, fakes))
    monkeypatch.setattr(kafka_sink, "output_cluster", lambda cluster, sink: sink)
    fan_out = fakes.fan_out(PULSAR, KAFKA, SimpleNamespace(sink=2, topic="k"))
    started(monkeypatch, fan_out, {2: {0: (9, 2), 1: (9, 2)}, 0: {0: (50, 4), 1: (50, 4)}})
    assert fan_out._cluster.fixed_partitions == {KEY: 4}


def test_the_cluster_that_is_read_is_committed_last_and_no_mark_goes_back(
    monkeypatch: pytest.MonkeyPatch, fakes: Fakes
) -> None:
    done: list[Any] = []

    class Transaction:
        expired = was_refused = False

        def __init__(self, work: object, cluster: Any, name: str) -> None:
            self.sink = cluster

        def close(self) -> None:
            pass

        def flush(self) -> None:
            done.append(("flush", self.sink))

        def commit(self, marks: Mapping[int, RangeProgress]) -> None:
            done.append((self.sink, {part: mark.offset for part, mark in marks.items()}))

    monkeypatch.setattr(kafka_sink, "SourceSink", Transaction)
    monkeypatch.setattr(kafka_sink, "ProgressSink", Transaction)
    monkeypatch.setattr(kafka_sink, "output_cluster", lambda cluster, sink: sink)
    others = [SimpleNamespace(sink=sink, topic="k") for sink in (3, 2)]
    fan_out = fakes.fan_out(KAFKA, *others)
    assert fan_out.sinks == (2, 3, 0)
    fan_out.keep({0: {2: 30, 3: 12}})
    fan_out.commit({0: RangeProgress(7, 7)})
    everywhere = [("flush", 2), ("flush", 3), ("flush", 0)]
    assert done == [*everywhere, (2, {0: 30}), (3, {0: 12}), (0, {0: 7})]
    done.clear()
    fan_out.skip(frozenset({2}))
    fan_out.commit({0: RangeProgress(7, 12)})
    assert done == [("flush", 3), ("flush", 0), (3, {0: 12}), (0, {0: 12})]


@pytest.mark.parametrize("how", ["put", "offer"])
def test_a_mark_says_no_plan_where_a_function_may_have_failed(fakes: Fakes, how: str) -> None:
    """Its event is a letter on one cluster now, and may be one for another cluster in the next run."""
    letters = SimpleNamespace(sink=0, topic="dead")
    fan_out = fakes.fan_out(KAFKA, letters, letters=letters)
    mark = RangeProgress(5, 9, more=',"run":"r","plan":"p"')
    texts = []
    for target in (0, 1, 0):
        getattr(fan_out, how)(Output(target, 0, BatchBody(b"", 1, 0, 0)))
        fan_out.commit({0: mark})
        texts.append(fakes.done[-1])
    assert ['"plan":"p"' in text and '"run":"r"' in text for text in texts] == [True, False, True]
    assert '"run":"r"' in texts[1]
    fan_out.put(Output(1, 0, BatchBody(b"", 1, 0, 0)))
    fan_out.restart()
    fan_out.commit({0: mark})
    assert '"plan":"p"' in fakes.done[-1], "what was put is aborted"


def test_letters_of_routes_without_a_function_are_the_same_in_each_run(fakes: Fakes) -> None:
    fan_out = fakes.fan_out(KAFKA, SimpleNamespace(sink=0, topic="dead"))
    fan_out.put(Output(1, 0, BatchBody(b"", 1, 0, 0)))
    fan_out.commit({0: RangeProgress(5, 9, more=',"plan":"p"')})
    assert '"plan":"p"' in fakes.done[-1]


def test_partitions_are_not_adopted_by_a_commit_that_was_refused(fakes: Fakes) -> None:
    fan_out = fakes.fan_out(PULSAR, KAFKA)
    fan_out.place(0, None, 5)
    fan_out.commit({0: RangeProgress(5, 5)})
    fakes.partitions, fakes.refuses = 4, True
    assert fan_out.adopt_partitions()
    with pytest.raises(_Refused):
        fan_out.commit({0: RangeProgress(5, 9)})
    fan_out.restart()
    fakes.refuses = False
    # Records that Pulsar has go to the same partitions again: there the broker knows their ids.
    assert fakes.done[-1] == ("adopt", {KEY: 2})
    assert fan_out._cluster.fixed_partitions == {KEY: 2}
    fan_out.commit({0: RangeProgress(5, 7)})
    assert partitions_in(fakes.done[-1]) == {KEY: 2}
    assert fan_out.adopt_partitions()
    fan_out.commit({0: RangeProgress(5, 9)})
    assert partitions_in(fakes.done[-1]) == {KEY: 4}
    fan_out.restart()
    assert fan_out._cluster.fixed_partitions == {KEY: 4}


def test_a_target_that_is_gone_has_no_partitions_to_take_over(fakes: Fakes) -> None:
    """Counted as none, its records would make a topic without partitions, where the broker makes topics."""
    fan_out = fakes.fan_out(PULSAR)
    fan_out.place(0, None, 5)
    fakes.partitions = 0
    assert not fan_out.adopt_partitions()
    assert fan_out._cluster.fixed_partitions == {KEY: 2}


def test_offsets_that_a_tool_has_set_begin_under_another_name(fakes: Fakes) -> None:
    fan_out = fakes.fan_out(PULSAR)
    fan_out.place(0, None, 5)
    assert not fan_out.place(0, GroupOffset(3, ""), 3)
    assert fakes.done == [(0, 5, False), (0, 3, False)]
    assert fakes.placements[0].token != fakes.placements[1].token


def test_only_the_end_of_a_range_adopts_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # One cluster is ahead: its records are left out up to its mark, and Pulsar may have some behind it.
    resumed = Resumption(RangeProgress(0, 0), {1: 25, 0: 13}, RangeProgress(0, 25), None)
    told: list[tuple[int, bool]] = []

    def finish(work: Any, span: OffsetRange, *rest: Any, adopts: bool) -> RangeProgress:
        told.append((span.end, adopts))
        return RangeProgress(0, span.end)

    monkeypatch.setattr(range_delivery, "resume", lambda *_: resumed)
    monkeypatch.setattr(range_delivery, "finish", finish)
    cluster = SourceCluster.__new__(SourceCluster)
    outlet: Any = SimpleNamespace(sinks=(1, 0), skip=lambda sinks: None, stored_before=lambda ends: None)
    range_delivery._fanned_out(SimpleNamespace(now=None), OffsetRange(0, 0, 27), cluster, outlet)  # type: ignore[arg-type]
    assert told == [(25, False), (27, True)]


@pytest.mark.parametrize(
    ("done", "adopts"), [({0: 8, 1: 5}, False), ({0: 9, 1: 4}, False), ({0: 9, 1: 5}, True)]
)
def test_a_loop_adopts_partitions_behind_what_may_be_stored(done: Mapping[int, int], adopts: bool) -> None:
    run = LoopRun.__new__(LoopRun)
    run._may_be_stored, run._feed = {}, SimpleNamespace(done=done)  # type: ignore[assignment]
    run._outlet = FanOut.__new__(FanOut)
    run._outlet.adopt_partitions = lambda: True  # type: ignore[method-assign]
    run._outlet._stored_before = {}
    run.wait_to_adopt({0: 9, 1: 3})
    run.wait_to_adopt({0: 2, 1: 5})
    assert run._adopts() is adopts


def test_a_loop_looks_for_marks_on_kafka_alone() -> None:
    work: Any = SimpleNamespace(
        outputs={1: None},
        pulsar_outputs={3: None},
        exactly_once=True,
        plan="now",
        program=SimpleNamespace(targets=[SimpleNamespace(sink=1), SimpleNamespace(sink=3)]),
    )
    loop = Loop.__new__(Loop)
    loop._work, loop._anew, loop._restore = work, False, lambda digest, plan: None
    marks = {0: {}, 1: {0: GroupOffset(5, "")}}
    loop._committed = lambda cluster, decided=(): marks  # type: ignore[method-assign]
    assert loop._begun(SourceCluster.__new__(SourceCluster)) is None


def test_without_kafka_marks_are_on_pulsar_behind_everything(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Marks:
        expired = was_refused = False
        fenced: ProducerFenced | None = None

        def flush(self) -> None:
            if self.fenced is not None:
                raise self.fenced

        def commit(self, marks: Mapping[int, RangeProgress]) -> None:
            self.flush()
            fakes.done += ("marks", *(mark.text for mark in marks.values()))

        def close(self) -> None:
            pass

    marks = Marks()
    monkeypatch.setattr(kafka_sink, "pulsar_progress_sink", lambda *_: marks)
    work: Any = SimpleNamespace(
        program=SimpleNamespace(targets=[PULSAR], receipts=frozenset()),
        stage=SimpleNamespace(routes=()),
        pulsar=SimpleNamespace(),
        progress=PulsarProgress(1, "t/n"),
        pulsar_outputs={1: None},
        is_repeatable=True,
    )
    cluster: Any = SimpleNamespace(
        pulsar=lambda sink: None, fixed_partitions={}, pulsar_partitions=lambda target: 2
    )
    fan_out = FanOut(work, cluster, "0")
    assert (fan_out.sinks, fan_out.every) == ((1,), 1.0)
    fan_out.place(0, None, 5)
    fakes.done.clear()
    fan_out.commit({0: RangeProgress(5, 9)})
    assert fakes.done[:2] == ["pulsar has everything", "marks"]
    assert partitions_in(fakes.done[2]) == {KEY: 2}
    marks.fenced = ProducerFenced("taken", error_code=90)
    with pytest.raises(ProducerFenced):
        fan_out.put(Output(0, 0, BatchBody(b"", 0, 0, 0)))
    assert not fan_out.expired, "it was shut out, and not because of time"


def test_what_another_plan_has_begun_is_looked_for_where_marks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target on a Pulsar that is not read has no marks of its own."""
    targets = [SimpleNamespace(sink=1, topic="k"), SimpleNamespace(sink=2, topic="p")]
    work: Any = SimpleNamespace(
        outputs={1: None},
        exactly_once=True,
        plan="new",
        topic="in",
        program=SimpleNamespace(targets=targets),
    )
    loop = Loop(work, lambda beat: None, stop=Event(), restore=lambda digest, plan: None)
    found = {0: {0: GroupOffset(3)}, 1: {0: GroupOffset(5, '{"plan":"old"}')}}
    monkeypatch.setattr(loop, "_committed", lambda cluster, decided: found)
    cluster = object.__new__(SourceCluster)
    cluster.seen = {}
    assert loop._begun(cluster) is None


class _Marked:
    """A cluster with marks, that says what a test lets it say; `sink` is which one it is."""

    expired = was_refused = False
    fenced: frozenset[int] = frozenset()

    def __init__(self, work: object, cluster: Any, name: str) -> None:
        self.sink = cluster

    def close(self) -> None:
        pass

    def flush(self) -> None:
        if self.sink in self.fenced:
            raise ProducerFenced("taken", error_code=90)


@pytest.mark.parametrize(("fenced", "expired"), [(2, False), (3, True), (0, True)])
def test_who_has_lost_only_another_cluster_than_the_first_may_have_won(
    monkeypatch: pytest.MonkeyPatch, fakes: Fakes, fenced: int, expired: bool
) -> None:
    """Two that begin at the same time take the ids of the clusters in one order."""
    monkeypatch.setattr(kafka_sink, "SourceSink", _Marked)
    monkeypatch.setattr(kafka_sink, "ProgressSink", _Marked)
    monkeypatch.setattr(kafka_sink, "output_cluster", lambda cluster, sink: sink)
    monkeypatch.setattr(_Marked, "fenced", frozenset({fenced}))
    fan_out = fakes.fan_out(KAFKA, *(SimpleNamespace(sink=sink, topic="k") for sink in (3, 2)))
    assert fan_out.sinks == (2, 3, 0)
    with pytest.raises(ProducerFenced):
        fan_out.commit({0: RangeProgress(5, 9)})
    assert fan_out.expired is expired


def test_open_transactions_of_the_group_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    class Group:
        def __init__(self, *_: object) -> None:
            pass

        def committed(self, topic: str, *, stable: bool) -> dict[int, GroupOffset]:
            asked.append(stable)
            return {}

    monkeypatch.setattr(kafka_sink, "GroupOffsets", Group)
    work: Any = SimpleNamespace(pulsar=None, progress=None, group="g", topic="in")
    cluster: Any = SimpleNamespace(outputs={})
    committed_marks(work, cluster)
    committed_marks(work, cluster, stable=False)
    assert asked == [True, False]


def test_at_least_once_a_mark_on_pulsar_comes_behind_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(IdempotentSink, "commit", lambda self, marks: done.append("output"))
    outlet = RepeatableProgress.__new__(RepeatableProgress)
    outlet._on_pulsar = SimpleNamespace(commit=lambda marks: done.append("marks"))  # type: ignore[assignment]
    outlet.commit({0: RangeProgress(5, 9)})
    assert done == ["output", "marks"]


def test_at_least_once_every_cluster_has_the_marks_behind_all_output(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(IdempotentSink, "commit", lambda self, marks: done.append("output"))

    def producer(sink: int) -> Any:
        return SimpleNamespace(
            send=lambda topic, partition, body: done.append(f"{sink} {topic}"),
            flush=lambda: done.append(f"{sink} is stored"),
        )

    outlet = RepeatableProgress.__new__(RepeatableProgress)
    outlet._on_pulsar, outlet._has_marks, outlet._key = None, True, ProgressKey("g", "c", "t", "")
    outlet._producers = {1: producer(1), 2: producer(2)}
    outlet.commit({0: RangeProgress(5, 9)})
    marks = [f"{sink} __penstock_progress" for sink in (1, 2)]
    assert done == ["output", *marks, "1 is stored", "2 is stored"]


def test_what_some_clusters_have_is_done_again_with_their_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = Resumption(RangeProgress(0, 0), {1: 25, 0: 13}, RangeProgress(0, 25), 7_000)
    told: list[tuple[int, int]] = []

    def finish(
        work: Any,
        span: OffsetRange,
        cluster: Any,
        outlet: Any,
        mark: RangeProgress,
        clock: RangeClock,
        *,
        adopts: bool,
    ) -> RangeProgress:
        told.append((span.end, clock.read()))
        return RangeProgress(0, span.end)

    monkeypatch.setattr(range_delivery, "resume", lambda *_: resumed)
    monkeypatch.setattr(range_delivery, "finish", finish)
    cluster = SourceCluster.__new__(SourceCluster)
    outlet: Any = SimpleNamespace(sinks=(1, 0), skip=lambda sinks: None, stored_before=lambda ends: None)
    range_delivery._fanned_out(SimpleNamespace(now=9_000), OffsetRange(0, 0, 27), cluster, outlet)  # type: ignore[arg-type]
    assert told == [(25, 7_000), (27, 9_000)]


# A loop


def loop_started(monkeypatch: pytest.MonkeyPatch, found: Any, plan: str = "p") -> Any:
    """Give where a loop on Kafka begins, that writes to clusters 1 and 2, by the marks that are found."""
    work: Any = SimpleNamespace(plan=plan, belonging=SimpleNamespace(owner=None), group="g", topic="in")
    loop = Loop(work, lambda beat: None, stop=Event())
    monkeypatch.setattr(loop_module, "source_earliest", lambda *_: {0: 1})
    monkeypatch.setattr(loop, "_committed", lambda cluster, decided: found)
    outlet = FanOut.__new__(FanOut)
    outlet._sinks = {1: None, 2: None}  # type: ignore[dict-item]
    outlet._pulsar, outlet._placements, outlet._stored_before = {}, {}, {}
    outlet._cluster = SourceCluster.__new__(SourceCluster)
    outlet._cluster.fixed_partitions = {}
    return loop._start(object(), outlet)  # type: ignore[arg-type]


@pytest.mark.parametrize(("plan", "ahead"), [("p", {0: {1: 9, 2: 5}}), ("edited", {})])
def test_a_loop_leaves_out_what_the_same_program_has_written(
    monkeypatch: pytest.MonkeyPatch, plan: str, ahead: Any
) -> None:
    marks = {1: {0: GroupOffset(9, '{"plan":"p","now":70}')}, 2: {0: GroupOffset(5, '{"plan":"p","now":40}')}}
    start, left_out, moments, _ = loop_started(monkeypatch, {0: {}, **marks}, plan)
    assert (start, left_out) == ({0: 5}, ahead)
    assert moments == ({0: 70} if ahead else {})


def test_a_loop_whose_marks_are_older_than_its_group_begins_at_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = '{"run":"r"%s}'
    placed: list[GroupOffset | None] = []
    monkeypatch.setattr(FanOut, "place", lambda self, part, mark, first: placed.append(mark))
    for ours in (True, False):
        group = GroupOffset(12, text % OpenRange(7, 30).member if ours else "")
        marks = {sink: {0: GroupOffset(9, text % "")} for sink in (1, 2)}
        start, left_out, _, begun = loop_started(monkeypatch, {0: {0: group}, **marks})
        assert (start, left_out) == ({0: 12 if ours else 9}, {})
        assert begun == ({0: OpenRange(7, 30)} if ours else {})
        assert placed.pop() == (group if ours else marks[1][0])


@pytest.mark.parametrize(("first", "begun"), [(5, True), (9, False)])
def test_a_range_that_was_begun_is_that_of_the_mark_where_a_loop_begins(
    monkeypatch: pytest.MonkeyPatch, first: int, begun: bool
) -> None:
    text = '{"plan":"p"%s}'
    marks = {
        1: {0: GroupOffset(first, text % OpenRange(7, 30).member)},
        2: {0: GroupOffset(14 - first, text % "")},
    }
    *_, found = loop_started(monkeypatch, {0: {}, **marks})
    assert found == ({0: OpenRange(7, 30)} if begun else {})


class Clock(RangeClock):
    """A clock of which each range has the next moment."""

    def __init__(self) -> None:
        super().__init__()
        self.moments = iter(range(100, 200))

    def reset(self) -> None:
        super().reset()
        self._moment = next(self.moments)


def loop_run(until: Mapping[int, int] | None = None) -> tuple[LoopRun, list[dict[int, RangeProgress]]]:
    """A loop that writes several clusters, as far as it has to do with marks; and what it commits."""
    committed: list[dict[int, RangeProgress]] = []
    run = LoopRun.__new__(LoopRun)
    run._outlet = FanOut.__new__(FanOut)
    run._outlet.commit = committed.append  # type: ignore[method-assign,assignment]
    run._outlet.restart = lambda: None  # type: ignore[method-assign]
    run._outlet._stored_before = {}
    feed = SimpleNamespace(positions={0: 5}, done={0: 5}, reached={0: 5}, collects=False, holds=False)
    feed.taken, feed.rewind = dict, lambda *_: None
    run._feed = feed  # type: ignore[assignment]
    run._clock, run._more, run._done = Clock(), ',"run":"r"', {0: 5}
    run._clock.reset()
    run._until, run._may_be_stored, run._short_until = dict(until or {}), {}, {}
    run._begun_until = {}
    run._since = SimpleNamespace(counts=Counter())  # type: ignore[assignment]
    run._open = None
    return run, committed


def test_a_loop_begins_with_the_moment_of_what_not_all_clusters_have() -> None:
    run, committed = loop_run()
    run.claim({0: 70}, {0: OpenRange(7, 30)})
    [marks] = committed
    assert read_moment(marks[0].text) == 70
    assert read_open_range(marks[0].text) == OpenRange(7, 30)


def test_each_transaction_of_a_loop_has_a_moment_of_its_own() -> None:
    run, committed = loop_run({0: 30})
    for at in (8, 12):
        run._feed.done[0] = at
        run._commit_routed(everything=False)
    assert [read_moment(marks[0].text) for marks in committed] == [100, 101]
    assert run._until == {}, "the range has ended"


@pytest.mark.parametrize(("until", "moment"), [({0: 30}, 100), ({}, 101)])
def test_a_range_that_is_done_again_keeps_the_moment_that_pulsar_may_have(
    until: Mapping[int, int], moment: int
) -> None:
    run, _ = loop_run(until)
    run._redo()
    assert run._clock.read() == moment


@pytest.mark.parametrize(("offset", "kept"), [(8, OpenRange(100, 30)), (30, None)])
def test_a_mark_inside_of_a_range_says_that_it_is_open(offset: int, kept: OpenRange | None) -> None:
    """Records behind a letter may be on Pulsar already, by the moment of the range."""
    run, committed = loop_run({0: 30})
    run._commit_at(0, offset, {})
    assert read_open_range(committed[0][0].text) == kept


def test_what_came_since_a_range_was_begun_has_the_moment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run, committed = loop_run()
    run._work, run._cluster = SimpleNamespace(), None  # type: ignore[assignment]
    done: list[tuple[OffsetRange, int]] = []

    def finish(
        work: Any, span: OffsetRange, cluster: Any, outlet: Any, mark: RangeProgress, clock: RangeClock
    ) -> RangeProgress:
        done.append((span, clock.read()))
        return mark.advanced(span.end, {})

    monkeypatch.setattr(loop_run_module, "finish", finish)
    for end, until in ((20, 20), (40, 30)):
        run._done = {0: 5}
        monkeypatch.setattr(loop_run_module, "source_latest", lambda *_, end=end: {0: end})
        run.finish_begun({0: OpenRange(7, 30)})
        assert done.pop() == (OffsetRange(0, 5, until), 7)
        assert committed[-1][0].offset == until and read_open_range(committed[-1][0].text) is None


def test_producers_of_receipts_are_closed_too(fakes: Fakes) -> None:
    fan_out = fakes.fan_out(PULSAR, KAFKA)
    closed: list[str] = []
    fan_out._pulsar = {1: SimpleNamespace(close=lambda: closed.append("output"))}  # type: ignore[dict-item]
    fan_out._receipts = {1: SimpleNamespace(close=lambda: closed.append("receipts"))}  # type: ignore[dict-item]
    fan_out.close()
    assert sorted(closed) == ["output", "receipts"]
