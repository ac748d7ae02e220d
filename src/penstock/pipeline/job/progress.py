"""What a job is about to do, what one micro-batch did, as Spark tells it, and what all of them did so far."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.job.offsets import behind, offsets_of

__all__ = ["LOST", "Planned", "Progress", "Totals", "counts_of", "listener"]

LOST: Final = "n_lost"
"""The counter of an engine that knows itself which records were deleted before it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch of one source."""

    source: str
    batch: int
    counts: Mapping[str, int]
    """By the names in COUNTERS."""
    seconds: float
    lag: int
    """Records of the topic that come after this batch."""
    start: Offsets = field(default_factory=dict)
    end: Offsets = field(default_factory=dict)
    records: int = 0
    """What was read; fewer than the offsets between start and end where records were deleted."""
    lost: int | None = None
    """Records that were deleted before they were read; None if the engine does not count them itself."""


@dataclass(slots=True)
class Totals:
    """What a job has done with one source so far."""

    counts: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    lag: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """How a route will run."""

    route: str
    source: str
    engine: str
    guarantee: str
    evaluator: str
    """What decides about its records: kernel or reference."""
    condition_by_spark: bool = False
    """Whether its condition is in Spark's own SQL, which Spark answers."""


def listener(
    topics: Mapping[str, tuple[str, Offsets]],
    on_progress: Callable[[Progress], None],
    on_end: Callable[[str], None],
) -> Any:
    """Make a listener for queries by their names, with the topic of each and its end when it began.

    `on_end` gets the id of a run. It goes to `addListener` and `removeListener` of Spark's query manager.
    """
    return _Listener(topics, on_progress, on_end)


class _Listener:
    """Spark's PythonStreamingQueryListener, which takes an event as one JSON text.

    PySpark's own class asks Java some 460 questions for each batch. Where they take longer than a batch, as
    on a busy machine, events wait in Java with the plans and tasks of their batches: hundreds of MB, after
    10 000 events Spark drops some, and what a job reports is late by minutes.
    """

    def __init__(
        self,
        topics: Mapping[str, tuple[str, Offsets]],
        on_progress: Callable[[Progress], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._topics = topics
        self._on_progress = on_progress
        self._on_end = on_end
        self._connections: dict[str, Any] = {}
        """By the id of a run."""

    @cached_property
    def _jlistener(self) -> Any:
        from pyspark import SparkContext

        jvm: Any = SparkContext._jvm
        return jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)

    def onQueryStarted(self, event: Any) -> None:
        """Note over which connection the thread of a query calls: its thread here would outlive the query."""
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        connection = gateway._gateway_client.get_thread_connection()
        self._connections[json.loads(event.json())["runId"]] = connection

    def onQueryIdle(self, event: Any) -> None:
        return None

    def onQueryTerminated(self, event: Any) -> None:
        run = str(json.loads(event.json())["runId"])
        connection = self._connections.pop(run, None)
        if connection is not None and (opened := connection.socket) is not None:
            # Spark reports the end of a query as the last thing that its thread does. The thread that reads
            # the connection closes it when that has no more to read.
            with suppress(OSError):  # Java was quicker
                opened.shutdown(socket.SHUT_RDWR)
        self._on_end(run)

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.json())["progress"]
        name = progress["name"]
        if name in self._topics and name in progress["observedMetrics"]:
            self._on_progress(_progress(progress, *self._topics[name]))

    class Java:
        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _progress(progress: Mapping[str, Any], topic: str, ended: Offsets) -> Progress:
    row, source = progress["observedMetrics"][progress["name"]], progress["sources"][0]
    end = offsets_of(source.get("endOffset"), topic)
    # A batch that is repeated after a restart was planned before: Spark has not looked at the topic's end.
    latest = offsets_of(source.get("latestOffset"), topic) or ended
    return Progress(
        source=progress["name"],
        batch=progress["batchId"],
        counts=counts_of(row),
        seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
        lag=behind(end, latest),
        start=offsets_of(source.get("startOffset"), topic),
        end=end,
        records=int(source["numInputRows"]),
        lost=int(row[LOST] or 0) if LOST in row else None,
    )


def counts_of(row: Mapping[str, Any]) -> Counter[str]:
    """Give all counters of every engine, and what this one counts beside them if there is any."""
    own = {name: int(count or 0) for name, count in row.items() if name not in (*COUNTERS, LOST)}
    common = {name: int(row.get(name) or 0) for name in COUNTERS}
    return Counter({**common, **{name: count for name, count in own.items() if count}})
