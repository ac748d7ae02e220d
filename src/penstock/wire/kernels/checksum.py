"""CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of Kafka batches and Pulsar entries.

One instruction adds eight bytes, and the next that needs its result waits for three cycles: so three parts of
the data are added side by side, and joined by tables of what the zeros of a part do to a checksum. Processors
without the instruction look up eight tables for eight bytes, which takes about fifteen times as long.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kernels.crc_instructions import add_eight, has_instructions
from penstock.wire.kernels.jit import BYTES, INT, ByteArray, IntArray, kernel, part
from penstock.wire.kernels.varint import byte_at

__all__ = ["crc32c", "crc32c_range"]

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF


def _tables() -> IntArray:
    """Make eight tables: what a byte does to the checksum when 0 to 7 more bytes follow it."""
    tables = np.zeros((8, 256), np.int64)
    row = np.arange(256, dtype=np.int64)
    for _ in range(8):
        row = (row >> 1) ^ np.where(row & 1, _POLYNOMIAL, 0)
    tables[0] = row
    for i in range(1, 8):
        tables[i] = (tables[i - 1] >> 8) ^ row[tables[i - 1] & 0xFF]
    return tables


_TABLES = _tables()


_LONG, _SHORT = 4096, 256
"""Bytes of one of three parts; both are powers of two."""


def _zeros(count: int) -> IntArray:
    """Make four tables: what `count` (a power of two) bytes of zero do to each byte of a register."""
    # A register is a sum of its bits, so what is done to the 32 bits is enough; applied twice, it is for
    # twice as many zeros.
    bits = 1 << np.arange(32, dtype=np.int64)
    done = (bits >> 8) ^ _TABLES[0, bits & 0xFF]
    for _ in range(count.bit_length() - 1):
        done = _sums(done, done)
    values = np.arange(256, dtype=np.int64)
    return np.stack([_sums(values << 8 * place, done) for place in range(4)])


def _sums(registers: IntArray, done: IntArray) -> IntArray:
    """Give for each register the sum of what is done to its bits."""
    ones = (registers[:, None] >> np.arange(32)) & 1
    return np.asarray(np.bitwise_xor.reduce(np.where(ones, done, 0), axis=1), np.int64)


_LONG_ZEROS, _SHORT_ZEROS = _zeros(_LONG), _zeros(_SHORT)


def _by_tables(data: ByteArray, pos: int, end: int, value: int) -> int:
    """Extend the checksum `value` (0 to begin) by data[pos:end], eight bytes a step."""
    crc = value ^ _ALL
    while pos + 8 <= end:
        crc ^= byte_at(data, pos) | byte_at(data, pos + 1) << 8
        crc ^= byte_at(data, pos + 2) << 16 | byte_at(data, pos + 3) << 24
        low = _TABLES[7, crc & 0xFF] ^ _TABLES[6, (crc >> 8) & 0xFF]
        low ^= _TABLES[5, (crc >> 16) & 0xFF] ^ _TABLES[4, (crc >> 24) & 0xFF]
        high = _TABLES[3, byte_at(data, pos + 4)] ^ _TABLES[2, byte_at(data, pos + 5)]
        high ^= _TABLES[1, byte_at(data, pos + 6)] ^ _TABLES[0, byte_at(data, pos + 7)]
        crc = int(low ^ high)
        pos += 8
    while pos < end:
        crc = int(_TABLES[0, (crc ^ byte_at(data, pos)) & 0xFF]) ^ (crc >> 8)
        pos += 1
    return crc ^ _ALL


@part(INT(INT))
def _behind_long(crc: int) -> int:
    """Give a register after as many zeros as a long part has bytes."""
    low = _LONG_ZEROS[0, crc & 0xFF] ^ _LONG_ZEROS[1, (crc >> 8) & 0xFF]
    return int(low ^ _LONG_ZEROS[2, (crc >> 16) & 0xFF] ^ _LONG_ZEROS[3, (crc >> 24) & 0xFF])


@part(INT(INT))
def _behind_short(crc: int) -> int:
    """Give a register after as many zeros as a short part has bytes."""
    low = _SHORT_ZEROS[0, crc & 0xFF] ^ _SHORT_ZEROS[1, (crc >> 8) & 0xFF]
    return int(low ^ _SHORT_ZEROS[2, (crc >> 16) & 0xFF] ^ _SHORT_ZEROS[3, (crc >> 24) & 0xFF])


def _by_instruction(data: ByteArray, pos: int, end: int, value: int) -> int:
    """Do the same by instructions, which check no bounds."""
    if pos < 0 or end > len(data):
        raise IndexError("a range leaves its array")
    crc = value ^ _ALL
    while pos + 3 * _LONG <= end:
        second = third = 0
        for at in range(pos, pos + _LONG, 8):
            crc = add_eight(data, at, crc)
            second = add_eight(data, at + _LONG, second)
            third = add_eight(data, at + 2 * _LONG, third)
        crc = _behind_long(_behind_long(crc) ^ second) ^ third
        pos += 3 * _LONG
    while pos + 3 * _SHORT <= end:
        second = third = 0
        for at in range(pos, pos + _SHORT, 8):
            crc = add_eight(data, at, crc)
            second = add_eight(data, at + _SHORT, second)
            third = add_eight(data, at + 2 * _SHORT, third)
        crc = _behind_short(_behind_short(crc) ^ second) ^ third
        pos += 3 * _SHORT
    while pos + 8 <= end:
        crc = add_eight(data, pos, crc)
        pos += 8
    while pos < end:
        crc = int(_TABLES[0, (crc ^ byte_at(data, pos)) & 0xFF]) ^ (crc >> 8)
        pos += 1
    return crc ^ _ALL


crc32c_range = kernel(INT(BYTES, INT, INT, INT), inline=False)(
    _by_instruction if has_instructions() else _by_tables
)
"""Extend a checksum by a range: `crc32c_range(data, pos, end, value)`, 0 to begin."""


def crc32c(data: Buffer, value: int = 0) -> int:
    """Give the checksum of a buffer, or extend an earlier one."""
    array = as_array(data)
    return crc32c_range(array, 0, len(array), value)
