"""Kafka's compressions: there and back, to a limit, and hostile bytes."""

from __future__ import annotations

import resource
import sys

import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MissingExtra, RecordsError
from penstock.wire.kafka.compression import Compression, compress, compress_snappy_java, decompress
from penstock.wire.kafka.error_codes import ErrorCode

PACKED = [one for one in Compression if one is not Compression.NONE]


@given(st.binary(max_size=3000), st.sampled_from(list(Compression)))
def test_there_and_back(data: bytes, compression: Compression) -> None:
    assert bytes(decompress(compression, compress(compression, data), len(data) or 1)) == data


@given(st.binary(max_size=3000))
def test_snappy_java_is_what_aiokafka_reads_and_writes(data: bytes) -> None:
    ours = compress_snappy_java(data)
    assert bytes(decompress(Compression.SNAPPY, ours, 5000)) == data
    if data:
        assert aiokafka_codec.snappy_decode(ours) == data
        assert bytes(decompress(Compression.SNAPPY, aiokafka_codec.snappy_encode(data), 5000)) == data


def test_snappy_java_in_many_blocks() -> None:
    data = bytes(range(256)) * 1000
    assert bytes(decompress(Compression.SNAPPY, compress_snappy_java(data), len(data))) == data
    with pytest.raises(RecordsError) as caught:
        decompress(Compression.SNAPPY, compress_snappy_java(data), len(data) - 1)
    assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("compression", list(Compression))
def test_more_than_the_limit_is_refused(compression: Compression) -> None:
    packed = compress(compression, bytes(1001))
    assert len(decompress(compression, packed, 1001)) == 1001
    with pytest.raises(RecordsError) as caught:
        decompress(compression, packed, 1000)
    assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("compression", PACKED)
def test_a_bomb_takes_no_memory(compression: Compression) -> None:
    bomb = compress(compression, bytes(200 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RecordsError):
        decompress(compression, bomb, 1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@given(st.binary(max_size=100), st.sampled_from(PACKED))
def test_any_bytes_are_inflated_or_refused(data: bytes, compression: Compression) -> None:
    try:
        assert len(decompress(compression, data, 1000)) <= 1000
    except RecordsError as error:
        assert error.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("compression", PACKED)
def test_every_cut_is_refused(compression: Compression) -> None:
    data = bytes(range(200)) * 3
    packed = compress(compression, data)
    for size in range(len(packed)):
        with pytest.raises(RecordsError):
            decompress(compression, packed[:size], 1000)


@pytest.mark.parametrize(
    "data",
    [
        b"\x82SNAPPY\0" + bytes(9),
        b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff",
        b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\x09a",
    ],
)
def test_a_broken_snappy_java_stream_is_refused(data: bytes) -> None:
    with pytest.raises(RecordsError) as caught:
        decompress(Compression.SNAPPY, data, 1000)
    assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(MissingExtra, match="cramjam"):
        decompress(Compression.GZIP, b"", 10)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_compression_has_its_code(number: int) -> None:
    with pytest.raises(RecordsError) as caught:
        decompress(number, b"", 10)
    assert caught.value.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
