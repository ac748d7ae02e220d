"""The fused query of one source: Spark plans ranges and keeps the checkpoint, its tasks do the rest."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.settings import Settings
from penstock.contract.credentials import Client, options, reveal
from penstock.pipeline.assembly import Source
from penstock.pipeline.fused.program import program_of
from penstock.pipeline.fused.source import Planner, source_class
from penstock.pipeline.fused.work import COUNTED, Work
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["counted", "new_query", "work_of"]


def new_query(source: Source) -> str:
    """Name the marks and transactions of a new checkpoint."""
    return f"penstock.{source.name}.{uuid.uuid4().hex[:12]}"


def settings_of(source: Source) -> Settings:
    """Give how the raw client reaches the cluster of a source, credentials included."""
    receive = source.receive
    own = {"client.id": receive.client_id} if receive.client_id else {}
    return Settings.of({**reveal(options(receive.connection, Client.CONFLUENT_KAFKA)), **own})


def work_of(source: Source, stage: Stage, settings: JobOptions, *, group: str, on_data_loss: str) -> Work:
    """Give what the workers of a source are told; where a cluster has no transactions, none are promised."""
    reached = settings_of(source)
    with Cluster(reached) as cluster:
        transactional = cluster.transactional
    return Work(
        program=program_of(stage),
        stage=stage,
        settings=reached,
        topic=source.topic,
        group=group,
        on_data_loss=on_data_loss,
        exactly_once=settings.exactly_once and transactional,
        shadow=settings.shadow,
    )


def counted(
    spark: SparkSession, work: Work, settings: JobOptions, *, name: str, begin: Offsets
) -> DataStreamWriter:
    """Give the query whose rows are counts, observed under the name; nothing is left for a sink to write."""
    from pyspark.sql import functions as F

    planner = Planner(
        settings=work.settings,
        topic=work.topic,
        begin=begin,
        limit=settings.max_offsets,
        workers=spark.sparkContext.defaultParallelism,
    )
    form = f"penstock_{uuid.uuid4().hex[:12]}"
    spark.dataSource.register(source_class(form, planner, work.packed()))
    counts = spark.readStream.format(form).load()
    return counts.observe(name, *(F.sum(column).alias(column) for column in COUNTED)).writeStream.format(
        "noop"
    )
