"""What the scanner found: a decimal of up to 15 digits, and texts behind each other."""

from __future__ import annotations

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, kernel
from penstock.wire.kernels.json_tokens import NOT_JSON, UNSURE, number_end
from penstock.wire.kernels.varint import byte_at

__all__ = ["MAX_DIGITS", "gather", "read_decimal"]

MAX_DIGITS = 15
"""So many digits survive a double: two such decimals compare as their doubles do."""

_MINUS = 0x2D
_POINT = 0x2E


@kernel(INT(BYTES, INT, INT, INTS, INT))
def read_decimal(data: ByteArray, pos: int, end: int, digits: IntArray, row: int) -> int:
    """Read data[pos:end], put its digits as one integer into digits[row]; give how many follow the point."""
    if number_end(data, pos, end) != end:
        return NOT_JSON
    value = 0
    count = 0
    scale = -1
    negative = byte_at(data, pos) == _MINUS
    for i in range(pos + negative, end):
        found = byte_at(data, i)
        if found == _POINT:
            scale = count
            continue
        # An exponent, or more digits than are certain.
        if count >= MAX_DIGITS or found < 0x30 or found > 0x39:
            return UNSURE
        value = value * 10 + found - 0x30
        count += 1
    digits[row] = -value if negative else value
    return count - scale if scale >= 0 else 0


@kernel(INT(BYTES, INTS, INTS, OUT))
def gather(data: ByteArray, starts: IntArray, sizes: IntArray, out: ByteArray) -> int:
    """Copy ranges behind each other; give where the last one ends."""
    at = 0
    for i in range(len(starts)):
        at = copy(data, starts[i], out, at, sizes[i])
    return at
