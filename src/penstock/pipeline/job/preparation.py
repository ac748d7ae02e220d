"""Before anything runs: look at the clusters, hold the checkpoint against them, count what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
    changes,
    moved,
    read_fingerprint,
    refuse,
    write_fingerprint,
)
from penstock.pipeline.job.fused import new_query, work_of
from penstock.pipeline.job.groups import group_of
from penstock.pipeline.job.offsets import gap
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.sinks import Delivery, delivery_of
from penstock.pipeline.job.survey import Clusters, Survey, beyond_end, creation, settled, survey
from penstock.pipeline.stage import Stage
from penstock.pipeline.typed.schemas import Schemas

__all__ = ["Prepared", "prepare", "promised", "refreshed", "refuse_gap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A source that may run."""

    source: Source
    stage: Stage
    schemas: Schemas
    """Those that the stage was given; `refreshed` makes it anew with those learnt since."""
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

    @property
    def promise(self) -> str:
        """What the delivery is worth."""
        if self.work is None:
            return guarantee(COLUMNS, self.source)
        return guarantee(FUSED, self.source, exactly_once=self.work.exactly_once)


def prepare(pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> tuple[Prepared, ...]:
    """Prepare every source, or say why one cannot run; only then fingerprints are written."""
    sources = sources_of(pipeline)
    _leave_none_behind(sources, Path(pipeline.checkpoint).absolute(), settings)
    prepared = tuple(_prepare(source, pipeline, settings, clusters) for source in sources)
    if settings.shadow and not any(each.work for each in prepared):
        raise UsageError(
            "--shadow compares the kernel of the fused engine, and it runs none of these routes",
            next="penstock routes --explain says why; leave --shadow out",
        )
    for each in prepared:
        fingerprint = _fingerprint(each.source, each.survey, each.query, exactly_once=each.exactly_once)
        path = each.checkpoint.fingerprint
        if each.checkpoint.exists and (old := read_fingerprint(path)) is not None:
            # What could not be seen this time is compared the next time.
            fingerprint = replace(fingerprint, created={**old.created, **fingerprint.created})
        write_fingerprint(path, fingerprint)
    return prepared


def _leave_none_behind(sources: Sequence[Source], folder: Path, settings: JobOptions) -> None:
    """Refuse to forget the checkpoint of an operation that is now read from another topic."""
    now = {source.name for source in sources}
    for path in sorted(folder.glob("*.json")):
        checkpoint = Checkpoint(folder=path.with_suffix(""))
        old = read_fingerprint(path) if path.stem not in now and checkpoint.exists else None
        found = [
            change
            for source in sources
            if old is not None
            for change in moved(old, {route.receive.id for route in source.routes}, source.topic)
        ]
        if found and settings.fresh_checkpoint:
            checkpoint.put_aside()
        refuse(found if checkpoint.exists else (), checkpoint.folder)


def _prepare(source: Source, pipeline: Pipeline, settings: JobOptions, clusters: Clusters) -> Prepared:
    group = group_of(source, pipeline, settings.group)
    schemas = Schemas()
    stage = stage_of(source, pipeline, schemas)
    engine = chosen(settings.engine or pipeline.engine, source, pipeline)
    check_functions(stage)
    found, unseen = _with_creation(survey(source, stage, clusters), source, pipeline)
    stage = settled(stage, found, len(source.servers))
    checkpoint = Checkpoint(folder=Path(pipeline.checkpoint).absolute() / source.name)
    compared = _compare(source, found, checkpoint, settings, clusters)
    notes = (*compared, *_without_group(source, group), *unseen)
    query, policy = _query(source, checkpoint, found, engine), settings.on_data_loss or pipeline.on_data_loss
    position = _position(source, checkpoint, query, clusters)
    lost = gap(position, found.earliest)
    if lost and policy == "stop":
        refuse_gap(lost, source.topic, str(checkpoint.folder))
    work = None
    if engine == FUSED and query is not None:
        work = work_of(source, stage, settings, group=query.name, on_data_loss=policy)
        notes = (*notes, *promised(source, work, settings))
    _refuse_downgrade(source, pipeline, settings, checkpoint, work)
    if settings.shadow and work is None:
        notes = (*notes, f"{source.name}: --shadow compares nothing here: the columns engine has no kernel")
    return Prepared(
        source=source,
        stage=stage,
        schemas=schemas,
        survey=found,
        checkpoint=checkpoint,
        delivery=delivery_of(source),
        on_data_loss=policy,
        group=group,
        query=query,
        work=work,
        position=position or found.earliest,
        lost=0 if work else lost,
        notes=notes,
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


def _query(source: Source, checkpoint: Checkpoint, found: Survey, engine: str) -> Query | None:
    """Give the marks that belong to a checkpoint; new ones if the fused engine has never used it."""
    old = read_fingerprint(checkpoint.fingerprint) if checkpoint.exists else None
    if old is not None and old.marks is not None:
        return old.marks
    begin = checkpoint.position(source.topic) or found.earliest
    return Query(new_query(source), begin) if engine == FUSED else None


def _position(source: Source, checkpoint: Checkpoint, query: Query | None, clusters: Clusters) -> Offsets:
    """Give where the next batch begins; marks may be ahead of the checkpoint after a crash."""
    position = checkpoint.position(source.topic)
    if query is None:
        return position
    receive = source.receive
    marks = clusters.client(receive.server, receive.connection).committed(query.name, source.topic)
    return {part: max(at, marks.get(part, 0)) for part, at in (position or query.begin).items()}


def promised(source: Source, work: Work, settings: JobOptions) -> Iterator[str]:
    """Say what is promised less than was asked for."""
    if settings.exactly_once and not work.exactly_once:
        yield f"{source.name}: at least once, because {source.receive.server} has no transactions"


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
    old = read_fingerprint(checkpoint.fingerprint) if checkpoint.exists else None
    asked = (settings.engine or pipeline.engine) == COLUMNS or not settings.exactly_once
    if old is None or not old.exactly_once or asked or (work is not None and work.exactly_once):
        return
    stopped = fused_stops(source, pipeline) or (f"{source.receive.server} has no transactions",)
    raise CheckpointMismatch(
        f"{source.name} was delivered exactly once, and would now be at least once",
        where=str(checkpoint.folder),
        why="\n".join(stopped),
        next="change the routes so that the fused engine can run them, or accept it: --at-least-once, "
        "or engine: columns",
    )


def _compare(
    source: Source, found: Survey, checkpoint: Checkpoint, settings: JobOptions, clusters: Clusters
) -> Iterator[str]:
    """Refuse a checkpoint of something else, or put it aside if that is wanted; say what else has changed."""
    old = read_fingerprint(checkpoint.fingerprint) if checkpoint.exists else None
    if old is None:
        return
    position = checkpoint.position(source.topic)
    passed = beyond_end(position, source, found, clusters)
    changed = (*passed, *changes(old, _fingerprint(source, found)))
    if settings.fresh_checkpoint and any(change.fatal for change in changed):
        aside = checkpoint.put_aside()
        yield f"{source.name}: begins anew; the old checkpoint is {aside}"
        return
    refuse(changed, checkpoint.folder)
    yield from (f"{source.name}: {change.text}" for change in changed)
