"""Moments of the plan: whole microseconds since the epoch, in the years 0001 to 9999 of UTC.

Text is read by RFC 3339 as `penstock.events.timestamp` reads it: digits after the sixth are cut, a leap
second is the next second. A moment outside these years is null.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.events.timestamp import read_timestamp, write_nanoseconds

__all__ = ["FIRST", "LAST", "TIMESTAMPS", "literal_time", "moment", "read_time", "time_in_range", "time_text"]

FIRST: Final = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z."""
LAST: Final = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z."""
TIMESTAMPS: Final = frozenset({"time", "expirytime", "recordedtime"})
"""Attributes that are Timestamps by core and its documented extensions: they compare as moments."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SPACED = re.compile(r"\d{4}-\d\d-\d\d \S+", re.ASCII)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def time_in_range(micros: int) -> int | None:
    """Give a moment back, or None where it is not one of the plan."""
    return micros if FIRST <= micros <= LAST else None


def read_time(text: str) -> int | None:
    """Read a date-time of RFC 3339; None if it is none.

    >>> read_time("1970-01-01T01:00:00.0000019+01:00"), read_time("1970-01-01")
    (1, None)
    """
    if " " in text:  # `lenient` may let one through; here it is no moment
        return None
    try:
        return time_in_range((read_timestamp(text) - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        return None


def literal_time(text: str) -> int | None:
    """Read a time as a person writes it in an expression: without an offset it is UTC.

    >>> literal_time("1970-01-01 00:00:01"), literal_time("1970-01-02")
    (1000000, 86400000000)
    """
    if _DATE.fullmatch(text):
        text += "T00:00:00"
    if _SPACED.fullmatch(text):
        text = text.replace(" ", "T")
    return read_time(f"{text}Z" if _LOCAL.fullmatch(text) else text)


def moment(micros: int) -> datetime:
    """Give a moment as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def time_text(micros: int) -> str:
    """Write a moment in UTC, with 0, 3 or 6 digits of fraction.

    >>> time_text(1_500_000)
    '1970-01-01T00:00:01.500Z'
    """
    seconds, fraction = divmod(micros, 1_000_000)
    return write_nanoseconds(seconds, fraction * 1_000)
