"""The query of one source: how it is started, and how it is asked to end after its batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.assembly import Source
from penstock.pipeline.delivery.end_watch import EndWatches
from penstock.pipeline.delivery.range_planner import Planner
from penstock.pipeline.job.fused import counted, planner_of, why_whole
from penstock.pipeline.job.kept_batches import KeptBatches
from penstock.pipeline.job.options import JobOptions
from penstock.pipeline.job.preparation import Prepared
from penstock.pipeline.job.sql import answered_by_spark
from penstock.pipeline.spark.startup import unless_java_ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningQuery", "ended", "finish", "start_query", "stop_queries"]

_log = logging.getLogger(__name__)

_WAITING: Final = "Waiting for data"
"""What Spark says of a query that has looked and found nothing new."""
_JUST_NOW: Final = 1.0
_LAST_BATCH_SECONDS: Final = 30.0
"""How long a query that was asked to end may still write its batch when the job fails."""
_MOST_TITLE: Final = 200
_TERMINATED: Final = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query of Spark, and what plans it in this process if anything does."""

    query: StreamingQuery
    run_id: str
    """The id of this run, as events of Spark name it."""
    planner: Planner | None = None
    interval: float = 0.0
    """Seconds between two batches; 0: the next one begins when there is something."""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.query.isActive

    @property
    def has_data(self) -> bool:
        """Whether a batch runs or is about to."""
        return bool(self.query.status["isDataAvailable"])

    @property
    def is_waiting(self) -> bool:
        """Whether it has asked its cluster just now, and nothing new was there."""
        if self.planner is not None:
            return monotonic() - self.planner.idle_at < _JUST_NOW + self.interval
        return str(self.query.status["message"]).startswith(_WAITING)

    def stop(self) -> None:
        """End it at once; the batch that runs is repeated by the next run."""
        if self.planner is not None:
            # Java waits for the thread of the query, which may wait for the planner.
            self.planner.release()
        self.query.stop()


def start_query(
    spark: SparkSession, prepared: Prepared, settings: JobOptions, watches: EndWatches
) -> RunningQuery:
    """Start reading a source, from its checkpoint if it has one."""
    source, work, interval = prepared.source, prepared.work, settings.trigger or 0.0
    planner: Planner | None = None
    if not source.asks_spark or work.pulsar:
        planner = planner_of(
            spark,
            work,
            settings,
            prepared.query.begin,
            watch=watches.of(work.settings),
            waits=not interval,
            # The rows of a partition have to come to one task, where Spark answers conditions.
            split=settings.split and not source.asks_spark and why_whole(source, work) is None,
        )
    if planner is None or source.asks_spark:
        writer = answered_by_spark(spark, prepared, work, settings, planner=planner, title=_title(source))
    else:
        batches = KeptBatches(
            planner=planner,
            checkpoint=prepared.checkpoint,
            topic=source.topic,
            reads_now=any(route.plan.reads_now for route in source.routes),
            open_batch=prepared.open_batch,
        )
        writer = counted(spark, work, batches, name=source.name, title=_title(source))
    writer = writer.queryName(source.name).option("checkpointLocation", prepared.checkpoint.url)
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(1000 * interval)} milliseconds")
    query = writer.start()
    return RunningQuery(query, str(query.runId), planner, interval)


def _title(source: Source) -> str:
    """Name a source with its routes, for jobs and stages of Spark."""
    routes = ", ".join(route.name for route in source.routes)
    return f"{source.name}, {'route' if len(source.routes) == 1 else 'routes'} {routes}"[:_MOST_TITLE]


def finish(running: RunningQuery) -> bool:
    """Ask a query to end when the batch that runs is written; False: not now, ask again soon.

    `StreamingQuery.stop` would cancel that batch, which the next run then repeats. Spark looks at the state
    of a query between two batches, so the state is set and nothing is interrupted.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if running.planner is not None:
        running.planner.release()
    try:
        java, status = running.query._jsq.streamingQuery(), running.query.status
        if running.interval and not status["isTriggerActive"]:
            # Spark sleeps until the next batch is due, and would look at the state only then.
            running.stop()
            return True
        if not _may_end(java, status["message"]):
            return False
        jvm: Any = SparkContext._jvm
        terminated = jvm.java.lang.Class.forName(_TERMINATED).getField("MODULE$").get(None)
        java.state().set(terminated)
    except (Py4JError, AttributeError, TypeError):
        running.stop()
    return True


def _may_end(running: Any, message: str) -> bool:
    """Say whether the state may be set: a batch that finds itself ended after its planning is interrupted."""
    if message.startswith(_WAITING):
        return True
    batch = running.getLatestExecutionContext()
    planned, committed = (batch.getDuration(step).isDefined() for step in ("queryPlanning", "commitOffsets"))
    return planned and not committed


def ended(running: RunningQuery, seconds: float) -> bool:
    """Wait so long for the end of a query; raises what it failed of.

    After `finish` Spark calls a query inactive while its last batch is still being written, so the thread of
    the query is asked too.
    """
    query = running.query
    if not query.awaitTermination(seconds):  # type: ignore[arg-type]
        return False
    return not query._jsq.streamingQuery().queryExecutionThread().isAlive()


def stop_queries(queries: Mapping[str, RunningQuery], note: Callable[[str], object]) -> None:
    """Stop the queries of a job that fails, by source; one that cannot be stopped is noted."""
    from pyspark.errors import StreamingQueryException

    for name, running in queries.items():
        try:
            with unless_java_ended():
                # One that `finish` has set to its end is inactive while its last batch is still written.
                if running.is_active or not ended(running, _LAST_BATCH_SECONDS):
                    running.stop()
        except StreamingQueryException as exc:
            _log.debug("the query of %s had ended: %s", name, exc)
        except Exception as exc:  # noqa: BLE001  # the other queries are stopped, whatever it is
            note(f"{name}: its query could not be stopped: {exc}")
