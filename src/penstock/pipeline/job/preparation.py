"""Before anything runs: look at the clusters, hold the checkpoint against them, count what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.errors import CheckpointMismatch, ClusterError, JobFailed, UsageError
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.functions.build import check_functions
from penstock.pipeline.fused.work import Work
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.choice import COLUMNS, FUSED, chosen, fused_stops, guarantee
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
from penstock.pipeline.job.fused import new_query, why_whole, work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.sinks import Delivery, delivery_of
from penstock.pipeline.job.survey import Clusters, Survey, beyond_end, creation, settled, survey
from penstock.pipeline.spark.file_system import FileSystem
from penstock.pipeline.stage import Stage
from penstock.pipeline.typed.schemas import Schemas

__all__ = ["Checked", "Prepared", "check_sources", "prepare", "promised", "refreshed", "refuse_gap"]

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
    work: Work | None
    """What the workers of the fused engine are told, without the name of the marks; None: columns."""
    notes: tuple[str, ...]

    @property
    def promise(self) -> str:
        """What the delivery is worth."""
        if self.work is None:
            return guarantee(COLUMNS, self.source)
        return guarantee(FUSED, self.source, exactly_once=self.work.exactly_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A source that may run."""

    source: Source
    stage: Stage
    schemas: Schemas
    survey: Survey
    checkpoint: Checkpoint
    delivery: Delivery
    on_data_loss: str
    group: str | None = None
    query: Query | None = None
    """What the fused engine knows of the checkpoint; it stays with it, whoever uses it."""
    work: Work | None = None
    """What the workers of the fused engine are told; None: the columns engine runs."""
    position: Offsets = field(default_factory=dict)
    """Where the next batch begins."""
    lost: int = 0
    """Records that were deleted since the checkpoint was written, if the engine does not count them."""
    notes: tuple[str, ...] = ()

    @property
    def exactly_once(self) -> bool:
        """Whether it delivers exactly once."""
        return self.work is not None and self.work.exactly_once


def check_sources(pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> tuple[Checked, ...]:
    """Do everything that can be refused without the checkpoint."""
    checked = tuple(_check(source, pipeline, settings, clusters) for source in sources_of(pipeline))
    if settings.shadow and not any(each.work for each in checked):
        raise UsageError(
            "--shadow compares the kernel of the fused engine, and it runs none of these routes",
            next="penstock routes --explain says why; leave --shadow out",
        )
    return checked


def _check(source: Source, pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> Checked:
    group = group_of(source, pipeline, settings.group)
    schemas = Schemas()
    stage = stage_of(source, pipeline, schemas)
    engine = chosen(settings.engine or pipeline.engine, source, pipeline)
    check_functions(stage)
    found, unseen = _with_creation(survey(source, stage, clusters), source, pipeline)
    stage = settled(stage, found, len(source.servers))
    policy = settings.on_data_loss or pipeline.on_data_loss
    work, notes = None, [*_without_group(source, group), *unseen]
    if engine == FUSED:
        work = work_of(source, stage, settings, group="", on_data_loss=policy)
        notes += promised(source, work, settings)
    else:
        notes += _idle_options(source, settings)
    return Checked(
        source=source,
        stage=stage,
        schemas=schemas,
        survey=found,
        on_data_loss=policy,
        group=group,
        work=work,
        notes=tuple(notes),
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
        fingerprint = _fingerprint(each.source, each.survey, each.query, exactly_once=each.exactly_once)
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
    is_exact = each.work is not None and each.work.exactly_once
    notes = [*_compare(source, found, checkpoint, settings, clusters, is_exact=is_exact)]
    query, replayed = _query(each, checkpoint, settings, clusters)
    position = _position(source, checkpoint, query, clusters)
    lost = gap(position, found.earliest)
    if lost and each.on_data_loss == "stop":
        refuse_gap(lost, source.topic, checkpoint.folder)
    work = None if each.work is None or query is None else replace(each.work, group=query.name)
    _refuse_downgrade(source, pipeline, settings, checkpoint, work)
    return Prepared(
        source=source,
        stage=each.stage,
        schemas=each.schemas,
        survey=found,
        checkpoint=checkpoint,
        delivery=delivery_of(source),
        on_data_loss=each.on_data_loss,
        group=each.group,
        query=query,
        work=work,
        position=position or found.earliest,
        lost=0 if work else lost,
        notes=(*notes, *replayed, *each.notes),
    )


def _with_creation(found: Survey, source: Source, pipeline: Pipeline) -> tuple[Survey, tuple[str, ...]]:
    """Add when the topic was created, or a note why that is not known: it can be read all the same."""
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
) -> tuple[Query | None, tuple[str, ...]]:
    """Return the marks that belong to a checkpoint, and notes.

    They are new if the fused engine has never used it, or if it is to write again what it has written.
    """
    source, is_fused = each.source, each.work is not None
    old = read_fingerprint(checkpoint.files, checkpoint.fingerprint) if checkpoint.exists else None
    position = checkpoint.position(source.topic)
    known = None if old is None else old.marks
    if known is None:
        return (Query(new_query(source), position or each.survey.earliest) if is_fused else None), ()
    # What the marks are ahead of is at most the batch that Spark has planned and not seen the end of.
    planned = {**known.begin, **checkpoint.planned(source.topic)}
    ahead = {part: at for part, at in _marks(source, known, clusters).items() if at > planned.get(part, 0)}
    if not is_fused or not ahead:
        unused = is_fused and settings.replay
        return known, (f"{source.name}: --replay has nothing to do",) if unused else ()
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


def _marks(source: Source, query: Query, clusters: Clusters) -> Offsets:
    receive = source.receive
    return clusters.client(receive.server, receive.connection).committed(query.name, source.topic)


def _position(source: Source, checkpoint: Checkpoint, query: Query | None, clusters: Clusters) -> Offsets:
    """Return where the next batch begins; marks may be ahead of the checkpoint after a crash."""
    position = checkpoint.position(source.topic)
    if query is None:
        return position
    marks = _marks(source, query, clusters)
    return {part: max(at, marks.get(part, 0)) for part, at in (position or query.begin).items()}


def _idle_options(source: Source, settings: JobOptions) -> Iterator[str]:
    """Say which options mean nothing to the columns engine."""
    if settings.shadow:
        yield f"{source.name}: --shadow compares nothing here: the columns engine has no kernel"
    if settings.split:
        yield f"{source.name}: --split is for fused; columns cuts partitions wherever ordering is none"


def promised(source: Source, work: Work, settings: JobOptions) -> Iterator[str]:
    """Say what is promised less than was asked for."""
    if settings.exactly_once and not work.exactly_once:
        yield f"{source.name}: at least once, because {source.receive.server} has no transactions"
    if settings.split and (why := why_whole(source, work)):
        yield f"{source.name}: --split cuts no partition: {why}"


def refreshed(prepared: Prepared, pipeline: Pipeline) -> Prepared:
    """Give a source with the schemas that were learnt since it was prepared."""
    stage = stage_of(prepared.source, pipeline, prepared.schemas)
    servers = prepared.source.servers
    return replace(prepared, stage=settled(stage, prepared.survey, len(servers)))


def _without_group(source: Source, group: str | None) -> Iterator[str]:
    allowed = source.receive.group_ids or ()
    if group is None and len(allowed) > 1:
        yield f"{source.name}: no group shows the progress; choose --group {' or '.join(allowed)}"


def _fingerprint(
    source: Source, found: Survey, query: Query | None = None, *, exactly_once: bool | None = None
) -> Fingerprint:
    return Fingerprint.of(
        source,
        cluster_id=found.cluster_id,
        topic_id=found.topic_id,
        partitions=len(found.latest),
        created=found.created,
        query=query,
        exactly_once=exactly_once,
    )


def _refuse_downgrade(
    source: Source, pipeline: Pipeline, settings: JobOptions, checkpoint: Checkpoint, work: Work | None
) -> None:
    """Refuse to go on at least once where it was exactly once, unless that was asked for.

    An edited condition can stop the fused engine; nobody who edits it thinks of delivery.
    """
    old = read_fingerprint(checkpoint.files, checkpoint.fingerprint) if checkpoint.exists else None
    asked = (settings.engine or pipeline.engine) == COLUMNS or not settings.exactly_once
    if old is None or not old.exactly_once or asked or (work is not None and work.exactly_once):
        return
    stopped = fused_stops(source, pipeline) or (f"{source.receive.server} has no transactions",)
    raise CheckpointMismatch(
        f"{source.name} was delivered exactly once, and would now be at least once",
        where=checkpoint.folder,
        why="\n".join(stopped),
        next="change the routes so that the fused engine can run them, or accept it: --at-least-once, "
        "or engine: columns",
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
