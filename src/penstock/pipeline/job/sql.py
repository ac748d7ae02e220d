"""The query of a source with conditions in Spark's own SQL: Spark reads and answers, its tasks do the rest.

The records come from Spark's Kafka source, one partition a task, or from a topic on Pulsar, whose ranges the
driver plans and tasks read (`delivery.spark_source`). They stay in their tasks: between the source and the
sink there is no exchange. The rows that come out of a task are counts, and nothing is left for a sink of
Spark to write; what is promised is in `delivery.task_sink`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.frames.conditions import with_conditions
from penstock.pipeline.frames.decode import RECORD_DDL
from penstock.pipeline.job.fused import with_slot_deadline
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.preparation import Prepared
from penstock.pipeline.job.sources import read_records, reader_options
from penstock.pipeline.spark.stream import OffsetPlanner, planned_stream
from penstock.pipeline.stage import INPUT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["answered_by_spark"]

_COUNTED_DDL: Final = ", ".join(f"{name} bigint" for name in COUNTERS)
_RECORD_DDL: Final = ", ".join(f"{name} {RECORD_DDL[name]}" for name in INPUT)


def answered_by_spark(
    spark: SparkSession,
    prepared: Prepared,
    work: WorkerSpec,
    settings: JobOptions,
    *,
    planner: OffsetPlanner | None = None,
    title: str = "",
) -> DataStreamWriter:
    """Give the query of a source; what its tasks count is observed under the name of the source.

    `planner` plans the ranges of a topic on Pulsar, with a `title` for jobs and stages; None: it is on Kafka.
    """
    from pyspark.sql import functions as F

    source, packed = prepared.source, with_slot_deadline(spark, work).packed()
    if planner is None:
        records = _kafka_records(spark, prepared, settings)
    else:
        records = planned_stream(spark, title, _RECORD_DDL, planner, partial(_pulsar_records, packed))
    rows = with_conditions(records, prepared.stage)
    counts = rows.mapInArrow(partial(_counts, packed), _COUNTED_DDL)
    observed = counts.observe(source.name, *(F.sum(name).alias(name) for name in COUNTERS))
    return observed.writeStream.format("noop")


def _kafka_records(spark: SparkSession, prepared: Prepared, settings: JobOptions) -> DataFrame:
    from pyspark.sql import functions as F

    source = prepared.source
    chosen = reader_options(
        source,
        settings,
        group=prepared.group,
        on_data_loss=prepared.on_data_loss,
    )
    records = read_records(spark, source, chosen)
    return records.withColumn("timestamp", F.unix_millis("timestamp")).select(*INPUT)


def _pulsar_records(packed: bytes, spans: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    # Only in a task are kernels needed.
    from penstock.pipeline.delivery.spark_source import read_ranges

    return read_ranges(packed, spans)


def _counts(packed: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Only in a task are kernels needed.
    import pyarrow as pa

    from penstock.pipeline.delivery.task_sink import write_arrow

    counts = write_arrow(packed, batches)
    arrays = [pa.array([counts[name]], pa.int64()) for name in COUNTERS]
    yield pa.RecordBatch.from_arrays(arrays, list(COUNTERS))
