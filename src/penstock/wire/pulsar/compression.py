"""The compressions of a Pulsar entry, by the number in MessageMetadata.

0 none, 1 LZ4 (one block, without frame or size), 2 ZLIB, 3 ZSTD, 4 SNAPPY (raw). The metadata names
the size of the result, which is allocated only if it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from penstock.errors import WireError
from penstock.wire.buffer import Buffer
from penstock.wire.compression import CannotInflate, codec, inflate_into

__all__ = ["Compression", "compress", "decompress"]


class Compression(IntEnum):
    """How the payload of an entry is compressed."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


_INFLATE: dict[int, tuple[str, str]] = {
    Compression.LZ4: ("lz4", "decompress_block_into"),
    Compression.ZLIB: ("zlib", "decompress_into"),
    Compression.ZSTD: ("zstd", "decompress_into"),
    Compression.SNAPPY: ("snappy", "decompress_raw_into"),
}

_DEFLATE: dict[Compression, Callable[[Buffer], bytes]] = {
    Compression.NONE: bytes,
    Compression.LZ4: lambda data: bytes(codec("lz4").compress_block(data, store_size=False)),
    Compression.ZLIB: lambda data: bytes(codec("zlib").compress(data)),
    Compression.ZSTD: lambda data: bytes(codec("zstd").compress(data)),
    Compression.SNAPPY: lambda data: bytes(codec("snappy").compress_raw(data)),
}


def decompress(number: int, data: Buffer, size: int, limit: int) -> memoryview:
    """Inflate a payload to exactly `size` bytes, at most `limit`; raise WireError if that cannot be."""
    if number == Compression.NONE:
        return memoryview(data)
    if number not in _INFLATE:
        raise WireError(f"compression {number} of a Pulsar entry is not known")
    name = Compression(number).name
    if not 0 <= size <= limit:
        raise WireError(f"a Pulsar entry in {name} says it inflates to {size} bytes, and {limit} are allowed")
    module, function = _INFLATE[number]
    try:
        result = inflate_into(getattr(codec(module), function), data, size)
    except CannotInflate as exc:
        raise WireError(f"a Pulsar entry cannot be read as {name}", why=str(exc)) from exc
    if len(result) != size:
        raise WireError(f"a Pulsar entry in {name} inflates to {len(result)} bytes and not to {size}")
    return result


def compress(number: Compression, data: Buffer) -> bytes:
    """Compress a payload."""
    return _DEFLATE[number](data)
