"""The murmur2 hash with Kafka's seed: the key of a record to its partition, as the Java client does it."""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, ByteArray, kernel
from penstock.wire.kernels.varint import byte_at

__all__ = ["murmur2", "partition_of"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@kernel(INT(BYTES, INT, INT))
def murmur2(data: ByteArray, pos: int, end: int) -> int:
    """Hash data[pos:end] to 32 bits, unsigned."""
    value = (_SEED ^ (end - pos)) & _MASK
    while pos + 4 <= end:
        k = byte_at(data, pos) | byte_at(data, pos + 1) << 8
        k |= byte_at(data, pos + 2) << 16 | byte_at(data, pos + 3) << 24
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        value = ((value * _M) & _MASK) ^ k
        pos += 4
    if pos < end:
        for i in range(end - pos):
            value ^= byte_at(data, pos + i) << (8 * i)
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    return value ^ (value >> 15)


@kernel(INT(BYTES, INT, INT, INT))
def partition_of(data: ByteArray, pos: int, end: int, partitions: int) -> int:
    """Give the partition that Kafka's default partitioner chooses for the key data[pos:end]."""
    return (murmur2(data, pos, end) & 0x7FFFFFFF) % partitions
