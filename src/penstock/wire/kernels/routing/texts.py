"""Texts in one of two buffers: compared, judged, copied, escaped.

Judged means: UTF-8, and a String of CloudEvents (core, Type System): no U+0000 to 001F and 007F to 009F, no
noncharacters, no surrogates.
"""

from __future__ import annotations

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, OUT, ByteArray, inner, part
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import EACH, MARKS, WORD, bytes_below, equal, short_word, word_at, zero_bytes

__all__ = [
    "ILLEGAL",
    "compare",
    "copy_text",
    "escape_into",
    "escaped_size",
    "is_plain",
    "judge",
    "same",
    "text_byte",
]

ILLEGAL = -1

_QUOTE = 0x22
_BACKSLASH = 0x5C
_SPACE = 0x20
_DELETE = 0x7F
_SHORT = b"btn?fr"
"""RFC 8259 7: the controls 8 to 13 that have a short escape; there is none for 11."""


@inner(INT(BYTES, BYTES, INT, INT))
def text_byte(data: ByteArray, pool: ByteArray, text: int, i: int) -> int:
    """Give one byte of a text."""
    return byte_at(data, text + i) if text >= 0 else byte_at(pool, ~text + i)


@inner(INT(BYTES, INT, BYTES, INT, INT), boundscheck=False, inline=False)
def _sign(left: ByteArray, at: int, right: ByteArray, pos: int, size: int) -> int:
    """Compare two ranges of one size, which are checked once: negative, zero or positive."""
    if at < 0 or pos < 0 or size < 0 or at > len(left) - size or pos > len(right) - size:
        raise IndexError("range leaves its array")
    for i in range(size):
        difference = int(left[at + i]) - int(right[pos + i])
        if difference != 0:
            return difference
    return 0


@inner(INT(BYTES, BYTES, INT, INT, INT), inline=False)
def _compare(data: ByteArray, pool: ByteArray, left: int, right: int, size: int) -> int:
    if left >= 0:
        if right >= 0:
            return _sign(data, left, data, right, size)
        return _sign(data, left, pool, ~right, size)
    if right >= 0:
        return _sign(pool, ~left, data, right, size)
    return _sign(pool, ~left, pool, ~right, size)


@inner(INT(BYTES, BYTES, INT, INT, INT))
def _equal(data: ByteArray, pool: ByteArray, left: int, right: int, size: int) -> int:
    if left >= 0:
        if right >= 0:
            return equal(data, left, data, right, size)
        return equal(data, left, pool, ~right, size)
    if right >= 0:
        return equal(pool, ~left, data, right, size)
    return equal(pool, ~left, pool, ~right, size)


@inner(INT(BYTES, BYTES, INT, INT, INT, INT), inline=False)
def compare(data: ByteArray, pool: ByteArray, left: int, size: int, right: int, other: int) -> int:
    """Compare two texts by code point, which in UTF-8 is by byte: negative, zero or positive."""
    sign = _compare(data, pool, left, right, min(size, other))
    return sign if sign != 0 else size - other


@part(INT(BYTES, BYTES, INT, INT, INT, INT))
def same(data: ByteArray, pool: ByteArray, left: int, size: int, right: int, other: int) -> int:
    """Say 1 if two texts are equal; null equals null."""
    if size != other:
        return 0
    return int(size <= 0 or _equal(data, pool, left, right, size) != 0)


@inner(INT(INT))
def _odd_bytes(word: int) -> int:
    """Mark what is no printable ASCII, or what JSON escapes."""
    quotes = zero_bytes(word ^ _QUOTE * EACH) | zero_bytes(word ^ _BACKSLASH * EACH)
    return quotes | bytes_below(word, _SPACE) | zero_bytes(word ^ _DELETE * EACH) | word & MARKS


@inner(INT(BYTES, INT, INT), inline=False)
def is_plain(data: ByteArray, pos: int, size: int) -> int:
    """Say 1 if data[pos:pos+size] is printable ASCII of which JSON escapes nothing."""
    if size < WORD:
        spaces = _SPACE * EACH & ~((1 << (8 * size)) - 1)
        return int(_odd_bytes(short_word(data, pos, size) | spaces) == 0)
    marks = 0
    for i in range(0, size - WORD, WORD):
        marks |= _odd_bytes(word_at(data, pos + i))
    return int((marks | _odd_bytes(word_at(data, pos + size - WORD))) == 0)


@inner(INT(BYTES, INT, INT))
def _code_point(data: ByteArray, pos: int, length: int) -> int:
    """Read a sequence of UTF-8 that is known to be right."""
    value = byte_at(data, pos) & (0xFF >> (length + 1))
    for i in range(1, length):
        value = value << 6 | (byte_at(data, pos + i) & 0x3F)
    return value


@inner(INT(INT))
def _is_legal(point: int) -> int:
    if point < _SPACE or _DELETE <= point < 0xA0:
        return 0
    return int(not (0xFDD0 <= point <= 0xFDEF or point & 0xFFFE == 0xFFFE))


@inner(INT(BYTES, INT, INT), inline=False)
def _judge_any(data: ByteArray, pos: int, end: int) -> int:
    """Judge a range in which something is not plain."""
    if not is_utf8(data, pos, end):
        return ILLEGAL
    escapes = 0
    while pos < end:
        lead = byte_at(data, pos)
        length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if not _is_legal(lead if length == 1 else _code_point(data, pos, length)):
            return ILLEGAL
        escapes += int(lead == _QUOTE) | int(lead == _BACKSLASH)
        pos += length
    return escapes


@inner(INT(BYTES, BYTES, INT, INT))
def judge(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    """Count the bytes of a text that JSON escapes; ILLEGAL if it is no String of CloudEvents."""
    if text >= 0:
        return 0 if is_plain(data, text, size) else _judge_any(data, text, text + size)
    return 0 if is_plain(pool, ~text, size) else _judge_any(pool, ~text, ~text + size)


@part(INT(BYTES, BYTES, INT, INT, OUT, INT))
def copy_text(data: ByteArray, pool: ByteArray, text: int, size: int, out: ByteArray, at: int) -> int:
    """Copy a text; give the position behind it."""
    if text >= 0:
        return copy(data, text, out, at, size)
    return copy(pool, ~text, out, at, size)


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def escaped_size(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    """Give the size of UTF-8 text as the inside of a JSON string."""
    total = size
    for i in range(size):
        found = text_byte(data, pool, text, i)
        if found in (_QUOTE, _BACKSLASH):
            total += 1
        elif found < _SPACE:
            total += 1 if 8 <= found <= 13 and found != 11 else 5
    return total


@inner(INT(BYTES, BYTES, INT, INT, OUT, INT), inline=False)
def escape_into(data: ByteArray, pool: ByteArray, text: int, size: int, out: ByteArray, at: int) -> int:
    """Write UTF-8 text as the inside of a JSON string (RFC 8259 7); give the position behind it."""
    for i in range(size):
        found = text_byte(data, pool, text, i)
        if found in (_QUOTE, _BACKSLASH) or found < _SPACE:
            out[at] = _BACKSLASH
            at += 1
        if found >= _SPACE:
            out[at] = found
        elif 8 <= found <= 13 and found != 11:
            out[at] = _SHORT[found - 8]
        else:
            out[at] = 0x75
            out[at + 1] = 0x30
            out[at + 2] = 0x30
            out[at + 3] = 0x30 + (found >> 4)
            out[at + 4] = (found & 15) + (0x30 if found & 15 < 10 else 0x57)
            at += 4
        at += 1
    return at
