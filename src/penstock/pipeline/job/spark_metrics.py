"""What a job counts, in Spark's own metrics system: accumulators that every sink of it reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.job.progress import Progress
from penstock.pipeline.job.watcher import Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkMetrics"]

_log = logging.getLogger(__name__)
_COUNTED: Final = ("in", "out", "dead", "unmatched", "lost")


class SparkMetrics(Watcher):
    """Adds up records in, out, dead, unmatched and lost of each source, as `penstock.SOURCE.in` and so on.

    Spark shows them below `APPLICATION.driver.AccumulatorSource` in whatever sink is configured: JMX, CSV,
    Graphite, StatsD, the servlets of its UI.
    """

    def __init__(self, spark: SparkSession, sources: list[str]) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        scala: Any = context._jsc.sc()
        self._accumulators = {
            (source, count): scala.longAccumulator(f"penstock.{source}.{count}")
            for source in sources
            for count in _COUNTED
        }
        named = jvm.java.util.HashMap()
        for (source, count), accumulator in self._accumulators.items():
            # A point separates levels in the names of most sinks.
            named.put(f"penstock.{source.replace('.', '_')}.{count}", accumulator)
        immutable = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
        companion = getattr(jvm, "org.apache.spark.metrics.source.LongAccumulatorSource$")
        getattr(companion, "MODULE$").register(scala, immutable)

    def batch(self, progress: Progress) -> None:
        """Add what a batch has done."""
        for count in _COUNTED:
            self._add(progress.source, count, progress.counts.get(f"n_{count}", 0))

    def lost(self, source: str, records: int) -> None:
        """Add records that are gone."""
        self._add(source, "lost", records)

    def _add(self, source: str, count: str, value: int) -> None:
        from py4j.protocol import Py4JError

        if value:
            try:
                self._accumulators[source, count].add(value)
            except (Py4JError, OSError) as exc:  # Java has ended: who runs the job finds that out
                _log.debug("%s is not counted in Spark: %s", count, exc)
