"""Long work on the event loop, cut into slices by time.

A coordinator that blocks its loop for longer than the lease of its gateway (2.5 s) loses every partition it
has. What runs over all groups or all offsets therefore looks at the clock between two items.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

__all__ = ["SLICE_SECONDS", "Pace"]

SLICE_SECONDS: Final = 0.01
_CALLS_PER_LOOK: Final = 64
"""How many items are done between two looks at the clock; each is a matter of microseconds."""


class Pace:
    """Says when a loop over many items has run long enough.

    Use: `if pace.is_due(): await pace.rest()` after each item.
    """

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._calls = 0
        self._until = time.perf_counter() + seconds

    def is_due(self) -> bool:
        """Whether the slice is over; looks at the clock once in a while only."""
        self._calls += 1
        return self._calls % _CALLS_PER_LOOK == 0 and self.is_late()

    def is_late(self) -> bool:
        """Whether the slice is over; for items that take long by themselves."""
        return time.perf_counter() >= self._until

    async def rest(self) -> None:
        """Let the others on the loop run, and begin the next slice."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + self._seconds
