"""The bytes of the record that leaves in Pulsar's profile 0.1: its properties, the members of its JSON.

Apart from `emission`, so that the code of other records stays small: only a target of this profile calls it.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import encode_base64
from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.placement import (
    finish,
    fits,
    record_limit,
    record_rest,
    take_slot,
    write_foreign,
    write_start,
)
from penstock.wire.kernels.routing.sizes import (
    DATA,
    JSON,
    written,
)
from penstock.wire.kernels.routing.sizes_01 import (
    EXTENSION,
    EXTENSION_PREFIX,
    EXTENSIONS_01,
    MARKER_01,
    NAMES_01,
    PROPERTY_PREFIX,
    QUOTE,
    SIZES_01,
    STARTS_01,
    measure_members_01,
    measure_properties_01,
    quotes_of,
    role_of,
)
from penstock.wire.kernels.routing.texts import copy_text, escape_into
from penstock.wire.kernels.varint import write_varint
from penstock.wire.routing_layout import (
    A_DATACONTENTTYPE,
    A_SPECVERSION,
    DATA_IS_JSON_VALUE,
    DATA_JSON,
    DATA_NONE,
    DATA_TEXT,
    DONE,
    FULL,
    N_ESCAPES,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_TEXT,
    SLOW,
    T_NUMBER,
    T_VALUES,
    VALUES_JSON,
    W_DATA,
    W_DATA_SIZE,
    W_DATA_STYLE,
    W_FORM,
    W_HEADER_COUNT,
    W_HEADERS_SIZE,
    W_VALUE_BYTES,
    W_WRITTEN,
    X_DRY,
)

__all__ = ["emit_01"]

_VERSION = np.frombuffer(b"0.1", np.uint8)


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT, OUT, INT), inline=False)
def _write_text(
    data: ByteArray,
    pool: ByteArray,
    work: IntArray,
    row: int,
    role: int,
    quotes: int,
    out: ByteArray,
    at: int,
) -> int:
    """Write the text of an attribute, in quotes or bare; give the position behind it."""
    if quotes:
        out[at] = QUOTE
        at += 1
    text, size = work[row + N_TEXT], work[row + N_SIZE]
    if role == A_SPECVERSION:
        at = copy(_VERSION, 0, out, at, len(_VERSION))
    elif quotes and work[row + N_ESCAPES] > 0:
        at = escape_into(data, pool, text, size, out, at)
    else:
        at = copy_text(data, pool, text, size, out, at)
    if quotes:
        out[at] = QUOTE
        at += 1
    return at


@inner(INT(OUT, INT))
def _capitalise(out: ByteArray, at: int) -> int:
    """Let the name at a position begin with a capital letter (A1)."""
    if 0x61 <= out[at] <= 0x7A:
        out[at] -= 0x20
    return at


@inner(INT(INT, OUT, INT), inline=False)
def _property_name(role: int, out: ByteArray, at: int) -> int:
    """Write the name of an attribute of 0.1 behind its length."""
    at = write_varint(out, at, len(PROPERTY_PREFIX) + SIZES_01[role])
    at = copy(PROPERTY_PREFIX, 0, out, at, len(PROPERTY_PREFIX))
    behind = copy(NAMES_01, STARTS_01[role], out, at, SIZES_01[role])
    _capitalise(out, at)
    return behind


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT))
def _extension_name(
    data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int
) -> int:
    """Write the name of the property of an extension behind its length."""
    at = write_varint(out, at, len(EXTENSION_PREFIX) + work[row + N_NAME_SIZE])
    at = copy(EXTENSION_PREFIX, 0, out, at, len(EXTENSION_PREFIX))
    behind = copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at)
    _capitalise(out, at)
    return behind


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT))
def _write_properties(
    data: ByteArray, pool: ByteArray, work: IntArray, extensions: int, out: ByteArray, at: int
) -> int:
    """Write the attributes of 0.1 or, with 1, the extensions."""
    form = work[W_FORM]
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = role_of(data, pool, work, i, row)
        if extensions != int(role == EXTENSION):
            continue
        quotes = quotes_of(data, pool, work, row, role, form)
        at = _property_name(role, out, at) if role >= 0 else _extension_name(data, pool, work, row, out, at)
        at = write_varint(out, at, work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES]))
        at = _write_text(data, pool, work, row, role, quotes, out, at)
    return at


@inner(INT(BYTES, BYTES, INTS, OUT, INT))
def _write_headers(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the headers that are not the application's; give the position behind them."""
    if work[W_DATA_STYLE] >= 0:
        return copy(MARKER_01, 0, out, at, len(MARKER_01))
    at = _write_properties(data, pool, work, 0, out, at)
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        quotes = int(work[W_FORM] == VALUES_JSON)
        at = _property_name(A_DATACONTENTTYPE, out, at)
        at = write_varint(out, at, len(JSON) + 2 * quotes)
        out[at] = QUOTE  # written over where there are no quotes
        at = copy(JSON, 0, out, at + quotes, len(JSON))
        if quotes:
            out[at] = QUOTE
            at += 1
    return _write_properties(data, pool, work, 1, out, at)


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT))
def _write_members(
    data: ByteArray, pool: ByteArray, work: IntArray, extensions: int, out: ByteArray, at: int
) -> int:
    """Write the attributes of 0.1 or, with 1, the extensions; each has a comma before it."""
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = role_of(data, pool, work, i, row)
        if extensions != int(role == EXTENSION):
            continue
        out[at] = 0x2C
        out[at + 1] = QUOTE
        if role >= 0:
            at = copy(NAMES_01, STARTS_01[role], out, at + 2, SIZES_01[role])
        else:
            at = copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at + 2)
        out[at] = QUOTE
        out[at + 1] = 0x3A
        quotes = quotes_of(data, pool, work, row, role, VALUES_JSON)
        at = _write_text(data, pool, work, row, role, quotes, out, at + 2)
    return at


@inner(INT(INTS))
def _is_typed(work: IntArray) -> int:
    return int(work[written(work, A_DATACONTENTTYPE) + N_SIZE] >= 0)


@inner(INT(BYTES, BYTES, INTS, OUT, INT))
def _write_object(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the attributes of a structured event as members of an object; give the position behind them."""
    start = at
    at = _write_members(data, pool, work, 0, out, at)
    if work[W_DATA_STYLE] == DATA_JSON and not _is_typed(work):
        out[at] = 0x2C
        out[at + 1] = QUOTE
        at = copy(NAMES_01, STARTS_01[A_DATACONTENTTYPE], out, at + 2, SIZES_01[A_DATACONTENTTYPE])
        out[at] = QUOTE
        out[at + 1] = 0x3A
        out[at + 2] = QUOTE
        at = copy(JSON, 0, out, at + 3, len(JSON))
        out[at] = QUOTE
        at += 1
    out[start] = 0x7B
    begin = at + len(EXTENSIONS_01) - 1
    behind = _write_members(data, pool, work, 1, out, begin)
    if behind > begin:
        # The brace stands where the first of them has its comma.
        copy(EXTENSIONS_01, 0, out, at, len(EXTENSIONS_01))
        out[behind] = 0x7D
        at = behind + 1
    return at


@inner(INT(BYTES, BYTES, INTS, OUT, INT))
def _write_data(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the data of a structured event, and the end of the object."""
    style, start, size = work[W_DATA_STYLE], work[W_DATA], work[W_DATA_SIZE]
    if style != DATA_NONE:
        at = copy(DATA, 0, out, at, len(DATA))
    if style == DATA_JSON:
        at = copy(data, start, out, at, size)
    elif style != DATA_NONE:
        out[at] = QUOTE
        if style == DATA_TEXT:
            at = escape_into(data, pool, start, size, out, at + 1)
        else:
            at = encode_base64(data, start, start + size, out, at + 1)
        out[at] = QUOTE
        at += 1
    out[at] = 0x7D
    return at + 1


@inner(INT(BYTES, BYTES, INTS, INTS, OUT, INTS, INT))
def _place_01(
    data: ByteArray,
    pool: ByteArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    target: int,
) -> int:
    """Write the measured record: DONE or FULL."""
    rest = record_rest(work)
    slot = take_slot(data, pool, work, state, box, target, rest)
    if slot < 0:
        return FULL
    at = write_start(data, pool, work, out, box, slot, rest)
    if work[W_DATA_STYLE] >= 0:
        at = _write_object(data, pool, work, out, at)
        at = _write_data(data, pool, work, out, at)
    elif work[W_DATA_SIZE] > 0:
        at = copy(data, work[W_DATA], out, at, work[W_DATA_SIZE])
    at = write_varint(out, at, work[W_HEADER_COUNT])
    at = _write_headers(data, pool, work, out, at)
    finish(box, slot, write_foreign(data, work, out, at))
    return DONE


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, OUT, INTS, INT), inline=False)
def emit_01(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    at: int,
) -> int:
    """Write the record at hand to the target at code[at]: DONE, FULL or SLOW.

    It was measured for the other targets of its route, which find their sizes again.
    """
    value, size, count = work[W_VALUE_BYTES], work[W_HEADERS_SIZE], work[W_HEADER_COUNT]
    work[W_FORM] = code[at + T_VALUES]
    if work[W_DATA_STYLE] >= 0:
        verdict = measure_members_01(data, pool, work)
    else:
        verdict = measure_properties_01(data, pool, work, work[W_FORM])
    if verdict == DONE and not fits(data, code, work, box, at, record_rest(work), record_limit(work)):
        verdict = SLOW
    if verdict == DONE and not state[X_DRY]:
        verdict = _place_01(data, pool, work, state, out, box, code[at + T_NUMBER])
    work[W_VALUE_BYTES] = value
    work[W_HEADERS_SIZE] = size
    work[W_HEADER_COUNT] = count
    return verdict
