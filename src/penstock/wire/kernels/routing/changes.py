"""What a route makes of the attributes: the texts that it sets, what differs then, and the id of the result.

An event is transformed if an attribute other than partitionkey is another: it gets a derived id, the first 32
hexadecimal digits of SHA-256 over netstrings of route, source, id and 0, and causationid names the old one.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, part
from penstock.wire.kernels.routing.attributes import find_extension, has_grammar, is_text, judged_text
from penstock.wire.kernels.routing.memory import UNKNOWN
from penstock.wire.kernels.routing.texts import copy_text, judge, same
from penstock.wire.kernels.routing.values import load
from penstock.wire.kernels.sha256 import SHA_ROOM, sha256_hex
from penstock.wire.routing_layout import (
    A_CORE,
    A_ID,
    A_SOURCE,
    A_SPECVERSION,
    A_TIME,
    A_TYPE,
    ASK,
    CAUSE,
    DONE,
    G_CHANGE,
    G_CORE,
    G_HEAD,
    G_NAME,
    G_NAME_SIZE,
    G_NULL_KEEPS,
    G_RENAMED,
    G_VALUE,
    J_LEGAL,
    N_ATTRIBUTE,
    N_ESCAPES,
    N_HEAD,
    N_NAME,
    N_NAME_SIZE,
    N_PLACE,
    N_SIZE,
    N_STYLE,
    N_TEXT,
    P_CONSTANT,
    P_EXTENSION,
    P_PART,
    PASSED,
    R_CAUSE,
    R_CHANGE_COUNT,
    R_CHANGES,
    R_NAME,
    R_NAME_SIZE,
    SLOW,
    STYLE_TEXT,
    UNSURE,
    W_CHANGES_AT,
    W_CORE_AT,
    W_EXTENSIONS,
    W_EXTENSIONS_AT,
    W_SCRATCH,
    W_SHA_AT,
    W_TRANSFORMED,
    W_WRITTEN,
    W_WRITTEN_AT,
)

__all__ = ["change", "value_of"]

_PARTITIONKEY = np.frombuffer(b"partitionkey", np.uint8)
_ID_LENGTH = 32
_ID_ROOM = 128
"""Bytes of a derived id's message beside source and id: numbers, signs and padding."""


@part(INT(BYTES, OUT, INTS, INTS, INTS, INT, INT))
def value_of(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int, to: int
) -> int:
    """Put the text of the value at code[at] at work[to], null if a part is; UNSURE if it is not certain."""
    parts = code[at]
    start = work[W_SCRATCH]
    end = start
    for i in range(parts):
        part = at + 1 + i * P_PART
        if load(data, pool, work, found, code[part], code[part + 1], code[part + 2], to) == UNSURE:
            return UNSURE
        if parts == 1 or work[to + 1] < 0:
            return DONE
        if end + work[to + 1] > len(pool):
            return UNSURE
        if work[to] != ~end:  # else it was written there
            copy_text(data, pool, work[to], work[to + 1], pool, end)
        end += work[to + 1]
        work[W_SCRATCH] = end
    work[to] = ~start
    work[to + 1] = end - start
    return DONE


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT))
def _is_certain(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    row: int,
    index: int,
    at: int,
) -> int:
    """Say whether an attribute may have the text at work[at]: DONE, SLOW or ASK."""
    text, size = work[at + N_TEXT], work[at + N_SIZE]
    if size < 0:
        return SLOW if index in (A_SPECVERSION, A_ID, A_SOURCE, A_TYPE) else DONE
    work[at + N_ESCAPES] = judge(data, pool, text, size)
    if work[at + N_ESCAPES] < 0:
        return SLOW
    if index < 0:
        empty = size == 0 and is_text(pool, code[row + G_NAME], code[row + G_NAME_SIZE], _PARTITIONKEY)
        return SLOW if empty else DONE
    value = code[row + G_VALUE]
    if code[value] == 1 and code[value + 1] == P_CONSTANT:
        return DONE  # the plan was checked
    if index == A_TIME and text < 0:
        return DONE  # a moment that was written here
    if size > 0 and not has_grammar(index):
        return DONE
    verdict = judged_text(data, pool, code, memory, state, index, text, size)
    if verdict == UNKNOWN:
        return ASK
    return DONE if verdict > 0 and verdict & J_LEGAL else SLOW


@part(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INT, INT, INT, INT))
def _changed(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    found: IntArray,
    row: int,
    index: int,
    old: int,
    at: int,
) -> int:
    """Work out the text of a change at work[at]: DONE, PASSED if it is that at work[old], SLOW or ASK."""
    if value_of(data, pool, code, work, found, code[row + G_VALUE], at + N_TEXT) == UNSURE:
        return SLOW
    if work[at + N_SIZE] < 0 and code[row + G_NULL_KEEPS]:
        return PASSED
    present = work[old + N_SIZE] if old >= 0 else -1
    before = work[old + N_TEXT] if old >= 0 else 0
    if same(data, pool, work[at + N_TEXT], work[at + N_SIZE], before, present):
        return PASSED
    if index >= 0 or not is_text(pool, code[row + G_NAME], code[row + G_NAME_SIZE], _PARTITIONKEY):
        work[W_TRANSFORMED] = 1
    return _is_certain(data, pool, code, memory, state, work, row, index, at)


@inner(INT(OUT, INT, INT))
def _write_number(pool: ByteArray, at: int, number: int) -> int:
    """Write a number in decimal digits; give the position behind it."""
    digits = 1
    rest = number // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for i in range(digits - 1, -1, -1):
        pool[at + i] = 0x30 + number % 10
        number //= 10
    return at + digits


@inner(INT(BYTES, OUT, INTS, INT, INT))
def _netstring(data: ByteArray, pool: ByteArray, work: IntArray, attribute: int, at: int) -> int:
    text = work[W_CORE_AT + attribute * N_ATTRIBUTE + N_TEXT]
    size = work[W_CORE_AT + attribute * N_ATTRIBUTE + N_SIZE]
    at = _write_number(pool, at, size)
    pool[at] = 0x3A
    at = copy_text(data, pool, text, size, pool, at + 1)
    pool[at] = 0x2C
    return at + 1


@part(INT(BYTES, OUT, INTS, INTS, INT, INT))
def _derive(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, route: int, to: int) -> int:
    """Put the derived id at work[to]; SLOW if there is no room for its message."""
    start = work[W_SCRATCH] + _ID_LENGTH
    size = code[route + R_NAME_SIZE] + work[W_CORE_AT + A_ID * N_ATTRIBUTE + N_SIZE]
    size += work[W_CORE_AT + A_SOURCE * N_ATTRIBUTE + N_SIZE]
    if start + size + _ID_ROOM + SHA_ROOM > len(pool):
        return SLOW
    at = copy(pool, code[route + R_NAME], pool, start, code[route + R_NAME_SIZE])
    at = _netstring(data, pool, work, A_SOURCE, at)
    at = _netstring(data, pool, work, A_ID, at)
    for letter in (0x31, 0x3A, 0x30, 0x2C):  # the ordinal: 1:0,
        pool[at] = letter
        at += 1
    sha256_hex(pool, start, at, work, W_SHA_AT, work[W_SCRATCH], _ID_LENGTH)
    work[to] = ~work[W_SCRATCH]
    work[to + 1] = _ID_LENGTH
    work[W_SCRATCH] += _ID_LENGTH
    return DONE


@inner(INT(BYTES, BYTES, INTS, INTS, INT))
def _style(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, row: int) -> int:
    """Give the style of an extension that a change sets: a renamed one keeps its own, the others are text."""
    value = code[row + G_VALUE]
    if code[row + G_RENAMED] and code[value + 1] == P_EXTENSION:
        at = find_extension(data, pool, work, ~code[value + 2], code[value + 3])
        if at >= 0:
            return int(work[at + N_STYLE])
    return STYLE_TEXT


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INT))
def _work_out(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    found: IntArray,
    route: int,
) -> int:
    """Work out the changes of a route; attributes of core leave as they are, or as it changes them."""
    for i in range(A_CORE):
        work[W_WRITTEN_AT + i] = W_CORE_AT + i * N_ATTRIBUTE
    for i in range(code[route + R_CHANGE_COUNT]):
        row = code[route + R_CHANGES] + i * G_CHANGE
        index = code[row + G_CORE]
        at = W_CHANGES_AT + (index if index >= 0 else A_CORE + i) * N_ATTRIBUTE
        work[at + N_PLACE] = 0
        if code[row + G_VALUE] == CAUSE:
            continue
        old = W_CORE_AT + index * N_ATTRIBUTE
        if index < 0:
            old = find_extension(data, pool, work, ~code[row + G_NAME], code[row + G_NAME_SIZE])
            work[at + N_STYLE] = _style(data, pool, code, work, row)
        verdict = _changed(data, pool, code, memory, state, work, found, row, index, old, at)
        if verdict not in (DONE, PASSED):
            return verdict
        if verdict == DONE:
            work[at + N_PLACE] = old
            if index >= 0:
                work[W_WRITTEN_AT + index] = at
    return DONE


@inner(INT(BYTES, OUT, INTS, INTS, INT))
def _note_transformed(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, route: int) -> int:
    """Give an event that is another one its id, and let causationid name the one that came; DONE or SLOW."""
    own = W_CORE_AT + A_ID * N_ATTRIBUTE
    row = code[route + R_CHANGES] + code[route + R_CAUSE] * G_CHANGE
    at = W_CHANGES_AT + (A_CORE + code[route + R_CAUSE]) * N_ATTRIBUTE
    work[at + N_PLACE] = find_extension(data, pool, work, ~code[row + G_NAME], code[row + G_NAME_SIZE])
    work[at + N_TEXT] = work[own + N_TEXT]
    work[at + N_SIZE] = work[own + N_SIZE]
    work[at + N_ESCAPES] = work[own + N_ESCAPES]
    work[at + N_STYLE] = STYLE_TEXT
    derived = W_CHANGES_AT + A_ID * N_ATTRIBUTE
    work[W_WRITTEN_AT + A_ID] = derived
    work[derived + N_ESCAPES] = 0
    return _derive(data, pool, code, work, route, derived + N_TEXT)


@inner(INT(INTS, INTS, INT))
def _merge_extensions(code: IntArray, work: IntArray, route: int) -> int:
    """Let the extensions of the event and those of the route leave, all in the order of their names."""
    own = W_EXTENSIONS_AT
    last = own + work[W_EXTENSIONS] * N_ATTRIBUTE
    to = W_WRITTEN_AT + A_CORE
    for i in range(code[route + R_CHANGE_COUNT]):
        row = code[route + R_CHANGES] + i * G_CHANGE
        at = W_CHANGES_AT + (A_CORE + i) * N_ATTRIBUTE
        place = work[at + N_PLACE]
        if code[row + G_CORE] >= 0 or place == 0:
            continue
        while own < (place if place > 0 else ~place):
            work[to] = own
            to += 1
            own += N_ATTRIBUTE
        if place > 0:
            own += N_ATTRIBUTE  # the change stands for it
        work[at + N_NAME] = ~code[row + G_NAME]
        work[at + N_NAME_SIZE] = code[row + G_NAME_SIZE]
        work[at + N_HEAD] = code[row + G_HEAD]
        work[to] = at
        to += 1
    while own < last:
        work[to] = own
        to += 1
        own += N_ATTRIBUTE
    work[W_WRITTEN] = to - W_WRITTEN_AT
    return DONE


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INTS, INT))
def change(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    found: IntArray,
    route: int,
) -> int:
    """Work out the attributes that leave on a route, in their order: DONE, SLOW or ASK."""
    work[W_TRANSFORMED] = 0
    verdict = _work_out(data, pool, code, memory, state, work, found, route)
    if verdict == DONE and work[W_TRANSFORMED]:
        verdict = _note_transformed(data, pool, code, work, route)
    if verdict == DONE:
        _merge_extensions(code, work, route)
    return verdict
