"""What is certainly a reference, a timestamp, or a match of a pattern; a 0 means ask somebody else."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, ByteArray, inner
from penstock.wire.kernels.routing.texts import text_byte
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import ANY, FALSE, ONE, TRUE, UNSURE

__all__ = ["character_size", "is_common_reference", "is_common_time", "matches"]

_MAX_STEPS = 100_000


def _characters(letters: bytes) -> np.ndarray:
    table = np.zeros(256, np.uint8)
    table[np.frombuffer(letters, np.uint8)] = 1
    return table


_ALPHA = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
# RFC 3986: unreserved, sub-delims and the slash.
_PLAIN = _characters(_ALPHA + _DIGITS + b"-._~!$&'()*+,;=/")
_SCHEME = _characters(_ALPHA + _DIGITS + b"+.-")
_COLON = 0x3A
_ZERO = 0x30


@inner(INT(BYTES, INT, INT))
def is_common_reference(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 for a URI-reference without percent signs, queries and ports (RFC 3986 4.1)."""
    first = pos
    for i in range(pos, end):
        found = byte_at(data, i)
        # A scheme begins with a letter: of its characters only those are above 9.
        if found == _COLON and first == pos and i > pos and byte_at(data, pos) > 0x39:
            for j in range(pos, i):
                if not _SCHEME[byte_at(data, j)]:
                    return 0
            first = i + 1
        elif not _PLAIN[found]:
            return 0
    return int(end > first)


@inner(INT(BYTES, INT))
def _two(data: ByteArray, pos: int) -> int:
    """Read two digits; -1 if they are none."""
    tens = byte_at(data, pos) - _ZERO
    ones = byte_at(data, pos + 1) - _ZERO
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -1


@inner(INT(BYTES, INT))
def _is_date(data: ByteArray, pos: int) -> int:
    """Say 1 for a day that exists in its year."""
    month = _two(data, pos + 5)
    day = _two(data, pos + 8)
    century = _two(data, pos)
    year = _two(data, pos + 2)
    if century < 0 or year < 0 or month < 1 or month > 12 or day < 1:
        return 0
    if byte_at(data, pos + 4) != 0x2D or byte_at(data, pos + 7) != 0x2D:
        return 0
    if month == 2:
        leap = century % 4 == 0 if year == 0 else year % 4 == 0
        return int(day <= 28 + int(leap))
    return int(day <= (30 if month in (4, 6, 9, 11) else 31))


@inner(INT(BYTES, INT))
def _is_time(data: ByteArray, pos: int) -> int:
    """Say 1 for hours, minutes and seconds."""
    if byte_at(data, pos + 2) != _COLON or byte_at(data, pos + 5) != _COLON:
        return 0
    hour = _two(data, pos)
    minute = _two(data, pos + 3)
    second = _two(data, pos + 6)
    return int(0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60)


@inner(INT(BYTES, INT, INT))
def _is_offset(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 for Z, or for an offset of hours and minutes."""
    if end - pos == 1:
        return int(byte_at(data, pos) == 0x5A)
    if end - pos != 6 or byte_at(data, pos + 3) != _COLON:
        return 0
    sign = byte_at(data, pos)
    hour = _two(data, pos + 1)
    minute = _two(data, pos + 4)
    return int((sign == 0x2B or sign == 0x2D) and 0 <= hour < 24 and 0 <= minute < 60)


@inner(INT(BYTES, INT, INT))
def is_common_time(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 for a date-time of RFC 3339 in its common spelling."""
    if end - pos < 20 or not _is_date(data, pos) or byte_at(data, pos + 10) != 0x54:
        return 0
    if not _is_time(data, pos + 11):
        return 0
    pos += 19
    if byte_at(data, pos) == 0x2E:
        digits = pos + 1
        pos = digits
        while pos < end and _ZERO <= byte_at(data, pos) <= 0x39:
            pos += 1
        if pos == digits:
            return 0
    return _is_offset(data, pos, end)


@inner(INT(BYTES, BYTES, INT, INT))
def character_size(data: ByteArray, pool: ByteArray, text: int, at: int) -> int:
    """Give the length of the character that begins at a byte of a text."""
    lead = text_byte(data, pool, text, at)
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@inner(INT(BYTES, BYTES, INT, INT, INT, INT), inline=False)
def matches(data: ByteArray, pool: ByteArray, text: int, size: int, pattern: int, length: int) -> int:
    """Match a whole text, which is UTF-8, against pool[pattern:pattern+length]; UNSURE if it takes long."""
    at = 0
    step = 0
    star = -1
    mark = 0
    for _ in range(_MAX_STEPS):
        wanted = byte_at(pool, pattern + step) if step < length else -1
        if wanted == ANY:
            if step == length - 1:
                return TRUE
            star = step
            mark = at
            step += 1
        elif at < size and wanted == ONE:
            at += character_size(data, pool, text, at)
            step += 1
        elif at < size and wanted == text_byte(data, pool, text, at):
            at += 1
            step += 1
        elif at >= size and wanted == -1:
            return TRUE
        elif star < 0 or at >= size:
            return FALSE
        else:
            # Behind the last wildcard: let it take one more character.
            mark += character_size(data, pool, text, mark)
            at = mark
            step = star + 1
    return UNSURE
