"""Variable-length integers: base 128, little end first, as Protocol Buffers and Kafka write them.

A reader gives (value, next position); the position is negative when the bytes are not a varint,
and a reader that is given such a position hands it on, so that a chain of reads is checked once.
Values are 64 bits in a signed integer: an unsigned value above 2**63 - 1 reads as a negative one.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, OUT, PAIR, ByteArray, kernel

__all__ = [
    "BAD_VARINT",
    "TRUNCATED",
    "byte_at",
    "read_uvarint",
    "read_varint",
    "unzigzag",
    "uvarint_size",
    "varint_size",
    "write_uvarint",
    "write_varint",
    "zigzag",
]

TRUNCATED = -1
"""The input ends inside a value."""
BAD_VARINT = -2
"""More than 64 bits of value."""

_LOWEST = -(1 << 63)
_LAST_SHIFT = 63
_LOGICAL_1 = (1 << 63) - 1
_LOGICAL_7 = (1 << 57) - 1


@kernel(INT(BYTES, INT), boundscheck=False)
def byte_at(data: ByteArray, pos: int) -> int:
    """Give one byte as a 64-bit integer; IndexError if it is outside, where a negative position is, too."""
    # Numba's own check costs five steps, because a negative index counts from the end.
    if pos < 0 or pos >= len(data):
        raise IndexError("byte leaves its array")
    return int(data[pos])


@kernel(PAIR(BYTES, INT, INT))
def read_uvarint(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint of up to 64 bits from data[pos:end]."""
    if pos < 0:
        return 0, pos
    value = 0
    shift = 0
    while pos < end:
        byte = byte_at(data, pos)
        pos += 1
        if shift == _LAST_SHIFT:
            # The tenth byte holds one bit: the sign of our 64.
            return (value + byte * _LOWEST, pos) if byte <= 1 else (0, BAD_VARINT)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    return 0, TRUNCATED


@kernel(INT(INT))
def zigzag(value: int) -> int:
    """Map signed to unsigned so that small magnitudes stay short: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return (value << 1) ^ (value >> 63)


@kernel(INT(INT))
def unzigzag(value: int) -> int:
    """Undo `zigzag`."""
    return ((value >> 1) & _LOGICAL_1) ^ -(value & 1)


@kernel(PAIR(BYTES, INT, INT))
def read_varint(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint, Kafka's varint and varlong, from data[pos:end]."""
    value, pos = read_uvarint(data, pos, end)
    return unzigzag(value), pos


@kernel(INT(INT))
def uvarint_size(value: int) -> int:
    """Count the bytes that `write_uvarint` takes."""
    size = 1
    while value & -128:
        value = (value >> 7) & _LOGICAL_7
        size += 1
    return size


@kernel(INT(INT))
def varint_size(value: int) -> int:
    """Count the bytes that `write_varint` takes."""
    return uvarint_size(zigzag(value))


@kernel(INT(OUT, INT, INT))
def write_uvarint(out: ByteArray, pos: int, value: int) -> int:
    """Write an unsigned varint at out[pos]; give the position behind it."""
    while value & -128:
        out[pos] = (value & 0x7F) | 0x80
        value = (value >> 7) & _LOGICAL_7
        pos += 1
    out[pos] = value
    return pos + 1


@kernel(INT(OUT, INT, INT))
def write_varint(out: ByteArray, pos: int, value: int) -> int:
    """Write a zigzag varint at out[pos]; give the position behind it."""
    return write_uvarint(out, pos, zigzag(value))
