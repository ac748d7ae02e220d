"""The compressions of a Kafka record batch, by the number in its attributes (KIP-98, KIP-110).

0 none, 1 gzip, 2 snappy (raw, or in the frames of the Java library snappy-java), 3 lz4 (frame
format), 4 zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from penstock.errors import RecordsError
from penstock.wire.buffer import Buffer
from penstock.wire.compression import CannotInflate, OutputTooLarge, codec, inflate_into
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Compression", "compress", "decompress"]

_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEAD = 16
_BLOCK = 32 * 1024


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


def _snappy(data: Buffer, limit: int) -> memoryview:
    if bytes(data[: len(_SNAPPY_JAVA)]) == _SNAPPY_JAVA:
        return memoryview(_snappy_java(memoryview(data), limit))
    return inflate_into(codec("snappy").decompress_raw_into, data, limit)


def _snappy_java(data: memoryview, limit: int) -> bytes:
    """Read snappy-java's stream: a head of 16 bytes, then blocks with their size in front."""
    blocks: list[memoryview] = []
    pos = _SNAPPY_JAVA_HEAD
    while pos < len(data):
        if pos + 4 > len(data):
            raise CannotInflate("the last block has no size")
        (size,) = struct.unpack_from(">i", data, pos)
        pos += 4
        if size < 0 or pos + size > len(data):
            raise CannotInflate("a block leaves the batch")
        blocks.append(inflate_into(codec("snappy").decompress_raw_into, data[pos : pos + size], limit))
        limit -= len(blocks[-1])
        pos += size
    return b"".join(blocks)


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
    Compression.GZIP: _by("gzip"),
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
