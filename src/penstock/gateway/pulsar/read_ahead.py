"""The memory of all readers of a gateway: one budget, divided among those that are open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["Holder", "ReadAhead"]

_MIB: Final = 1024 * 1024
_MOST: Final = 12 * _MIB
"""What a client usually asks for at once is 4 MiB: that is held while as much is read ahead."""
_LEAST: Final = 256 * 1024


class Holder(Protocol):
    """A reader that holds what it has read ahead."""

    used: float
    """When it was last asked."""

    @property
    def held_bytes(self) -> int:
        """What it holds now."""

    def limit(self, size: int) -> None:
        """Read ahead no more than this from now on."""


class ReadAhead:
    """Divides the budget; whoever is too many, the one least recently used, is told to close.

    A reader that had a larger share keeps what it holds until that is taken. So when one more is opened, the
    least recently used ones are closed too for as long as all together hold more than the budget. Between
    two openings the budget is exceeded by at most one entry of each reader.

    >>> ReadAhead(limit=1024 * 1024).share
    1048576
    """

    def __init__(self, limit: int = 64 * _MIB) -> None:
        self._limit = limit
        self._open: dict[Holder, Callable[[], None]] = {}

    @property
    def share(self) -> int:
        """What one of the readers may hold."""
        return max(_LEAST, min(_MOST, self._limit // max(len(self._open), 1)))

    @property
    def used(self) -> float:
        """The part of the budget that is in use."""
        return sum(holder.held_bytes for holder in self._open) / self._limit

    def add(self, holder: Holder, dismiss: Callable[[], None]) -> None:
        """Count a reader; `dismiss` closes it."""
        self._open[holder] = dismiss
        while len(self._open) > 1 and (len(self._open) > self._limit // _LEAST or self.used > 1):
            oldest = min((each for each in self._open if each is not holder), key=lambda each: each.used)
            self._open.pop(oldest)()
        self._divide()

    def remove(self, holder: Holder) -> None:
        """Count a reader as closed."""
        if self._open.pop(holder, None) is not None:
            self._divide()

    def _divide(self) -> None:
        share = self.share
        for holder in self._open:
            holder.limit(share)
