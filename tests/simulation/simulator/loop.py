"""An asyncio event loop whose clock jumps to the next timer, and whose nodes can be stopped dead.

asyncio runs callbacks in the order in which they became ready, and programs may rely on it, so that order is
kept. What differs from seed to seed is when things become ready: the delays of the network, of the brokers
and of those who ask.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

__all__ = ["NODE", "Stuck", "VirtualLoop"]

T = TypeVar("T")

NODE: ContextVar[str] = ContextVar("node", default="")
"""The process that a callback belongs to; "" for what cannot be stopped: network, brokers, clients."""
_EPOCH = 1_700_000_000.0
"""What the clock of the day shows when the loop begins."""
_TURN = 1e-6
"""Seconds that one turn of the loop takes."""


class Stuck(AssertionError):
    """Somebody waits, and nothing is left that could wake him."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop for one history."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.create_connection: Any = None  # type: ignore[method-assign]
        """Set by the network."""
        self.unforeseen: list[str] = []
        """What the loop was told that nobody handled."""
        self.turns = 0
        self._now = 0.0
        self._selector = self
        self._clock_resolution = 1e-9
        self._stopped: set[str] = set()
        self._frozen: list[asyncio.Handle] = []
        self._held: list[Any] = []
        self.set_exception_handler(self._note)

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unforeseen.append(f"{context.get('message')}: {context.get('exception')!r}")

    # Time

    def time(self) -> float:
        """Give the seconds since the loop began."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Pass the time until the next timer: the only place where the clock moves."""
        self.turns += 1
        if timeout is None:
            raise Stuck("nothing is left to happen, and not everybody has ended")
        self._now += max(timeout, _TURN)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        return

    def _write_to_self(self) -> None:
        return

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Let the clocks of the process show the time of this loop."""
        names = ("monotonic", "perf_counter", "time", "time_ns")
        real = {name: getattr(time, name) for name in names}
        time.monotonic = time.perf_counter = self.time
        time.time = lambda: _EPOCH + self._now
        time.time_ns = lambda: int((_EPOCH + self._now) * 1e9)
        try:
            yield
        finally:
            for name, clock in real.items():
                setattr(time, name, clock)

    # Nodes

    def context_of(self, node: str) -> Context:
        """Give a context for what a node runs."""
        context = copy_context()
        context.run(NODE.set, node)
        return context

    def start(self, node: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as part of a node."""
        return self.create_task(work, context=self.context_of(node))

    def is_stopped(self, node: str) -> bool:
        """Say whether a node was stopped."""
        return node in self._stopped

    def is_asleep(self, node: str) -> bool:
        """Say whether a node does nothing for a while."""
        return False

    def stop_node(self, node: str) -> None:
        """Let nothing of a node run any more, as if its process was killed now."""
        self._stopped.add(node)
        # Nobody else may hold what a stopped node had under way, and the collector would run it to its end.
        self._held += [*asyncio.all_tasks(self), *self._scheduled]
        kept: list[asyncio.Handle] = []
        for handle in self._ready:
            (self._frozen if self._is_of_stopped(handle._context) else kept).append(handle)
        self._ready.clear()
        self._ready.extend(kept)
        timers = [each for each in self._scheduled if not self._is_of_stopped(each._context)]
        self._scheduled[:] = timers
        heapq.heapify(self._scheduled)

    def _is_of_stopped(self, context: Context | None) -> bool:
        if not self._stopped:
            return False
        return (NODE.get() if context is None else context.get(NODE, "")) in self._stopped

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio; what belongs to a stopped node is put aside."""
        if self._stopped and self._is_of_stopped(context):
            handle = asyncio.Handle(callback, args, self, context)
            self._frozen.append(handle)
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio; what belongs to a stopped node never comes."""
        if self._stopped and self._is_of_stopped(context):
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    # The end

    def run(self, main: Coroutine[Any, Any, T], *, limit: float) -> T:
        """Run to the end, at most so many virtual seconds; then end everything that is left."""
        task = self.create_task(main)
        self.call_later(limit, task.cancel, f"not ended after {limit:g} s")
        try:
            return self.run_until_complete(task)
        except asyncio.CancelledError as exc:
            raise Stuck(str(exc)) from None
        finally:
            self._clear()

    def _clear(self) -> None:
        """Cancel what still runs, that of stopped nodes too: nothing may be left to the collector."""
        self._stopped.clear()
        self._ready.extend(handle for handle in self._frozen if not handle._cancelled)
        self._frozen.clear()
        for _ in range(20):
            left = [task for task in asyncio.all_tasks(self) if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=60))
        self.close()
