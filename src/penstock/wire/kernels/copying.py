"""Copying ranges of bytes: both are checked once, then a loop copies unchecked, 32 bytes at a time."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config
from numba.core import types
from numba.extending import intrinsic

from penstock.wire.kernels.jit import BYTES, INT, OUT, ByteArray, kernel
from penstock.wire.kernels.words import WORD, put_word, word_at

__all__ = ["copy", "write_u32"]

_BLOCK: Final = 32
"""What one vector register of most processors holds; LLVM takes two of them, or four, where it is less."""
_EDITION: Final = 1
"""To be raised with every change below: caches know kernels by what they are made of."""


@intrinsic  # type: ignore[untyped-decorator]
def _copy_block(typing: Any, data: Any, pos: Any, out: Any, at: Any) -> Any:
    """Copy data[pos:pos+32] to out[at:at+32], which must be there: no bounds are checked."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), _BLOCK).as_pointer()

        def place(which: int) -> Any:
            array = context.make_array(signature.args[which])(context, builder, args[which])
            return builder.bitcast(builder.gep(array.data, [args[which + 1]]), block)

        builder.store(builder.load(place(0), align=1), place(2), align=1)
        return builder.add(args[3], ir.Constant(ir.IntType(64), _BLOCK))

    return types.int64(data, pos, out, at), generate


_copy_block.edition = _EDITION


def _by_words(data: ByteArray, pos: int, out: ByteArray, at: int, size: int) -> int:
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


def _by_blocks(data: ByteArray, pos: int, out: ByteArray, at: int, size: int) -> int:
    """Do the same with vectors where a range is long enough for one."""
    if pos < 0 or at < 0 or size < 0 or pos > len(data) - size or at > len(out) - size:
        raise IndexError("copy leaves its array")
    if size < WORD:
        for i in range(size):
            out[at + i] = data[pos + i]
        return at + size
    end = at + size
    if size < _BLOCK:
        last = pos + size - WORD
        while pos < last:
            at = put_word(out, at, word_at(data, pos))
            pos += WORD
        return put_word(out, end - WORD, word_at(data, last))
    last = pos + size - _BLOCK
    while pos < last:
        at = _copy_block(data, pos, out, at)
        pos += _BLOCK
    # The last block may repeat bytes of the one before it.
    return int(_copy_block(data, last, out, end - _BLOCK))


# Plain Python has no vectors.
copy = kernel(INT(BYTES, INT, OUT, INT, INT), boundscheck=False)(
    _by_words if config.DISABLE_JIT else _by_blocks
)
"""Copy a range of bytes: `copy(data, pos, out, at, size)`; see `_by_words`."""


@kernel(INT(OUT, INT, INT))
def write_u32(out: ByteArray, pos: int, value: int) -> int:
    """Write 32 bits, big end first; give the position behind them."""
    out[pos] = (value >> 24) & 0xFF
    out[pos + 1] = (value >> 16) & 0xFF
    out[pos + 2] = (value >> 8) & 0xFF
    out[pos + 3] = value & 0xFF
    return pos + 4
