"""The moment that `now()` stands for, and by which events are expired: one for a range, and kept with it.

A range that is evaluated a second time has to give the same output where a part of the first one is written
already: on the clusters that were committed before a crash, or on Pulsar, which skips what it has. So the
moment is fixed when the first record of a range is read, and durable before it can matter:

| where | a range is | its moment is kept in |
|---|---|---|
| Spark | a batch | the checkpoint: the batch's own time, which Spark writes before a task begins |
| loop, and each transaction of a task | a transaction | the mark of each cluster, in that transaction |
| loop that writes Pulsar | what comes between two marks | an `OpenRange`, in a mark before the first record |

Pulsar has what was written before its mark is. So a loop whose routes read `now()` commits where it stands
once more before it routes the first record of a range, with the moment and the offset up to which that may be
used. After a crash what was in the topic by then is done again with that moment, up to that offset.

A cluster that is ahead of another one has, in its mark, the moment of the transaction between them: that one
is begun only when all clusters are where it begins. The time of the records themselves would need no keeping,
but is another question: `time + INTERVAL 1 DAY < now()` asks how old an event is when it is routed, not when
it was written.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["OPEN_OFFSETS", "OpenRange", "RangeClock", "read_moment", "read_open_range"]

OPEN_OFFSETS: Final = 1 << 18
"""How many offsets of a partition a moment is fixed for at once."""


class RangeClock:
    """Microseconds since 1970, fixed by the first `read` until `reset`; `fixed` is one for all ranges."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._moment = fixed

    def read(self) -> int:
        """Return the moment of the range, which is now if nobody has asked yet."""
        if self._moment is None:
            self._moment = time.time_ns() // 1000
        return self._moment

    def reset(self) -> None:
        """Begin the next range."""
        self._moment = self._fixed


def read_moment(text: str) -> int | None:
    """Read the moment that a mark was written with; None if it has none.

    >>> read_moment('{"start":5,"now":7}'), read_moment('{"now":true}'), read_moment("?")
    (7, None, None)
    """
    try:
        found: Any = json.loads(text).get("now")
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if type(found) is int and 0 <= found < 1 << 62 else None


@dataclass(frozen=True, slots=True)
class OpenRange:
    """What is behind a mark was perhaps written with a moment, as far as an offset."""

    moment: int
    """In microseconds."""
    until: int

    @property
    def member(self) -> str:
        """The member that is added to the text of the mark.

        >>> read_open_range("{" + OpenRange(7, 9).member[1:] + "}")
        OpenRange(moment=7, until=9)
        """
        return f',"open":[{self.moment},{self.until}]'


def read_open_range(text: str) -> OpenRange | None:
    """Read what was begun behind a mark; None if it does not say. Anybody may have committed it.

    >>> read_open_range('{"start":5}'), read_open_range('{"open":[1,"x"]}'), read_open_range("?")
    (None, None, None)
    """
    try:
        moment, until = json.loads(text)["open"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_sound = type(moment) is int and type(until) is int and 0 <= moment < 1 << 62
    return OpenRange(moment, until) if is_sound else None
