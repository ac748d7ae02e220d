"""SHA-256 (FIPS 180-4) inside kernels, on a message that lies in the buffer it works in."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import INT, INTS, OUT, ByteArray, IntArray, kernel

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


@kernel(INT(INT, INT))
def _rotated(value: int, by: int) -> int:
    return ((value >> by) | (value << (32 - by))) & _MASK


@kernel(INT(OUT, INT, INTS, INT))
def _expand(buffer: ByteArray, pos: int, numbers: IntArray, at: int) -> int:
    """Make the message schedule of one block (FIPS 180-4 6.2.2, step 1)."""
    for i in range(16):
        high = int(buffer[pos + 4 * i]) << 24 | int(buffer[pos + 4 * i + 1]) << 16
        numbers[at + i] = high | int(buffer[pos + 4 * i + 2]) << 8 | int(buffer[pos + 4 * i + 3])
    for i in range(at + 16, at + 64):
        x = numbers[i - 15]
        y = numbers[i - 2]
        small = _rotated(x, 7) ^ _rotated(x, 18) ^ (x >> 3)
        large = _rotated(y, 17) ^ _rotated(y, 19) ^ (y >> 10)
        numbers[i] = (numbers[i - 16] + small + numbers[i - 7] + large) & _MASK
    return at + 64


@kernel(INT(INTS, INT), inline=False)
def _compress(numbers: IntArray, at: int) -> int:
    """Work one block into the hash (FIPS 180-4 6.2.2, steps 2 to 4)."""
    top = at + 64
    a, b, c, d = numbers[top], numbers[top + 1], numbers[top + 2], numbers[top + 3]
    e, f, g, h = numbers[top + 4], numbers[top + 5], numbers[top + 6], numbers[top + 7]
    for i in range(64):
        one = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        first = h + one + ((e & f) ^ (~e & g)) + _K[i] + numbers[at + i]
        zero = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        second = zero + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e = g, f, e, (d + first) & _MASK
        d, c, b, a = c, b, a, (first + second) & _MASK
    numbers[top] = (numbers[top] + a) & _MASK
    numbers[top + 1] = (numbers[top + 1] + b) & _MASK
    numbers[top + 2] = (numbers[top + 2] + c) & _MASK
    numbers[top + 3] = (numbers[top + 3] + d) & _MASK
    numbers[top + 4] = (numbers[top + 4] + e) & _MASK
    numbers[top + 5] = (numbers[top + 5] + f) & _MASK
    numbers[top + 6] = (numbers[top + 6] + g) & _MASK
    numbers[top + 7] = (numbers[top + 7] + h) & _MASK
    return top


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


@kernel(INT(OUT, INT, INT, INTS, INT, INT, INT), inline=False)
def sha256_hex(
    buffer: ByteArray, pos: int, end: int, numbers: IntArray, at: int, to: int, digits: int
) -> int:
    """Hash buffer[pos:end] and write the first digits in hexadecimal at buffer[to]; give their end.

    Up to SHA_ROOM bytes behind `end` are overwritten, and numbers[at:at + SCHEDULE].
    """
    for i in range(8):
        numbers[at + 64 + i] = _H[i]
    last = _pad(buffer, pos, end)
    while pos < last:
        _expand(buffer, pos, numbers, at)
        _compress(numbers, at)
        pos += _BLOCK
    for i in range(digits):
        nibble = (numbers[at + 64 + i // 8] >> (28 - 4 * (i % 8))) & 15
        buffer[to + i] = nibble + (0x30 if nibble < 10 else 0x57)
    return to + digits
