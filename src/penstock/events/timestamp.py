"""RFC 3339 timestamps: their grammar, and their way to and from datetime and nanoseconds.

Text is kept as received. Decisions where the RFC leaves room (rows 45 to 48 of the behaviour list):
lower-case `t` and `z` are valid (5.6 note); a space as separator is not, `lenient` tolerates it;
`-00:00` (4.3, offset unknown) reads as UTC; digits after microseconds are cut by `datetime` and
kept by `read_nanoseconds`; second 60 is valid only at 23:59 UTC and reads as the next second.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

__all__ = ["is_timestamp", "read_nanoseconds", "read_timestamp", "write_nanoseconds", "write_timestamp"]

# RFC 3339 5.6, date-time; the space is only for `lenient`, see `is_timestamp`.
_DATE_TIME = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]"
    r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
# The common spelling, with every day that exists but 29 February: what matches is a date-time, and
# fromisoformat reads it exactly (year 0000 excepted, which it refuses).
COMMON = (
    r"[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_is_common = re.compile(COMMON).fullmatch
_NANO_DIGITS = 9


def is_timestamp(text: str, *, space: bool = False) -> bool:
    """Tell whether the text is a date-time of RFC 3339; `space` also allows a space for the T."""
    if _is_common(text):
        return True
    try:
        match = _parts(text)
    except ValueError:
        return False
    return space or match[0][10] != " "


def read_timestamp(text: str) -> datetime:
    """Read a timestamp as a datetime with its own offset; ValueError if it is none or out of range.

    >>> read_timestamp("1990-12-31T15:59:60-08:00").isoformat()
    '1990-12-31T16:00:00-08:00'
    """
    try:
        return datetime.fromisoformat(text) if _is_common(text) else _assemble(_parts(text))
    except OverflowError:
        raise ValueError("beyond the years that datetime can hold, 1 to 9999") from None


def read_nanoseconds(text: str) -> int:
    """Read a timestamp as nanoseconds since the epoch; digits beyond the ninth are cut.

    >>> read_nanoseconds("1970-01-01T00:00:00.0000000019Z")
    1
    """
    match = _parts(text)
    days = _days_since_epoch(int(match[1]), int(match[2]), int(match[3]))
    minutes = days * 1440 + int(match[4]) * 60 + int(match[5]) - _offset_minutes(match)
    fraction = (match[7] or "")[:_NANO_DIGITS].ljust(_NANO_DIGITS, "0")
    return (minutes * 60 + int(match[6])) * 10**9 + int(fraction)


def write_nanoseconds(seconds: int, nanos: int) -> str:
    """Write seconds and nanoseconds since the epoch in UTC, with 0, 3, 6 or 9 digits of fraction.

    >>> write_nanoseconds(0, 120_000_000)
    '1970-01-01T00:00:00.120Z'
    """
    if not 0 <= nanos < 10**9:
        raise ValueError("nanoseconds are not between 0 and 999 999 999")
    fraction = f".{nanos:09d}" if nanos else ""
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("beyond the years 1 to 9999") from None
    return f"{moment:%Y}".zfill(4) + f"{moment:-%m-%dT%H:%M:%S}{fraction}Z"


def write_timestamp(moment: datetime) -> str:
    """Write a datetime with an offset as RFC 3339, UTC as `Z`."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError("a datetime without an offset is not a moment in time")
    if offset % timedelta(minutes=1):
        raise ValueError("RFC 3339 has no offsets with seconds")
    text = moment.isoformat()
    if type(moment) is not datetime:
        _parts(text)  # a subclass writes what it likes
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def _parts(text: str) -> re.Match[str]:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a date-time of RFC 3339")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if day > _days(year, month):
        raise ValueError("no such day in that month")
    if match[6] == "60" and not _may_leap(match):
        raise ValueError("a leap second comes only at 23:59 UTC")
    return match


def _days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Count days in the Gregorian calendar, year 0 included, which datetime does not have."""
    march_year, march_month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    leap_days = march_year // 4 - march_year // 100 + march_year // 400
    return march_year * 365 + leap_days + (153 * march_month + 2) // 5 + day - 719469


def _offset_minutes(match: re.Match[str]) -> int:
    if match[8] is None:
        return 0
    minutes = int(match[9]) * 60 + int(match[10])
    return -minutes if match[8] == "-" else minutes


def _may_leap(match: re.Match[str]) -> bool:
    # RFC 3339 5.7: leap seconds are inserted at 23:59:60 UTC.
    minute_of_day = int(match[4]) * 60 + int(match[5]) - _offset_minutes(match)
    return minute_of_day % 1440 == 1439


def _assemble(match: re.Match[str]) -> datetime:
    minutes = _offset_minutes(match)
    zone = timezone(timedelta(minutes=minutes)) if minutes else UTC
    leap = match[6] == "60"
    moment = datetime(
        int(match[1]),
        int(match[2]),
        int(match[3]),
        int(match[4]),
        int(match[5]),
        59 if leap else int(match[6]),
        int((match[7] or "")[:6].ljust(6, "0")),
        tzinfo=zone,
    )
    return moment + timedelta(seconds=1) if leap else moment
