"""How the records of a source partition are placed on Pulsar, kept with its mark: a second run does the same.

A record has a partition by its key or its position, and the number of partitions of the target, which may
grow at any time. So the number is fixed with each mark, and holds for everything behind it: a run that goes
on at a mark takes the number that the mark has, also if the topic has more by then. A larger number is taken
over only together with a mark that says so, and holds from that mark on.

Without a mark there is no number, and nothing was written: the mark is committed before the first record is.

A mark also says since when records behind it may be on Pulsar. That is not when it was committed: a mark that
only claims a source, or that lies inside of a range that is done again, has records behind it that an earlier
attempt has written. The time of the mark before is kept until a mark passes all that may be stored.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.pipeline.ports import Target

__all__ = ["Placement", "read_placement", "target_key"]

_MEMBER: Final = "pulsar"
_MOST_PARTITIONS: Final = 100_000
"""Of a topic: more is no number that was kept here."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What holds for the records behind a mark."""

    partitions: Mapping[str, int] = field(default_factory=dict)
    """Of each target, by `target_key`; 0 for a topic without partitions."""
    token: str = field(default_factory=lambda: secrets.token_hex(6))
    """Whose names the records are written under, where no checkpoint keeps the identity of the run.

    Offsets that an operator has set say nothing of this: then there is a new one, and all is written again.
    """
    since: int | None = None
    """No record behind the mark was written before, in milliseconds. None: there is no mark."""

    def since_of_mark(self, now: int, *, is_past: bool) -> int:
        """Return the time for a mark; `is_past` says that all that may be stored lies before the mark.

        >>> [Placement(since=5).since_of_mark(9, is_past=each) for each in (True, False)]
        [9, 5]
        >>> Placement(since=5).since_of_mark(3, is_past=False), Placement().since_of_mark(9, is_past=False)
        (3, 9)
        """
        return now if is_past or self.since is None else min(self.since, now)

    @property
    def member(self) -> str:
        """The member that is added to the text of a mark.

        >>> read_placement("{" + Placement({"a": 4}, "t", 5).member[1:] + "}").partitions
        {'a': 4}
        """
        value = {"token": self.token, "since": self.since, "partitions": dict(self.partitions)}
        return f',"{_MEMBER}":{json.dumps(value, separators=(",", ":"))}'


def target_key(target: Target) -> str:
    """Name a target in a mark: some bytes instead of a topic's name, since a broker bounds the text."""
    return hashlib.sha256(f"{target.sink}/{target.topic}".encode()).hexdigest()[:8]


def read_placement(text: str) -> Placement | None:
    """Read how records behind a mark were placed; None if it does not say. Anybody may have committed it.

    >>> read_placement('{"pulsar":{"token":"t","since":5,"partitions":{"a":4}}}')
    Placement(partitions={'a': 4}, token='t', since=5)
    >>> read_placement("?"), read_placement('{"pulsar":{"token":"t","since":5,"partitions":{"a":"x"}}}')
    (None, None)
    """
    try:
        found: Any = json.loads(text)[_MEMBER]
        partitions = {str(name): int(count) for name, count in found["partitions"].items()}
        if not all(0 <= count <= _MOST_PARTITIONS for count in partitions.values()):
            return None
        return Placement(partitions, str(found["token"])[:32], int(found["since"]))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
