"""A job without Spark: a loop for each source, in a thread of its own, told like the batches of a query.

There is no checkpoint: the offsets of the group say where to go on, and whose they are. It is the group that
the contract or `--group` names, else one with the names of contract, pipeline (if it has one) and source.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.outage import OutageLog
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.fused.loop import Beat, Loop, refuse_other_owner
from penstock.pipeline.fused.mark import Belonging, Owner, read_belonging
from penstock.pipeline.fused.same_topic import are_certainly_two
from penstock.pipeline.fused.work import Work
from penstock.pipeline.job.choice import LOOP, chosen, guarantee
from penstock.pipeline.job.fingerprint import Change, refuse
from penstock.pipeline.job.fused import work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.preparation import promised, refuse_gap
from penstock.pipeline.job.progress import LOST, Progress, counts_of
from penstock.pipeline.job.runner import Job, Totals
from penstock.pipeline.job.survey import beyond_end, settled, survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoopJob", "owner_of"]

_log = logging.getLogger(__name__)
_TURN: Final = 0.0005
"""Seconds that one thread may keep the others waiting: a record should not wait for a status line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A source that may run."""

    work: Work
    anew: bool
    """Whether the group's offsets belong to something else, and it was allowed to forget them."""
    position: Offsets
    """Where it begins."""
    is_empty: bool
    """Whether the topic held nothing when it was looked at."""


class LoopJob(Job):
    """One run of a pipeline by loops.

    with LoopJob(pipeline, JobOptions(once=True)) as job:
        job.prepare()
        job.run()
    """

    needs_spark = False
    _ready: Mapping[str, _Ready] = MappingProxyType({})

    @property
    def progress_in(self) -> str:
        """Name the groups."""
        return ", ".join(f"group {ready.work.group}" for ready in self._ready.values())

    def __enter__(self) -> LoopJob:
        return self

    def prepare(self) -> None:
        """Do everything that can fail before a loop begins."""
        sources = sources_of(self.pipeline)
        if self.pipeline.trigger:
            self._note("trigger: is for Spark; the loop takes records as they come")
        self._ready = {source.name: self._prepare_one(source) for source in sources}
        for source, (name, ready) in zip(sources, self._ready.items(), strict=True):
            self.totals[name] = Totals()
            self.outages[name] = OutageLog(_log, f"{name}: {source.receive.server}")
            self._plan(source, LOOP, guarantee(LOOP, source, exactly_once=ready.work.exactly_once))
            self._begin(name)
            self._watch_lag(name, source, ready.position, outage=None)

    def _prepare_one(self, source: Source) -> _Ready:
        chosen(LOOP, source, self.pipeline)
        stage = stage_of(source, self.pipeline)
        found = survey(source, stage, self._clusters)
        group = group_of(source, self.pipeline, self.options.group) or _group(source, self.pipeline)
        policy = self.options.on_data_loss or self.pipeline.on_data_loss
        ready = settled(stage, found, len(source.servers))
        work = work_of(
            source,
            ready,
            self.options,
            group=group,
            on_data_loss=policy,
            owner=owner_of(source, self.pipeline),
        )
        with Cluster(work.settings) as cluster:
            # A loop that was killed may have left a transaction open, which ends when this one begins.
            marks = GroupOffsets(cluster, group).committed(source.topic, stable=False)
        if not self.options.take_over:
            refuse_other_owner(work, marks)
        position = {part: mark.offset for part, mark in marks.items()}
        passed = beyond_end(position, source, found, self._clusters)
        anew = self._is_other((*passed, *remade(work.belonging, marks)), group)
        lost = 0 if anew else gap(position, found.earliest)
        if lost and policy == "stop":
            refuse_gap(lost, source.topic, f"group {group}")
        for note in (*promised(source, work, self.options), *_begins(source, group, marks, anew)):
            self._note(note)
        begin = found.earliest if anew else {**found.earliest, **position}
        return _Ready(work=work, anew=anew, position=begin, is_empty=found.is_empty)

    def _is_other(self, changed: Sequence[Change], group: str) -> bool:
        """Say whether the marks are of another topic; refuse that unless it may begin anew."""
        if not self.options.fresh_checkpoint:
            refuse(changed, f"group {group}")
        return bool(changed)

    def run(self, spark: SparkSession | None = None) -> None:
        """Run all sources to their end; the first failure ends the others too."""
        self._run_once()
        failed: list[Exception] = []
        loops = [self._loop(name, ready, failed) for name, ready in self._ready.items()]
        self.running = True
        self._busy = monotonic()
        try:
            with _attentive(), self._measured():
                for loop in loops:
                    loop.start()
                while any(loop.is_alive() for loop in loops):
                    self._hear()
                asked = self._stop.is_set()
        finally:
            self.running = False
            self._stop.set()
            for loop in loops:
                loop.join()
        self._hear()
        if failed:
            raise failed[0]
        for name, ready in () if asked else self._ready.items():
            self._note_nothing_new(
                name, ready.work.topic, f"group {ready.work.group}", is_empty=ready.is_empty
            )

    def _loop(self, name: str, ready: _Ready, failed: list[Exception]) -> Thread:
        loop = Loop(
            ready.work,
            self._teller(name),
            stop=self._stop,
            once=self.options.once,
            until_idle=self.options.until_idle,
            anew=ready.anew,
            take_over=self.options.take_over,
            outage=self.outages[name],
        )

        def run() -> None:
            try:
                loop.run()
            except Exception as exc:  # noqa: BLE001  # whatever it is, `run` raises it in the caller's thread
                failed.append(exc)
                self._stop.set()

        return Thread(target=run, name=f"penstock-{name}", daemon=True)

    def _teller(self, name: str) -> Callable[[Beat], None]:
        numbers = iter(range(1_000_000_000))

        def tell(beat: Beat) -> None:
            self._told.put(
                Progress(
                    source=name,
                    batch=next(numbers),
                    counts=counts_of(beat.counts),
                    seconds=beat.seconds,
                    lag=beat.lag,
                    start=beat.start,
                    end=beat.end,
                    records=beat.counts["n_in"],
                    lost=beat.counts[LOST],
                )
            )

        return tell


def _group(source: Source, pipeline: Pipeline) -> str:
    """Name the group of a source that neither the contract nor anybody else has named."""
    title = pipeline.contract.info.title if pipeline.contract.info else "pipeline"
    return ".".join(filter(None, ("penstock", title, pipeline.name, source.name)))


def owner_of(source: Source, pipeline: Pipeline) -> Owner:
    """Name the pipeline of a source by its routes; one without a target counts by its name."""
    targets = {
        route.name: [f"{operation.server}/{operation.topic}" for operation in route.send] or [""]
        for route in source.routes
    }
    return Owner.of(pipeline.name, ((name, target) for name, found in targets.items() for target in found))


def remade(own: Belonging, marks: Mapping[int, GroupOffset]) -> Iterator[Change]:
    """Say that the marks are of a topic that was deleted and made again."""
    known = {read_belonging(mark.metadata).topic_id for mark in marks.values()}
    for was in sorted(filter(None, known)):
        if are_certainly_two(was, own.topic_id):
            text = f"the topic was deleted and made again: its id was {was}, now it is {own.topic_id}"
            yield Change(text, fatal=True)


def _begins(source: Source, group: str, marks: Mapping[int, GroupOffset], anew: bool) -> Iterator[str]:
    """Say what is read from where, if that is not simply where the last run ended."""
    if not marks or anew:
        yield f"{source.name}: group {group} has no offsets of {source.topic}: it is read from its beginning"
    elif all(read_belonging(mark.metadata).owner is None for mark in marks.values()):
        yield (
            f"{source.name}: the offsets of group {group} do not say which pipeline they are of: "
            "they are taken as those of this one"
        )


@contextmanager
def _attentive() -> Iterator[None]:
    """Let threads wait little for each other, and look for cycles only in what is made from now on."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
