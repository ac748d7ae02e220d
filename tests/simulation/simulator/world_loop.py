"""The event loops of blocking programs: what one runs on a thread of its own, on the clock of the world.

`PulsarCluster` has an asyncio loop on a private thread. Here all such loops are one, which the world turns
when something of it is due; callbacks know whose they are. A program that is killed takes its part of it
along, one that is suspended hears nothing until it wakes.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from itertools import count
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from penstock.pipeline.delivery.pulsar import cluster as pulsar_cluster
from penstock.pipeline.delivery.pulsar import sink as pulsar_sink
from simulator.loop import NODE, VirtualLoop
from simulator.network import Network
from simulator.pulsar import Pulsar
from simulator.pulsar_admin import admin_of
from simulator.threads import Program, World

__all__ = ["WorldLoop", "installed"]

_TURN: Final = 1e-6
"""Seconds from one turn of the loop to the next."""
_RESOLUTION: Final = 1e-9
_GIVEN_UP: Final = (30.0, 60.0)
"""Seconds after which a broker closes the connection of a client that does not answer its PING."""


class WorldLoop(VirtualLoop):
    """An asyncio loop that the world turns; a listener of programs."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(seed)
        self.random = random.Random(f"network of {seed}")
        self.network: Network | None = None
        self._world = world
        self._armed: float | None = None
        self._ends = False
        self._late = 0.0
        self._asleep: dict[str, list[asyncio.Handle]] = {}
        self._nodes: dict[Program, list[str]] = {}
        self._numbers = count()
        world.listeners.append(self)

    # Time

    def time(self) -> float:
        """Give the seconds since the world began."""
        return self._world.now + self._late

    def select(self, timeout: float | None) -> list[Any]:
        """Pass the time, when the world does not turn the loop any more."""
        self._late += max(timeout or 0.0, _TURN)
        return []

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio; the world is asked for a turn."""
        handle = super().call_soon(callback, *args, context=context)
        self._arm()
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio; the world is asked for a turn."""
        handle = super().call_at(when, callback, *args, context=context)
        self._arm()
        return handle

    def _arm(self) -> None:
        """Let the world turn the loop when the next thing is due."""
        if self._ends:
            return
        now = self._world.now
        if self._ready:
            when = now + _TURN
        elif self._scheduled:
            when = max(self._scheduled[0]._when, now)
        else:
            return
        if self._armed is None or when < self._armed:
            self._armed = when
            self._world.after(when - now, lambda: self._turn(when))

    def _turn(self, when: float) -> None:
        if self._ends or when != self._armed:
            return  # another turn came before
        self._armed = None
        due = self.time() + _RESOLUTION
        while self._scheduled and self._scheduled[0]._when < due:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                self._run_handle(self._ready.popleft())
        finally:
            asyncio._set_running_loop(None)
        self._arm()

    def _run_handle(self, handle: asyncio.Handle) -> None:
        node = handle._context.get(NODE, "")
        if node in self._asleep:
            self._asleep[node].append(handle)
        elif not handle._cancelled:
            handle._run()

    # Programs

    def new_node(self) -> str:
        """Give a name for what the program that calls runs here."""
        program = self._world.running()
        node = f"{program.name}/{next(self._numbers)}"
        self._nodes.setdefault(program, []).append(node)
        return node

    def step(self) -> None:
        """Let the program that calls wait for a moment; there it may be killed. Callbacks do not wait."""
        if self._world.is_in_program:
            self._world.running().step()

    def on_kill(self, program: Program) -> None:
        """Stop what the program runs here, and break its connections."""
        assert self.network is not None
        for node in self._nodes.pop(program, ()):
            self._ready.extend(self._asleep.pop(node, ()))
            self.network.stop_node(node)

    def on_suspend(self, program: Program) -> None:
        """Let what the program runs here wait, until brokers give it up."""
        for node in self._nodes.get(program, ()):
            self._asleep.setdefault(node, [])
            self._world.after(self.random.uniform(*_GIVEN_UP), lambda node=node: self._give_up(node))

    def _give_up(self, node: str) -> None:
        assert self.network is not None
        if self.is_asleep(node):
            for link in [each for each in self.network.links if each.node == node]:
                link.close_from_server()

    def on_wake(self, program: Program) -> None:
        """Let it hear all that came meanwhile."""
        for node in self._nodes.get(program, ()):
            self._ready.extend(self._asleep.pop(node, ()))
        self._arm()

    def is_asleep(self, node: str) -> bool:
        """Say whether a node does nothing for a while."""
        return node in self._asleep

    def leave(self, node: str) -> None:
        """Stop a loop whose program goes on: nobody serves what it left open."""
        assert self.network is not None
        for link in [each for each in self.network.links if each.node == node]:
            link.fall_silent()
        self.stop_node(node)

    def end(self) -> None:
        """End everything that is left."""
        self._ends = True
        for handles in self._asleep.values():
            self._ready.extend(handles)
        self._asleep.clear()
        self._clear()


class _Running:
    """A coroutine that a program waits for, as `concurrent.futures.Future`."""

    def __init__(self, world: World, task: asyncio.Task[Any]) -> None:
        self._world = world
        self._task = task
        program = world.running()
        task.add_done_callback(lambda _: program.wake())

    def wait(self, seconds: float | None) -> bool:
        """Wait until it is over, or for so long; say whether it is."""
        program, until = self._world.running(), self._world.now + (1e9 if seconds is None else seconds)
        while not self._task.done() and self._world.now < until:
            program.park(until - self._world.now)
        return self._task.done()

    def result(self, timeout: float | None = None) -> Any:
        """Give what it returned."""
        if not self.wait(timeout):
            raise TimeoutError
        return self._task.result()

    def cancel(self) -> None:
        """End it."""
        self._task.cancel()


class _ThreadLoop:
    """What `PulsarCluster` has as its loop: the part of one node."""

    def __init__(self, loop: WorldLoop) -> None:
        self._loop = loop
        self._node = loop.new_node()
        self._context = loop.context_of(self._node)
        self._is_closed = self._is_stopped = False

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine."""
        try:
            self._loop.step()
        except BaseException:
            work.close()
            raise
        return self._loop.create_task(work, context=self._context.copy())

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Let it call something; then others may be faster than who asked."""
        if not self._is_stopped:
            self._loop.call_soon(callback, *args, context=self._context)
            self._loop.step()

    def run_forever(self) -> None:
        """The world does."""

    def stop(self) -> None:
        """Hear that nobody waits for anything any more."""

    def is_closed(self) -> bool:
        """Say whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Stop; what is open is left to itself."""
        self._is_closed = self._is_stopped = True
        self._loop.leave(self._node)


class _Thread:
    """A thread that only has a name: the world turns its loop."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        """Nothing runs."""

    def start(self) -> None:
        """Nothing runs."""

    def join(self, timeout: float) -> None:
        """Nothing runs."""

    def is_alive(self) -> bool:
        """It has always ended."""
        return False


class _Condition:
    """What a program and its loop tell each other by, as `threading.Condition`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._told = 0
        self._waiting: list[Program] = []

    def __enter__(self) -> _Condition:
        return self

    def __exit__(self, *_: object) -> None:
        """Only one runs at a time."""

    def wait(self, timeout: float) -> bool:
        """Wait until somebody tells, or for so long."""
        program, until, told = self._world.running(), self._world.now + timeout, self._told
        self._waiting.append(program)
        while self._told == told and self._world.now < until:
            program.park(until - self._world.now)
        self._waiting.remove(program)
        return self._told != told

    def notify_all(self) -> None:
        """Wake who waits."""
        self._told += 1
        for program in self._waiting:
            program.wake()


@contextmanager
def installed(loop: WorldLoop, world: World, pulsar: Pulsar) -> Iterator[None]:
    """Let `PulsarCluster` and `PulsarSink` run their loop here, against these brokers."""

    def run_coroutine(work: Coroutine[Any, Any, Any], on: _ThreadLoop) -> _Running:
        return _Running(world, on.start(work))

    def wait(running: Sequence[_Running], seconds: float) -> tuple[set[_Running], set[_Running]]:
        (one,) = running
        return ({one}, set()) if one.wait(seconds) else (set(), {one})

    threads = SimpleNamespace(Thread=_Thread, current_thread=threading.current_thread, Event=threading.Event)
    with (
        patch.object(pulsar_cluster, "_new_loop", lambda: _ThreadLoop(loop)),
        patch.object(pulsar_cluster, "threading", threads),
        patch.object(pulsar_cluster, "asyncio", SimpleNamespace(run_coroutine_threadsafe=run_coroutine)),
        patch.object(pulsar_cluster, "wait", wait),
        patch.object(pulsar_cluster, "Admin", lambda *_, **__: admin_of(pulsar)),
        patch.object(pulsar_sink, "threading", SimpleNamespace(Condition=lambda: _Condition(world))),
    ):
        yield
