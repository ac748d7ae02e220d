"""What a job counts, in Spark's own metrics system: accumulators that every sink of it reads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import chain, count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from penstock.pipeline.job.progress import Progress
from penstock.pipeline.job.watcher import Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkMetrics"]

_log = logging.getLogger(__name__)
_COUNTED: Final = ("in", "out", "dead", "unmatched", "lost")

_Known = dict[str, tuple[str, dict[str, Any]]]
"""For each source its name in Spark's metrics, and its accumulators by what they count."""
_applications: dict[str, _Known] = {}
"""What is registered, by application: Spark ignores a second accumulator of the same name."""
_lock = Lock()


def _name(source: str, taken: Collection[str]) -> str:
    """Return how a source is called in the metrics; a point separates levels in the names of most sinks."""
    wanted = source.replace(".", "_")
    names = chain((wanted,), (f"{wanted}_{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _register(context: Any, names: Mapping[str, str]) -> _Known:
    """Make the accumulators of sources, by their names in the metrics, and let Spark's sinks read them."""
    jvm, scala = context._jvm, context._jsc.sc()
    named = jvm.java.util.HashMap()
    made: _Known = {}
    for source, name in names.items():
        made[source] = (
            name,
            {counted: scala.longAccumulator(f"penstock.{source}.{counted}") for counted in _COUNTED},
        )
        for counted, accumulator in made[source][1].items():
            named.put(f"penstock.{name}.{counted}", accumulator)
    immutable = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
    companion = getattr(jvm, "org.apache.spark.metrics.source.LongAccumulatorSource$")
    getattr(companion, "MODULE$").register(scala, immutable)
    return made


class SparkMetrics(Watcher):
    """Adds up records in, out, dead, unmatched and lost of each source, as `penstock.SOURCE.in` and so on.

    Spark shows them below `APPLICATION.driver.AccumulatorSource` in whatever sink is configured: JMX, CSV,
    Graphite, StatsD, the servlets of its UI.
    """

    def __init__(self, spark: SparkSession, sources: list[str]) -> None:
        """Jobs of one application share the figures of a source, which go on from one job to the next."""
        context = spark.sparkContext
        application = str(context.applicationId)
        with _lock:
            for old in [each for each in _applications if each != application]:
                del _applications[old]  # a process has one application at a time
            known = _applications.setdefault(application, {})
            names = {source: name for source, (name, _) in known.items()}
            for source in sources:
                names.setdefault(source, _name(source, names.values()))
            new = {source: name for source, name in names.items() if source not in known}
            if new:
                known |= _register(context, new)
            self._accumulators = {source: known[source][1] for source in sources}

    def batch(self, progress: Progress) -> None:
        """Add what a batch has done."""
        for counted in _COUNTED:
            self._add(progress.source, counted, progress.counts.get(f"n_{counted}", 0))

    def lost(self, source: str, records: int) -> None:
        """Add records that are gone."""
        self._add(source, "lost", records)

    def _add(self, source: str, counted: str, value: int) -> None:
        from py4j.protocol import Py4JError

        if value:
            try:
                self._accumulators[source][counted].add(value)
            except (Py4JError, OSError) as exc:  # Java has ended: who runs the job finds that out
                _log.debug("%s is not counted in Spark: %s", counted, exc)
