"""Blocking programs on a clock that does not wait: each has a thread, one of them runs at a time.

A program gives the turn away wherever it would wait for something: in `sleep`, on a socket, at an event. Then
the next thing that is due happens, in the order of the clock. There a program can be killed or suspended.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

__all__ = ["Flag", "Killed", "Listener", "Program", "Stuck", "World"]

_EPOCH: Final = 1_700_000_000.0
"""What the clock of the day shows when a world begins."""
_STEP: Final = 2e-5
"""Seconds that a program needs from one place where it may wait to the next, at most."""
_REAL_SECONDS: Final = 60.0
"""So long may a program run on without waiting for anything."""


class Killed(BaseException):
    """The process ends here, as by a signal: what is still called does nothing."""


class Stuck(AssertionError):
    """Somebody waits for longer than he may, or does not wait at all."""


class Listener(Protocol):
    """Who runs another part of a process, as an event loop on a thread of its own."""

    def on_kill(self, program: Program) -> None:
        """The process ends here."""

    def on_suspend(self, program: Program) -> None:
        """The process does nothing until `on_wake`."""

    def on_wake(self, program: Program) -> None:
        """The process goes on."""


class Program:
    """A function in a thread of its own, as a process would run it."""

    def __init__(self, world: World, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.result: object = None
        self.failure: BaseException | None = None
        self.ended = False
        self.killed = False
        self._world = world
        self._work = work
        self._turn = threading.Lock()
        self._turn.acquire()
        self._wakes = 0
        self._suspended_until = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Run it as soon as its turn comes."""
        self._thread.start()
        self.wake()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._check()
            self.result = self._work()
        except Killed:
            self.killed = True
        except BaseException as exc:  # noqa: BLE001  whoever looks at the program judges it
            self.failure = exc
        self.ended = True
        self._world.give_back()

    # What the program itself calls

    def park(self, seconds: float) -> None:
        """Wait until something happens, or for so long."""
        self._check()
        self._wakes += 1
        self._world.after(max(seconds, 0.0), lambda mine=self._wakes: self._resume(mine))
        self._world.give_back()
        self._turn.acquire()
        self._check()

    def step(self) -> None:
        """Let others run for a moment."""
        self.park(self._world.random.uniform(0, _STEP))

    def _check(self) -> None:
        if self.killed:
            raise Killed

    # What others call

    def wake(self) -> None:
        """Say that something happened."""
        self._world.after(0.0, lambda mine=self._wakes: self._resume(mine))

    def kill(self) -> None:
        """End it where it is."""
        is_new, self.killed = not self.killed and not self.ended, True
        self._suspended_until = 0.0
        for each in self._world.listeners if is_new else ():
            each.on_kill(self)
        self.wake()

    def suspend(self, seconds: float) -> None:
        """Let it do nothing for a while, as a machine that sleeps."""
        self._suspended_until = self._world.now + seconds
        if self._world.listeners:
            for each in self._world.listeners:
                each.on_suspend(self)
            self._world.after(seconds, self._look_awake)

    def _look_awake(self) -> None:
        if self._suspended_until <= self._world.now and not self.killed:
            for each in self._world.listeners:
                each.on_wake(self)

    def let_wake(self) -> None:
        """End a suspension."""
        self._suspended_until = 0.0
        self._look_awake()
        self.wake()

    def _resume(self, mine: int) -> None:
        if self.ended or mine != self._wakes:
            return
        if self._suspended_until > self._world.now:
            self._world.after(self._suspended_until - self._world.now, lambda: self._resume(mine))
            return
        self._wakes += 1
        self._world.hand_over(self)

    def let_go(self) -> None:
        """Run on, for a program that is not scheduled any more."""
        self._turn.release()


class Flag:
    """An event that a program can wait for, as `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[Program] = []

    def is_set(self) -> bool:
        """Say whether it is."""
        return self._set

    def set(self) -> None:
        """Set it, and wake those who wait."""
        self._set = True
        for program in self._waiting:
            program.wake()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, or for so long."""
        program, until = self._world.running(), self._world.now + timeout
        self._waiting.append(program)
        while not self._set and self._world.now < until:
            program.park(until - self._world.now)
        self._waiting.remove(program)
        return self._set


class World:
    """A clock, what is due, and the programs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.programs: list[Program] = []
        self.listeners: list[Listener] = []
        self.turns = 0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._current: Program | None = None
        self._back = threading.Lock()
        self._back.acquire()

    # What is due

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        """Let something happen later; at the same moment in the order in which it was asked for."""
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, what))

    def run(self, is_over: Callable[[], bool], *, limit: float) -> None:
        """Let things happen until it is over; Stuck if it takes too long."""
        while not is_over():
            if not self._due or self._due[0][0] > limit:
                waiting = [program.name for program in self.programs if not program.ended]
                raise Stuck(f"not ended after {limit:g} s: {', '.join(waiting) or 'nobody waits'}")
            when, _, what = heapq.heappop(self._due)
            self.now = max(self.now, when)
            self.turns += 1
            what()

    # Programs

    def start(self, name: str, work: Callable[[], object]) -> Program:
        """Start a program."""
        program = Program(self, name, work)
        self.programs.append(program)
        program.start()
        return program

    @property
    def is_in_program(self) -> bool:
        """Say whether a program calls, and not something that is due."""
        return self._current is not None

    def running(self) -> Program:
        """Give the program that calls."""
        assert self._current is not None, "only programs wait"
        return self._current

    def hand_over(self, program: Program) -> None:
        """Let a program run until it waits."""
        self._current = program
        program.let_go()
        if not self._back.acquire(timeout=_REAL_SECONDS):
            raise Stuck(f"{program.name} runs for ever")
        self._current = None

    def give_back(self) -> None:
        """Let the world go on; called by the program that runs."""
        self._back.release()

    def close(self) -> None:
        """End all programs."""
        for program in self.programs:
            program.kill()
        with suppress(Stuck):
            self.run(lambda: all(program.ended for program in self.programs), limit=self.now + 1.0)

    # Clocks

    def monotonic(self) -> float:
        """Give the seconds since the world began."""
        return self.now

    def time_ns(self) -> int:
        """Give the time of the day."""
        return int((_EPOCH + self.now) * 1e9)

    def sleep(self, seconds: float) -> None:
        """Wait, if a program calls."""
        if self._current is None or threading.current_thread() is not self._current._thread:
            _REAL_SLEEP(seconds)
            return
        until = self.now + seconds
        while self.now < until:
            self._current.park(until - self.now)


_REAL_SLEEP: Final = time.sleep
