"""Before anything runs: look at the clusters, hold the checkpoint against them, count what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.errors import CheckpointMismatch, ClusterError, JobFailed, UsageError
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.functions.build import check_functions
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.choice import (
    SPARK,
    guarantee,
    refuse_unrunnable,
    require_exactly_once,
    require_kernels,
    why_unrepeatable,
)
from penstock.pipeline.job.fingerprint import (
    Fingerprint,
    Query,
    UnreadableCheckpoint,
    changes,
    moved,
    read_fingerprint,
    refuse,
    write_fingerprint,
)
from penstock.pipeline.job.fused import new_query, why_whole, with_progress, with_stage, work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.kept_batches import OpenBatch
from penstock.pipeline.job.kept_plan import Begun, KeptPlan, begun_batch, kept_plan
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.survey import Clusters, Survey, beyond_end, creation, settled, survey
from penstock.pipeline.spark.file_system import FileSystem
from penstock.pipeline.stage import Stage
from penstock.pipeline.typed.schemas import Schemas

__all__ = [
    "Checked",
    "Prepared",
    "check_sources",
    "learn",
    "is_indexed",
    "prepare",
    "promised",
    "refreshed",
    "refuse_gap",
]

_SHOWN: Final = 5
"""Partitions that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A source whose routes, functions and clusters are in order; its checkpoint was not looked at."""

    source: Source
    stage: Stage
    schemas: Schemas
    """Those that the stage was given; `refreshed` makes it anew with those learnt since."""
    survey: Survey
    on_data_loss: str
    group: str | None
    work: WorkerSpec
    """What the workers are told, without the name of the marks."""
    notes: tuple[str, ...]

    @property
    def promise(self) -> str:
        """What the delivery is worth."""
        work = self.work
        return guarantee(self.source, exactly_once=work.exactly_once, indexed=is_indexed(work))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A source that may run."""

    source: Source
    stage: Stage
    schemas: Schemas
    survey: Survey
    checkpoint: Checkpoint
    on_data_loss: str
    query: Query
    """The name of the marks, and where they began; it stays with the checkpoint, whoever uses it."""
    work: WorkerSpec
    """What the workers are told."""
    group: str | None = None
    position: Offsets = field(default_factory=dict)
    """Where the next batch begins."""
    lost: int = 0
    """Records that were deleted since the checkpoint was written, if tasks do not count them."""
    plan: KeptPlan | None = None
    """What is kept of the plan, so that an edited pipeline can finish the batch that this one leaves open."""
    begun: Begun | None = None
    """The open batch that another plan has begun."""
    open_batch: OpenBatch | None = None
    """How it is finished; None if there is none, or if it cannot be finished by its own plan."""
    notes: tuple[str, ...] = ()

    @property
    def exactly_once(self) -> bool:
        """Whether it delivers exactly once."""
        return self.work.delivers_once

    @property
    def counts_places(self) -> bool:
        """Whether offsets are places in ledgers, by which removed messages cannot be counted."""
        pulsar = self.work.pulsar
        return pulsar is not None and pulsar.numbering.value != "index"


def check_sources(pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> tuple[Checked, ...]:
    """Do everything that can be refused without the checkpoint."""
    require_kernels()
    sources = sources_of(pipeline)
    checked = tuple(_check(source, pipeline, settings, clusters) for source in sources)
    if settings.shadow and not any(each.work.program.has_kernel for each in checked):
        raise UsageError(
            "--shadow compares the kernel with the reference, and it decides about none of these routes",
            next="penstock routes --explain says why; leave --shadow out",
        )
    return checked


def _check(source: Source, pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> Checked:
    refuse_unrunnable(SPARK, source)
    group = group_of(source, pipeline, settings.group)
    schemas = Schemas()
    stage = stage_of(source, pipeline, schemas)
    check_functions(stage)
    found, unseen = _with_creation(survey(source, stage, clusters), source, pipeline)
    stage = settled(stage, found, len(source.servers))
    policy = settings.on_data_loss or pipeline.on_data_loss
    work = work_of(source, stage, settings, clusters, found, group="", on_data_loss=policy)
    require_exactly_once(source, pipeline, transactional=work.exactly_once, indexed=is_indexed(work))
    return Checked(
        source=source,
        stage=stage,
        schemas=schemas,
        survey=found,
        on_data_loss=policy,
        group=group,
        work=work,
        notes=(*_without_group(source, group), *unseen, *promised(source, work, settings)),
    )


def prepare(
    checked: Sequence[Checked],
    pipeline: Pipeline,
    settings: JobOptions,
    clusters: Clusters,
    files: FileSystem,
) -> tuple[Prepared, ...]:
    """Hold every source against its checkpoint; fingerprints are written when all of them may run."""
    _leave_none_behind([each.source for each in checked], files, settings)
    prepared = tuple(_prepare(each, pipeline, settings, clusters, files) for each in checked)
    for each in prepared:
        fingerprint = _fingerprint(
            each.source,
            each.survey,
            each.query,
            exactly_once=each.exactly_once,
            plan=each.plan.as_data() if each.plan else {},
            begun=each.begun.as_data() if each.begun else {},
        )
        path = each.checkpoint.fingerprint
        old = read_fingerprint(files, path) if each.checkpoint.exists else None
        if old is not None:
            # What could not be seen this time is compared the next time.
            fingerprint = replace(fingerprint, created={**old.created, **fingerprint.created})
        if fingerprint != old:
            # Some stores replace a file in two steps, and a driver may be killed between them.
            write_fingerprint(files, path, fingerprint)
    return prepared


def _leave_none_behind(sources: Sequence[Source], files: FileSystem, settings: JobOptions) -> None:
    """Refuse to forget the checkpoint of an operation that is now read from another topic."""
    now = {source.name for source in sources}
    for path in files.list(""):
        name = path.removesuffix(".json")
        checkpoint = Checkpoint(files=files, name=name)
        if name == path or name in now or not checkpoint.exists:
            continue
        old = read_fingerprint(files, path)
        found = [
            change
            for source in sources
            if old is not None
            for change in moved(old, {route.receive.id for route in source.routes}, source.topic)
        ]
        if found and settings.fresh_checkpoint:
            checkpoint.put_aside()
        else:
            refuse(found, checkpoint.folder)


def _prepare(
    each: Checked, pipeline: Pipeline, settings: JobOptions, clusters: Clusters, files: FileSystem
) -> Prepared:
    source, found = each.source, each.survey
    checkpoint = Checkpoint(files=files, name=source.name)
    is_exact = each.work.delivers_once
    notes = [*_compare(source, found, checkpoint, settings, clusters, is_exact=is_exact)]
    query, replayed = _query(each, checkpoint, settings, clusters)
    position = _position(each, checkpoint, query, clusters)
    lost = gap(position, found.earliest)
    if lost and each.on_data_loss == "stop":
        refuse_gap(lost, source.topic, checkpoint.folder)
    work = with_progress(_named(each.work, each.group, query))
    _refuse_downgrade(source, settings, checkpoint, work)
    plan = kept_plan(source, pipeline, work)
    begun = begun_batch(checkpoint, plan)
    open_batch = None
    if begun is not None:
        made_of: tuple[Checked, Pipeline] | None = None

        def checked(source: Source, old: Pipeline) -> WorkerSpec:
            nonlocal made_of
            made_of = _check(source, old, settings, clusters), old
            return made_of[0].work

        begun_work, said = begun.work(source.name, pipeline, checked)
        notes.append(said)
        if begun_work is not None:
            begun_work = with_progress(_named(begun_work, each.group, query))
            end = checkpoint.planned(source.topic)
            open_batch = OpenBatch(end=end, work=begun_work, made_of=made_of)
    return Prepared(
        source=source,
        stage=each.stage,
        schemas=each.schemas,
        survey=found,
        checkpoint=checkpoint,
        on_data_loss=each.on_data_loss,
        group=each.group,
        query=query,
        work=work,
        position=position or found.earliest,
        lost=lost if source.asks_spark else 0,
        plan=plan,
        begun=begun,
        open_batch=open_batch,
        notes=(*notes, *replayed, *each.notes),
    )


def _with_creation(found: Survey, source: Source, pipeline: Pipeline) -> tuple[Survey, tuple[str, ...]]:
    """Add when the topic was created, or a note why that is not known: it can be read all the same."""
    if found.created:
        return found, ()
    try:
        return replace(found, created=creation(source, pipeline)), ()
    except ClusterError as exc:
        why = f"{source.name}: whether the topic is made again later cannot be seen: {exc.what}"
        return found, (why,)


def refuse_gap(lost: int, topic: str, where: str) -> None:
    """Say that records are gone."""
    raise JobFailed(
        f"{lost} records of {topic} were deleted before they were read",
        where=where,
        why="The checkpoint stands before the beginning of the topic.",
        next="--on-data-loss continue goes on with what is left, and counts the gap",
    )


def _query(
    each: Checked, checkpoint: Checkpoint, settings: JobOptions, clusters: Clusters
) -> tuple[Query, tuple[str, ...]]:
    """Return the marks that belong to a checkpoint, and notes.

    They are new if it has none yet, or if it is to write again what it has written.
    """
    source = each.source
    old = read_fingerprint(checkpoint.files, checkpoint.fingerprint) if checkpoint.exists else None
    position = checkpoint.position(source.topic)
    known = None if old is None else old.marks
    if known is None:
        return Query(new_query(source), position or each.survey.earliest), ()
    # What the marks are ahead of is at most the batch that Spark has planned and not seen the end of.
    planned = {**known.begin, **checkpoint.planned(source.topic)}
    ahead = {part: at for part, at in _marks(each, known, clusters).items() if at > planned.get(part, 0)}
    if not ahead:
        return known, (f"{source.name}: --replay has nothing to do",) if settings.replay else ()
    if settings.replay is None:
        raise _older_than_marks(source, checkpoint, planned, ahead)
    written = sum(at - planned.get(part, 0) for part, at in ahead.items())
    if settings.replay:
        note = f"{source.name}: writes again what was written since the checkpoint, {written} offsets or more"
        return Query(new_query(source), {**known.begin, **position}), (note,)
    return known, (f"{source.name}: goes on behind what was written, {written} offsets after the checkpoint",)


def _older_than_marks(
    source: Source, checkpoint: Checkpoint, planned: Offsets, ahead: Offsets
) -> CheckpointMismatch:
    shown = [
        f"partition {part}: the checkpoint ends at {planned.get(part, 0)}, written is up to {at}"
        for part, at in sorted(ahead.items())
    ]
    more = [f"and {len(shown) - _SHOWN} partitions more"] if len(shown) > _SHOWN else []
    return CheckpointMismatch(
        f"the checkpoint of {source.name} is older than what was written with it",
        where=checkpoint.folder,
        why="\n".join((*shown[:_SHOWN], *more)),
        next="an older copy was put back: --no-replay goes on behind what was written, --replay writes the "
        "records after the checkpoint again",
    )


def _named(work: WorkerSpec, group: str | None, query: Query) -> WorkerSpec:
    """Give the work with the name of its marks; a source on Pulsar has a subscription, by default of it."""
    pulsar = None if work.pulsar is None else replace(work.pulsar, subscription=group or query.name)
    return replace(work, group=query.name, run=query.name, pulsar=pulsar)


def _marks(each: Checked, query: Query, clusters: Clusters) -> Offsets:
    source, receive = each.source, each.source.receive
    if each.work.pulsar is not None:
        seen = with_progress(replace(each.work, group=query.name)).seen
        parts = {part for snapshot in seen.values() for part in snapshot.marks}
        # A sink without a mark of a partition is new, and begins where the others are.
        return {
            part: min(each.marks[part].offset for each in seen.values() if part in each.marks)
            for part in parts
        }
    return clusters.client(receive.server, receive.connection).committed(query.name, source.topic)


def _position(each: Checked, checkpoint: Checkpoint, query: Query, clusters: Clusters) -> Offsets:
    """Return where the next batch begins; marks may be ahead of the checkpoint after a crash."""
    position = checkpoint.position(each.source.topic)
    marks = _marks(each, query, clusters)
    return {part: max(at, marks.get(part, 0)) for part, at in (position or query.begin).items()}


def is_indexed(work: WorkerSpec) -> bool:
    """Return whether what is read has positions that ids of records can be made of; Kafka's offsets are."""
    return work.pulsar is None or work.pulsar.is_indexed


def promised(source: Source, work: WorkerSpec, settings: JobOptions) -> Iterator[str]:
    """Return notes on what is promised less than was asked for, and on options without a meaning here."""
    if settings.exactly_once and not work.exactly_once:
        yield f"{source.name}: at least once, because {' or '.join(source.written)} has no transactions"
    elif settings.exactly_once and not work.delivers_once:
        servers = " and ".join(source.native_pulsar)
        why = why_unrepeatable(source, indexed=is_indexed(work))
        yield f"{source.name}: at least once on {servers}, where a second run must give the same: {why}"
    if settings.shadow and not work.program.has_kernel:
        yield f"{source.name}: --shadow compares nothing here: the reference decides about all records"
    if not is_indexed(work):
        yield (
            f"{source.name}: the broker keeps no index for {source.topic}, so positions are places in its "
            "ledgers: lag counts places instead of messages, and removed messages are not noticed "
            "(AppendIndexMetadataInterceptor in brokerEntryMetadataInterceptors mends both)"
        )
    if settings.split and (why := why_whole(source, work)):
        yield f"{source.name}: --split cuts no partition: {why}"
    elif settings.split and source.asks_spark:
        yield f"{source.name}: --split cuts no partition: a route has a condition in Spark's own SQL"


def refreshed(prepared: Prepared, pipeline: Pipeline) -> Prepared:
    """Give a source, and the batch that was begun before, with the schemas that were learnt since."""
    stage = _stage_again(prepared, pipeline)
    open_batch = prepared.open_batch
    if open_batch is not None and open_batch.made_of is not None:
        work = with_stage(open_batch.work, _stage_again(*open_batch.made_of))
        open_batch = replace(open_batch, work=work)
    return replace(prepared, stage=stage, work=with_stage(prepared.work, stage), open_batch=open_batch)


def learn(prepared: Prepared, text: str) -> bool:
    """Look up the schemas that a failed batch names; True if it is worth running it again."""
    made_of = None if prepared.open_batch is None else prepared.open_batch.made_of
    # Both are asked: either may have been the one that did not know them.
    found = [each.schemas.learn(text) for each in (prepared, *(made_of or ())[:1])]
    return any(found)


def _stage_again(made: Prepared | Checked, pipeline: Pipeline) -> Stage:
    stage = stage_of(made.source, pipeline, made.schemas)
    return settled(stage, made.survey, len(made.source.servers))


def _without_group(source: Source, group: str | None) -> Iterator[str]:
    allowed = source.receive.group_ids or ()
    if group is None and len(allowed) > 1:
        yield f"{source.name}: no group shows the progress; choose --group {' or '.join(allowed)}"


def _fingerprint(
    source: Source,
    found: Survey,
    query: Query | None = None,
    *,
    exactly_once: bool | None = None,
    plan: Mapping[str, Any] = MappingProxyType({}),
    begun: Mapping[str, Any] = MappingProxyType({}),
) -> Fingerprint:
    taken = Fingerprint.of(
        source,
        cluster_id=found.cluster_id,
        topic_id=found.topic_id,
        partitions=len(found.latest),
        created=found.created,
        query=query,
        exactly_once=exactly_once,
    )
    return replace(taken, plan=dict(plan), begun=dict(begun))


def _refuse_downgrade(source: Source, settings: JobOptions, checkpoint: Checkpoint, work: WorkerSpec) -> None:
    """Refuse to go on at least once where it was exactly once, unless that was asked for.

    An edited route can cost the promise; nobody who edits it thinks of delivery.
    """
    old = read_fingerprint(checkpoint.files, checkpoint.fingerprint) if checkpoint.exists else None
    if old is None or not old.exactly_once or not settings.exactly_once or work.delivers_once:
        return
    why = f"{' or '.join(source.written)} has no transactions"
    if work.exactly_once:
        stopped = why_unrepeatable(source, indexed=is_indexed(work))
        why = f"{' and '.join(source.native_pulsar)}: {stopped}"
    raise CheckpointMismatch(
        f"{source.name} was delivered exactly once, and would now be at least once",
        where=checkpoint.folder,
        why=why,
        next="change the routes or the cluster back, or accept it: --at-least-once",
    )


def _compare(
    source: Source,
    found: Survey,
    checkpoint: Checkpoint,
    settings: JobOptions,
    clusters: Clusters,
    *,
    is_exact: bool,
) -> Iterator[str]:
    """Refuse a checkpoint of something else, or put it aside if that is wanted; say what else has changed."""
    try:
        old = read_fingerprint(checkpoint.files, checkpoint.fingerprint) if checkpoint.exists else None
        position = checkpoint.position(source.topic)
    except UnreadableCheckpoint as exc:
        if not settings.fresh_checkpoint:
            raise
        yield f"{source.name}: begins anew: {exc.what}; the old checkpoint is {checkpoint.put_aside()}"
        return
    if old is None:
        if checkpoint.has_open_batch:
            yield from _without_marks(source, checkpoint, settings, is_exact=is_exact)
        return
    passed = beyond_end(position, source, found, clusters)
    changed = (*passed, *changes(old, _fingerprint(source, found)))
    if settings.fresh_checkpoint and any(change.fatal for change in changed):
        aside = checkpoint.put_aside()
        yield f"{source.name}: begins anew; the old checkpoint is {aside}"
        return
    refuse(changed, checkpoint.folder)
    yield from (f"{source.name}: {change.text}" for change in changed)


def _without_marks(
    source: Source, checkpoint: Checkpoint, settings: JobOptions, *, is_exact: bool
) -> Iterator[str]:
    """Decide about a batch that may be written in part, if the name of the marks is lost that would tell."""
    if settings.fresh_checkpoint:
        yield f"{source.name}: begins anew; the old checkpoint is {checkpoint.put_aside()}"
    elif is_exact and not settings.replay:
        raise CheckpointMismatch(
            f"the checkpoint of {source.name} has an open batch and no fingerprint",
            where=checkpoint.files.where(checkpoint.fingerprint),
            why="Only the fingerprint says which records of that batch were written. It was removed, or a "
            "driver was killed while its file system replaced it.",
            next="put a copy of this file back; or --replay writes the whole batch again; or "
            "--fresh-checkpoint reads the topic from its beginning",
        )
    else:
        yield f"{source.name}: the fingerprint is missing; the batch that was open is written again"
