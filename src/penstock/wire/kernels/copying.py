"""Copying ranges of bytes: the two ranges are checked once, then the loop runs unchecked."""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, OUT, ByteArray, kernel
from penstock.wire.kernels.words import WORD, put_word, word_at

__all__ = ["copy", "write_u32"]


@kernel(INT(BYTES, INT, OUT, INT, INT), boundscheck=False)
def copy(data: ByteArray, pos: int, out: ByteArray, at: int, size: int) -> int:
    """Copy data[pos:pos+size] to out[at:at+size], which must not overlap; give the position behind it.

    Raises IndexError if either range leaves its array.
    """
    if pos < 0 or at < 0 or size < 0 or pos > len(data) - size or at > len(out) - size:
        raise IndexError("copy leaves its array")
    if size < WORD:
        for i in range(size):
            out[at + i] = data[pos + i]
        return at + size
    last = pos + size - WORD
    end = at + size
    while pos < last:
        at = put_word(out, at, word_at(data, pos))
        pos += WORD
    # The last word may repeat bytes of the one before it.
    return put_word(out, end - WORD, word_at(data, last))


@kernel(INT(OUT, INT, INT))
def write_u32(out: ByteArray, pos: int, value: int) -> int:
    """Write 32 bits, big end first; give the position behind them."""
    out[pos] = (value >> 24) & 0xFF
    out[pos + 1] = (value >> 16) & 0xFF
    out[pos + 2] = (value >> 8) & 0xFF
    out[pos + 3] = value & 0xFF
    return pos + 4
