"""The fused query of one source: Spark plans ranges and keeps the checkpoint, its tasks do the rest."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.contract.credentials import Client, options, reveal
from penstock.errors import PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.fused.end_watch import EndWatch
from penstock.pipeline.fused.mark import Belonging, Owner
from penstock.pipeline.fused.program import Program, program_of
from penstock.pipeline.fused.source import BatchLimits, Planner
from penstock.pipeline.fused.spans import Span
from penstock.pipeline.fused.work import COUNTED, COUNTED_DDL, Work
from penstock.pipeline.job.options import MAX_OFFSETS_PER_TRIGGER, JobOptions
from penstock.pipeline.spark.startup import is_local
from penstock.pipeline.spark.stream import planned_stream
from penstock.pipeline.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["counted", "new_query", "planner_of", "why_whole", "work_of"]

_PER_SLOT: Final = MAX_OFFSETS_PER_TRIGGER // 2
"""Offsets of a batch for each slot, by default."""
_MOST_EXECUTORS: Final = 100
"""Executors that a batch is divided for where dynamic allocation has no bound."""
_SLOT_SECONDS: Final = 15.0
"""How long a task on a cluster waits for a broker that is away; Spark tries it several times."""
_MARKER: Final = 78
"""The size of a batch with one control record (KIP-98): 61 for the batch, 17 for the record."""


def new_query(source: Source) -> str:
    """Name the marks and transactions of a new checkpoint."""
    return f"penstock.{source.name}.{uuid.uuid4().hex[:12]}"


def settings_of(source: Source, settings: JobOptions) -> Settings:
    """Give how the raw client reaches the cluster of a source, credentials included."""
    receive = source.receive
    own = {"client.id": receive.client_id} if receive.client_id else {}
    return Settings.of(
        {**reveal(options(receive.connection, Client.CONFLUENT_KAFKA)), **own},
        deadline=settings.broker_timeout,
    )


def work_of(
    source: Source,
    stage: Stage,
    settings: JobOptions,
    *,
    group: str,
    on_data_loss: str,
    owner: Owner | None = None,
) -> Work:
    """Give what the workers of a source are told; where a cluster has no transactions, none are promised.

    `owner` is whose the marks are, where they have no checkpoint beside them.
    """
    reached = settings_of(source, settings)
    with Cluster(reached) as cluster:
        transactional = cluster.transactional
        topic_id = cluster.retrying(lambda: cluster.topic_id(source.topic))
    program, exactly_once = program_of(stage), settings.exactly_once and transactional
    if exactly_once:
        _require_room_for_markers(program)
    return Work(
        program=program,
        stage=stage,
        settings=replace(reached, proven=True),
        topic=source.topic,
        group=group,
        on_data_loss=on_data_loss,
        exactly_once=exactly_once,
        shadow=settings.shadow,
        belonging=Belonging(owner, topic_id),
    )


def _require_room_for_markers(program: Program) -> None:
    """Refuse a topic that cannot take the end of a transaction: the broker would try to write it for ever."""
    for target in program.targets:
        if target.limit is not None and target.limit < _MARKER:
            raise PipelineError(
                f"{target.topic} takes {target.limit} bytes at a time, less than the end of a transaction",
                where=f"max.message.bytes of {target.topic}",
                why=f"A transaction ends with a marker of {_MARKER} bytes in every topic that it wrote to.",
                next="raise max.message.bytes of the topic, or write without transactions: --at-least-once",
            )


def why_whole(source: Source, work: Work) -> str | None:
    """Say why no partition of a source may be cut between tasks; None if it may."""
    if work.exactly_once:
        return "exactly once, a partition has one transaction at a time; --at-least-once has none"
    ordered = [route.name for route in source.routes if route.document.ordering != "none"]
    if ordered:
        return f"route {', '.join(ordered)} keeps the order of its records; ordering: none does not"
    return None


def planner_of(
    spark: SparkSession,
    work: Work,
    settings: JobOptions,
    begin: Offsets,
    *,
    watch: EndWatch,
    waits: bool,
    split: bool = False,
) -> Planner:
    """Give what plans the batches of a source; each is divided for the slots that the cluster has then."""
    slots = _slots(spark)
    return Planner(
        settings=work.settings,
        topic=work.topic,
        begin=begin,
        limits=BatchLimits(
            offsets=lambda: settings.max_offsets or max(MAX_OFFSETS_PER_TRIGGER, _PER_SLOT * slots()),
            bytes=settings.max_bytes,
            slots=slots,
            tasks=settings.max_tasks,
            split=split,
        ),
        watch=watch,
        topic_id=work.belonging.topic_id,
        waits=waits,
    )


def _slots(spark: SparkSession) -> Callable[[], int]:
    """Give what tells how many tasks the cluster runs at the same time, by the executors that it has then.

    With dynamic allocation it is how many it may have: Spark asks for executors only when tasks wait.
    """
    context = spark.sparkContext
    # A copy of all settings, which Py4J fetches one by one: some hundred questions.
    conf = context.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return lambda: context.defaultParallelism
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(_MOST_EXECUTORS)) or _MOST_EXECUTORS)
    allowed = min(executors, _MOST_EXECUTORS) * int(conf.get("spark.executor.cores", "1") or 1)
    return lambda: max(context.defaultParallelism, allowed)


def counted(spark: SparkSession, work: Work, planner: Planner, *, name: str, title: str) -> DataStreamWriter:
    """Give the query whose rows are counts, observed under the name; nothing is left for a sink to write.

    Jobs and stages of Spark are called `title`.
    """
    from pyspark.sql import functions as F

    if not is_local(spark.sparkContext.master or ""):
        # A slot of a cluster is not only ours: a task gives it back while its broker is away, and the planner
        # waits. On this machine each source has slots of its own.
        deadline = min(work.settings.deadline, _SLOT_SECONDS)
        work = replace(work, settings=replace(work.settings, deadline=deadline))
    counts = planned_stream(spark, title, COUNTED_DDL, planner, partial(_counts, work.packed()))
    return counts.observe(name, *(F.sum(column).alias(column) for column in COUNTED)).writeStream.format(
        "noop"
    )


def _counts(packed: bytes, spans: Sequence[Span]) -> Iterator[tuple[int, ...]]:
    # Only in a task are kernels needed.
    from penstock.pipeline.fused.task import counted

    yield counted(packed, spans)
