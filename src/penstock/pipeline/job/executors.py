"""Whether a job on a cluster has executors; Spark waits for them without an end, and only logs it.

A cluster has none to give when its workers are gone, are taken by other applications or offer less memory or
cores than was asked for, and when a standalone master was started anew: it does not know the application.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from penstock.brokers.outage import REMIND_SECONDS

__all__ = ["ExecutorWatch"]

_LOOK_SECONDS: Final = 5.0
NONE_SECONDS: Final = 30.0
"""So long a batch may wait for the first executor before it is told: containers take seconds to start."""


class ExecutorWatch:
    """Notes when batches wait and Spark has no executor for them, and when it has some again."""

    def __init__(
        self, context: Any, note: Callable[[str], object], *, clock: Callable[[], float] = monotonic
    ) -> None:
        """`context` is Spark's context; that of a local master has no executors but itself: pass no such."""
        self._context = context
        self._note = note
        self._clock = clock
        self._looked = -_LOOK_SECONDS
        self._since: float | None = None
        self._noted: float | None = None

    @property
    def has_none(self) -> bool:
        """Whether a batch had no executor at the last look."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """For how long batches wait for an executor, as far as it was told; 0.0 if none does."""
        return 0.0 if self._noted is None or self._since is None else self._clock() - self._since

    def look(self, has_work: Callable[[], bool]) -> None:
        """Ask Spark for its executors, every few seconds; `has_work`: whether a batch runs."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        # The block manager of the driver is among them. Dynamic allocation gives idle executors back.
        if self._context._jsc.sc().getExecutorMemoryStatus().size() > 1 or not has_work():
            if self._noted is not None:
                self._note(f"Spark has executors again after {self.seconds:.0f} s")
            self._since = self._noted = None
            return
        if self._since is None:
            self._since = now
        if now - self._since >= NONE_SECONDS and (self._noted is None or now - self._noted >= REMIND_SECONDS):
            self._noted = now
            self._note(
                f"Spark has had no executor for this job for {now - self._since:.0f} s; waiting: see whether "
                "its workers run, have free cores, and offer what spark.executor.memory and "
                "spark.executor.cores ask for; a job whose standalone master was started anew has to be "
                "started anew"
            )
