"""What a job counts, for Prometheus: events by source and outcome, lag, seconds of a batch and its age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

from penstock import __version__
from penstock.brokers.outage import OutageLog
from penstock.errors import MissingExtra
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.job.progress import Progress
from penstock.pipeline.job.watcher import Watcher

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "penstock_pipeline"
_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics(Watcher):
    """The counters of one job, in a registry of their own."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, outages: Mapping[str, OutageLog] | None = None
    ) -> None:
        try:
            from prometheus_client import (
                CollectorRegistry,
                Counter,
                Gauge,
                Histogram,
                Info,
                disable_created_metrics,
            )
        except ImportError as exc:
            raise MissingExtra("spark", "prometheus-client", purpose="--metrics") from exc
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self._clock = clock
        self._outages = {} if outages is None else outages
        self._last: dict[str, float] = {}
        Info(f"{_PREFIX}_build", "What runs here.", registry=self.registry).info({"version": __version__})
        self._events = self._made(Counter, "events", "Events by what became of them.", ("source", "outcome"))
        self._lost = self._made(Counter, "lost", "Records deleted before they were read.", ("source",))
        self._batches = self._made(Counter, "batches", "Batches that are written.", ("source",))
        self._lag = self._made(Gauge, "lag", "Records of the topic that were not read yet.", ("source",))
        self._seconds = self._made(
            Histogram, "batch_seconds", "How long a batch took.", ("source",), buckets=_SECONDS
        )
        self._age = self._made(Gauge, "last_batch_age_seconds", "Since the last batch.", ("source",))

        self._outage = self._made(
            Gauge,
            "outage_seconds",
            "For how long the cluster of the source has not answered; 0 if it does.",
            ("source",),
        )

    def _made(self, kind: Any, name: str, doc: str, labels: tuple[str, ...], **options: Any) -> Any:
        return kind(f"{_PREFIX}_{name}", doc, labels, registry=self.registry, **options)

    def begin(self, source: str) -> None:
        """Let every series of a source be there from the start: an absent one alarms nobody."""
        self._last[source] = self._clock()
        self._lost.labels(source)
        self._lag.labels(source)
        self._age.labels(source).set_function(lambda: self._clock() - self._last[source])
        if source in self._outages:
            self._outage.labels(source).set_function(lambda: self._outages[source].seconds)
        for counter in COUNTERS:
            self._events.labels(source, _outcome(counter))

    def batch(self, progress: Progress) -> None:
        """Count a batch."""
        for counter, count in progress.counts.items():
            self._events.labels(progress.source, _outcome(counter)).inc(count)
        self._batches.labels(progress.source).inc()
        self._seconds.labels(progress.source).observe(progress.seconds)
        self._lag.labels(progress.source).set(progress.lag)
        self._last[progress.source] = self._clock()

    def lag(self, source: str, records: int) -> None:
        """Take what was measured."""
        self._lag.labels(source).set(records)

    def lost(self, source: str, records: int) -> None:
        """Count records that are gone."""
        self._lost.labels(source).inc(records)

    def text(self) -> bytes:
        """Give all of it in the text format 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


def _outcome(counter: str) -> str:
    return counter.removeprefix("n_")
