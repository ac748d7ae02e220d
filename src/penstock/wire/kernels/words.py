"""Eight bytes at a time: one signed integer, little end first, whose bytes are tested all at once.

A test gives marks, the highest bit of each byte that passes. The lowest mark is certain; one above it may be
too much, because a byte that passes borrows from the next. No mark at all is certain, too.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, OUT, ByteArray, kernel

__all__ = [
    "EACH",
    "MARKS",
    "WORD",
    "bytes_below",
    "equal",
    "first_mark",
    "put_word",
    "short_word",
    "word_at",
    "zero_bytes",
]

WORD = 8
EACH = 0x0101010101010101
"""Times a byte: that byte eight times."""
MARKS = -0x7F7F7F7F7F7F7F80
"""Every mark; of a word, those of its bytes that are no ASCII."""


@kernel(INT(BYTES, INT), boundscheck=False)
def word_at(data: ByteArray, pos: int) -> int:
    """Give data[pos:pos+8]; the processor does it in one step. Raises IndexError if that leaves the array."""
    if pos < 0 or pos > len(data) - WORD:
        raise IndexError("word leaves its array")
    low = int(data[pos]) | int(data[pos + 1]) << 8 | int(data[pos + 2]) << 16 | int(data[pos + 3]) << 24
    high = int(data[pos + 4]) | int(data[pos + 5]) << 8 | int(data[pos + 6]) << 16
    return low | (high | ((int(data[pos + 7]) ^ 0x80) - 0x80) << 24) << 32


@kernel(INT(OUT, INT, INT), boundscheck=False)
def put_word(out: ByteArray, pos: int, word: int) -> int:
    """Write a word; give the position behind it. Raises IndexError if it leaves the array."""
    if pos < 0 or pos > len(out) - WORD:
        raise IndexError("word leaves its array")
    for i in range(WORD):
        out[pos + i] = (word >> (8 * i)) & 0xFF
    return pos + WORD


@kernel(INT(INT))
def zero_bytes(word: int) -> int:
    """Mark the bytes that are 0."""
    return (word - EACH) & ~word & MARKS


@kernel(INT(INT, INT))
def bytes_below(word: int, limit: int) -> int:
    """Mark the bytes that are smaller than a limit of 128 or less."""
    return (word - limit * EACH) & ~word & MARKS


@kernel(INT(INT))
def first_mark(marks: int) -> int:
    """Give which byte has the lowest mark, of which there must be one."""
    # Below a mark all bits become ones; multiplied, those at the bottom of each byte add up in the highest.
    ones = ((marks & -marks) - 1) & EACH
    return (ones * EACH >> 56 & 15) - 1


@kernel(INT(BYTES, INT, INT), boundscheck=False)
def short_word(data: ByteArray, pos: int, size: int) -> int:
    """Give data[pos:pos+size] of less than eight bytes as a word, with zeros behind it.

    Raises IndexError if that leaves the array.
    """
    if pos < 0 or size < 0 or size >= WORD or pos > len(data) - size:
        raise IndexError("range leaves its array")
    if pos <= len(data) - WORD:
        return word_at(data, pos) & ((1 << (8 * size)) - 1)
    word = 0
    for i in range(size):
        word |= int(data[pos + i]) << (8 * i)
    return word


@kernel(INT(BYTES, INT, BYTES, INT, INT))
def equal(left: ByteArray, at: int, right: ByteArray, pos: int, size: int) -> int:
    """Say 1 if left[at:at+size] and right[pos:pos+size] are the same; IndexError if one leaves its array."""
    if size < WORD:
        return int(short_word(left, at, size) == short_word(right, pos, size))
    for i in range(0, size - WORD, WORD):
        if word_at(left, at + i) != word_at(right, pos + i):
            return 0
    last = size - WORD
    return int(word_at(left, at + last) == word_at(right, pos + last))
