"""The query of one source: records in, the stage, records out; and how it is asked to end after its batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.frames.conditions import with_conditions
from penstock.pipeline.job.fused import counted
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.preparation import Prepared
from penstock.pipeline.job.sinks import sink_options, write_batches, write_stream
from penstock.pipeline.job.sources import read_records, reader_options
from penstock.pipeline.stage import COUNTERS, INPUT, OUTPUT_DDL, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["WAITING", "ended", "finish", "start_query"]

WAITING: Final = "Waiting for data"
"""What Spark says of a query that has looked and found nothing new."""
_TERMINATED: Final = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


def start_query(spark: SparkSession, prepared: Prepared, settings: JobOptions) -> StreamingQuery:
    """Start reading a source, from its checkpoint if it has one."""
    source = prepared.source
    if prepared.work is None or prepared.query is None:
        writer = _by_columns(spark, prepared, settings)
    else:
        writer = counted(spark, prepared.work, settings, name=source.name, begin=prepared.query.begin)
    writer = writer.queryName(source.name).option("checkpointLocation", str(prepared.checkpoint.folder))
    if settings.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def _by_columns(spark: SparkSession, prepared: Prepared, settings: JobOptions) -> DataStreamWriter:
    source, limits = prepared.source, prepared.survey.limits
    chosen = reader_options(
        source,
        settings,
        group=prepared.group,
        on_data_loss=prepared.on_data_loss,
        parallelism=spark.sparkContext.defaultParallelism,
    )
    records = read_records(spark, source, chosen)
    producers = tuple(sink_options(source, server, limits) for server in source.servers)
    written = _staged(records, prepared.stage, source.name)
    if prepared.delivery.one_sink:
        return write_stream(written, producers[0])
    return write_batches(written, producers)


def _staged(records: DataFrame, stage: Stage, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    chosen = records.withColumn("timestamp", F.unix_millis("timestamp")).select(*INPUT)
    asked = with_conditions(chosen, stage)
    return asked.mapInArrow(stage, OUTPUT_DDL).observe(
        name, *(F.sum(column).alias(column) for column in COUNTERS)
    )


def finish(query: StreamingQuery) -> bool:
    """Ask a query to end when the batch that runs is written; False: not now, ask again soon.

    `StreamingQuery.stop` would cancel that batch, which the next run then repeats. Spark looks at the state
    of a query between two batches, so the state is set and nothing is interrupted.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    try:
        running = query._jsq.streamingQuery()
        if not _may_end(running, query.status["message"]):
            return False
        jvm: Any = SparkContext._jvm
        terminated = jvm.java.lang.Class.forName(_TERMINATED).getField("MODULE$").get(None)
        running.state().set(terminated)
    except (Py4JError, AttributeError, TypeError):
        query.stop()
    return True


def _may_end(running: Any, message: str) -> bool:
    """Say whether the state may be set: a batch that finds itself ended after its planning is interrupted."""
    if message.startswith(WAITING):
        return True
    batch = running.getLatestExecutionContext()
    planned, committed = (batch.getDuration(step).isDefined() for step in ("queryPlanning", "commitOffsets"))
    return planned and not committed


def ended(query: StreamingQuery, seconds: float) -> bool:
    """Wait so long for the end of a query; raises what it failed of.

    After `finish` Spark calls a query inactive while its last batch is still being written, so the thread of
    the query is asked too.
    """
    if not query.awaitTermination(seconds):  # type: ignore[arg-type]
        return False
    return not query._jsq.streamingQuery().queryExecutionThread().isAlive()
