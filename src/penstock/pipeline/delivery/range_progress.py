"""How far a range has come, as it is kept with the offset of a group: the offset, and what was counted.

Kafka keeps a text with each committed offset. Here it says where the range began and what was counted since,
so that counts are exact however often the range is interrupted: output, mark and counts are one transaction.
A loop, whose marks are all that it has, also keeps there which pipeline it is and the id of the topic.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Belonging", "RangeProgress", "Owner", "read_belonging", "read_mark", "read_run"]

_MOST_ROUTES: Final = 100
"""So many digests of routes a mark keeps: a broker bounds the text (offset.metadata.max.bytes, 4096)."""
_MOST_LABEL: Final = 120
_MOST_COUNTED: Final = 1 << 53
"""No range has more of anything; the sums of all ranges of a task have to fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline as its marks know it: by the name in its file, else by its routes and where they send to."""

    name: str | None
    label: str
    """What people are told."""
    routes: frozenset[str] = frozenset()
    """A digest of each pair of a route and a target."""

    @classmethod
    def of(cls, name: str | None, routes: Iterable[tuple[str, str]]) -> Owner:
        """Name the owner of routes, each with one of the topics that it sends to; empty if there is none."""
        pairs = sorted(set(routes))
        digests = frozenset(hashlib.sha256(repr(pair).encode()).hexdigest()[:8] for pair in pairs)
        names = ", ".join(dict.fromkeys(route for route, _ in pairs))
        label = f"pipeline {name}" if name else f"the pipeline with the routes {names}"
        short = label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 3]}..."
        return cls(name, short, digests)

    def is_same(self, other: Owner) -> bool:
        """Say whether it is the same pipeline: of two names the names decide, else a route in common."""
        if self.name is not None and other.name is not None:
            return self.name == other.name
        return bool(self.routes & other.routes)


@dataclass(frozen=True, slots=True)
class Belonging:
    """Whose a mark is, and of which topic; None where it does not say, as older marks do not."""

    owner: Owner | None = None
    topic_id: str | None = None

    @property
    def text(self) -> str:
        """Give the members that are added to the text of a mark.

        >>> Belonging(topic_id="x").text
        ',"topic":"x"'
        """
        members: dict[str, Any] = {}
        if self.owner is not None:
            owner = self.owner
            routes = sorted(owner.routes)[:_MOST_ROUTES]
            members["by"] = {"name": owner.name, "label": owner.label, "routes": routes}
        if self.topic_id is not None:
            members["topic"] = self.topic_id
        return "," + json.dumps(members, separators=(",", ":"))[1:-1] if members else ""


def read_belonging(text: str) -> Belonging:
    """Read whose a mark is; anybody may have committed the text.

    >>> read_belonging('{"start":5,"counts":{},"topic":"x"}').topic_id, read_belonging("?")
    ('x', Belonging(owner=None, topic_id=None))
    """
    try:
        found: Any = json.loads(text)
        topic, by = found.get("topic"), found.get("by")
        owner = None
        if by is not None:
            name, label = by["name"], str(by["label"])[:_MOST_LABEL]
            owner = Owner(None if name is None else str(name), label, frozenset(map(str, by["routes"])))
        return Belonging(owner, None if topic is None else str(topic))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Belonging()


def read_run(text: str) -> str | None:
    """Read which run of a loop has committed a mark; None if it does not say.

    >>> read_run('{"start":5,"counts":{},"run":"x"}'), read_run("?")
    ('x', None)
    """
    try:
        found = json.loads(text).get("run")
        return None if found is None else str(found)
    except (ValueError, AttributeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class RangeProgress:
    """Everything of a range before `offset` is written; `counts` is what that was, from `start` on."""

    start: int
    offset: int
    counts: Mapping[str, int] = field(default_factory=dict)
    more: str = ""
    """Further members of the text, see `Belonging`."""
    now: int | None = None
    """The moment that `now()` stood for in what was written last, in microseconds; None: it is not kept."""

    def advanced(self, offset: int, counts: Mapping[str, int]) -> RangeProgress:
        """Give the mark after some more."""
        total = Counter(self.counts)
        total.update(counts)
        return RangeProgress(self.start, offset, total, self.more, self.now)

    @property
    def text(self) -> str:
        """Give what is kept beside the offset.

        >>> RangeProgress(5, 9, {"n_in": 4}).text
        '{"start":5,"counts":{"n_in":4}}'
        >>> RangeProgress(5, 9, now=7).text
        '{"start":5,"counts":{},"now":7}'
        """
        known = {name: count for name, count in self.counts.items() if count}
        moment = {} if self.now is None else {"now": self.now}
        text = json.dumps({"start": self.start, "counts": known, **moment}, separators=(",", ":"))
        return f"{text[:-1]}{self.more}}}"


def read_mark(start: int, offset: int | None, text: str) -> RangeProgress:
    """Give where a range that begins at `start` goes on, by what a group has committed.

    A mark of another range says nothing about the counts of this one.

    >>> read_mark(5, 9, '{"start":5,"counts":{"n_in":4}}').counts, read_mark(5, 9, "?").counts
    ({'n_in': 4}, {})
    >>> read_mark(5, 3, "").offset, read_mark(5, None, "").offset
    (5, 5)

    Anybody may have written it: what no range can have counted is left out.

    >>> read_mark(5, 9, '{"start":5,"counts":{"n_in":1%s,"n_out":-1,"n_dead":2}}' % (18 * "0")).counts
    {'n_dead': 2}
    """
    if offset is None or offset <= start:
        return RangeProgress(start, start)
    return RangeProgress(start, offset, _counts(text, start))


def _counts(text: str, start: int) -> dict[str, int]:
    try:
        found: Any = json.loads(text)
        if found["start"] != start:
            return {}
        counts = {str(name): int(count) for name, count in found["counts"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}
    return {name: count for name, count in counts.items() if 0 <= count <= _MOST_COUNTED}
