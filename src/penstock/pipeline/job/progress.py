"""What one micro-batch did, as Spark tells it when the batch is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.pipeline.job.offsets import behind, read_offsets
from penstock.pipeline.stage import COUNTERS

__all__ = ["LOST", "Progress", "counts_of", "listener"]

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
    """What Spark has read; fewer than the offsets between start and end where records were deleted."""
    lost: int | None = None
    """Records that were deleted before they were read; None if the engine does not count them itself."""


def listener(
    topics: Mapping[str, tuple[str, Offsets]],
    on_progress: Callable[[Progress], None],
    on_end: Callable[[str], None],
) -> Any:
    """Make a listener for queries by their names, with the topic of each and its end when it began.

    `on_end` gets the id of a run.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            return None

        def onQueryTerminated(self, event: Any) -> None:
            on_end(str(event.runId))

        def onQueryIdle(self, event: Any) -> None:
            return None

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            if progress.name in topics and progress.name in progress.observedMetrics:
                on_progress(_progress(progress, *topics[progress.name]))

    return Listener()


def _progress(progress: Any, topic: str, ended: Offsets) -> Progress:
    row, source = progress.observedMetrics[progress.name].asDict(), progress.sources[0]
    end = read_offsets(source.endOffset, topic)
    # A batch that is repeated after a restart was planned before: Spark has not looked at the topic's end.
    latest = read_offsets(source.latestOffset, topic) or ended
    return Progress(
        source=progress.name,
        batch=progress.batchId,
        counts=counts_of(row),
        seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        lag=behind(end, latest),
        start=read_offsets(source.startOffset, topic),
        end=end,
        records=int(source.numInputRows),
        lost=int(row[LOST] or 0) if LOST in row else None,
    )


def counts_of(row: Mapping[str, Any]) -> Counter[str]:
    """Give all counters of every engine, and what this one counts beside them if there is any."""
    own = {name: int(count or 0) for name, count in row.items() if name not in (*COUNTERS, LOST)}
    common = {name: int(row.get(name) or 0) for name in COUNTERS}
    return Counter({**common, **{name: count for name, count in own.items() if count}})
