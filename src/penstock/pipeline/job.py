"""The running job: Kafka topics in, the stage, Kafka topics out; progress told batch by batch.

Delivery is at least once: Spark's checkpoint moves on when a batch is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.contract.credentials import Client, options, reveal
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.stage import COUNTERS, INPUT, OUTPUT_DDL, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["MAX_OFFSETS_PER_TRIGGER", "Progress", "run_once", "start"]

MAX_OFFSETS_PER_TRIGGER: Final = 500_000
"""A micro-batch costs 0.2 s whatever its size: it pays from 200 000 records on."""

_SINK: Final = {"kafka.linger.ms": "20", "kafka.batch.size": "262144", "includeHeaders": "true"}
"""Producer defaults of linger 0 and 16 KiB cost a third of the rate and four times the broker's CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one micro-batch did."""

    batch: int
    counts: Mapping[str, int]
    seconds: float
    lag: int


def start(
    spark: SparkSession,
    source: Source,
    pipeline: Pipeline,
    *,
    once: bool,
    on_progress: Callable[[Progress], None] | None = None,
) -> StreamingQuery:
    """Start the query of one source."""
    spark_options = reveal(options(source.routes[0].receive.connection, Client.SPARK_KAFKA))
    records = (
        spark.readStream.format("kafka")
        .options(**spark_options)
        .option("subscribe", source.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER)
        .load()
    )
    written = _staged(records, stage_of(source, pipeline), source.name)
    if on_progress is not None:
        spark.streams.addListener(_listener(on_progress, source.name))
    checkpoint = Path(pipeline.checkpoint).absolute() / source.name
    writer = written.writeStream.format("kafka").queryName(source.name).options(**spark_options, **_SINK)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()


def _staged(records: DataFrame, stage: Stage, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    chosen = records.withColumn("timestamp", F.unix_millis("timestamp")).select(*INPUT)
    counted = chosen.mapInArrow(stage, OUTPUT_DDL).observe(
        name, *(F.sum(column).alias(column) for column in COUNTERS)
    )
    return counted.where("topic IS NOT NULL").select("topic", "key", "value", "headers")


def _listener(on_progress: Callable[[Progress], None], name: str) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            return None

        def onQueryTerminated(self, event: Any) -> None:
            return None

        def onQueryIdle(self, event: Any) -> None:
            return None

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            if progress.name == name and name in progress.observedMetrics:
                on_progress(_progress(progress, progress.observedMetrics[name]))

    return Listener()


def _progress(progress: Any, row: Any) -> Progress:
    lag = sum(int((source.metrics or {}).get("maxOffsetsBehindLatest", 0)) for source in progress.sources)
    return Progress(
        batch=progress.batchId,
        counts=Counter({column: int(row[column] or 0) for column in COUNTERS}),
        seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        lag=lag,
    )


def run_once(
    spark: SparkSession, pipeline: Pipeline, on_progress: Callable[[Progress], None] | None = None
) -> None:
    """Process what is there now on every source, and end."""
    for source in sources_of(pipeline):
        query = start(spark, source, pipeline, once=True, on_progress=on_progress)
        query.awaitTermination()
