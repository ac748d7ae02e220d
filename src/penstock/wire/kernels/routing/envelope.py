"""The attributes of structured mode, JSON format 1.0.2 of CloudEvents: one object, read once.

What is not plain is left to others: escapes in names and attributes, nulls, base64, text data.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, PAIR, ByteArray, IntArray, inner
from penstock.wire.kernels.json import value_end
from penstock.wire.kernels.json_tokens import literal_end, number_end, skip_space, string_end
from penstock.wire.kernels.records import F_VALUE, F_VALUE_SIZE
from penstock.wire.kernels.routing.attributes import add_extension, clear, core_index, is_text, set_core
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    A_DATACONTENTTYPE,
    DONE,
    J_JSON,
    N_ATTRIBUTE,
    N_SIZE,
    SLOW,
    STYLE_RAW,
    STYLE_TEXT,
    W_CORE_AT,
    W_DATA,
    W_DATA_IS_JSON,
    W_DATA_SIZE,
    W_MEDIA,
    W_SCANNED,
)

__all__ = ["concluded", "next_member", "raw_end", "read_envelope", "read_name"]

_DATA = np.frombuffer(b"data", np.uint8)
_QUOTE = 0x22
_MAX_DIGITS = 9
_NOT_PLAIN = -1


@inner(PAIR(BYTES, INT, INT))
def read_name(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read a member's name and its colon; give the name's size and where the value begins."""
    if pos >= end or byte_at(data, pos) != _QUOTE:
        return 0, _NOT_PLAIN
    escaped, behind = string_end(data, pos + 1, end)
    if behind < 0 or escaped:
        return 0, _NOT_PLAIN
    colon = skip_space(data, behind, end)
    if colon >= end or byte_at(data, colon) != 0x3A:
        return 0, _NOT_PLAIN
    value = skip_space(data, colon + 1, end)
    return behind - pos - 2, value if value < end else _NOT_PLAIN


@inner(INT(BYTES, INT, INT))
def raw_end(data: ByteArray, pos: int, end: int) -> int:
    """Read a boolean, or an integer as we would write it; give the position behind it."""
    first = byte_at(data, pos)
    if first == 0x74 or first == 0x66:
        return literal_end(data, pos, end)
    behind = number_end(data, pos, end)
    negative = int(first == 0x2D)
    if behind < 0 or behind - pos - negative > _MAX_DIGITS:
        return _NOT_PLAIN
    for i in range(pos + negative, behind):
        if not 0x30 <= byte_at(data, i) <= 0x39:
            return _NOT_PLAIN
    return _NOT_PLAIN if negative and byte_at(data, pos + 1) == 0x30 else behind


@inner(PAIR(BYTES, INT, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT))
def _attribute(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    name: int,
    length: int,
    pos: int,
) -> tuple[int, int]:
    """Take the attribute whose value begins at pos; give DONE, SLOW or ASK and the position behind it."""
    index = core_index(data, name, length)
    if byte_at(data, pos) == _QUOTE:
        escaped, behind = string_end(data, pos + 1, end)
        if behind < 0 or escaped:
            return SLOW, end
        text, size, style = pos + 1, behind - pos - 2, STYLE_TEXT
    else:
        behind = raw_end(data, pos, end)
        if behind < 0 or index >= 0:
            return SLOW, end
        text, size, style = pos, behind - pos, STYLE_RAW
    if index >= 0:
        return set_core(data, pool, code, memory, state, work, index, text, size), behind
    return add_extension(data, pool, work, name, length, text, size, style), behind


@inner(INT(INTS))
def concluded(work: IntArray) -> int:
    """Say whether the data is of its type; JSON format 3.1.2: without datacontenttype it is JSON."""
    if work[W_DATA_SIZE] < 0:
        return DONE
    typed = work[W_CORE_AT + A_DATACONTENTTYPE * N_ATTRIBUTE + N_SIZE] >= 0
    if typed and not work[W_MEDIA] & J_JSON:
        return SLOW
    work[W_DATA_IS_JSON] = 1
    work[W_SCANNED] = 1
    return DONE


@inner(PAIR(BYTES, INT, INT))
def next_member(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Go behind a value: give 1 and where the next name begins, or 0 and the end of the object."""
    pos = skip_space(data, pos, end)
    if pos >= end:
        return 0, _NOT_PLAIN
    if byte_at(data, pos) == 0x2C:
        return 1, skip_space(data, pos + 1, end)
    return 0, pos + 1 if byte_at(data, pos) == 0x7D else _NOT_PLAIN


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INTS, INTS, INTS), inline=False)
def read_envelope(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
) -> int:
    """Take what the value of the record at hand says; DONE, SLOW or ASK."""
    clear(work)
    work[W_MEDIA] = 0
    work[W_DATA_SIZE] = -1
    end = work[F_VALUE] + work[F_VALUE_SIZE]
    if not is_utf8(data, work[F_VALUE], end):
        return SLOW
    pos = skip_space(data, work[F_VALUE], end)
    if pos >= end or byte_at(data, pos) != 0x7B:
        return SLOW
    more = 1
    pos = skip_space(data, pos + 1, end)
    while more:
        name = pos + 1
        length, pos = read_name(data, pos, end)
        if pos < 0:
            return SLOW
        if is_text(data, name, length, _DATA):
            behind = value_end(data, pos, end, trie, pool, found, stack, 0, 1)
            if behind < 0 or work[W_DATA_SIZE] >= 0:
                return SLOW
            work[W_DATA] = pos
            work[W_DATA_SIZE] = behind - pos
            pos = behind
        else:
            verdict, pos = _attribute(data, end, pool, code, memory, state, work, name, length, pos)
            if verdict != DONE:
                return verdict
        more, pos = next_member(data, pos, end)
        if pos < 0:
            return SLOW
    return concluded(work) if skip_space(data, pos, end) == end else SLOW
