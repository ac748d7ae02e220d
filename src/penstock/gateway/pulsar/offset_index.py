"""Where entries are, as far as this gateway has seen them: some offsets and their places, few and in order.

A reader that begins near one of them need not ask the broker. Only a hint: what is read says itself which
offset it has. Recent points stand close together, older ones ever further apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from typing import Final

from penstock.wire.pulsar import MessageId

__all__ = ["OffsetIndex"]

_POINTS: Final = 1024
_NEAR: Final = 5_000
"""Records that are rather read and passed by than a place is asked for."""


class OffsetIndex:
    """Some places of one partition.

    >>> index = OffsetIndex()
    >>> index.note(100, MessageId(7, 1))
    >>> index.note(150, MessageId(7, 2))
    >>> index.find(149)
    MessageId(ledger_id=7, entry_id=1, batch_index=-1, partition=-1)
    >>> index.find(99)
    """

    __slots__ = ("_offsets", "_places")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._places: list[MessageId] = []

    def __len__(self) -> int:
        """Count the points."""
        return len(self._offsets)

    def note(self, offset: int, place: MessageId) -> None:
        """Remember the entry whose first record has this offset."""
        offsets = self._offsets
        at = len(offsets)
        if offsets and offset <= offsets[-1]:
            at = bisect_right(offsets, offset)
            if offsets[at - 1] == offset and at:
                self._places[at - 1] = place
                return
        offsets.insert(at, offset)
        self._places.insert(at, place)
        if len(offsets) > _POINTS:
            self._thin_out()

    def find(self, offset: int) -> MessageId | None:
        """Give an entry at an offset or shortly before it."""
        at = bisect_right(self._offsets, offset) - 1
        if at < 0 or offset - self._offsets[at] > _NEAR:
            return None
        return self._places[at]

    def keep(self, ledgers: Container[int]) -> None:
        """Forget what was in other ledgers: they were removed."""
        kept = [
            (offset, place)
            for offset, place in zip(self._offsets, self._places, strict=True)
            if place.ledger_id in ledgers
        ]
        self._offsets = [offset for offset, _ in kept]
        self._places = [place for _, place in kept]

    def clear(self) -> None:
        """Forget everything."""
        self.keep(())

    def _thin_out(self) -> None:
        """Forget every second one of the older half."""
        half = len(self._offsets) // 2
        del self._offsets[1:half:2]
        del self._places[1:half:2]
