"""Functions of moments: microseconds since 1970 in UTC, from and to texts of RFC 3339, and their parts.

Arguments and results stand as `decimals` says. Texts in other than the common spelling are left to somebody
else, and so are years at the ends of what the plan knows.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.decimals import set_value
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    DONE,
    F_DAY,
    F_HOUR,
    F_MINUTE,
    F_MONTH,
    F_SECOND,
    F_SHIFT,
    F_TEXT_OF_TIME,
    F_TIME_OF_TEXT,
    F_UNIX_MICROS,
    F_UNIX_MILLIS,
    F_UNIX_SECONDS,
    F_YEAR,
    UNSURE,
    W_SCRATCH,
)

__all__ = ["time_function"]

_SECOND = 1_000_000
_DAY_SECONDS = 86_400
_FIRST = -62_135_596_800_000_000
_LAST = 253_402_300_799_999_999
"""The moments of the plan: years 1 to 9999."""
_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01."""
_CENTURIES = 146_097
"""Days of 400 years."""
_SIGNS = np.frombuffer(b"0000-00-00T00:00:00", np.uint8)
_SHORTEST = 20
_LONGEST = 27


@inner(INT(INT, INT, INT))
def _days(year: int, month: int, day: int) -> int:
    """Count days from 1970 in the Gregorian calendar; years begin with March: a leap day is their last."""
    year -= int(month <= 2)
    month = (month + 9) % 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - _EPOCH


@inner(INT(INT, INT), inline=False)
def _calendar(days: int, part: int) -> int:
    """Give the year, month or day of the month of a day; the way back of `_days`."""
    days += _EPOCH
    age = days // _CENTURIES
    day = days - age * _CENTURIES
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    if part == F_DAY:
        return day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    if part == F_MONTH:
        return month
    return year + age * 400 + int(month <= 2)


@inner(INT(BYTES, INT, INT), inline=False)
def _digits(data: ByteArray, pos: int, count: int) -> int:
    """Read so many digits; a number below zero if they are none."""
    value = 0
    for i in range(pos, pos + count):
        found = byte_at(data, i) - 0x30
        value = value * 10 + found if 0 <= found <= 9 and value >= 0 else -1
    return value


@inner(INT(BYTES, INT, INT), inline=False)
def _has_signs(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 if what stands between the numbers of a date-time is in its common spelling."""
    if end - pos < _SHORTEST:
        return 0
    for i in range(len(_SIGNS)):
        if _SIGNS[i] != 0x30 and _SIGNS[i] != byte_at(data, pos + i):
            return 0
    return 1


@inner(INT(BYTES, INT, INT, INTS, INT), inline=False)
def _read(data: ByteArray, pos: int, end: int, work: IntArray, at: int) -> int:
    """Read a date-time of RFC 3339; digits behind the sixth of the fraction are cut."""
    if not _has_signs(data, pos, end):
        return UNSURE
    year, month, day = _digits(data, pos, 4), _digits(data, pos + 5, 2), _digits(data, pos + 8, 2)
    hour, minute, second = _digits(data, pos + 11, 2), _digits(data, pos + 14, 2), _digits(data, pos + 17, 2)
    # A day that exists is one that comes back.
    if not (
        2 <= year <= 9998 and 1 <= month <= 12 and 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60
    ):
        return UNSURE
    days = _days(year, month, day)
    if day < 1 or _calendar(days, F_DAY) != day or _calendar(days, F_MONTH) != month:
        return UNSURE
    micros = 0
    pos += 19
    if byte_at(data, pos) == 0x2E:
        step = _SECOND
        pos += 1
        first = pos
        while pos < end and 0x30 <= byte_at(data, pos) <= 0x39:
            step //= 10
            micros += step * (byte_at(data, pos) - 0x30)
            pos += 1
        if pos == first:
            return UNSURE
    minutes = days * 1440 + hour * 60 + minute
    if end - pos == 1 and byte_at(data, pos) == 0x5A:
        return set_value(work, at, (minutes * 60 + second) * _SECOND + micros, 0)
    if end - pos != 6 or byte_at(data, pos + 3) != 0x3A:
        return UNSURE
    sign, hour, minute = byte_at(data, pos), _digits(data, pos + 1, 2), _digits(data, pos + 4, 2)
    if not (sign in (0x2B, 0x2D) and 0 <= hour < 24 and 0 <= minute < 60):
        return UNSURE
    minutes += (hour * 60 + minute) * (1 if sign == 0x2D else -1)
    return set_value(work, at, (minutes * 60 + second) * _SECOND + micros, 0)


@inner(INT(OUT, INT, INT, INT, INT))
def _put(pool: ByteArray, to: int, number: int, digits: int, sign: int) -> int:
    """Write a number in so many digits, and a sign behind it; give the position behind that."""
    for i in range(digits - 1, -1, -1):
        pool[to + i] = 0x30 + number % 10
        number //= 10
    pool[to + digits] = sign
    return to + digits + 1


@inner(INT(OUT, INTS, INT), inline=False)
def _text_of_time(pool: ByteArray, work: IntArray, at: int) -> int:
    """Write a moment in UTC with 0, 3 or 6 digits of fraction."""
    start = work[W_SCRATCH]
    if start + _LONGEST > len(pool):
        return UNSURE
    micros = work[at] % _SECOND
    seconds = work[at] // _SECOND
    days = seconds // _DAY_SECONDS
    seconds -= days * _DAY_SECONDS
    to = _put(pool, start, _calendar(days, F_YEAR), 4, 0x2D)
    to = _put(pool, to, _calendar(days, F_MONTH), 2, 0x2D)
    to = _put(pool, to, _calendar(days, F_DAY), 2, 0x54)
    to = _put(pool, to, seconds // 3600, 2, 0x3A)
    to = _put(pool, to, seconds // 60 % 60, 2, 0x3A)
    to = _put(pool, to, seconds % 60, 2, 0x2E if micros else 0x5A)
    if micros:
        digits = 6 if micros % 1000 else 3
        to = _put(pool, to, micros if digits == 6 else micros // 1000, digits, 0x5A)
    work[W_SCRATCH] = to
    return set_value(work, at, ~start, to - start)


@inner(INT(INTS, INT), inline=False)
def _shift(work: IntArray, at: int) -> int:
    """Move a moment by microseconds; null where they are not whole, or the moment is beyond the years."""
    by = work[at + 2]
    for _ in range(work[at + 3]):
        if by % 10:
            return set_value(work, at, 0, -1)
        by //= 10
    moment = work[at] + by
    return set_value(work, at, moment, 0 if _FIRST <= moment <= _LAST else -1)


@inner(INT(INTS, INT, INT), inline=False)
def _part(work: IntArray, at: int, function: int) -> int:
    seconds = work[at] // _SECOND
    if function == F_UNIX_SECONDS:
        work[at] = seconds
    elif function == F_UNIX_MILLIS:
        work[at] //= 1000
    elif function == F_SECOND:
        work[at] = seconds % 60
    elif function == F_MINUTE:
        work[at] = seconds // 60 % 60
    elif function == F_HOUR:
        work[at] = seconds // 3600 % 24
    elif function in (F_YEAR, F_MONTH, F_DAY):
        work[at] = _calendar(seconds // _DAY_SECONDS, function)
    elif function != F_UNIX_MICROS:
        return UNSURE
    return DONE


@inner(INT(BYTES, OUT, INTS, INT, INT))
def time_function(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    """Call a function of moments."""
    if function == F_TIME_OF_TEXT:
        text, size = work[at], work[at + 1]
        if text >= 0:
            return _read(data, text, text + size, work, at)
        return _read(pool, ~text, ~text + size, work, at)
    if function == F_TEXT_OF_TIME:
        return _text_of_time(pool, work, at)
    if function == F_SHIFT:
        return _shift(work, at)
    return _part(work, at, function)
