"""The attributes of the record at hand: judged one by one, extensions kept in the order of their names."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, ByteArray, IntArray, inner, part
from penstock.wire.kernels.routing.grammar import is_common_reference, is_common_time
from penstock.wire.kernels.routing.memory import UNKNOWN, recall
from penstock.wire.kernels.routing.texts import compare, judge, text_byte
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import equal
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
    A_DATASCHEMA,
    A_ID,
    A_SOURCE,
    A_SPECVERSION,
    A_TIME,
    A_TYPE,
    ASK,
    CORE_NAMES,
    DONE,
    J_LEGAL,
    K_MEDIA_TYPE,
    K_SCHEMA,
    K_SOURCE,
    MAX_EXTENSIONS,
    N_ATTRIBUTE,
    N_ESCAPES,
    N_HEAD,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_STYLE,
    N_TEXT,
    SLOW,
    W_CORE_AT,
    W_EXTENSIONS,
    W_EXTENSIONS_AT,
    W_MEDIA,
    W_SHAPE,
)

__all__ = [
    "add_extension",
    "clear",
    "core_index",
    "find_extension",
    "has_grammar",
    "has_required",
    "is_text",
    "judged_text",
    "set_core",
    "set_text",
]

_STARTS = np.array([0, 12, 15, 22, 27, 35, 40, 56], np.int64)
_SIZES = np.array([11, 2, 6, 4, 7, 4, 15, 10], np.int64)
"""Where the names stand in CORE_NAMES."""
_CORE_NAMES = np.frombuffer(CORE_NAMES, np.uint8)
_EXPIRYTIME = np.frombuffer(b"expirytime", np.uint8)
_PARTITIONKEY = np.frombuffer(b"partitionkey", np.uint8)
_DATA = np.frombuffer(b"data", np.uint8)
_VERSION = np.frombuffer(b"1.0", np.uint8)


@inner(INT(INTS))
def clear(work: IntArray) -> int:
    """Forget the attributes of the record before, and what its headers were."""
    for i in range(A_CORE):
        work[W_CORE_AT + i * N_ATTRIBUTE + N_SIZE] = -1
    work[W_EXTENSIONS] = 0
    work[W_SHAPE] = 0
    return 0


@part(INT(BYTES, INT, INT, BYTES))
def is_text(data: ByteArray, pos: int, size: int, wanted: ByteArray) -> int:
    """Say 1 if data[pos:pos+size] is the text that is wanted."""
    return int(size == len(wanted) and equal(data, pos, wanted, 0, size) != 0)


@inner(INT(BYTES, INT, INT), inline=False)
def core_index(data: ByteArray, name: int, size: int) -> int:
    """Give the number of an attribute of core; -1 if it is none."""
    for i in range(A_CORE):
        if _SIZES[i] == size and equal(data, name, _CORE_NAMES, _STARTS[i], size):
            return i
    return -1


@inner(INT(INT))
def has_grammar(index: int) -> int:
    """Say 1 if the text of an attribute of core is more than a String."""
    return int(index in (A_SPECVERSION, A_TIME, A_SOURCE, A_DATACONTENTTYPE, A_DATASCHEMA))


@part(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT, INT))
def _grammar(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    index: int,
    text: int,
    size: int,
) -> int:
    """Judge a text that has a grammar; give its verdict, 0 if it is not certain, or UNKNOWN."""
    if index == A_SPECVERSION:
        # core, specversion: 1.0 is the one that is read here.
        return is_text(data, text, size, _VERSION)
    if index == A_TIME:
        return is_common_time(data, text, text + size)
    if index == A_SOURCE and text >= 0 and is_common_reference(data, text, text + size):
        return J_LEGAL
    kind = K_SOURCE if index == A_SOURCE else K_SCHEMA if index == A_DATASCHEMA else K_MEDIA_TYPE
    return recall(data, pool, code, memory, state, kind, text, size)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT, INT))
def certain_text(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    index: int,
    text: int,
    size: int,
) -> int:
    """Give the verdict on the text of an attribute of core; 0 if it is not certain, UNKNOWN to ask."""
    # core: each "MUST be a non-empty string".
    if size <= 0:
        return 0
    if has_grammar(index):
        return _grammar(data, pool, code, memory, state, index, text, size)
    return J_LEGAL


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT, INT), inline=False)
def judged_text(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    index: int,
    text: int,
    size: int,
) -> int:
    """Do what `certain_text` does, apart from its caller."""
    return certain_text(data, pool, code, memory, state, index, text, size)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT), inline=False)
def set_core(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    index: int,
    text: int,
    size: int,
) -> int:
    """Take an attribute of core; SLOW if it is there twice or not certainly legal, ASK to have it judged."""
    if work[W_CORE_AT + index * N_ATTRIBUTE + N_SIZE] >= 0:
        return SLOW
    return set_text(data, pool, code, memory, state, work, index, text, size)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT))
def set_text(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    index: int,
    text: int,
    size: int,
) -> int:
    """Give an attribute of core its text; SLOW if it is not certainly legal, ASK to have it judged."""
    escapes = judge(data, pool, text, max(size, 0))
    if escapes < 0:
        return SLOW
    verdict = certain_text(data, pool, code, memory, state, index, text, size)
    if verdict == UNKNOWN:
        return ASK
    if verdict < 0 or not verdict & J_LEGAL:
        return SLOW
    if index == A_DATACONTENTTYPE:
        work[W_MEDIA] = verdict
    at = W_CORE_AT + index * N_ATTRIBUTE
    work[at + N_TEXT] = text
    work[at + N_SIZE] = size
    work[at + N_ESCAPES] = escapes
    return DONE


@inner(INT(BYTES, INT, INT))
def _is_name(data: ByteArray, name: int, size: int) -> int:
    """Say 1 for a legal name of an extension (core, Naming) that needs no special care."""
    for i in range(name, name + size):
        found = byte_at(data, i)
        if not (0x61 <= found <= 0x7A or 0x30 <= found <= 0x39):
            return 0
    return int(size > 0)


@inner(INT(BYTES, INT, INT, INT), inline=False)
def _may_be(names: ByteArray, name: int, length: int, size: int) -> int:
    """Say 1 for the name of an extension that may have a text of this size."""
    # `data` is no name (core, Naming), and events with an expirytime are counted elsewhere.
    if not _is_name(names, name, length) or is_text(names, name, length, _DATA):
        return 0
    if is_text(names, name, length, _EXPIRYTIME):
        return 0
    return int(size > 0 or not is_text(names, name, length, _PARTITIONKEY))


@part(INT(BYTES, BYTES, INTS, INT, INT))
def find_extension(data: ByteArray, pool: ByteArray, work: IntArray, name: int, size: int) -> int:
    """Give where an extension stands in `work`, or ~ of where it would stand."""
    at = W_EXTENSIONS_AT
    for _ in range(work[W_EXTENSIONS]):
        own = work[at + N_NAME]
        # No name is empty, and most differ in their first letters.
        sign = text_byte(data, pool, name, 0) - text_byte(data, pool, own, 0)
        if sign == 0:
            sign = compare(data, pool, name, size, own, work[at + N_NAME_SIZE])
        if sign == 0:
            return at
        if sign < 0:
            return ~at
        at += N_ATTRIBUTE
    return ~at


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT, INT, INT), inline=False)
def add_extension(
    data: ByteArray, pool: ByteArray, work: IntArray, name: int, length: int, text: int, size: int, style: int
) -> int:
    """Take an extension; SLOW if its name or text is not certainly legal, or it is there twice."""
    if size < 0 or work[W_EXTENSIONS] >= MAX_EXTENSIONS:
        return SLOW
    certain = _may_be(data, name, length, size) if name >= 0 else _may_be(pool, ~name, length, size)
    escapes = judge(data, pool, text, size)
    if escapes < 0 or not certain:
        return SLOW
    found = find_extension(data, pool, work, name, length)
    if found >= 0:
        return SLOW
    at = ~found
    last = W_EXTENSIONS_AT + work[W_EXTENSIONS] * N_ATTRIBUTE
    for i in range(last - 1, at - 1, -1):
        work[i + N_ATTRIBUTE] = work[i]
    work[at + N_NAME] = name
    work[at + N_NAME_SIZE] = length
    work[at + N_TEXT] = text
    work[at + N_SIZE] = size
    work[at + N_ESCAPES] = escapes
    work[at + N_STYLE] = style
    work[at + N_HEAD] = 0
    work[W_EXTENSIONS] += 1
    return DONE


@inner(INT(INTS))
def has_required(work: IntArray) -> int:
    """Say 1 if the attributes are there that every event needs."""
    for index in (A_SPECVERSION, A_ID, A_SOURCE, A_TYPE):
        if work[W_CORE_AT + index * N_ATTRIBUTE + N_SIZE] < 0:
            return 0
    return 1
