"""The tokens of JSON text (RFC 8259): where a string, a number or a literal ends.

A reader gives the position behind the token; a negative one says that the text is not JSON, or that it holds
something which is left to a full parser: one-sided, never wrong.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, PAIR, ByteArray, kernel
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import EACH, WORD, bytes_below, first_mark, word_at, zero_bytes

__all__ = ["NOT_JSON", "UNSURE", "literal_end", "number_end", "skip_space", "string_end"]

NOT_JSON = -1
"""The text breaks the grammar."""
UNSURE = -2
"""The text may be JSON; a full parser has to say."""

_QUOTE = 0x22
_BACKSLASH = 0x5C
_CONTROL = 0x20
_ZERO = 0x30
_NINE = 0x39
_ESCAPES = b'"\\/bfnrt'
_U = 0x75
_HEX_DIGITS = 4
_TRUE = b"true"
_FALSE = b"false"
_NULL = b"null"


@kernel(INT(BYTES, INT, INT))
def skip_space(data: ByteArray, pos: int, end: int) -> int:
    """Give the position of the next byte that is no white space (RFC 8259 2)."""
    while pos < end:
        found = byte_at(data, pos)
        if found > 0x20 or (found != 0x20 and found != 0x0A and found != 0x0D and found != 0x09):
            return pos
        pos += 1
    return pos


@kernel(INT(INT))
def _hex_digit(found: int) -> int:
    if 0x30 <= found <= 0x39:
        return found - 0x30
    lower = found | 0x20
    return lower - 0x57 if 0x61 <= lower <= 0x66 else -1


@kernel(INT(BYTES, INT, INT))
def _unicode_end(data: ByteArray, pos: int, end: int) -> int:
    """Read the four digits of an escape; a surrogate needs its partner, which is left to others."""
    if pos + _HEX_DIGITS > end:
        return NOT_JSON
    value = 0
    for i in range(pos, pos + _HEX_DIGITS):
        digit = _hex_digit(byte_at(data, i))
        if digit < 0:
            return NOT_JSON
        value = value * 16 + digit
    return UNSURE if 0xD800 <= value <= 0xDFFF else pos + _HEX_DIGITS


@kernel(INT(BYTES, INT, INT))
def _escape_end(data: ByteArray, pos: int, end: int) -> int:
    """Read what follows a backslash (RFC 8259 7)."""
    if pos >= end:
        return NOT_JSON
    found = byte_at(data, pos)
    if found == _U:
        return _unicode_end(data, pos + 1, end)
    for i in range(len(_ESCAPES)):
        if found == _ESCAPES[i]:
            return pos + 1
    return NOT_JSON


@kernel(INT(INT))
def _stops(word: int) -> int:
    """Mark the bytes at which a string ends, is escaped, or is none."""
    quotes = zero_bytes(word ^ _QUOTE * EACH) | zero_bytes(word ^ _BACKSLASH * EACH)
    return quotes | bytes_below(word, _CONTROL)


@kernel(INT(BYTES, INT, INT))
def _plain_end(data: ByteArray, pos: int, end: int) -> int:
    """Give the position of the next byte that is special in a string, or one behind the end."""
    while pos < end and pos <= len(data) - WORD:
        marks = _stops(word_at(data, pos))
        if marks:
            return pos + first_mark(marks)
        pos += WORD
    return pos


@kernel(PAIR(BYTES, INT, INT))
def string_end(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read a string behind its first quote; give 1 if it has an escape, and the position behind it."""
    escaped = 0
    pos = _plain_end(data, pos, end)
    while pos < end:
        found = byte_at(data, pos)
        pos += 1
        if found == _QUOTE:
            return escaped, pos
        # RFC 8259 7: control characters "MUST be escaped".
        if found < _CONTROL:
            return escaped, NOT_JSON
        if found == _BACKSLASH:
            escaped = 1
            pos = _escape_end(data, pos, end)
            if pos < 0:
                return escaped, pos
            pos = _plain_end(data, pos, end)
    return escaped, NOT_JSON


@kernel(INT(BYTES, INT, INT))
def _digits_end(data: ByteArray, pos: int, end: int) -> int:
    while pos < end and _ZERO <= byte_at(data, pos) <= _NINE:
        pos += 1
    return pos


@kernel(INT(BYTES, INT, INT))
def _whole_end(data: ByteArray, pos: int, end: int) -> int:
    """Read sign and digits before the point; RFC 8259 6: "Leading zeros are not allowed"."""
    if pos < end and byte_at(data, pos) == 0x2D:
        pos += 1
    if pos < end and byte_at(data, pos) == _ZERO:
        return pos + 1
    behind = _digits_end(data, pos, end)
    return behind if behind > pos else NOT_JSON


@kernel(INT(BYTES, INT, INT))
def number_end(data: ByteArray, pos: int, end: int) -> int:
    """Read a number (RFC 8259 6)."""
    pos = _whole_end(data, pos, end)
    if pos > 0 and pos < end and byte_at(data, pos) == 0x2E:
        behind = _digits_end(data, pos + 1, end)
        pos = behind if behind > pos + 1 else NOT_JSON
    if pos > 0 and pos < end and byte_at(data, pos) | 0x20 == 0x65:
        pos += 1
        if pos < end and (byte_at(data, pos) == 0x2B or byte_at(data, pos) == 0x2D):
            pos += 1
        behind = _digits_end(data, pos, end)
        pos = behind if behind > pos else NOT_JSON
    return pos


@kernel(INT(BYTES, INT, INT))
def literal_end(data: ByteArray, pos: int, end: int) -> int:
    """Read true, false or null."""
    first = byte_at(data, pos)
    size = 5 if first == _FALSE[0] else 4
    if pos + size > end:
        return NOT_JSON
    for i in range(size):
        found = byte_at(data, pos + i)
        wanted = _FALSE[i] if size == 5 else _TRUE[i] if first == _TRUE[0] else _NULL[i]
        if found != wanted:
            return NOT_JSON
    return pos + size
