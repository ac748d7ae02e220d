"""The fused query of one source: Spark plans ranges and keeps the checkpoint, its tasks do the rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.contract.credentials import Client, options, reveal
from penstock.errors import PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.fused.mark import Belonging, Owner
from penstock.pipeline.fused.program import Program, program_of
from penstock.pipeline.fused.source import Planner
from penstock.pipeline.fused.spans import Span
from penstock.pipeline.fused.work import COUNTED, COUNTED_DDL, Work
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.spark.stream import planned_stream
from penstock.pipeline.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["counted", "new_query", "planner_of", "work_of"]

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


def planner_of(spark: SparkSession, work: Work, settings: JobOptions, begin: Offsets) -> Planner:
    """Give what plans the batches of a source; tasks are as many as the cluster has room for at that time."""
    context = spark.sparkContext
    return Planner(
        settings=work.settings,
        topic=work.topic,
        begin=begin,
        limit=settings.max_offsets,
        workers=lambda: context.defaultParallelism,
        topic_id=work.belonging.topic_id,
    )


def counted(spark: SparkSession, work: Work, planner: Planner, *, name: str) -> DataStreamWriter:
    """Give the query whose rows are counts, observed under the name; nothing is left for a sink to write."""
    from pyspark.sql import functions as F

    counts = planned_stream(spark, name, COUNTED_DDL, planner, partial(_counts, work.packed()))
    return counts.observe(name, *(F.sum(column).alias(column) for column in COUNTED)).writeStream.format(
        "noop"
    )


def _counts(packed: bytes, spans: Sequence[Span]) -> Iterator[tuple[int, ...]]:
    # Only in a task are kernels needed.
    from penstock.pipeline.fused.task import counted

    yield counted(packed, spans)
