"""The compressions of a Kafka record batch, by the number in its attributes (KIP-98, KIP-110).

0 none, 1 gzip, 2 snappy (raw, or in the frames of the Java library snappy-java), 3 lz4 (frame
format), 4 zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import numpy as np

from penstock.errors import RecordsError
from penstock.wire.buffer import Buffer
from penstock.wire.compression import CannotInflate, OutputTooLarge, codec, inflate_into, inflate_slice
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Compression", "compress", "decompress"]

_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEAD = 16
_BLOCK = 32 * 1024
_SMALLEST_BLOCK = 1024
"""The smallest block size that snappy-java can be given; only the last block and a flush are smaller."""
_LEAST_PARTS = 1024
"""Blocks or members that any batch may have, however little it inflates to."""
_GZIP_MEMBER = b"\x1f\x8b\x08"


class Compression(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(number: int, data: Buffer, limit: int) -> memoryview:
    """Inflate the records of a batch to at most `limit` bytes; not compressed ones are passed on."""
    inflate = _INFLATE.get(number)
    if inflate is None:
        raise RecordsError(
            f"compression {number} of a record batch is not known",
            error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    try:
        return inflate(data, limit)
    except OutputTooLarge as exc:
        raise RecordsError(
            f"a record batch in {Compression(number).name.lower()} inflates to more than {limit} bytes",
            error_code=ErrorCode.MESSAGE_TOO_LARGE,
        ) from exc
    except CannotInflate as exc:
        raise RecordsError(
            f"a record batch cannot be read as {Compression(number).name.lower()}",
            error_code=ErrorCode.CORRUPT_MESSAGE,
            why=str(exc),
        ) from exc


def compress(number: Compression, data: Buffer) -> bytes:
    """Compress the records of a batch."""
    return _DEFLATE[number](data)


def _plain(data: Buffer, limit: int) -> memoryview:
    if len(data) > limit:
        raise OutputTooLarge(f"{len(data)} bytes")
    return memoryview(data)


def _by(name: str) -> Callable[[Buffer, int], memoryview]:
    return lambda data, limit: inflate_into(codec(name).decompress_into, data, limit)


def _gzip(data: Buffer, limit: int) -> memoryview:
    """Inflate one member; a few more are read as Kafka does, but each costs time, also an empty one."""
    if len(data) > _BLOCK and bytes(data).count(_GZIP_MEMBER) > _LEAST_PARTS:
        raise CannotInflate("it has too many members")
    return inflate_into(codec("gzip").decompress_into, data, limit)


def _snappy(data: Buffer, limit: int) -> memoryview:
    if bytes(data[: len(_SNAPPY_JAVA)]) == _SNAPPY_JAVA:
        return _snappy_java(memoryview(data), limit)
    return inflate_into(codec("snappy").decompress_raw_into, data, limit)


def _snappy_java(data: memoryview, limit: int) -> memoryview:
    """Read snappy-java's stream: a head of 16 bytes, then blocks with their size in front.

    All blocks go into one output of `limit` bytes. None may be empty, and there are not more than blocks of
    the smallest size would be: what a block costs does not depend on what is in it.
    """
    inflate = codec("snappy").decompress_raw_into
    output = np.empty(limit, np.uint8)
    pos, end, left = _SNAPPY_JAVA_HEAD, 0, max(limit // _SMALLEST_BLOCK, _LEAST_PARTS)
    while pos < len(data):
        if pos + 4 > len(data):
            raise CannotInflate("the last block has no size")
        (size,) = struct.unpack_from(">i", data, pos)
        pos += 4
        if size < 0 or pos + size > len(data):
            raise CannotInflate("a block leaves the batch")
        written = inflate_slice(inflate, data[pos : pos + size], output[end:])
        pos, end, left = pos + size, end + written, left - 1
        if not written or left < 0:
            raise CannotInflate("a block is empty" if not written else "it has too many blocks")
    return output.data[:end]


def compress_snappy_java(data: Buffer) -> bytes:
    """Compress as snappy-java does, which is what a Java producer sends."""
    view = memoryview(data)
    parts = [_SNAPPY_JAVA + struct.pack(">ii", 1, 1)]
    for pos in range(0, len(view), _BLOCK):
        block = bytes(codec("snappy").compress_raw(view[pos : pos + _BLOCK]))
        parts.append(struct.pack(">i", len(block)) + block)
    return b"".join(parts)


def _lz4(data: Buffer) -> bytes:
    # Kafka's reader refuses blocks that depend on those before them.
    compressor = codec("lz4").Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


_INFLATE: dict[int, Callable[[Buffer, int], memoryview]] = {
    Compression.NONE: _plain,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _by("lz4"),
    Compression.ZSTD: _by("zstd"),
}

_DEFLATE: dict[Compression, Callable[[Buffer], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: lambda data: bytes(codec("gzip").compress(data)),
    Compression.SNAPPY: lambda data: bytes(codec("snappy").compress_raw(data)),
    Compression.LZ4: _lz4,
    Compression.ZSTD: lambda data: bytes(codec("zstd").compress(data)),
}
