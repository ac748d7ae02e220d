"""Tasks that somebody holds and watches: none is lost, and none ends in silence.

The loop itself keeps only weak references to tasks, and tells of an exception when the task is collected,
which may be never. A task that is started here is held; an exception that nobody foresaw is logged at once,
with its traceback; and what has to run as long as its owner is run again, after a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from penstock.brokers.pulsar.backoff import BackOff
from penstock.errors import PenstockError

__all__ = ["Tasks", "watched"]

log = logging.getLogger("penstock.tasks")

T = TypeVar("T")

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
"""Seconds between two runs of what fails; a run that lasts longer counts as one that has worked."""


def watched(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Log at once if a task ends by an exception that nobody foresaw; for tasks that are held elsewhere."""
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, PenstockError):
        log.error("a bug: the task %s has failed", task.get_name(), exc_info=error)


class Tasks:
    """A set of running tasks; `close` ends them all and waits for the last."""

    __slots__ = ("_first_delay", "_longest_delay", "_running", "failing")

    def __init__(self, *, first_delay: float = _FIRST_DELAY, longest_delay: float = _LONGEST_DELAY) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self.failing: dict[str, float] = {}
        """Which of those that run for ever fail, and since when on the monotonic clock."""

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine as a task until it ends by itself or by `close`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return watched(task)

    def forever(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> asyncio.Task[None]:
        """Run what shall not end; if it does, it is logged and run again, later each time it fails again."""
        return self.start(self._again_and_again(work, name), name=name)

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def failing_for(self) -> float:
        """Seconds for which the one that fails for the longest has failed; 0.0 if none fails."""
        now = time.monotonic()
        return max((now - since for since in self.failing.values()), default=0.0)

    async def _again_and_again(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        delays = BackOff(first=self._first_delay, longest=self._longest_delay)
        try:
            while True:
                began = time.monotonic()
                worked = asyncio.get_running_loop().call_later(
                    self._longest_delay, self.failing.pop, name, None
                )
                try:
                    await work()
                    log.error("%s has ended, and is started again", name)
                except Exception:
                    log.exception("a bug: %s has failed, and is started again", name)
                finally:
                    worked.cancel()
                if time.monotonic() - began > self._longest_delay:
                    delays.reset()
                self.failing.setdefault(name, time.monotonic())
                await asyncio.sleep(delays.next())
        finally:
            self.failing.pop(name, None)
