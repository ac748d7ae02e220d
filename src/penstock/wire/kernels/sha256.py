"""SHA-256 (FIPS 180-4) inside kernels, on a message that lies in the buffer it works in.

A block is worked in by the processor's instructions where it has them, else by arithmetic.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import INT, INTS, OUT, PAIR, ByteArray, IntArray, kernel
from penstock.wire.kernels.sha_instructions import has_instructions, work_in
from penstock.wire.kernels.words import EACH, WORD, put_word

__all__ = ["SCHEDULE", "SHA_ROOM", "sha256_hex"]

SCHEDULE = 64 + 8
"""Numbers that `sha256_hex` works with: the message schedule and the hash."""
SHA_ROOM = 73
"""Bytes behind a message that `sha256_hex` may write: its padding."""

_MASK = 0xFFFFFFFF
_BLOCK = 64


def _roots(count: int, root: float) -> list[int]:
    """Give the first 32 bits behind the point of the roots of the first primes (FIPS 180-4 4.2.2, 5.3.3)."""
    primes = [n for n in range(2, 312) if all(n % d for d in range(2, n))][:count]
    return [_fraction(prime, round(1 / root)) for prime in primes]


def _fraction(prime: int, power: int) -> int:
    scaled = prime << (32 * power)
    low, high = 0, 1 << 64
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**power <= scaled else (low, middle)
    return low & _MASK


_K = np.array(_roots(64, 1 / 3), np.int64)
_H = np.array(_roots(8, 1 / 2), np.int64)


@kernel(INT(INT))
def _twice(value: int) -> int:
    """Give 32 bits twice: shifted right, the lower half is rotated; the upper half means nothing then."""
    return value | value << 32


@kernel(INT(OUT, INT))
def _number(buffer: ByteArray, pos: int) -> int:
    """Read 32 bits, big end first."""
    high = int(buffer[pos]) << 24 | int(buffer[pos + 1]) << 16
    return high | int(buffer[pos + 2]) << 8 | int(buffer[pos + 3])


@kernel(INT(INTS, INT))
def _extend(numbers: IntArray, at: int) -> int:
    """Make the next eight numbers of the message schedule (FIPS 180-4 6.2.2, step 1)."""
    for i in range(at, at + 8):
        x = int(numbers[i - 15]) & _MASK
        y = int(numbers[i - 2]) & _MASK
        small = _twice(x) >> 7 ^ _twice(x) >> 18 ^ x >> 3
        large = _twice(y) >> 17 ^ _twice(y) >> 19 ^ y >> 10
        numbers[i] = (numbers[i - 16] + small + numbers[i - 7] + large) & _MASK
    return at + 8


@kernel(PAIR(INT, INT, INT, INT, INT, INT, INT, INT, INT))
def _round(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, number: int) -> tuple[int, int]:
    """Give what d and h become in a round; the other six only change their names."""
    twice = _twice(e)
    one = twice >> 6 ^ twice >> 11 ^ twice >> 25
    first = h + one + (g ^ (e & (f ^ g))) + number
    twice = _twice(a)
    zero = twice >> 2 ^ twice >> 13 ^ twice >> 22
    return (d + first) & _MASK, (first + zero + ((a & b) ^ (a & c) ^ (b & c))) & _MASK


@kernel(INT(INTS, INT), inline=False)
def _compress(numbers: IntArray, at: int) -> int:
    """Work one block into the hash (FIPS 180-4 6.2.2, steps 2 to 4)."""
    top = at + 64
    a, b = int(numbers[top]) & _MASK, int(numbers[top + 1]) & _MASK
    c, d = int(numbers[top + 2]) & _MASK, int(numbers[top + 3]) & _MASK
    e, f = int(numbers[top + 4]) & _MASK, int(numbers[top + 5]) & _MASK
    g, h = int(numbers[top + 6]) & _MASK, int(numbers[top + 7]) & _MASK
    # After eight rounds every number has its name again; the processor does the schedule beside them.
    for i in range(0, 64, 8):
        if i < 48:
            _extend(numbers, at + i + 16)
        d, h = _round(a, b, c, d, e, f, g, h, _K[i] + numbers[at + i])
        c, g = _round(h, a, b, c, d, e, f, g, _K[i + 1] + numbers[at + i + 1])
        b, f = _round(g, h, a, b, c, d, e, f, _K[i + 2] + numbers[at + i + 2])
        a, e = _round(f, g, h, a, b, c, d, e, _K[i + 3] + numbers[at + i + 3])
        h, d = _round(e, f, g, h, a, b, c, d, _K[i + 4] + numbers[at + i + 4])
        g, c = _round(d, e, f, g, h, a, b, c, _K[i + 5] + numbers[at + i + 5])
        f, b = _round(c, d, e, f, g, h, a, b, _K[i + 6] + numbers[at + i + 6])
        e, a = _round(b, c, d, e, f, g, h, a, _K[i + 7] + numbers[at + i + 7])
    for i, value in enumerate((a, b, c, d, e, f, g, h)):
        numbers[top + i] = (numbers[top + i] + value) & _MASK
    return top


@kernel(INT(OUT, INT, INTS, INT), inline=False)
def by_arithmetic(buffer: ByteArray, pos: int, numbers: IntArray, at: int) -> int:
    """Work buffer[pos:pos + 64] into the hash."""
    for i in range(16):
        numbers[at + i] = _number(buffer, pos + 4 * i)
    return _compress(numbers, at)


_work_in = work_in(tuple(_K.tolist()))


def _by_instructions(buffer: ByteArray, pos: int, numbers: IntArray, at: int) -> int:
    """Do the same by instructions, which check no bounds."""
    if pos < 0 or pos > len(buffer) - _BLOCK or at < 0 or at > len(numbers) - SCHEDULE:
        raise IndexError("a block leaves its array")
    return int(_work_in(buffer, pos, numbers, at + 64))


_FORM = INT(OUT, INT, INTS, INT)
_block = kernel(_FORM, inline=False)(_by_instructions) if has_instructions() else by_arithmetic


@kernel(INT(OUT, INT, INT))
def _pad(buffer: ByteArray, pos: int, end: int) -> int:
    """Append a one, zeros and the length in bits (FIPS 180-4 5.1.1); give the end."""
    bits = 8 * (end - pos)
    last = pos + (end - pos + 9 + _BLOCK - 1) // _BLOCK * _BLOCK
    buffer[end] = 0x80
    for i in range(end + 1, last - 8):
        buffer[i] = 0
    for i in range(8):
        buffer[last - 1 - i] = (bits >> (8 * i)) & 0xFF
    return last


@kernel(INT(INT))
def _digits(number: int) -> int:
    """Give the eight hexadecimal digits of 32 bits as a word."""
    halves = number >> 16 | (number & 0xFFFF) << 32
    each = halves >> 8 & 0x000000FF000000FF | (halves & 0x000000FF000000FF) << 16
    each = each >> 4 & 0x000F000F000F000F | (each & 0x000F000F000F000F) << 8
    letters = each + 6 * EACH >> 4 & EACH
    return each + 0x30 * EACH + 0x27 * letters


@kernel(INT(OUT, INT, INT, INTS, INT, INT, INT), inline=False)
def sha256_hex(
    buffer: ByteArray, pos: int, end: int, numbers: IntArray, at: int, to: int, digits: int
) -> int:
    """Hash buffer[pos:end] and write the first digits, a multiple of eight, at buffer[to]; give their end.

    Up to SHA_ROOM bytes behind `end` are overwritten, and numbers[at:at + SCHEDULE].
    """
    for i in range(8):
        numbers[at + 64 + i] = _H[i]
    last = _pad(buffer, pos, end)
    while pos < last:
        _block(buffer, pos, numbers, at)
        pos += _BLOCK
    for i in range(digits // WORD):
        to = put_word(buffer, to, _digits(numbers[at + 64 + i]))
    return to
