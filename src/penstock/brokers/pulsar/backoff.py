"""Waiting longer after each failure, by a random share, so that clients do not come back together."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["BackOff"]


class BackOff:
    """Delays that double up to a longest one; each is between half and the whole of its step.

    >>> backoff = BackOff(first=0.1, longest=0.3, chance=lambda: 1.0)
    >>> [round(backoff.next(), 2) for _ in range(4)]
    [0.1, 0.2, 0.3, 0.3]
    """

    __slots__ = ("_chance", "_first", "_longest", "_step")

    def __init__(self, *, first: float, longest: float, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = longest
        self._chance = chance
        self._step = first

    def next(self) -> float:
        """Give the next delay in seconds."""
        delay = min(self._step, self._longest)
        self._step = min(2 * self._step, self._longest)
        return delay * (0.5 + 0.5 * self._chance())

    def reset(self) -> None:
        """Begin again: it worked."""
        self._step = self._first
