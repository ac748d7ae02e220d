"""A job without Spark: a loop for each source, in a thread of its own, told like the batches of a query.

There is no checkpoint: the offsets of the group say where to go on, and whose they are. It is the group that
the contract or `--group` names, else one with the names of contract, pipeline (if it has one) and source.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.outage import OutageLog
from penstock.errors import PipelineError, UnknownSchemas
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.cluster_marks import lowest_marks
from penstock.pipeline.delivery.kafka_sink import committed_marks
from penstock.pipeline.delivery.loop import Loop, refuse_other_owner
from penstock.pipeline.delivery.loop_run import ProgressReport
from penstock.pipeline.delivery.partition_reader import load_kernels
from penstock.pipeline.delivery.progress_topic import require_progress_topic
from penstock.pipeline.delivery.range_progress import Belonging, Owner, read_belonging
from penstock.pipeline.delivery.same_topic import are_certainly_two
from penstock.pipeline.delivery.source_cluster import SourceCluster
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.functions.build import check_functions, close_functions
from penstock.pipeline.job.choice import (
    LOOP,
    guarantee,
    refuse_unrunnable,
    require_exactly_once,
    require_kernels,
)
from penstock.pipeline.job.fingerprint import Change, refuse
from penstock.pipeline.job.fused import with_progress, with_stage, work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.kept_plan import Begun, KeptPlan, kept_plan
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.preparation import is_indexed, promised, refuse_gap
from penstock.pipeline.job.progress import LOST, Progress, counts_of
from penstock.pipeline.job.runner import Job, Totals
from penstock.pipeline.job.survey import Clusters, Survey, beyond_end, settled, survey
from penstock.pipeline.typed.schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoopJob", "owner_of"]

_log = logging.getLogger(__name__)
_TURN: Final = 0.0005
"""Seconds that one thread may keep the others waiting: a record should not wait for a status line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A source that may run."""

    work: WorkerSpec
    anew: bool
    """Whether the group's offsets belong to something else, and it was allowed to forget them."""
    position: Offsets
    """Where it begins."""
    is_empty: bool
    """Whether the topic held nothing when it was looked at."""
    schemas: Schemas
    learnt: Callable[[UnknownSchemas], WorkerSpec]
    """Looks schemas up in the registry and gives the work that knows them; ClusterError if it cannot."""


class LoopJob(Job):
    """One run of a pipeline by loops.

    with LoopJob(pipeline, JobOptions(once=True)) as job:
        job.prepare()
        job.run()
    """

    engine = LOOP
    _ready: Mapping[str, _Ready] = MappingProxyType({})

    @property
    def progress_in(self) -> str:
        """Name the groups."""
        return ", ".join(f"group {ready.work.group}" for ready in self._ready.values())

    def __enter__(self) -> LoopJob:
        return self

    def prepare(self) -> None:
        """Do everything that can fail before a loop begins."""
        require_kernels()
        sources = sources_of(self.pipeline)
        if self.pipeline.trigger:
            self._note("trigger: is for Spark; the loop takes records as they come")
        self._ready = {source.name: self._prepare_one(source) for source in sources}
        for source, (name, ready) in zip(sources, self._ready.items(), strict=True):
            self.totals[name] = Totals()
            self.outages[name] = OutageLog(_log, f"{name}: {source.receive.server}")
            work = ready.work
            said = guarantee(source, exactly_once=work.exactly_once, indexed=is_indexed(work))
            self._plan(source, said)
            self._begin(name)
            self._watch_lag(name, source, ready.position, outage=None)
            self._show_progress(name, source, ready.work, None)

    def _prepare_one(self, source: Source) -> _Ready:
        refuse_unrunnable(LOOP, source)
        schemas = Schemas()
        group = group_of(source, self.pipeline, self.options.group) or _group(source, self.pipeline)
        policy = self.options.on_data_loss or self.pipeline.on_data_loss
        work, found = self._work(source, self.pipeline, self._clusters, group, policy, schemas)
        require_exactly_once(source, self.pipeline, transactional=work.exactly_once, indexed=is_indexed(work))
        work, marks = _marks(work)
        if not self.options.take_over:
            refuse_other_owner(work, marks)
        position = {part: mark.offset for part, mark in marks.items()}
        passed = beyond_end(position, source, found, self._clusters)
        changed = (*passed, *remade(work.belonging, marks), *self._forgotten(source, work, marks))
        anew = self._is_other(changed, group)
        lost = 0 if anew else gap(position, found.earliest)
        if lost and policy == "stop":
            refuse_gap(lost, source.topic, f"group {group}")
        for note in (*promised(source, work, self.options), *_begins(source, group, marks, anew)):
            self._note(note)
        begin = found.earliest if anew else {**found.earliest, **position}

        def learnt(unknown: UnknownSchemas) -> WorkerSpec:
            if not schemas.learn(str(unknown)):
                raise unknown
            stage = stage_of(source, self.pipeline, schemas)
            return with_stage(work, settled(stage, found, len(source.servers)))

        return _Ready(
            work=work,
            anew=anew,
            position=begin,
            is_empty=found.is_empty,
            schemas=schemas,
            learnt=learnt,
        )

    def _work(
        self,
        source: Source,
        pipeline: Pipeline,
        clusters: Clusters,
        group: str,
        policy: str,
        schemas: Schemas,
        *,
        loads: bool = True,
    ) -> tuple[WorkerSpec, Survey]:
        """Look at the clusters of a source, and return what its loop is told.

        Without `loads` no function is loaded: somebody else may have named it.
        """
        stage = stage_of(source, pipeline, schemas)
        if loads:
            check_functions(stage)
        found = survey(source, stage, clusters)
        work = work_of(
            source,
            settled(stage, found, len(source.servers)),
            self.options,
            clusters,
            found,
            group=group,
            on_data_loss=policy,
            owner=owner_of(source, pipeline),
        )
        load_kernels(work)
        kept = kept_plan(source, pipeline, work)
        if kept is None or not (work.outputs or work.progress or self._keeps_beside(source, pipeline)):
            return work, found
        return replace(work, kept_plan=kept.packed()), found

    def _keeps_beside(self, source: Source, pipeline: Pipeline) -> bool:
        """Make sure that plans can be kept on the cluster that is read, where no other one has marks.

        Raises PipelineError if they cannot, and the pipeline requires exactly once.
        """
        server = source.receive.server
        try:
            require_progress_topic(self._clusters.client(server, source.connections[server]), server)
        except PipelineError as exc:
            if pipeline.requires_exactly_once:
                raise
            _log.warning(
                "%s: what is open when the routes are edited will be delivered at least once: %s",
                *(source.name, exc.what),
            )
            return False
        return True

    def _restored(
        self, name: str, now: WorkerSpec, schemas: Schemas, digest: str, packed: Iterable[bytes]
    ) -> WorkerSpec | None:
        """Make the work of the plan that left something open; None if it is not to be had.

        It is called in the thread of a loop. Raises CheckpointMismatch instead of None if the pipeline
        requires exactly once. `schemas` are those of the source: it learns what records of either plan name.
        """
        found = (KeptPlan.unpacked(each) for each in packed)
        kept = next((each for each in found if each is not None and each.digest == digest), None)

        def check(source: Source, old: Pipeline) -> WorkerSpec:
            refuse_unrunnable(LOOP, source)
            told = (now.group, now.on_data_loss, schemas)
            work, _ = self._work(source, old, Clusters(), *told, loads=False)
            assert kept is not None
            if work.plan != digest:
                return work  # which is refused, before anything of it is loaded
            check_functions(work.stage)
            # What is kept stays as it was read.
            work = replace(work, kept_plan=kept.packed())
            return work if work.progress is None else with_progress(work)

        work, said = Begun(plan=kept).work(name, self.pipeline, check)
        _log.warning("%s", said)
        return work

    def _forgotten(
        self, source: Source, work: WorkerSpec, marks: Mapping[int, GroupOffset]
    ) -> Iterator[Change]:
        """Say that marks in topics of Pulsar are gone: the subscription on the source only follows marks.

        Without them everything would be written again, under other names.
        """
        if work.progress is None or work.pulsar is None or marks:
            return
        client = self._clusters.pulsar(source.receive.server, source.receive.connection)
        if client.has_acknowledged(source.topic, work.pulsar.subscription):
            topic = work.progress.topic(work.progress_key, 0)
            yield Change(
                f"the subscription {work.pulsar.subscription} was used, and its marks are gone: {topic} was "
                "deleted, or routes no longer write to the namespace of the first target of then",
                fatal=True,
            )

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
            for committer in self._committers.values():
                committer.close()
            for ready in self._ready.values():
                close_functions(ready.work.stage)
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
            learnt=ready.learnt,
            restore=partial(self._restored, name, ready.work, ready.schemas),
        )

        def run() -> None:
            try:
                loop.run()
            except Exception as exc:  # noqa: BLE001  # whatever it is, `run` raises it in the caller's thread
                failed.append(exc)
                self._stop.set()

        return Thread(target=run, name=f"penstock-{name}", daemon=True)

    def _teller(self, name: str) -> Callable[[ProgressReport], None]:
        numbers = iter(range(1_000_000_000))

        def tell(beat: ProgressReport) -> None:
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


def _marks(work: WorkerSpec) -> tuple[WorkerSpec, Mapping[int, GroupOffset]]:
    """Read where a source goes on; the work that is given back knows what was read on other clusters.

    A loop that was killed may have left a transaction open, which ends when this one begins.
    """
    if work.progress is not None:
        work = with_progress(work)
        return work, work.seen[work.marked[0]].marks
    if not (work.has_outputs and (work.exactly_once or work.pulsar is not None)):
        with Cluster(work.settings) as cluster:
            return work, GroupOffsets(cluster, work.group).committed(work.topic, stable=False)
    with SourceCluster(work) as cluster:
        found = committed_marks(work, cluster, stable=False)
        work = replace(work, seen=dict(cluster.seen))
    # Pulsar has no marks: where nothing else is written, those of the group count.
    return work, lowest_marks(found, found.keys() & {target.sink for target in work.program.targets})


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
