"""Compressed bytes made to cost much: each codec stays within its output's limit, and linear in its input."""

from __future__ import annotations

import gzip
import resource
import struct
import time
import zlib
from collections.abc import Callable

import pytest

from penstock.errors import RecordsError, WireError
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka import compression as kafka
from penstock.wire.pulsar import compression as pulsar

MOST = 5 << 20
"""What a request may bring, and what it may inflate to."""
SECONDS = 2.0
"""Of processor time for the largest input: some milliseconds in each case, on a quiet machine."""
MEMORY = 64 << 10
"""KiB that a process may grow by: some times the output, and the input."""

_SNAPPY_JAVA = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_LZ4_HEAD = bytes.fromhex("04224d18 60 70 73".replace(" ", ""))
_ZSTD_MAGIC = struct.pack("<I", 0xFD2FB528)
_SKIPPED = struct.pack("<II", 0x184D2A50, 0)
_END = bytes([1, 0, 0])


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _many(one: bytes) -> bytes:
    return one * (MOST // len(one))


def _deflated(one: bytes) -> bytes:
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + one


INPUTS: dict[str, tuple[kafka.Compression, Callable[[], bytes]]] = {
    "gzip, empty members": (kafka.Compression.GZIP, lambda: _many(gzip.compress(b""))),
    "gzip, members of a byte": (kafka.Compression.GZIP, lambda: _many(gzip.compress(b"x"))),
    "gzip, empty blocks": (
        kafka.Compression.GZIP,
        lambda: _deflated(_many(b"\0\0\0\xff\xff") + b"\1\0\0\xff\xff" + bytes(8)),
    ),
    "gzip, a gibibyte of zeros": (
        kafka.Compression.GZIP,
        lambda: gzip.compress(bytes(1 << 28), 1) * 4,
    ),
    "snappy, announces 4 GiB": (kafka.Compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy-java, empty blocks": (
        kafka.Compression.SNAPPY,
        lambda: _SNAPPY_JAVA + _many(_block(b"\0")),
    ),
    "snappy-java, blocks of no bytes": (kafka.Compression.SNAPPY, lambda: _SNAPPY_JAVA + _many(_block(b""))),
    "snappy-java, blocks of a byte": (
        kafka.Compression.SNAPPY,
        lambda: _SNAPPY_JAVA + _many(_block(b"\x01\x00x")),
    ),
    "snappy-java, blocks that announce 4 GiB": (
        kafka.Compression.SNAPPY,
        lambda: _SNAPPY_JAVA + _many(_block(b"\xff\xff\xff\xff\x0f")),
    ),
    "lz4, empty frames": (kafka.Compression.LZ4, lambda: _many(_LZ4_HEAD + bytes(4))),
    "lz4, skipped frames": (kafka.Compression.LZ4, lambda: _many(_SKIPPED)),
    "lz4, empty blocks": (
        kafka.Compression.LZ4,
        lambda: _LZ4_HEAD + _many(struct.pack("<I", 1) + b"\0") + bytes(4),
    ),
    "lz4, blocks of a byte": (
        kafka.Compression.LZ4,
        lambda: _LZ4_HEAD + _many(struct.pack("<I", 0x80000001) + b"x") + bytes(4),
    ),
    "zstd, empty frames with large windows": (
        kafka.Compression.ZSTD,
        lambda: _many(_ZSTD_MAGIC + bytes([0, 17 << 3]) + _END),
    ),
    "zstd, frames of a byte with large windows": (
        kafka.Compression.ZSTD,
        lambda: _many(_ZSTD_MAGIC + bytes([0, 17 << 3]) + b"\x08\0\0x" + _END),
    ),
    "zstd, a window of 2 GiB": (
        kafka.Compression.ZSTD,
        lambda: _ZSTD_MAGIC + bytes([0, 21 << 3]) + b"\x08\0\0x" + _END,
    ),
    "zstd, empty blocks": (
        kafka.Compression.ZSTD,
        lambda: _ZSTD_MAGIC + bytes([0, 17 << 3]) + _many(bytes(3)) + _END,
    ),
    "zstd, skipped frames": (kafka.Compression.ZSTD, lambda: _many(_SKIPPED)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_hostile_batch_costs_no_more_than_an_honest_one_of_its_size(name: str) -> None:
    compression, make = INPUTS[name]
    data = make()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        assert len(kafka.decompress(compression, data, MOST)) <= MOST
    except RecordsError as error:
        assert error.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY


@pytest.mark.parametrize(
    "blocks",
    [
        [b"\0"],
        [b"\x01\x00x", b"\0"],
        [b""],
        [b"\x01\x00x"] * 5121,
    ],
)
def test_empty_blocks_and_too_many_of_them_are_refused(blocks: list[bytes]) -> None:
    with pytest.raises(RecordsError) as refused:
        kafka.decompress(kafka.Compression.SNAPPY, _SNAPPY_JAVA + b"".join(map(_block, blocks)), MOST)
    assert refused.value.error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("compression", "data"),
    [
        (kafka.Compression.LZ4, _LZ4_HEAD + struct.pack("<I", 0x80000001) + b"x" + bytes(4)),
        (kafka.Compression.ZSTD, _ZSTD_MAGIC + bytes([0, 17 << 3]) + b"\x08\0\0x" + _END),
        (kafka.Compression.SNAPPY, _SNAPPY_JAVA + _block(b"\x01\x00x")),
    ],
)
def test_the_heads_of_the_hostile_inputs_are_good(compression: kafka.Compression, data: bytes) -> None:
    assert bytes(kafka.decompress(compression, data, MOST)) == b"x"


def test_the_blocks_of_a_stream_share_one_limit() -> None:
    stream = _SNAPPY_JAVA + b"".join(map(_block, [b"\x01\x00x"] * 11))
    assert bytes(kafka.decompress(kafka.Compression.SNAPPY, stream, 11)) == b"x" * 11
    with pytest.raises(RecordsError) as refused:
        kafka.decompress(kafka.Compression.SNAPPY, stream, 10)
    assert refused.value.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_few_members_are_one_batch() -> None:
    assert (
        bytes(kafka.decompress(kafka.Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b"), 9)) == b"ab"
    )


@pytest.mark.parametrize("compression", [one for one in kafka.Compression if one])
def test_what_was_packed_twice_is_unpacked_once(compression: kafka.Compression) -> None:
    inner = kafka.compress(compression, b"records" * 100)
    assert bytes(kafka.decompress(compression, kafka.compress(compression, inner), MOST)) == inner
    stream = kafka.compress_snappy_java(kafka.compress_snappy_java(b"records"))
    assert bytes(kafka.decompress(kafka.Compression.SNAPPY, stream, MOST)) == kafka.compress_snappy_java(
        b"records"
    )


ENTRIES: dict[str, tuple[pulsar.Compression, Callable[[], bytes]]] = {
    "LZ4, a match of everything": (
        pulsar.Compression.LZ4,
        lambda: b"\x1fx\x01\x00" + b"\xff" * (MOST // 255 + 10) + b"\x00",
    ),
    "LZ4, no bytes at a time": (pulsar.Compression.LZ4, lambda: _many(b"\0\0\0")),
    "ZLIB, 256 MiB of zeros": (
        pulsar.Compression.ZLIB,
        lambda: zlib.compress(bytes(1 << 28), 1),
    ),
    "ZLIB, empty blocks": (
        pulsar.Compression.ZLIB,
        lambda: b"\x78\x01" + _many(b"\0\0\0\xff\xff") + b"\1\0\0\xff\xff" + struct.pack(">I", 1),
    ),
    "ZSTD, empty frames with large windows": (
        pulsar.Compression.ZSTD,
        lambda: _many(_ZSTD_MAGIC + bytes([0, 17 << 3]) + _END),
    ),
    "SNAPPY, announces 4 GiB": (pulsar.Compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_hostile_entry_costs_no_more_than_an_honest_one_of_its_size(name: str) -> None:
    compression, make = ENTRIES[name]
    data = make()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        assert len(pulsar.decompress(compression, data, MOST, MOST)) == MOST
    except WireError as error:
        assert compression.name in str(error)
    assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY
