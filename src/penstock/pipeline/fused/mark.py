"""How far a range has come, as it is kept with the offset of a group: the offset, and what was counted.

Kafka keeps a text with each committed offset. Here it says where the range began and what was counted since,
so that counts are exact however often the range is interrupted: output, mark and counts are one transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Mark", "read_mark"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything of a range before `offset` is written; `counts` is what that was, from `start` on."""

    start: int
    offset: int
    counts: Mapping[str, int] = field(default_factory=dict)

    def advanced(self, offset: int, counts: Mapping[str, int]) -> Mark:
        """Give the mark after some more."""
        total = Counter(self.counts)
        total.update(counts)
        return Mark(self.start, offset, total)

    @property
    def text(self) -> str:
        """Give what is kept beside the offset.

        >>> Mark(5, 9, {"n_in": 4}).text
        '{"start":5,"counts":{"n_in":4}}'
        """
        known = {name: count for name, count in self.counts.items() if count}
        return json.dumps({"start": self.start, "counts": known}, separators=(",", ":"))


def read_mark(start: int, offset: int | None, text: str) -> Mark:
    """Give where a range that begins at `start` goes on, by what a group has committed.

    A mark of another range says nothing about the counts of this one.

    >>> read_mark(5, 9, '{"start":5,"counts":{"n_in":4}}').counts, read_mark(5, 9, "?").counts
    ({'n_in': 4}, {})
    >>> read_mark(5, 3, "").offset, read_mark(5, None, "").offset
    (5, 5)
    """
    if offset is None or offset <= start:
        return Mark(start, start)
    return Mark(start, offset, _counts(text, start))


def _counts(text: str, start: int) -> dict[str, int]:
    try:
        found: Any = json.loads(text)
        if found["start"] != start:
            return {}
        return {str(name): int(count) for name, count in found["counts"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
