"""Functions of numbers: decimals of up to 18 digits, computed exactly or left to somebody else.

A function reads its arguments at work[at], two numbers each, and writes its result there; it gives DONE, or
UNSURE where 64 bits do not hold what it needs. `plan/numbers.py` says what each means.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.json_tokens import number_end
from penstock.wire.kernels.routing.texts import text_byte
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    DONE,
    F_ABS,
    F_ADD,
    F_CEIL,
    F_CESQL_INTEGER,
    F_DIVIDE,
    F_FLOOR,
    F_MULTIPLY,
    F_NUMBER_OF_TEXT,
    F_QUOTIENT,
    F_REMAINDER,
    F_ROUND,
    F_SUBTRACT,
    F_TEXT_OF_NUMBER,
    F_TRUNCATE,
    F_WITHIN,
    MAX_NUMBER,
    MAX_SCALE,
    UNSURE,
    V_VALUE,
    W_SCRATCH,
)

__all__ = [
    "NOT_WHOLE",
    "compare_numbers",
    "number_function",
    "read_number",
    "set_value",
    "text_of_number",
    "whole",
]

_POWERS = np.array([10**n for n in range(MAX_SCALE + 1)], np.int64)
_BEYOND: int = MAX_NUMBER
"""Instead of digits: more than a number has."""
_MINUS = 0x2D
_POINT = 0x2E
_PLUS = 0x2B
_ZERO = 0x30
_NINE = 0x39
_DIVISION_SCALE = 6
_INTEGER_LIMIT = 1 << 31
"""CESQL 3.1: Integer has 32 bits."""
NOT_WHOLE = 1 << 40
"""Instead of a whole number in 32 bits."""


@inner(INT(INTS, INT, INT, INT))
def set_value(work: IntArray, at: int, first: int, second: int) -> int:
    """Write a value at work[at]."""
    work[at] = first
    work[at + 1] = second
    return DONE


@inner(INT(INTS, INT, INT, INT), inline=False)
def _set_number(work: IntArray, at: int, digits: int, scale: int) -> int:
    """Write a number at work[at]; UNSURE if it has too many digits."""
    if digits <= -MAX_NUMBER or digits >= MAX_NUMBER:
        return UNSURE
    work[at] = digits
    work[at + 1] = scale
    return DONE


@inner(INT(INT, INT), inline=False)
def _scaled(digits: int, by: int) -> int:
    """Give digits with so many zeros behind them, _BEYOND if there are too many."""
    power = _POWERS[by]
    if abs(digits) > (MAX_NUMBER - 1) // power:
        return _BEYOND
    return digits * int(power)


@inner(INT(INT, INT), inline=False)
def _rounded(digits: int, by: int) -> int:
    """Cut so many digits; half goes away from zero."""
    power = _POWERS[by]
    size = abs(digits)
    rounded = size // power + int(2 * (size % power) >= power)
    return int(-rounded if digits < 0 else rounded)


@inner(INT(INT, INT), inline=False)
def whole(digits: int, scale: int) -> int:
    """Give a number without fraction in 32 bits, else NOT_WHOLE."""
    power = _POWERS[scale]
    if digits % power:
        return NOT_WHOLE
    value = digits // power
    return int(value) if -_INTEGER_LIMIT <= value < _INTEGER_LIMIT else NOT_WHOLE


@inner(INT(INT, INT, INT, INT), inline=False)
def compare_numbers(left: int, scale: int, right: int, other: int) -> int:
    """Compare two numbers exactly: negative, zero or positive."""
    if scale < other:
        shifted = _scaled(left, other - scale)
        if shifted == _BEYOND:
            return left  # its sign: it is larger than the other can be
        return shifted - right
    shifted = _scaled(right, scale - other)
    if shifted == _BEYOND:
        return -right
    return left - shifted


# Numbers and texts


@inner(INT(BYTES, INT, INT, INTS, INT), inline=False)
def read_number(data: ByteArray, pos: int, end: int, work: IntArray, at: int) -> int:
    """Read data[pos:end] as JSON writes numbers, null if it is none; UNSURE if it is not simple."""
    if number_end(data, pos, end) != end:
        return set_value(work, at, 0, -1)
    value = 0
    scale = -1
    negative = byte_at(data, pos) == _MINUS
    for i in range(pos + int(negative), end):
        found = byte_at(data, i)
        if found == _POINT:
            scale = 0
            continue
        if found < _ZERO or found > _NINE or value >= MAX_NUMBER // 10 or scale >= MAX_SCALE:
            return UNSURE
        value = value * 10 + found - _ZERO
        if scale >= 0:
            scale += 1
    return set_value(work, at, -value if negative else value, max(scale, 0))


@inner(INT(BYTES, BYTES, INTS, INT), inline=False)
def _cesql_integer(data: ByteArray, pool: ByteArray, work: IntArray, at: int) -> int:
    """Read an integer as CESQL 3.7 does: a sign, any zeros, digits; null if it has more than 32 bits."""
    text, size = work[at], work[at + 1]
    sign = text_byte(data, pool, text, 0) if size > 0 else 0
    start = int(sign in (_MINUS, _PLUS))
    value = 0
    for i in range(start, size):
        found = text_byte(data, pool, text, i)
        if found < _ZERO or found > _NINE:
            return set_value(work, at, 0, -1)
        value = min(value * 10 + found - _ZERO, 2 * _INTEGER_LIMIT)
    if sign == _MINUS:
        value = -value
    fits = start < size and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT
    return set_value(work, at, value, 0 if fits else -1)


@inner(INT(OUT, INTS, INT), inline=False)
def text_of_number(pool: ByteArray, work: IntArray, at: int) -> int:
    """Write plain digits, without zeros at the end of the fraction."""
    digits, scale = work[at], work[at + 1]
    while scale > 0 and digits % 10 == 0:
        digits //= 10
        scale -= 1
    start = work[W_SCRATCH]
    if start + MAX_SCALE + 3 > len(pool):
        return UNSURE
    rest = abs(digits)
    # From the end: digits, the point before `scale` of them, one zero at least before the point.
    size = 0
    while rest > 0 or size <= scale:
        rest //= 10
        size += 1
    size += int(scale > 0) + int(digits < 0)
    rest = abs(digits)
    for i in range(size):
        place = start + size - 1 - i
        if scale > 0 and i == scale:
            pool[place] = _POINT
        elif digits < 0 and i == size - 1:
            pool[place] = _MINUS
        else:
            pool[place] = _ZERO + rest % 10
            rest //= 10
    work[W_SCRATCH] = start + size
    return set_value(work, at, ~start, size)


# Arithmetic


@inner(INT(INTS, INT, INT), inline=False)
def _multiply(work: IntArray, at: int, scale: int) -> int:
    left, right = work[at], work[at + 2]
    if right != 0 and abs(left) > (MAX_NUMBER - 1) // abs(right):
        return UNSURE
    product = left * right
    if scale > MAX_SCALE:
        return _set_number(work, at, _rounded(product, scale - MAX_SCALE), MAX_SCALE)
    return _set_number(work, at, product, scale)


@inner(INT(INTS, INT), inline=False)
def _divide(work: IntArray, at: int) -> int:
    left, right = work[at], work[at + 2]
    if right == 0:
        return set_value(work, at, 0, -1)
    more = work[at + 3] + _DIVISION_SCALE - work[at + 1]
    if more > MAX_SCALE:
        return UNSURE
    top = _scaled(abs(left), max(more, 0))
    bottom = _scaled(abs(right), max(-more, 0))
    if top == _BEYOND or bottom == _BEYOND:
        return UNSURE
    quotient = (2 * top + bottom) // (2 * bottom)
    return _set_number(work, at, quotient if (left < 0) == (right < 0) else -quotient, _DIVISION_SCALE)


@inner(INT(INTS, INT, INT), inline=False)
def _arithmetic(work: IntArray, at: int, function: int) -> int:
    """Do what needs two numbers of one scale."""
    scale = max(work[at + 1], work[at + 3])
    left = _scaled(work[at], scale - work[at + 1])
    right = _scaled(work[at + 2], scale - work[at + 3])
    if left == _BEYOND or right == _BEYOND:
        return UNSURE
    if function == F_ADD:
        return _set_number(work, at, left + right, scale)
    if function == F_SUBTRACT:
        return _set_number(work, at, left - right, scale)
    if right == 0:
        return set_value(work, at, 0, -1)
    if function == F_REMAINDER:
        # With the sign of the dividend.
        rest = abs(left) % abs(right)
        return set_value(work, at, -rest if left < 0 else rest, scale)
    quotient = abs(left) // abs(right)
    return set_value(work, at, quotient if (left < 0) == (right < 0) else -quotient, 0)


@inner(INT(INTS, INT, INT), inline=False)
def _to_whole(work: IntArray, at: int, function: int) -> int:
    digits, power = work[at], _POWERS[work[at + 1]]
    if function == F_FLOOR or (function == F_TRUNCATE and digits >= 0):
        return set_value(work, at, digits // power, 0)
    return set_value(work, at, -(-digits // power), 0)


@inner(INT(INTS, INT), inline=False)
def _round(work: IntArray, at: int) -> int:
    count = whole(work[at + 2], work[at + 3])
    if count < 0 or count > MAX_SCALE:
        return set_value(work, at, 0, -1)
    if count < work[at + 1]:
        return set_value(work, at, _rounded(work[at], work[at + 1] - count), count)
    return DONE


@inner(INT(INTS, INT), inline=False)
def _within(work: IntArray, at: int) -> int:
    low, high = at + V_VALUE, at + 2 * V_VALUE
    below = compare_numbers(work[at], work[at + 1], work[low], work[low + 1]) < 0
    if below or compare_numbers(work[at], work[at + 1], work[high], work[high + 1]) > 0:
        work[at + 1] = -1
    return DONE


@inner(INT(BYTES, OUT, INTS, INT, INT))
def _of_text(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    """Call a function from texts to numbers or back."""
    if function == F_CESQL_INTEGER:
        return _cesql_integer(data, pool, work, at)
    if function == F_TEXT_OF_NUMBER:
        return text_of_number(pool, work, at)
    text, size = work[at], work[at + 1]
    if text >= 0:
        return read_number(data, text, text + size, work, at)
    return read_number(pool, ~text, ~text + size, work, at)


@inner(INT(BYTES, OUT, INTS, INT, INT))
def number_function(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    """Call a function of numbers."""
    if function in (F_NUMBER_OF_TEXT, F_CESQL_INTEGER, F_TEXT_OF_NUMBER):
        return _of_text(data, pool, work, at, function)
    if function == F_MULTIPLY:
        return _multiply(work, at, work[at + 1] + work[at + 3])
    if function == F_DIVIDE:
        return _divide(work, at)
    if function in (F_ADD, F_SUBTRACT, F_REMAINDER, F_QUOTIENT):
        return _arithmetic(work, at, function)
    if function == F_ABS:
        return set_value(work, at, abs(work[at]), work[at + 1])
    if function in (F_FLOOR, F_CEIL, F_TRUNCATE):
        return _to_whole(work, at, function)
    if function == F_ROUND:
        return _round(work, at)
    return _within(work, at) if function == F_WITHIN else UNSURE
