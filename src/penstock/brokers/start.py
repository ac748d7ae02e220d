"""Where reading a topic begins, as people say it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from penstock.errors import UsageError

__all__ = ["Start", "StartKind"]

_KAFKAS_WORDS: Final = {"earliest": "beginning", "latest": "end"}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGO: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_OFFSET: Final = re.compile(r"\d{1,18}", re.ASCII)


class StartKind(StrEnum):
    """The kinds of places."""

    BEGINNING = "beginning"
    END = "end"
    LAST = "last"
    TIME = "time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Start:
    """A place; `number` is a count, milliseconds since the epoch, or an offset."""

    kind: StartKind
    number: int = 0

    @classmethod
    def parse(cls, text: str, *, now: float | None = None) -> Start:
        """Read beginning, end, -100 (the last hundred), 10m (ten minutes ago), a time or 4711 (an offset).

        Kafka's words earliest and latest are taken, too; a time without a zone is UTC.

        >>> Start.parse("-100")
        Start(kind=<StartKind.LAST: 'last'>, number=100)
        >>> Start.parse("10m", now=1000.0)
        Start(kind=<StartKind.TIME: 'time'>, number=400000)
        >>> Start.parse("2026-11-16T06:00Z") == Start.parse("2026-11-16T07:00+01:00")
        True
        """
        word = _KAFKAS_WORDS.get(text, text)
        if word in (StartKind.BEGINNING, StartKind.END):
            return cls(StartKind(word))
        if text.startswith("-") and _OFFSET.fullmatch(text[1:]):
            return cls(StartKind.LAST, int(text[1:]))
        ago = _AGO.fullmatch(text)
        if ago is not None:
            seconds = int(ago[1]) * _UNITS[ago[2]]
            return cls(StartKind.TIME, int(((time.time() if now is None else now) - seconds) * 1000))
        if _OFFSET.fullmatch(text):
            return cls(StartKind.OFFSET, int(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as exc:
            raise UsageError(
                f"{text!r} is no place in a topic",
                next="use beginning (earliest), end (latest), -100, 10m, 2026-11-16T06:00Z or an offset",
            ) from exc
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(StartKind.TIME, max(0, int(zoned.timestamp() * 1000)))
