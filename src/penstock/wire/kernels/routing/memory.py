"""Texts that somebody has judged already: media types, schemas and the odd references of a topic are few.

A text has one row, by its kind and its hash; another one of the same row takes its place. A text that is not
here stops the loop with ASK.
"""

from __future__ import annotations

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.hashing import murmur2
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, kernel
from penstock.wire.kernels.routing.texts import same
from penstock.wire.routing_layout import (
    C_MEMORY,
    M_HASH,
    M_KIND,
    M_ROW,
    M_SIZE,
    M_VERDICT,
    MEMORY_OF_KIND,
    MEMORY_TEXT,
    X_ASKED,
    X_ASKED_AT,
    X_ASKED_SIZE,
)

__all__ = ["TOO_LONG", "UNKNOWN", "recall", "remember"]

UNKNOWN = -1
TOO_LONG = -2
"""No text of this size is remembered."""


@inner(INT(BYTES, BYTES, INT, INT))
def _hash(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    return murmur2(data, text, text + size) if text >= 0 else murmur2(pool, ~text, ~text + size)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT, INT), inline=False)
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
    hashed = _hash(data, pool, text, size)
    index = kind * MEMORY_OF_KIND + hashed % MEMORY_OF_KIND
    row = index * M_ROW
    if memory[row + M_HASH] == hashed and memory[row + M_KIND] == kind:
        kept = ~(code[C_MEMORY] + index * MEMORY_TEXT)
        if same(data, pool, text, size, kept, memory[row + M_SIZE]):
            return int(memory[row + M_VERDICT])
    state[X_ASKED] = kind
    state[X_ASKED_AT] = text
    state[X_ASKED_SIZE] = size
    return UNKNOWN


@kernel(INT(BYTES, OUT, INTS, INTS, INT, INT))
def remember(
    text: ByteArray, pool: ByteArray, code: IntArray, memory: IntArray, kind: int, verdict: int
) -> int:
    """Note the verdict on a text; give its row."""
    hashed = murmur2(text, 0, len(text))
    index = kind * MEMORY_OF_KIND + hashed % MEMORY_OF_KIND
    row = index * M_ROW
    copy(text, 0, pool, code[C_MEMORY] + index * MEMORY_TEXT, len(text))
    memory[row + M_KIND] = kind
    memory[row + M_HASH] = hashed
    memory[row + M_SIZE] = len(text)
    memory[row + M_VERDICT] = verdict
    return index
