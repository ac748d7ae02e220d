"""UTF-8 as Unicode defines it (section 3.9, table 3-7): no surrogates, no overlong forms."""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, ByteArray, kernel, part
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import MARKS, WORD, short_word, word_at

__all__ = ["is_utf8"]


@part(INT(INT))
def _length(lead: int) -> int:
    """Give the length of a sequence by its first byte; 0 if none begins so."""
    if lead < 0x80:
        return 1
    if lead < 0xC2:
        return 0
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        return 3
    return 4 if lead < 0xF5 else 0


@part(INT(INT, INT))
def _second_fits(lead: int, second: int) -> int:
    """Check the second byte, whose range depends on the first (table 3-7)."""
    low = 0x80
    high = 0xBF
    if lead == 0xE0:
        low = 0xA0
    elif lead == 0xED:
        high = 0x9F
    elif lead == 0xF0:
        low = 0x90
    elif lead == 0xF4:
        high = 0x8F
    return int(low <= second <= high)


@part(INT(BYTES, INT, INT))
def _is_ascii(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 if data[pos:end] is ASCII."""
    size = end - pos
    if size < WORD:
        return int(size <= 0 or short_word(data, pos, size) & MARKS == 0)
    bits = word_at(data, end - WORD)
    for i in range(pos, end - WORD, WORD):
        bits |= word_at(data, i)
    return int(bits & MARKS == 0)


@kernel(INT(BYTES, INT, INT))
def is_utf8(data: ByteArray, pos: int, end: int) -> int:
    """Say 1 if data[pos:end] is UTF-8, else 0."""
    if _is_ascii(data, pos, end):
        return 1
    while pos < end:
        lead = byte_at(data, pos)
        if lead < 0x80:
            pos += 1
            continue
        length = _length(lead)
        if length == 0 or pos + length > end or _second_fits(lead, byte_at(data, pos + 1)) == 0:
            return 0
        for i in range(pos + 2, pos + length):
            if byte_at(data, i) & 0xC0 != 0x80:
                return 0
        pos += length
    return 1
