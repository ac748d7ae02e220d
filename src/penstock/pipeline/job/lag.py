"""How far a job is behind, measured beside it: a batch that is not written tells no lag."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.outage import OutageLog
from penstock.errors import PenstockError
from penstock.pipeline.job.offsets import behind
from penstock.pipeline.job.survey import SourceOffsets

__all__ = ["LagMonitor"]

_PERIOD: Final = 10.0
"""Seconds between two measurements."""


class LagMonitor:
    """Asks for the end of one topic, in a thread of its own with a client of its own."""

    def __init__(
        self,
        client: SourceOffsets,
        topic: str,
        position: Offsets,
        tell: Callable[[int], None],
        *,
        outage: OutageLog | None = None,
        period: float = _PERIOD,
        known: Callable[[], Offsets | None] = lambda: None,
    ) -> None:
        """`position` is where the job begins; `tell` gets the lag, `outage` whether the cluster answers.

        `known` gives the end of the topic if the cluster was asked for it a moment ago, else None.
        """
        self.position = position
        """Where the job stands: the offset of the next record of each partition."""
        self._client = client
        self._topic = topic
        self._tell = tell
        self._outage = outage
        self._period = period
        self._known = known
        self._closed = Event()
        self._thread = Thread(target=self._run, name=f"penstock-lag-{topic}", daemon=True)

    def start(self) -> None:
        """Begin; the first measurement comes after a period."""
        self._thread.start()

    def close(self) -> None:
        """Measure no more; one that is under way is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._period):
            try:
                latest = self._known() or self._client.latest(self._topic)
            except PenstockError as exc:
                if self._outage is not None and not self._closed.is_set():
                    self._outage.failed(exc)
                continue
            if not self._closed.is_set():
                self._tell(behind(self.position, latest))
            # After the lag: else a job is ready for a moment between an outage and what it has left to do.
            if self._outage is not None:
                self._outage.worked()
