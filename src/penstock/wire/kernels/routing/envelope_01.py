"""The attributes of structured mode in the JSON format of CloudEvents 0.1: extensions are in a map.

What is not plain is left to others, as in `envelope`, and so are members that 0.1 does not define.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, PAIR, ByteArray, IntArray, inner
from penstock.wire.kernels.json import value_end
from penstock.wire.kernels.json_tokens import skip_space, string_end
from penstock.wire.kernels.records import F_VALUE, F_VALUE_SIZE
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.attributes_01 import begin_01, index_01, take_01, take_extension_01
from penstock.wire.kernels.routing.envelope import concluded, next_member, raw_end, read_name
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    DONE,
    SLOW,
    STYLE_RAW,
    STYLE_TEXT,
    W_DATA,
    W_DATA_SIZE,
)

__all__ = ["read_envelope_01"]

_DATA_NAME = np.frombuffer(b"data", np.uint8)
_EXTENSIONS = np.frombuffer(b"extensions", np.uint8)
_QUOTE = 0x22


@inner(PAIR(BYTES, INT, OUT, INTS, INTS, INTS, INTS, INT, INT, INT), inline=False)
def _extension(
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
    """Take the extension whose value begins at pos; give DONE, SLOW or ASK and the position behind it."""
    if byte_at(data, pos) == _QUOTE:
        escaped, behind = string_end(data, pos + 1, end)
        if behind < 0 or escaped:
            return SLOW, end
        text, size, style = pos + 1, behind - pos - 2, STYLE_TEXT
    else:
        behind = raw_end(data, pos, end)
        if behind < 0:
            return SLOW, end
        text, size, style = pos, behind - pos, STYLE_RAW
    verdict = take_extension_01(data, pool, code, memory, state, work, name, length, text, size, style)
    return verdict, behind


@inner(PAIR(BYTES, INT, OUT, INTS, INTS, INTS, INTS, INT), inline=False)
def _extensions(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    pos: int,
) -> tuple[int, int]:
    """Take the map of extensions that begins at pos; it must have one."""
    if byte_at(data, pos) != 0x7B:
        return SLOW, end
    more = 1
    pos = skip_space(data, pos + 1, end)
    while more:
        name = pos + 1
        length, pos = read_name(data, pos, end)
        if pos < 0:
            return SLOW, end
        verdict, pos = _extension(data, end, pool, code, memory, state, work, name, length, pos)
        if verdict != DONE:
            return verdict, end
        more, pos = next_member(data, pos, end)
        if pos < 0:
            return SLOW, end
    return DONE, pos


@inner(PAIR(BYTES, INT, OUT, INTS, INTS, INTS, INTS, INT, INT, INT), inline=False)
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
    index = index_01(data, name, length, 0)
    if index < 0 or byte_at(data, pos) != _QUOTE:
        return SLOW, end
    escaped, behind = string_end(data, pos + 1, end)
    if behind < 0 or escaped:
        return SLOW, end
    size = behind - pos - 2
    return take_01(data, pool, code, memory, state, work, index, name, length, pos + 1, size), behind


@inner(PAIR(BYTES, INT, BYTES, INTS, INTS, INTS, INTS, INT), inline=False)
def _data(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    work: IntArray,
    trie: IntArray,
    found: IntArray,
    stack: IntArray,
    pos: int,
) -> tuple[int, int]:
    """Take the data that begins at pos; give DONE or SLOW and the position behind it."""
    behind = value_end(data, pos, end, trie, pool, found, stack, 0, 1)
    if behind < 0 or work[W_DATA_SIZE] >= 0:
        return SLOW, end
    work[W_DATA] = pos
    work[W_DATA_SIZE] = behind - pos
    return DONE, behind


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INTS, INTS), inline=False)
def read_envelope_01(
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
    begin_01(code, work)
    work[W_DATA_SIZE] = -1
    end = work[F_VALUE] + work[F_VALUE_SIZE]
    if not is_utf8(data, work[F_VALUE], end):
        return SLOW
    pos = skip_space(data, work[F_VALUE], end)
    if pos >= end or byte_at(data, pos) != 0x7B:
        return SLOW
    more, extended = 1, 0
    pos = skip_space(data, pos + 1, end)
    while more:
        name = pos + 1
        length, pos = read_name(data, pos, end)
        if pos < 0:
            return SLOW
        verdict = DONE
        if is_text(data, name, length, _DATA_NAME):
            verdict, pos = _data(data, end, pool, work, trie, found, stack, pos)
        elif not extended and is_text(data, name, length, _EXTENSIONS):
            extended = 1
            verdict, pos = _extensions(data, end, pool, code, memory, state, work, pos)
        else:
            verdict, pos = _attribute(data, end, pool, code, memory, state, work, name, length, pos)
        if verdict != DONE:
            return verdict
        more, pos = next_member(data, pos, end)
        if pos < 0:
            return SLOW
    return concluded(work) if skip_space(data, pos, end) == end else SLOW
