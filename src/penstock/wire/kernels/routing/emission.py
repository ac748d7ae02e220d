"""The record that leaves: its key and its bytes."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import encode_base64
from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, part
from penstock.wire.kernels.records import F_KEY, F_KEY_SIZE
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.changes import value_of
from penstock.wire.kernels.routing.emission_01 import emit_01
from penstock.wire.kernels.routing.placement import (
    finish,
    fits,
    record_limit,
    record_rest,
    take_slot,
    write_foreign,
    write_start,
)
from penstock.wire.kernels.routing.sizes import BASE64, CONTENT_TYPE, DATA, JSON, MARKER, PREFIX, written
from penstock.wire.kernels.routing.texts import copy_text, escape_into
from penstock.wire.kernels.varint import write_varint
from penstock.wire.routing_layout import (
    A_CORE,
    DATA_IS_JSON_VALUE,
    DATA_JSON,
    DATA_NONE,
    DATA_TEXT,
    DONE,
    FULL,
    KEY_KEEP,
    KEY_PARTITIONKEY,
    KEY_VALUE,
    N_ESCAPES,
    N_HEAD,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_STYLE,
    N_TEXT,
    R_KEY,
    R_KEY_VALUE,
    R_TARGET_COUNT,
    R_TARGETS,
    SLOW,
    STYLE_MEDIA_TYPE,
    STYLE_RAW,
    T_NUMBER,
    T_TARGET,
    T_VALUES,
    UNSURE,
    W_DATA,
    W_DATA_SIZE,
    W_DATA_STYLE,
    W_HEADER_COUNT,
    W_KEY_TEXT,
    W_KEY_TEXT_SIZE,
    W_WRITTEN,
    X_DRY,
)

__all__ = ["choose_key", "emit"]

_PARTITIONKEY = np.frombuffer(b"partitionkey", np.uint8)
_QUOTE = 0x22


# The key


@inner(INT(BYTES, BYTES, INT, INT))
def _is_partitionkey(data: ByteArray, pool: ByteArray, name: int, size: int) -> int:
    if name >= 0:
        return is_text(data, name, size, _PARTITIONKEY)
    return is_text(pool, ~name, size, _PARTITIONKEY)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT), inline=False)
def _key_value(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, route: int
) -> int:
    verdict = value_of(data, pool, code, work, found, code[route + R_KEY_VALUE], W_KEY_TEXT)
    return SLOW if verdict == UNSURE else DONE


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def choose_key(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, route: int
) -> int:
    """Note the key with which the event leaves; SLOW if it is not certain."""
    rule = code[route + R_KEY]
    work[W_KEY_TEXT] = 0
    work[W_KEY_TEXT_SIZE] = -1
    if rule == KEY_KEEP:
        work[W_KEY_TEXT] = work[F_KEY]
        work[W_KEY_TEXT_SIZE] = work[F_KEY_SIZE]
    elif rule == KEY_VALUE:
        return _key_value(data, pool, code, work, found, route)
    elif rule == KEY_PARTITIONKEY:
        for i in range(A_CORE, work[W_WRITTEN]):
            at = written(work, i)
            if _is_partitionkey(data, pool, work[at + N_NAME], work[at + N_NAME_SIZE]):
                work[W_KEY_TEXT] = work[at + N_TEXT]
                work[W_KEY_TEXT_SIZE] = work[at + N_SIZE]
    return DONE


# The bytes


@part(INT(BYTES, OUT, INT))
def _blob(text: ByteArray, out: ByteArray, at: int) -> int:
    at = write_varint(out, at, len(text))
    return copy(text, 0, out, at, len(text))


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT), inline=False)
def _header_name(data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int) -> int:
    """Write the name of a header that has no head."""
    if work[row + N_STYLE] == STYLE_MEDIA_TYPE:
        return _blob(CONTENT_TYPE, out, at)
    at = write_varint(out, at, len(PREFIX) + work[row + N_NAME_SIZE])
    at = copy(PREFIX, 0, out, at, len(PREFIX))
    return copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at)


@part(INT(BYTES, BYTES, INTS, OUT, INT), boundscheck=False)
def _write_attributes(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the headers of binary mode."""
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        if work[row + N_HEAD] == 0 or work[row + N_STYLE] == STYLE_MEDIA_TYPE:
            at = _header_name(data, pool, work, row, out, at)
        else:
            at = copy(pool, work[row + N_HEAD], out, at, 1 + len(PREFIX) + work[row + N_NAME_SIZE])
        at = write_varint(out, at, work[row + N_SIZE])
        at = copy_text(data, pool, work[row + N_TEXT], work[row + N_SIZE], out, at)
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        at = _blob(CONTENT_TYPE, out, at)
        at = _blob(JSON, out, at)
    return at


@inner(INT(OUT, INT, INT))
def _put(out: ByteArray, at: int, byte: int) -> int:
    if at < 0 or at >= len(out):
        raise IndexError("byte leaves its array")
    out[at] = byte
    return at + 1


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT), inline=False)
def _member_name(data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int) -> int:
    """Write the name of a member that has no head, as far as the quote of its text."""
    out[at] = 0x2C
    out[at + 1] = _QUOTE
    at = copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at + 2)
    out[at] = _QUOTE
    out[at + 1] = 0x3A
    out[at + 2] = _QUOTE
    return at + 3


@part(INT(BYTES, BYTES, INTS, OUT, INT), boundscheck=False)
def _write_members(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the attributes of structured mode as members of an object."""
    start = at
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        size = work[row + N_SIZE]
        if size < 0:
            continue
        head, length = work[row + N_HEAD], work[row + N_NAME_SIZE]
        if head == 0:
            at = _member_name(data, pool, work, row, out, at)
        else:
            at = copy(pool, head + 1 + len(PREFIX) + length, out, at, length + 5)
        raw = int(work[row + N_STYLE] == STYLE_RAW)
        at -= raw
        if work[row + N_ESCAPES] > 0:
            at = escape_into(data, pool, work[row + N_TEXT], size, out, at)
        else:
            at = copy_text(data, pool, work[row + N_TEXT], size, out, at)
        if not raw:
            at = _put(out, at, _QUOTE)
    _put(out, start, 0x7B)
    return at


@inner(INT(BYTES, BYTES, INTS, OUT, INT))
def _write_data(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the data of a structured event, and the end of the object."""
    style, start, size = work[W_DATA_STYLE], work[W_DATA], work[W_DATA_SIZE]
    if style == DATA_JSON:
        at = copy(DATA, 0, out, at, len(DATA))
        at = copy(data, start, out, at, size)
    elif style != DATA_NONE:
        name = DATA if style == DATA_TEXT else BASE64
        at = copy(name, 0, out, at, len(name))
        out[at] = _QUOTE
        if style == DATA_TEXT:
            at = escape_into(data, pool, start, size, out, at + 1)
        else:
            at = encode_base64(data, start, start + size, out, at + 1)
        out[at] = _QUOTE
        at += 1
    out[at] = 0x7D
    return at + 1


@inner(INT(BYTES, BYTES, INTS, INTS, OUT, INTS, INT, INT))
def _place(
    data: ByteArray,
    pool: ByteArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    target: int,
    rest: int,
) -> int:
    """Write the record, of which `rest` bytes do not depend on its place: DONE or FULL."""
    slot = take_slot(data, pool, work, state, box, target, rest)
    if slot < 0:
        return FULL
    at = write_start(data, pool, work, out, box, slot, rest)
    structured = work[W_DATA_STYLE] >= 0
    if structured:
        at = _write_members(data, pool, work, out, at)
        at = _write_data(data, pool, work, out, at)
    elif work[W_DATA_SIZE] > 0:
        at = copy(data, work[W_DATA], out, at, work[W_DATA_SIZE])
    at = write_varint(out, at, work[W_HEADER_COUNT])
    at = copy(MARKER, 0, out, at, len(MARKER)) if structured else _write_attributes(data, pool, work, out, at)
    finish(box, slot, write_foreign(data, work, out, at))
    return DONE


@part(INT(BYTES, BYTES, INTS, INTS, INTS, OUT, INTS, INT))
def emit(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    route: int,
) -> int:
    """Write the measured record to every target of a route: DONE, FULL or SLOW."""
    rest, largest = record_rest(work), record_limit(work)
    for i in range(code[route + R_TARGET_COUNT]):
        at = code[route + R_TARGETS] + i * T_TARGET
        # A null value that is no event leaves as it came.
        if code[at + T_VALUES] and work[W_WRITTEN]:
            verdict = emit_01(data, pool, code, work, state, out, box, at)
            if verdict != DONE:
                return verdict
            continue
        if not fits(data, code, work, box, at, rest, largest):
            return SLOW
        if not state[X_DRY]:
            verdict = _place(data, pool, work, state, out, box, code[at + T_NUMBER], rest)
            if verdict != DONE:
                return verdict
    return DONE
