"""A source without Spark: one loop fetches, works and commits; its progress is the offsets of its group.

Records leave when the end of the topic is reached, not when a fetch comes back empty: that is the difference
between one millisecond and twenty.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from threading import Event
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.retry import is_retriable, pauses
from penstock.brokers.outage import OutageLog
from penstock.errors import (
    AccessDenied,
    CheckpointMismatch,
    ClusterError,
    JobFailed,
    KafkaRefused,
    PenstockError,
    ProducerFenced,
    TlsFailed,
    UnknownSchemas,
    Unreachable,
)
from penstock.pipeline.delivery.cluster_marks import (
    SOURCE_SINK,
    Marks,
    earlier_plan,
    is_open,
    lowest_marks,
    moment_of,
    offsets_by_sink,
    same_plan,
)
from penstock.pipeline.delivery.kafka_sink import FanOut, committed_marks, opened
from penstock.pipeline.delivery.kept_plans import kept_plans
from penstock.pipeline.delivery.loop_run import LoopRun, ProgressReport
from penstock.pipeline.delivery.partition_reader import PartitionReader
from penstock.pipeline.delivery.range_clock import OpenRange, RangeClock, read_open_range
from penstock.pipeline.delivery.range_progress import read_belonging, read_run
from penstock.pipeline.delivery.sink import Sink
from penstock.pipeline.delivery.source_cluster import (
    PulsarSourceCluster,
    SourceCluster,
    source_cluster,
    source_earliest,
    source_latest,
)
from penstock.pipeline.delivery.worker_spec import TRANSACTION_SECONDS, WorkerSpec
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Loop", "refuse_other_owner"]

_log = logging.getLogger(__name__)
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_FIRST_PAUSE: Final = 0.5
"""Seconds before a loop begins anew whose cluster was away."""
_SETTLED: Final = 5.0
"""Seconds without a new record after which everything before was committed, if nothing has failed."""
_RETURNING: Final = 60.0
"""Seconds after an outage in which a refusal that passes is taken for a part of the return."""


class Loop:
    """One source, until it is asked to stop, has come to the end, or has nothing to do for long."""

    def __init__(
        self,
        work: WorkerSpec,
        tell: Callable[[ProgressReport], None],
        *,
        stop: Event,
        once: bool = False,
        until_idle: float | None = None,
        anew: bool = False,
        take_over: bool = False,
        outage: OutageLog | None = None,
        learnt: Callable[[UnknownSchemas], WorkerSpec] | None = None,
        restore: Callable[[str, Iterable[bytes]], WorkerSpec | None] | None = None,
    ) -> None:
        """`outage` is told whether the cluster answers.

        `learnt` gives the work that knows schemas which records have named; without it they end the loop.
        `restore` makes the work of an earlier plan, of which it is given the digest and what was kept of this
        one or others; None if it is not to be had any more, and it may go on without.
        """
        self._restore = restore
        self._outage = outage or OutageLog(_log, f"the cluster of {work.topic}")
        self._work = work
        self._tell = tell
        self._stop = stop
        self._once = once
        self._until_idle = until_idle
        self._anew = anew
        self._take_over = take_over
        self._learnt = learnt
        self._run_id = secrets.token_hex(4)
        self._runs: set[str | None] = set()
        """Whose marks were there when it began; other ones are of somebody who began later."""
        self._is_open = False
        """Whether marks that were there when it began say that something behind them was begun."""
        self._doubt: ProducerFenced | None = None
        """Why it is not certain that nobody else works under the group."""

    def run(self) -> None:
        """Run; nothing else may work under the same group, and who does is shut out.

        A loop without an end goes on for as long as the cluster is away: it begins anew where its group is.
        """
        delays = pauses(_FIRST_PAUSE)
        while not self._has_run() and not self._stop.wait(next(delays)):
            pass

    def _has_run(self) -> bool:
        """Run until it is over; False if the cluster was away for too long and it may begin anew."""
        try:
            while not self._is_ended():
                pass
        except PenstockError as exc:
            if not self._is_daemon or not _is_away(exc):
                raise
            if isinstance(exc, KafkaRefused) and self._outage.seconds_since_end < _RETURNING:
                # Brokers answer before their coordinators have read their logs: that is no second outage.
                _log.info("group %s: begins anew: %s", self._work.group, exc)
            else:
                self._outage.failed(exc, is_work=True)
            if self._stop.is_set():
                _log.warning("group %s: what was under way is done again by the next run", self._work.group)
            return False
        return True

    @property
    def _is_daemon(self) -> bool:
        """Whether it has no end of its own."""
        return not self._once and self._until_idle is None

    def _is_ended(self) -> bool:
        """Run until it is over; False if it shall begin anew, with schemas that records have named."""
        try:
            self._run_once()
        except UnknownSchemas as exc:
            if self._learnt is None:
                raise
            return self._learn(exc, self._learnt)
        return True

    def _learn(self, unknown: UnknownSchemas, learnt: Callable[[UnknownSchemas], WorkerSpec]) -> bool:
        """Look up what records have named, as long as the registry is away; True if it is asked to end."""
        delays = pauses(_FIRST_PAUSE)
        while not self._stop.is_set():
            try:
                self._work = learnt(unknown)
            except ClusterError as exc:
                # A registry answers with an error of the server while its own store is away.
                if not self._is_daemon or isinstance(exc, AccessDenied | TlsFailed):
                    raise
                self._outage.failed(exc)
                self._stop.wait(next(delays))
            else:
                self._outage.worked()
                return False
        return True

    def _run_once(self, *, goes_on: bool = True, finishes: bool = True) -> None:
        """Run; what another plan has begun is finished by it first, unless that was done just now."""
        outlet: Sink | None = None
        try:
            with self._cluster() as cluster:
                self._look_who_works(cluster)
                with opened(self._work, cluster, "loop") as outlet:
                    begun = self._begun(cluster) if finishes else None
                    if begun is None:
                        self._run(cluster, outlet, goes_on)
            if begun is not None:
                self._finish(begun)
                self._run_once(finishes=False)
        except ProducerFenced as exc:
            if outlet is None or not outlet.expired:
                raise _taken_over(self._work) from exc
            self._doubt = exc
            raise Unreachable(
                f"a transaction took longer than {TRANSACTION_SECONDS:.0f} s, and was aborted",
                where=f"group {self._work.group}",
                next="look at the brokers; nothing of it is lost, and the next run does it again",
            ) from exc

    def _begun(self, cluster: Cluster) -> WorkerSpec | None:
        """Return the work of the plan that left something open; None if that was this one, or nothing is.

        None also if it is not to be had: then nothing is left out, and what is open is written again. It is
        looked for when nobody else can move the marks any more.
        """
        work = self._work
        if self._restore is None or self._anew or not work.exactly_once:
            return None
        found = self._committed(cluster, decided=None)
        # Pulsar clusters have no marks.
        sinks = sorted(found.keys() & {target.sink for target in work.program.targets})
        digest = earlier_plan(found, sinks, work.plan)
        return None if digest is None else self._restore(digest, kept_plans(work, cluster))

    def _finish(self, begun: WorkerSpec) -> None:
        """Finish by the plan that began it what is stored in part: on some clusters, or on Pulsar."""
        _log.info("group %s: what was begun is finished by the routes that began it", self._work.group)
        other = Loop(begun, self._tell, stop=self._stop, take_over=self._take_over, outage=self._outage)
        other._run_id = self._run_id
        try:
            other._run_once(goes_on=False)
        finally:
            # Whether it was shut out, and by whom, is looked at before the next attempt.
            self._doubt, self._runs = other._doubt, other._runs

    def _cluster(self) -> Cluster:
        return source_cluster(self._work, stop=self._stop, outage=self._outage)

    def _look_who_works(self, cluster: Cluster) -> None:
        """Raise JobFailed if it was shut out by another loop, and not because of time.

        A broker says the same of both; who began later has committed marks before anything else.
        """
        if self._doubt is not None:
            found = self._committed(cluster)
            if not _runs(found) <= {*self._runs, self._run_id}:
                raise _taken_over(self._work) from self._doubt
            self._doubt = None

    def _committed(self, cluster: Cluster, decided: Collection[int] | None = ()) -> Marks:
        if isinstance(cluster, SourceCluster) and self._work.exactly_once:
            return committed_marks(self._work, cluster, decided=decided)
        if isinstance(cluster, PulsarSourceCluster):
            return {0: lowest_marks(committed_marks(self._work, cluster), self._work.marked)}
        return {0: GroupOffsets(cluster, self._work.group).committed(self._work.topic)}

    def _run(self, cluster: Cluster, outlet: Sink, goes_on: bool) -> None:
        start, ahead, moments, begun = self._start(cluster, outlet)
        ends = source_latest(self._work, cluster) if self._once else None
        clock = RangeClock()
        with closing(PartitionReader(self._work, cluster, outlet.put, start, ends, clock=clock)) as feed:
            run = LoopRun(self._work, cluster, feed, outlet, self._gets_on, self._run_id, clock)
            if self._work.pulsar_outputs and self._work.exactly_once:
                latest = source_latest(self._work, cluster)
                run.wait_to_adopt(latest)
                if goes_on and self._is_open:
                    run.begun_until(latest)
            run.claim(moments, begun)
            # From here on the group's offsets are those of this loop.
            self._anew = False
            if isinstance(outlet, FanOut):
                run.catch_up(outlet, ahead, moments)
                run.finish_begun(begun, None if goes_on else outlet.stored_ends())
            run.until(self._is_over if goes_on else lambda feed, idle: True)

    def _start(
        self, cluster: Cluster, outlet: Sink
    ) -> tuple[Offsets, Mapping[int, Offsets], Mapping[int, int], Mapping[int, OpenRange]]:
        """Give where to begin; by partition how far each sink is where they differ, and what now() was there.

        Last, by partition, what was perhaps begun behind where it begins, and with which moment. The marks
        are read when nobody else can move them any more.
        """
        begin = source_earliest(self._work, cluster)
        found = self._committed(cluster, decided=None)
        if not self._take_over:
            # Somebody else may have written here since the job was prepared.
            for marks in found.values():
                refuse_other_owner(self._work, marks)
        self._runs = _runs(found)
        if self._anew:
            if isinstance(outlet, FanOut):
                for part, first in begin.items():
                    outlet.place(part, None, first)
            return begin, {}, {}, {}
        if not isinstance(outlet, FanOut):
            return (
                {**begin, **{part: mark.offset for part, mark in found[0].items() if part in begin}},
                {},
                {},
                {},
            )
        return self._fanned_out_start(begin, found, outlet)

    def _fanned_out_start(
        self, begin: Offsets, found: Marks, outlet: FanOut
    ) -> tuple[Offsets, Mapping[int, Offsets], Mapping[int, int], Mapping[int, OpenRange]]:
        """Return what `_start` does where several marks may differ, and place the outlet there."""
        places = {part: offsets_by_sink(part, first, found, outlet.sinks) for part, first in begin.items()}
        ahead = {part: each for part, each in places.items() if len({*each.values()}) > 1}
        leading = {
            part: [
                mark
                for sink in outlet.sinks
                if (mark := found[sink].get(part)) is not None and mark.offset > min(each.values())
            ]
            for part, each in ahead.items()
        }
        if not same_plan((mark for marks in leading.values() for mark in marks), self._work.plan):
            ahead = {}  # the routes were edited since: nothing is left out, and nothing lost
        outlet.keep(ahead)
        known = {
            part: [
                mark
                for sink in outlet.sinks
                # A cluster that was not written for a while has an old mark, which says nothing any more.
                if (mark := found[sink].get(part)) is not None and mark.offset >= min(each.values())
            ]
            for part, each in places.items()
        }
        for part, group in found.get(SOURCE_SINK, {}).items():
            if not known.get(part, True) and group.offset == min(places[part].values()):
                known[part] = [group]  # all marks are older than the group's, which was moved since
        for part, each in places.items():
            lowest = min(known[part], key=lambda mark: mark.offset, default=None)
            outlet.place(part, lowest, min(each.values()))
        outlet.divide_as(mark for marks in known.values() for mark in marks)
        self._is_open = any(is_open(mark) for marks in known.values() for mark in marks)
        found_moments = {part: moment_of(leading[part]) for part in ahead}
        moments = {part: moment for part, moment in found_moments.items() if moment is not None}
        start = {part: min(each.values()) for part, each in places.items()}
        begun = {
            part: open_range
            for part, first in start.items()
            for mark in known[part]
            if mark.offset == first and (open_range := read_open_range(mark.metadata)) is not None
        }
        return start, ahead, moments, begun

    def _gets_on(self, beat: ProgressReport) -> None:
        self._outage.worked(is_work=True)
        self._tell(beat)

    def _is_over(self, feed: PartitionReader, idle: float) -> bool:
        if idle > _SETTLED:
            self._outage.worked(is_work=True)
        if self._stop.is_set() or (self._once and not feed.waiting):
            return True
        is_idle = feed.is_answered and feed.caught_up and not feed.holds
        return self._until_idle is not None and is_idle and idle > self._until_idle


def _runs(found: Marks) -> set[str | None]:
    return {read_run(mark.metadata) for marks in found.values() for mark in marks.values()}


def _taken_over(work: WorkerSpec) -> JobFailed:
    return JobFailed(
        "another loop took over",
        where=f"group {work.group}",
        why="It began with the same group; this one writes no more.",
        next="give each job a group of its own: --group",
    )


def _is_away(error: PenstockError) -> bool:
    """Say whether the cluster, or the leader of a partition, is away; a deleted topic stays away."""
    gone = isinstance(error, KafkaRefused) and error.error_code in _GONE
    return is_retriable(error) and not gone


def refuse_other_owner(work: WorkerSpec, marks: Mapping[int, GroupOffset]) -> None:
    """Raise CheckpointMismatch if the offsets of the group were committed by another pipeline.

    Offsets without an owner are those of an older version, or were set by an operator's tool.
    """
    own = work.belonging.owner
    for mark in marks.values():
        other = read_belonging(mark.metadata).owner
        if own is not None and other is not None and not own.is_same(other):
            raise CheckpointMismatch(
                "the group belongs to another pipeline",
                where=f"group {work.group}",
                why=f"Its offsets were committed by {other.label}; this is {own.label}.",
                next="give this pipeline a name of its own (name: in its file), or a group (--group); "
                "--take-over goes on from these offsets",
            )
