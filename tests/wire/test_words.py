"""Eight bytes at a time against one after the other, at every place of an array."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.wire.buffer import as_array
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.words import (
    EACH,
    bytes_below,
    equal,
    first_mark,
    put_word,
    short_word,
    word_at,
    zero_bytes,
)


def words(count: int) -> list[bytes]:
    """Give words in which the bytes at borders are more frequent than by chance."""
    dice = random.Random(3)
    borders = bytes([0, 1, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x5C, 0x7F, 0x80, 0x81, 0xFF])
    some = [bytes(dice.choice(borders) for _ in range(8)) for _ in range(count)]
    return some + [dice.randbytes(8) for _ in range(count)]


def test_a_word_is_signed_and_has_its_little_end_first() -> None:
    for raw in words(200):
        word = word_at(as_array(b"?" + raw + b"?"), 1)
        assert word == int.from_bytes(raw, "little", signed=True)
        out = np.full(10, 0x3F, np.uint8)
        assert put_word(out, 1, word) == 9
        assert out.tobytes() == b"?" + raw + b"?"


@pytest.mark.parametrize("pos", [-1, -8, 1, 8, 1 << 40])
def test_a_word_never_leaves_its_array(pos: int) -> None:
    with pytest.raises(IndexError):
        word_at(as_array(bytes(8)), pos)
    with pytest.raises(IndexError):
        put_word(np.zeros(8, np.uint8), pos, 0)


def test_the_first_mark_is_the_first_byte_that_passes() -> None:
    for raw in words(500):
        word = word_at(as_array(raw), 0)
        for marks, passes in (
            (zero_bytes(word), [byte == 0 for byte in raw]),
            (zero_bytes(word ^ 0x22 * EACH), [byte == 0x22 for byte in raw]),
            (bytes_below(word, 0x20), [byte < 0x20 for byte in raw]),
            (bytes_below(word, 0x80), [byte < 0x80 for byte in raw]),
        ):
            assert (marks != 0) == any(passes)
            if any(passes):
                assert first_mark(marks) == passes.index(True)


def test_a_short_word_is_read_up_to_the_end_of_the_array() -> None:
    raw = bytes(range(0xF0, 0x100))
    for size in range(8):
        for pos in range(len(raw) - size + 1):
            assert short_word(as_array(raw), pos, size) == int.from_bytes(raw[pos : pos + size], "little")
        for pos in (-1, len(raw) - size + 1):
            with pytest.raises(IndexError):
                short_word(as_array(raw), pos, size)


def test_ranges_are_equal_byte_by_byte() -> None:
    dice = random.Random(4)
    for size in range(40):
        left, right = bytearray(dice.randbytes(size + 3)), bytearray(dice.randbytes(size + 2))
        right[2:] = left[1 : 1 + size]
        assert equal(as_array(left), 1, as_array(right), 2, size) == 1
        for place in range(size):
            right[2 + place] ^= 1 << dice.randrange(8)
            assert equal(as_array(left), 1, as_array(right), 2, size) == 0
            right[2 + place] = left[1 + place]
        for at, pos in ((2, 1), (1, 2), (-1, 0), (0, -1)):
            with pytest.raises(IndexError):
                equal(as_array(bytes(size + 1)), at, as_array(bytes(size + 1)), pos, size)


def test_one_byte_that_is_not_ascii_is_found_wherever_it_is() -> None:
    for size in range(1, 30):
        for place in range(size):
            raw = bytearray(b"a" * (size + 2))
            raw[1 + place] = 0x80
            assert is_utf8(as_array(raw), 1, 1 + size) == 0
            assert is_utf8(as_array(raw), 2 + place, 2 + size) == 1
