"""Real-Time Mode: each record within milliseconds, by columns only; what does not fit is refused at once.

Spark runs one long task for each partition and writes a checkpoint at each interval. Decoding is that of
`columns/decode.py`: a record of which columns cannot tell is a dead letter here, so the user has to say that
these differences are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import PipelineError
from penstock.pipeline.assembly import Source, stage_of
from penstock.pipeline.columns.limits import cannot
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.job.options import REAL_TIME_SECONDS, JobOptions
from penstock.pipeline.job.sinks import RECORD, sink_options
from penstock.pipeline.job.sources import read_records, reader_options
from penstock.pipeline.plain import PlainReader
from penstock.pipeline.pulsar import PULSAR
from penstock.pipeline.stage import Stage
from penstock.pipeline.typed.joints import has_writer, reader_of, reads_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "DIFFERENCES",
    "begin",
    "require_cores",
    "require_real_time",
    "routed",
    "start_real_time",
    "stops",
]

DIFFERENCES: Final = (
    "an event in structured mode is a dead letter with the code undecided, and so is a record with two "
    "content types, with line breaks in header names, or with 8 KiB of them",
    "the reason in a dead letter is a sentence for its kind, without the text that was wrong",
    "JSON of more than 190 levels or 8 MiB is written as data_base64 on a structured route",
    "now() and expirytime follow the beginning of the interval, not each record",
)
"""What is not as in micro-batches; docs/pipeline/real-time.md explains each."""

_FAST_SINK: Final[Mapping[str, str]] = {"kafka.linger.ms": "0"}


def stops(source: Source) -> Iterator[str]:
    """Say what keeps a source from Real-Time Mode; nothing is asked of a cluster."""
    if len(source.servers) > 1:
        yield f"it writes to {len(source.servers)} clusters, and Real-Time Mode has one sink"
    if any(
        operation.protocol == PULSAR for route in source.routes for operation in (route.receive, *route.send)
    ):
        yield "it reads or writes Pulsar, whose profiles are read and written in Arrow batches"
    if isinstance(reader_of(source.routes), PlainReader):
        yield "its source does not carry CloudEvents: plain records are read in Arrow batches"
    if reads_data(source.routes):
        yield "its data is checked or decoded by the contract's schemas, which is done in Arrow batches"
    for route in source.routes:
        yield from (f"route {route.name}: {why}" for why in _route_stops(route))


def _route_stops(route: CompiledRoute) -> Iterator[str]:
    yield from cannot(route.plan)
    if route.sql is not None:
        yield "its condition is Spark's own SQL, over events that Arrow decodes"
    if route.document.apply is not None:
        yield "it applies a function of Python"
    if any(map(has_writer, route.send)):
        yield "its output is written by an encoder of Python"


def require_real_time(source: Source, pipeline: Pipeline) -> None:
    """Refuse a source that Real-Time Mode cannot do, or that nobody accepted the differences for."""
    found = tuple(stops(source))
    if found:
        raise PipelineError(
            f"{source.name} cannot run in Real-Time Mode",
            why="\n".join(found),
            next="run it without --real-time; penstock routes --explain shows the engine of each route",
        )
    if not pipeline.accept_differences:
        raise PipelineError(
            "Real-Time Mode differs from micro-batches in a few records",
            where=str(pipeline.path),
            why="\n".join(DIFFERENCES),
            next="write accept-differences: true in the pipeline file if that is fine",
        )


def require_cores(spark: SparkSession, partitions: int) -> None:
    """Refuse to start more long tasks than there are cores: those left over would never run."""
    cores = spark.sparkContext.defaultParallelism
    if cores < partitions:
        raise PipelineError(
            f"Real-Time Mode needs a core for each of {partitions} partitions, and there are {cores}",
            next=f"--master 'local[{partitions},4]', or a cluster with as many cores",
        )


def routed(records: DataFrame, stage: Stage, name: str) -> DataFrame:
    """Give the records to write; the counters are observed under the name."""
    from penstock.pipeline.columns.outputs import outputs_of

    return outputs_of(records, stage, name).select(*RECORD)


def begin(writer: DataStreamWriter, seconds: float = REAL_TIME_SECONDS) -> StreamingQuery:
    """Start a query in Real-Time Mode; what Spark refuses at once is our error."""
    from pyspark.errors import PySparkException

    try:
        writer = writer.outputMode("update").options(**_FAST_SINK)
        return writer.trigger(realTime=f"{seconds:g} seconds").start()  # type: ignore[call-overload, no-any-return]
    except PySparkException as exc:
        raise PipelineError(
            "Spark refused the query in Real-Time Mode",
            why=str(exc).splitlines()[0][:500],
            next="run it without --real-time",
        ) from exc


def start_real_time(
    spark: SparkSession,
    source: Source,
    pipeline: Pipeline,
    *,
    checkpoint: Path | None = None,
    interval: float = REAL_TIME_SECONDS,
    starting: str = "earliest",
) -> StreamingQuery:
    """Start one source without the rest of a job: no survey, no fingerprint, no group."""
    require_real_time(source, pipeline)
    settings = JobOptions(real_time=True)
    chosen = reader_options(source, settings, group=None, on_data_loss="stop", parallelism=1)
    records = read_records(spark, source, {**chosen, "startingOffsets": starting})
    folder = checkpoint or pipeline.checkpoint.absolute() / source.name
    written = routed(records, stage_of(source, pipeline), source.name)
    producer = sink_options(source, source.receive.server, {})
    writer = written.writeStream.format("kafka").options(**producer).queryName(source.name)
    return begin(writer.option("checkpointLocation", str(folder)), interval)
