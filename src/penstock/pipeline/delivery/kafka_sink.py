"""The sinks of a source that writes to several clusters, or to another one than it reads.

Each cluster has a transaction of its own, and in it its own mark: output and mark of a cluster are one step.
Before the first of them is committed, all clusters have acknowledged everything. The order is fixed: first
the clusters that are only written, by their numbers, last the one that is read, whose mark is the offset of
the group.

After a crash between two commits the marks differ. The next run goes on at the lowest; clusters that are
ahead are left out up to their marks (`steps`), so each gets its records once. That holds if the second
evaluation sends each record where the first one did: marks keep what `now()` was (`range_clock`) and a digest
of the program. What another program has begun is finished by it, if it is kept (`job.kept_plan`); else, or
without a digest, nothing is left out, and what lies between the marks is written twice, and not lost.

| what | promise |
|---|---|
| output, and dead letters that the pipeline decides on | exactly once on each cluster |
| a dead letter because another cluster refuses the record | at least once: it is durable before any mark |
| a receipt on Pulsar, or where only receipts are written | at most once: behind all commits |
| two clusters together | not one step: a reader may see the one before the other |

Pulsar clusters have no marks: `PulsarSink` leaves out what is stored, record by record. They acknowledge
everything before the first mark is committed. Where no Kafka cluster is written, the mark is a transaction of
its own on the cluster that is read: its id shuts out whoever worked under the same name before. Where that is
Pulsar, too, marks are in topics of Pulsar, and shut out by these (`pulsar_progress`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.outage import OutageLog
from penstock.errors import KafkaRefused, ProducerFenced
from penstock.pipeline.delivery import sink as sink_module
from penstock.pipeline.delivery.cluster_marks import (
    SOURCE_SINK,
    Marks,
    moment_of,
    same_plan,
)
from penstock.pipeline.delivery.progress import (
    PulsarProgress,
    Snapshot,
)
from penstock.pipeline.delivery.progress_reader import read_progress
from penstock.pipeline.delivery.progress_sinks import (
    ProgressSink,
    RepeatableProgress,
    SourceSink,
    pulsar_progress_sink,
)
from penstock.pipeline.delivery.pulsar.output import PulsarOutput
from penstock.pipeline.delivery.pulsar.placement import Placement, read_placement, target_key
from penstock.pipeline.delivery.range_progress import RangeProgress, read_mark
from penstock.pipeline.delivery.sink import Sink, TransactionalSink
from penstock.pipeline.delivery.source_cluster import PulsarSourceCluster, SourceCluster, output_cluster

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.brokers.kafka_raw.producer import BatchRefusal
    from penstock.pipeline.delivery.pulsar.progress import PulsarProgressSink
    from penstock.pipeline.delivery.worker_spec import WorkerSpec
    from penstock.pipeline.evaluators.kernel.batch_router import Output
    from penstock.pipeline.ports import Target

__all__ = [
    "FanOut",
    "Resumption",
    "committed_marks",
    "opened",
    "resume",
]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_OLD_TIME: Final = 600_000
"""Milliseconds: as much as the clocks of two machines may differ, so a younger time saves nothing."""


def committed_marks(
    work: WorkerSpec, cluster: SourceCluster, *, decided: Collection[int] | None = (), stable: bool = True
) -> Marks:
    """Read the marks of every cluster; those of the group, as sink 0, also where nothing is written there.

    A source on Pulsar has none on sink 0, unless all is on Pulsar and that is where marks are.

    `decided` are the partitions of which open transactions are waited for, None all; without `stable`, those
    of the group are not.
    """
    found: dict[int, Mapping[int, GroupOffset]] = {SOURCE_SINK: {}}
    if work.pulsar is None:
        found[SOURCE_SINK] = GroupOffsets(cluster, work.group).committed(work.topic, stable=stable)
    if work.progress is not None:
        found[work.progress.sink] = _marks_on_pulsar(work, work.progress, cluster, decided)
    for sink, output in cluster.outputs.items():
        seen = cluster.seen.get(sink, Snapshot())
        cluster.seen[sink] = read_progress(output, work.progress_key, seen, decided=decided)
        found[sink] = cluster.seen[sink].marks
    return found


def _marks_on_pulsar(
    work: WorkerSpec, progress: PulsarProgress, cluster: SourceCluster, decided: Collection[int] | None
) -> Mapping[int, GroupOffset]:
    """Read the marks of these partitions; without any of all of them."""
    # Who has no such marks loads no client of Pulsar.
    from penstock.pipeline.delivery.pulsar.progress import read_marks

    assert isinstance(cluster, PulsarSourceCluster)
    partitions = decided or range(cluster.partitions_read())
    return read_marks(cluster.pulsar(progress.sink), progress, work.progress_key, partitions)


def _plan_member(work: WorkerSpec) -> str:
    """Return what a mark says of the program."""
    return "" if work.plan is None else f',"plan":"{work.plan}"'


def _letters_of(work: WorkerSpec) -> frozenset[int]:
    """Return the targets with dead letters of routes that call functions.

    Whether a function ends in time, or dies, is no matter of its event: another run may go otherwise.
    """
    dead = {(route.dead.sink, route.dead.topic) for route in work.stage.routes if route.invoker is not None}
    targets = work.program.targets if dead else ()
    return frozenset(n for n, target in enumerate(targets) if (target.sink, target.topic) in dead)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a range on several clusters goes on."""

    mark: RangeProgress
    """The lowest of the marks."""
    offsets: Mapping[int, int]
    """By sink, the offset before which it is left out."""
    first: RangeProgress
    """The mark of the cluster that is committed first: no other is ahead of it, so its counts are exact."""
    moment: int | None
    """What `now()` stood for in what some clusters have and others have not; None if no mark says it."""


def resume(
    work: WorkerSpec, partition: int, start: int, cluster: SourceCluster, outlet: FanOut
) -> Resumption:
    """Find where a range that begins at `start` goes on, and how its records are placed on Pulsar.

    The transactional ids must have been taken over before: then nobody else moves the marks. If no mark says
    how records are placed, one is committed that does: it is durable before the first of them is.
    """
    sinks = outlet.sinks
    found = committed_marks(work, cluster, decided=(partition,))
    kept = [found[sink].get(partition) for sink in sinks]
    marks = {
        sink: read_mark(start, *((None, "") if each is None else (each.offset, each.metadata)))
        for sink, each in zip(sinks, kept, strict=True)
    }
    lowest = min(marks.values(), key=lambda each: each.offset)
    mark = replace(lowest, more=_plan_member(work))
    known = [each for each in kept if each is not None]
    if not outlet.place(partition, min(known, key=lambda each: each.offset, default=None), mark.offset):
        outlet.commit({partition: mark})
    ahead = [each for each in known if each.offset > mark.offset]
    is_same = same_plan(ahead, work.plan)
    offsets = {sink: each.offset if is_same else mark.offset for sink, each in marks.items()}
    return Resumption(mark, offsets, marks[sinks[0]], moment_of(ahead))


@contextmanager
def opened(work: WorkerSpec, cluster: Cluster, name: str, *, marks: bool = True) -> Iterator[Sink]:
    """Open what a source writes with: on one cluster as `sink.opened`, else one sink for each cluster."""
    if not work.exactly_once and work.pulsar is not None:
        with closing(RepeatableProgress(work, cluster, name, marks=marks)) as one:
            yield one
        return
    if not (work.has_outputs and work.exactly_once):
        with sink_module.opened(work, cluster, name, marks=marks) as one:
            yield one
        return
    assert isinstance(cluster, SourceCluster)
    fan_out = FanOut(work, cluster, name)
    try:
        yield fan_out
    finally:
        fan_out.close()


def _placed(placement: Placement | None, mark: RangeProgress) -> RangeProgress:
    """Add to a mark how the records behind it are placed on Pulsar."""
    return mark if placement is None else replace(mark, more=mark.more + placement.member)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class FanOut:
    """Transactions on several clusters; each has its own mark, and none is ahead of what it stands for."""

    def __init__(self, work: WorkerSpec, cluster: SourceCluster, name: str) -> None:
        self._work = work
        self._cluster = cluster
        self._sink_of = [target.sink for target in work.program.targets]
        self._skipped: frozenset[int] = frozenset()
        self._letters = _letters_of(work)
        self._has_letters = False
        """Whether one was put since the last commit."""
        self._known: Mapping[int, Mapping[int, int]] = {}
        self._lost_second = False
        """Whether the id of a cluster was taken that is not the first: two have begun at the same time."""
        # Receipts alone make no cluster one that has marks, and Pulsar has none.
        written = {sink for n, sink in enumerate(self._sink_of) if n not in work.program.receipts}
        marked = written - {*work.pulsar_outputs}
        is_source_marked = SOURCE_SINK in marked or (work.pulsar is None and not marked)
        order = [*sorted(marked - {SOURCE_SINK}), *([SOURCE_SINK] if is_source_marked else [])]
        # Readers of Pulsar do not wait for marks.
        self.every = 0.0 if marked else 1.0
        self._sinks: dict[int, TransactionalSink | PulsarProgressSink] = {}
        self._pulsar_marks: PulsarProgressSink | None = None
        self._pulsar: dict[int, PulsarOutput] = {}
        self._placements: dict[int, Placement] = {}
        self._stored_before: dict[int, int] = {}
        """Before these offsets is all that may be stored on Pulsar; not there: it is not known how far."""
        self._former_partitions: Mapping[str, int] | None = None
        """Among how many partitions records are divided that are put before the next commit; None: as now."""
        # Where nothing is written on the cluster that is read, the group's offset only shows the lag.
        is_shown = SOURCE_SINK not in order and work.pulsar is None
        self._group = GroupOffsets(cluster, work.group) if is_shown else None
        self._showing = OutageLog(_log, f"commits of progress to group {work.group}") if is_shown else None
        with ExitStack() as opened_so_far:
            for sink in order:
                made = SourceSink if sink == SOURCE_SINK else ProgressSink
                self._sinks[sink] = made(work, output_cluster(cluster, sink), name)
                opened_so_far.callback(self._sinks[sink].close)
            if work.progress is not None:
                self._pulsar_marks = pulsar_progress_sink(work, work.progress, cluster, name)
                self._sinks[work.progress.sink] = self._pulsar_marks
                opened_so_far.callback(self._pulsar_marks.close)
            for sink in work.pulsar_outputs:
                self._pulsar[sink] = PulsarOutput(
                    work, cluster.pulsar(sink), sink, exactly_once=work.is_repeatable, check=self._probe
                )
            opened_so_far.pop_all()
        self._behind: list[Output] = []
        """Receipts for a cluster without marks."""
        self._receipts: dict[int, PulsarOutput] = {}
        """What writes receipts to Pulsar, by sink: without names and ids, which are those of the output."""
        self._first = next(iter(self._sinks))

    def _check(self) -> None:
        """Raise ProducerFenced as soon as it is known that another one has taken over."""
        if self._pulsar_marks is not None:
            self._pulsar_marks.flush()

    def _probe(self) -> None:
        """Raise as `_check`, and find out: whoever has taken over may hold what is waited for."""
        if self._pulsar_marks is not None:
            self._pulsar_marks.probe()

    @property
    def sinks(self) -> tuple[int, ...]:
        """The sinks whose marks count, in the order of their commits."""
        return tuple(self._sinks)

    @property
    def expired(self) -> bool:
        """Whether it was shut out in a transaction that took too long, or not on the first cluster.

        Two that begin at the same time take the ids of several clusters in one order, so the owner of the
        first one has won, and may have lost another to the one that came too late.
        """
        return self._lost_second or any(sink.expired for sink in self._sinks.values())

    @property
    def was_refused(self) -> bool:
        """Whether a cluster refused a batch for the sake of its records."""
        pulsar = any(each.was_refused for each in self._pulsar.values())
        return pulsar or any(sink.was_refused for sink in self._sinks.values())

    def place(self, partition: int, mark: GroupOffset | None, first: int) -> bool:
        """Take over from the mark of a partition how its records are placed on Pulsar; they begin at `first`.

        Returns whether the mark says it. If not, one has to be committed before the first record is put.
        """
        if not self._pulsar:
            return True
        kept = None if mark is None else read_placement(mark.metadata)
        placement = kept or Placement()
        known = {**self._cluster.fixed_partitions, **placement.partitions}
        fixed = {
            (key := target_key(each)): known[key] if key in known else self._cluster.pulsar_partitions(each)
            for each in self._pulsar_targets
        }
        self._cluster.fixed_partitions = fixed
        self._placements[partition] = placement = replace(placement, partitions=fixed)
        self._stored_before.pop(partition, None)
        if kept is None:
            self._stored_before[partition] = first
        for each in self._pulsar.values():
            each.place(partition, placement, first, begun=kept is not None)
        return kept is not None and fixed.keys() <= kept.partitions.keys()

    def stored_before(self, ends: Mapping[int, int]) -> None:
        """Say before which offsets all lies that may be stored on Pulsar, or will be until the next mark.

        A mark that reaches them has nothing of an earlier attempt behind it.
        """
        for partition, end in ends.items():
            self._stored_before[partition] = max(end, self._stored_before.get(partition, 0))

    def has_old_time(self, partition: int) -> bool:
        """Return whether the time that the last mark gives is so old that another mark is worth it."""
        placement = self._placements.get(partition)
        since = None if placement is None else placement.since
        return since is not None and _milliseconds() - since > _OLD_TIME

    def divide_as(self, marks: Iterable[GroupOffset]) -> None:
        """Let all partitions that were placed divide records as the one of these marks with the fewest does.

        Marks of several clusters, or of several partitions on Pulsar, are not written in one step: a crash
        may leave some that have taken over more partitions, and some that have not. Behind the former
        nothing is written, but behind the latter there may be records.
        """
        placed = [each.partitions for mark in marks if (each := read_placement(mark.metadata)) is not None]
        fewest = {
            key: min(count, *(each.get(key, count) for each in placed)) if placed else count
            for key, count in self._cluster.fixed_partitions.items()
        }
        if any(placement.partitions != fewest for placement in self._placements.values()):
            self._divide_among(fewest)

    def adopt_partitions(self) -> bool:
        """Take over partitions that targets on Pulsar have got, from the next commit on.

        Everything that was put must be placed as before, and all partitions that are read have to be part of
        that commit. Returns whether there are any: then what divides records has to be made anew.
        """
        fixed = self._cluster.fixed_partitions
        # A topic that is not there, such as one that is being made again, has none.
        now = {
            (key := target_key(each)): self._cluster.pulsar_partitions(each) or fixed[key]
            for each in self._pulsar_targets
        }
        if not self._pulsar or now == {key: fixed[key] for key in now}:
            return False
        for each in self._pulsar.values():
            each.flush()
        self._former_partitions = self._former_partitions or self._cluster.fixed_partitions
        self._divide_among(now)
        return True

    def _divide_among(self, partitions: Mapping[str, int]) -> None:
        for each in self._pulsar.values():
            each.adopt(partitions)
        self._cluster.fixed_partitions = partitions
        for partition, placement in self._placements.items():
            self._placements[partition] = replace(placement, partitions=partitions)

    def stored_ends(self) -> dict[int, int]:
        """Return, by partition that is read, the offset behind the last of which Pulsar has some output.

        All producers that the program could have are opened for that, so nothing comes any more of who had
        them before.
        """
        found: dict[int, int] = {}
        for each in self._pulsar.values():
            for part, end in each.stored_ends().items():
                found[part] = max(end, found.get(part, 0))
        return found

    @property
    def _pulsar_targets(self) -> list[Target]:
        return [target for target in self._work.program.targets if target.sink in self._pulsar]

    def keep(self, known: Mapping[int, Mapping[int, int]]) -> None:
        """Commit no mark below those that are there already, by partition and sink."""
        self._known = known

    def skip(self, sinks: frozenset[int]) -> None:
        """Leave these out from now on: they have what is put. Nothing may be open."""
        self._skipped = sinks

    def put(self, output: Output) -> None:
        """Write inside the transaction of its cluster; receipts behind all of them, if theirs has none."""
        self._note(output)
        sink = self._sink_of[output.target]
        if self._comes_behind(output):
            self._behind.append(sink_module.kept(output))
        elif sink in self._pulsar:
            self._check()
            self._pulsar[sink].put(output)
        elif sink not in self._skipped:
            self._on(sink, partial(self._sinks[sink].put, output))

    def _note(self, output: Output) -> None:
        self._has_letters = self._has_letters or output.target in self._letters

    def _comes_behind(self, output: Output) -> bool:
        sink = self._sink_of[output.target]
        has_records = sink in self._sinks and sink not in self._pulsar
        return output.target in self._work.program.receipts and not has_records

    def check(self, output: Output) -> BatchRefusal | None:
        """Return why Pulsar would refuse records; nothing is sent. What becomes of receipts stops nothing."""
        if self._comes_behind(output):
            return None
        return self._pulsar[self._sink_of[output.target]].check(output)

    def offer(self, output: Output) -> BatchRefusal | None:
        """Write inside the transaction of its cluster, and wait."""
        self._note(output)
        if self._comes_behind(output):
            self._behind.append(sink_module.kept(output))
            return None
        return None if self._sink_of[output.target] in self._skipped else self.offer_apart(output)

    def offer_apart(self, output: Output) -> BatchRefusal | None:
        """Write, and wait, also to a cluster that is left out."""
        sink = self._sink_of[output.target]
        if sink in self._pulsar:
            return self._pulsar[sink].offer(output)
        return self._on(sink, partial(self._sinks[sink].offer, output))

    def commit_apart(self) -> None:
        """Make durable what was offered since the last commit, without marks."""
        for sink, each in self._sinks.items():
            self._on(sink, partial(each.commit, {}))

    def restart(self) -> None:
        """Abort what is open on all clusters; what Pulsar has is left out when it is put again."""
        self._has_letters = False
        self._behind.clear()
        for pulsar in self._pulsar.values():
            pulsar.restart()
        if self._former_partitions is not None:
            # No mark says yet that there are more: what is put again has to go where it went before.
            self._divide_among(self._former_partitions)
            self._former_partitions = None
        for sink, each in self._sinks.items():
            self._on(sink, each.restart)

    def commit(self, marks: Mapping[int, RangeProgress]) -> None:
        """Wait until all clusters have everything, then commit one after the other, each with its marks."""
        for pulsar in self._pulsar.values():
            pulsar.flush()
        placements = self._placements_at(marks)
        marks = {part: _placed(placements.get(part), self._told(mark)) for part, mark in marks.items()}
        active = {sink: each for sink, each in self._sinks.items() if sink not in self._skipped}
        for sink, each in active.items():
            self._on(sink, each.flush)
        for sink, each in active.items():
            self._on(sink, partial(each.commit, self._not_below(sink, marks)))
        self._former_partitions = None
        self._has_letters = False
        self._write_receipts()
        self._show(marks)
        self._placements |= placements
        since = {part: each.since for part, each in placements.items() if each.since is not None}
        for pulsar in self._pulsar.values():
            pulsar.committed({part: mark.offset for part, mark in marks.items()}, since)

    def _show(self, marks: Mapping[int, RangeProgress]) -> None:
        """Commit the offsets of the group where they only show the lag: what counts is committed already.

        Whoever refuses that, such as a group that has members, does not stop the work.
        """
        if self._group is None or self._showing is None:
            return
        try:
            self._group.commit(sink_module.offsets_of(self._work.topic, marks))
        except KafkaRefused as exc:
            if exc.retriable:
                raise
            self._showing.failed(exc)
        else:
            self._showing.worked()

    def _told(self, mark: RangeProgress) -> RangeProgress:
        """Leave the digest out of a mark if a function may have failed in what it stands for.

        It may not fail in the next run, which then sends elsewhere what is a letter now. Without a digest
        nothing is left out.
        """
        return (
            replace(mark, more=mark.more.replace(_plan_member(self._work), "")) if self._has_letters else mark
        )

    def _placements_at(self, marks: Mapping[int, RangeProgress]) -> dict[int, Placement]:
        """Return what holds for the records behind marks that are committed now."""
        now, found = _milliseconds(), dict[int, Placement]()
        for part, mark in marks.items():
            if (placement := self._placements.get(part)) is not None:
                end = self._stored_before.get(part)
                since = placement.since_of_mark(now, is_past=end is not None and mark.offset >= end)
                found[part] = replace(placement, since=since)
        return found

    def _write_receipts(self) -> None:
        receipts, self._behind = self._behind, []
        on_kafka = [each for each in receipts if self._sink_of[each.target] not in self._pulsar]
        if on_kafka:
            with closing(Producer(self._cluster)) as producer:
                for output in on_kafka:
                    topic = self._work.program.targets[output.target].topic
                    sink_module.log_lost(topic, output, producer.offer(topic, output.partition, output.body))
        for output in receipts:
            target = self._work.program.targets[output.target]
            if target.sink in self._pulsar:
                sink_module.log_lost(target.topic, output, self._receipt_output(target.sink).offer(output))

    def _receipt_output(self, sink: int) -> PulsarOutput:
        if sink not in self._receipts:
            made = PulsarOutput(self._work, self._cluster.pulsar(sink), sink, exactly_once=False)
            made.place(0, Placement(self._cluster.fixed_partitions), 0, begun=False)
            self._receipts[sink] = made
        return self._receipts[sink]

    def _not_below(self, sink: int, marks: Mapping[int, RangeProgress]) -> dict[int, RangeProgress]:
        known = {part: offsets[sink] for part, offsets in self._known.items() if sink in offsets}
        return {
            part: replace(mark, offset=max(mark.offset, known.get(part, 0))) for part, mark in marks.items()
        }

    def close(self) -> None:
        """Abort what is open and let go of all; raises ProducerFenced if that is learnt only now."""
        with ExitStack() as ending:
            for sink, each in self._sinks.items():
                ending.callback(self._on, sink, each.close)
            for pulsar in (*self._pulsar.values(), *self._receipts.values()):
                ending.callback(pulsar.close)

    def _on(self, sink: int, step: Callable[[], _Result]) -> _Result:
        try:
            return step()
        except ProducerFenced:
            self._lost_second = self._lost_second or sink != self._first
            raise
