"""Texts that somebody has judged already: media types, schemas and the odd references of a topic are few.

A text has one row, by its kind and its hash; another one of the same row takes its place. A text that is not
here stops the loop with ASK.
"""

from __future__ import annotations

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.hashing import murmur2
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, kernel, part
from penstock.wire.kernels.routing.texts import same
from penstock.wire.routing_layout import (
    C_MEMORY,
    M_KIND,
    M_ROW,
    M_SIZE,
    M_VERDICT,
    MEMORY_OF_KIND,
    MEMORY_TEXT,
    X_ASKED,
    X_ASKED_AT,
    X_ASKED_SIZE,
    X_RECENT,
)

__all__ = ["TOO_LONG", "UNKNOWN", "recall", "remember"]

UNKNOWN = -1
TOO_LONG = -2
"""No text of this size is remembered."""


@inner(INT(BYTES, BYTES, INT, INT))
def _hash(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    return murmur2(data, text, text + size) if text >= 0 else murmur2(pool, ~text, ~text + size)


@inner(INT(BYTES, BYTES, INTS, INTS, INT, INT, INT, INT))
def _is_at(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    kind: int,
    text: int,
    size: int,
    index: int,
) -> int:
    """Say 1 if a row of the memory is that of a text."""
    if memory[index * M_ROW + M_KIND] != kind:
        return 0
    kept = ~(code[C_MEMORY] + index * MEMORY_TEXT)
    return same(data, pool, text, size, kept, memory[index * M_ROW + M_SIZE])


@part(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT, INT))
def recall(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    kind: int,
    text: int,
    size: int,
) -> int:
    """Give the verdict on a text; UNKNOWN notes it, so that somebody can judge it."""
    if size > MEMORY_TEXT:
        return TOO_LONG
    # Most often it is the one of the record before.
    index = state[X_RECENT + kind]
    if not _is_at(data, pool, code, memory, kind, text, size, index):
        index = kind * MEMORY_OF_KIND + _hash(data, pool, text, size) % MEMORY_OF_KIND
    if _is_at(data, pool, code, memory, kind, text, size, index):
        state[X_RECENT + kind] = index
        return int(memory[index * M_ROW + M_VERDICT])
    state[X_ASKED] = kind
    state[X_ASKED_AT] = text
    state[X_ASKED_SIZE] = size
    return UNKNOWN


@kernel(INT(BYTES, OUT, INTS, INTS, INT, INT))
def remember(
    text: ByteArray, pool: ByteArray, code: IntArray, memory: IntArray, kind: int, verdict: int
) -> int:
    """Note the verdict on a text; give its row."""
    index = kind * MEMORY_OF_KIND + murmur2(text, 0, len(text)) % MEMORY_OF_KIND
    row = index * M_ROW
    copy(text, 0, pool, code[C_MEMORY] + index * MEMORY_TEXT, len(text))
    memory[row + M_KIND] = kind
    memory[row + M_SIZE] = len(text)
    memory[row + M_VERDICT] = verdict
    return index
