"""Pulsar's compressions: there and back, exactly the announced size, never more than the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.wire.pulsar.compression import Compression, compress, decompress

PACKED = [one for one in Compression if one is not Compression.NONE]


@given(st.binary(max_size=3000), st.sampled_from(list(Compression)))
def test_there_and_back(data: bytes, compression: Compression) -> None:
    assert bytes(decompress(compression, compress(compression, data), len(data), 3000)) == data


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("size", [0, 999, 1001, 2000])
def test_another_size_than_announced_is_refused(compression: Compression, size: int) -> None:
    with pytest.raises(WireError):
        decompress(compression, compress(compression, bytes(1000)), size, 10_000)


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("size", [1001, 2**32 - 1, -1])
def test_more_than_the_limit_is_refused_before_it_is_allocated(compression: Compression, size: int) -> None:
    with pytest.raises(WireError, match=f"{size} bytes"):
        decompress(compression, compress(compression, bytes(1001)), size, 1000)


@given(st.binary(max_size=100), st.sampled_from(PACKED), st.integers(0, 1000))
def test_any_bytes_are_inflated_or_refused(data: bytes, compression: Compression, size: int) -> None:
    try:
        assert len(decompress(compression, data, size, 1000)) == size
    except WireError as error:
        assert compression.name in str(error)


def test_lz4_is_the_block_without_size_or_frame() -> None:
    # One literal run of four bytes: token 0x40, then the bytes.
    assert bytes(decompress(Compression.LZ4, b"\x40abcd", 4, 10)) == b"abcd"
    assert compress(Compression.LZ4, b"abcd") == b"\x40abcd"


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(WireError, match="compression 7"):
        decompress(7, b"", 0, 0)
