"""Every kernel against somebody else's code for the same thing."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.wire import kernels as k
from penstock.wire.buffer import as_array
from penstock.wire.kernels import checksum, hashing
from penstock.wire.kernels.varint import unzigzag, zigzag

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
signed = st.one_of(st.integers(LOWEST, HIGHEST), st.integers(-300, 300))


def simple_uvarint(value: int) -> bytes:
    out = []
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


@given(signed)
@example(LOWEST)
@example(HIGHEST)
@example(0)
def test_a_varint_is_written_and_read_back(value: int) -> None:
    unsigned = value * 2 if value >= 0 else -value * 2 - 1
    out = np.zeros(12, np.uint8)
    end = k.write_varint(out, 1, value)
    assert bytes(out[1:end]) == simple_uvarint(unsigned)
    assert k.varint_size(value) == end - 1
    assert k.read_varint(out, 1, end) == (value, end)


@given(st.integers(0, (1 << 64) - 1))
def test_an_unsigned_varint_keeps_its_64_bits(value: int) -> None:
    data = simple_uvarint(value)
    as_signed = value if value <= HIGHEST else value - (1 << 64)
    assert k.read_uvarint(as_array(data), 0, len(data)) == (as_signed, len(data))
    out = np.zeros(10, np.uint8)
    assert bytes(out[: k.write_uvarint(out, 0, as_signed)]) == data
    assert k.uvarint_size(as_signed) == len(data)


@given(signed)
def test_zigzag_is_undone(value: int) -> None:
    assert unzigzag(zigzag(value)) == value


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", k.TRUNCATED),
        (b"\x80", k.TRUNCATED),
        (b"\xff" * 9, k.TRUNCATED),
        (b"\xff" * 9 + b"\x02", k.BAD_VARINT),
        (b"\x80" * 10, k.BAD_VARINT),
        (b"\x80" * 20, k.BAD_VARINT),
    ],
)
def test_what_is_no_varint_has_a_negative_position(data: bytes, error: int) -> None:
    assert k.read_uvarint(as_array(data), 0, len(data)) == (0, error)
    # A reader hands an error on that it is given as a position.
    assert k.read_varint(as_array(data), error, len(data)) == (0, error)


@given(st.binary(max_size=70))
def test_utf8_is_what_python_decodes(data: bytes) -> None:
    check_utf8(data)


SECONDS = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)


def test_utf8_at_every_edge_of_its_table() -> None:
    for lead in range(256):
        for second in SECONDS:
            for rest in (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xbf\xc0"):
                check_utf8(bytes((lead, second)) + rest)


def check_utf8(data: bytes) -> None:
    try:
        data.decode()
        valid = 1
    except UnicodeDecodeError:
        valid = 0
    assert k.is_utf8(as_array(b"\xff" + data + b"\xff"), 1, 1 + len(data)) == valid, data


@given(st.binary(max_size=70))
def test_base64_is_what_python_writes(data: bytes) -> None:
    text = base64.b64encode(data)
    out = np.zeros(k.base64_size(len(data)), np.uint8)
    assert k.encode_base64(as_array(data), 0, len(data), out, 0) == len(text)
    assert bytes(out) == text
    back = np.zeros(len(data), np.uint8)
    assert k.base64_decoded_size(out, 0, len(out)) == len(data)
    assert k.decode_base64(out, 0, len(out), back, 0) == len(data)
    assert bytes(back) == data


@given(st.text("AZaz09+/=-_ \n", max_size=9).map(str.encode))
def test_base64_is_read_only_in_its_one_form(text: bytes) -> None:
    try:
        data = base64.b64decode(text, validate=True)
        size = len(data) if base64.b64encode(data) == text else -1
    except binascii.Error:
        size = -1
    assert k.base64_decoded_size(as_array(text), 0, len(text)) == size


@given(st.binary(max_size=40))
def test_murmur2_is_that_of_another_client(data: bytes) -> None:
    array = as_array(data)
    assert hashing.murmur2(array, 0, len(data)) == aiokafka_murmur2(data) & 0xFFFFFFFF
    assert hashing.partition_of(array, 0, len(data), 7) == (aiokafka_murmur2(data) & 0x7FFFFFFF) % 7


def crc32c_bit_by_bit(data: bytes, value: int = 0) -> int:
    """RFC 3720 appendix B.4, as it is written there."""
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(st.binary(max_size=100), st.binary(max_size=20))
def test_crc32c_is_that_of_its_definition(head: bytes, tail: bytes) -> None:
    first = k.crc32c_range(as_array(head), 0, len(head), 0)
    assert first == crc32c_bit_by_bit(head) == k.crc32c(head)
    assert first == checksum._by_tables(as_array(head), 0, len(head), 0)
    assert k.crc32c_range(as_array(tail), 0, len(tail), first) == k.crc32c(head + tail)


@pytest.mark.parametrize("size", [7, 767, 768, 776, 12_287, 12_288, 12_289, 13_057, 24_576 + 768 + 8 + 7])
@pytest.mark.parametrize("begin", [0, 3])
def test_crc32c_of_data_that_is_added_in_three_parts(size: int, begin: int) -> None:
    data = bytes(n * n + n >> 3 & 0xFF for n in range(size + begin))
    wanted = crc32c_bit_by_bit(data[begin:], 5)
    assert k.crc32c_range(as_array(data), begin, size + begin, 5) == wanted
    assert k.crc32c(memoryview(data)[begin:], 5) == wanted


def test_crc32c_never_leaves_its_array() -> None:
    for pos, end in ((-1, 4), (0, 9), (0, 1 << 40)):
        with pytest.raises(IndexError):
            k.crc32c_range(as_array(bytes(8)), pos, end, 0)


def test_crc32c_has_the_check_value_of_its_definition() -> None:
    # RFC 3720 appendix B.4: 32 bytes of zeros.
    assert k.crc32c(bytes(32)) == int.from_bytes(bytes.fromhex("aa36918a"), "little")


@pytest.mark.parametrize(
    ("pos", "at", "size"), [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (1, 0, 4), (0, 3, 4), (5, 0, 1)]
)
def test_a_copy_never_leaves_its_arrays(pos: int, at: int, size: int) -> None:
    out = np.zeros(6, np.uint8)
    with pytest.raises(IndexError):
        k.copy(as_array(b"abcd"), pos, out, at, size)
    assert not out.any()


@pytest.mark.parametrize("size", range(200))
def test_a_copy_of_any_size_is_exact(size: int) -> None:
    data = bytes(range(1, 251))
    out = np.zeros(size + 10, np.uint8)
    assert k.copy(as_array(data), 7, out, 5, size) == size + 5
    assert bytes(out) == bytes(5) + data[7 : size + 7] + bytes(5)
    whole = np.zeros(size, np.uint8)
    assert k.copy(as_array(data[:size]), 0, whole, 0, size) == size
    assert bytes(whole) == data[:size]


def test_a_copy_copies_its_range() -> None:
    out = np.zeros(6, np.uint8)
    assert k.copy(as_array(b"abcd"), 1, out, 2, 3) == 5
    assert bytes(out) == b"\0\0bcd\0"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\x08\x96\x01", (8, 150, 0, 3)),
        (b"\x12\x02hi", (18, 2, 2, 4)),
        (b"\x0d1234", (13, 1, 4, 5)),
        (b"\x0912345678", (9, 1, 8, 9)),
        (b"\x12\x03hi", (0, 0, 0, k.TRUNCATED)),
        (b"\x12" + b"\xff" * 9 + b"\x01", (0, 0, 0, k.TRUNCATED)),
        (b"\x0d123", (0, 0, 0, k.TRUNCATED)),
        (b"\x0b", (0, 0, 0, k.BAD_FIELD)),
        (b"\x00\x00", (0, 0, 0, k.BAD_FIELD)),
        (b"\x08", (8, 0, 0, k.TRUNCATED)),
        (b"", (0, 0, 0, k.TRUNCATED)),
    ],
)
def test_one_field_of_a_message(data: bytes, field: tuple[int, int, int, int]) -> None:
    assert k.read_field(as_array(data), 0, len(data)) == field


def test_a_scan_keeps_what_it_is_asked_for() -> None:
    slots = np.zeros(256, np.uint8)
    slots[0x08], slots[0x12] = 1, 2
    found = np.full(4, -1, np.int64)
    data = b"\x08\x05\x12\x02hi\x18\x09\xfa\x7f\x01x\x08\x06"
    assert k.scan(as_array(data), 0, len(data), slots, found) == len(data)
    assert found.tolist()[1:] == [6, 4, 2]
