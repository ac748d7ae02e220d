"""One history: a seed, what happened in it, and the laws that it must keep."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import traceback
from collections.abc import Awaitable, Callable, Iterable

from simulator.loop import VirtualLoop
from simulator.network import Network

__all__ = [
    "Broken",
    "History",
    "Main",
    "Run",
    "failing_seed",
    "run_histories",
    "run_history",
    "seeds",
    "told",
]

_KEPT_LINES = 200
_LIMIT = 3600.0
"""Virtual seconds within which a history has to end."""

Main = Callable[["History"], Awaitable[None]]
Run = Callable[[int], object]
"""Runs the history of a seed; Broken if a law is."""


class Broken(AssertionError):
    """A law was broken; the text is the history."""


class History:
    """What the simulated world, the clients and the laws share."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = VirtualLoop(seed)
        self.random = self.loop.random
        self.network = Network(self.loop)
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        """Write down what happens."""
        self.lines.append(f"{self.loop.time():10.4f}  {who:<10} {what}")

    def check(self, holds: bool, law: str) -> None:
        """Fail the history if a law is broken."""
        if not holds:
            raise Broken(law)

    async def pause(self, longest: float) -> None:
        """Wait for a while by chance."""
        await asyncio.sleep(self.random.uniform(0, longest))


def run_history(main: Main, seed: int) -> History:
    """Run one history; Broken with its lines if it breaks a law."""
    logging.getLogger("penstock").setLevel(logging.CRITICAL + 1)
    # Back-off and the like take their chance from here.
    random.seed(seed)
    history = History(seed)
    asyncio.set_event_loop(history.loop)
    try:
        with history.loop.clocks():
            history.loop.run(_whole(main, history), limit=_LIMIT)
        if history.loop.unforeseen:
            raise Broken(f"the loop heard of {history.loop.unforeseen}")
    except Exception as exc:  # noqa: BLE001  whatever it is, it is shown with the history
        raise Broken(told(seed, history.lines, exc)) from None
    finally:
        asyncio.set_event_loop(None)
    return history


async def _whole(main: Main, history: History) -> None:
    await main(history)


def told(seed: int, lines: list[str], exc: BaseException) -> str:
    """Write down a history that broke a law."""
    law = str(exc) if isinstance(exc, Broken) else "".join(traceback.format_exception(exc))
    if len(lines) > 2 * _KEPT_LINES:
        left_out = len(lines) - 2 * _KEPT_LINES
        lines = [*lines[:_KEPT_LINES], f"... {left_out} lines", *lines[-_KEPT_LINES:]]
    return f"seed {seed}: {law}\n" + "\n".join(lines) + f"\nseed {seed}: {law}"


def seeds(count: int, base: int = 0) -> Iterable[int]:
    """Give the seeds to run: SEED=n runs that one alone, HISTORIES=n so many."""
    one = os.environ.get("SEED")
    if one is not None:
        return [int(one)]
    return range(base, base + int(os.environ.get("HISTORIES", count)))


def run_histories(run: Run, count: int, *, base: int = 0) -> int:
    """Run many histories, and give how many."""
    done = 0
    for seed in seeds(count, base):
        run(seed)
        done += 1
    return done


def failing_seed(run: Run, most: int) -> int | None:
    """Give after how many histories one breaks a law; None if none does."""
    for seed in range(most):
        try:
            run(seed)
        except Broken:
            return seed + 1
    return None
