"""The record that leaves in Pulsar's profile 0.1: its size, its properties, the members of its JSON.

Names and values of properties are those of spec 002 3.1.2; an attribute that 0.1 does not define is an
extension, `subject` included. What would need more than its text is left to others: texts that begin like
JSON, and extensions that stand for an attribute of 0.1 or for the names of others.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import base64_size
from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.sizes import (
    DATA,
    JSON,
    foreign_size,
    header_size,
    measure_binary,
    measure_structured,
    written,
)
from penstock.wire.kernels.routing.texts import copy_text, escape_into, escaped_size, text_byte
from penstock.wire.kernels.varint import write_varint
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
    A_SPECVERSION,
    A_SUBJECT,
    DATA_BASE64,
    DATA_IS_JSON_VALUE,
    DATA_JSON,
    DATA_TEXT,
    DONE,
    J_TEXT,
    N_ESCAPES,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_STYLE,
    N_TEXT,
    SLOW,
    STYLE_RAW,
    VALUES_JSON,
    VALUES_RAW,
    W_DATA,
    W_DATA_SIZE,
    W_DATA_STYLE,
    W_FOREIGN,
    W_FORM,
    W_HEADER_COUNT,
    W_HEADERS_SIZE,
    W_MEDIA,
    W_VALUE_BYTES,
    W_WRITTEN,
)

__all__ = ["is_bare", "measure_as", "write_members_01", "write_properties_01"]

_MEMBERS = (
    *("cloudEventsVersion", "eventID", "source", "eventType", "", "eventTime", "contentType", "schemaURL"),
    "eventTypeVersion",
)
"""The names of 0.1: those of the attributes of core in their order, then one that 1.0 does not have."""
_NAMES = np.frombuffer("".join(_MEMBERS).encode(), np.uint8)
_SIZES = np.array([len(name) for name in _MEMBERS], np.int64)
_STARTS = np.cumsum(_SIZES) - _SIZES
_PREFIX = np.frombuffer(b"CE-", np.uint8)
_EXTENSION_PREFIX = np.frombuffer(b"CE-X-", np.uint8)
_MARKER = np.frombuffer(b"\x1cCE-ContentType\x56application/cloudevents+json; charset=utf-8", np.uint8)
"""The property of structured mode, with its lengths (A6)."""
_VERSION = np.frombuffer(b"0.1", np.uint8)
_EXTENSIONS = np.frombuffer(b',"extensions":{', np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)

# Extensions of 1.0 that stand for something else in 0.1.
_EVENTTYPEVERSION = np.frombuffer(b"eventtypeversion", np.uint8)
_SCHEMAURL = np.frombuffer(b"schemaurl", np.uint8)
_EXTENSIONNAMES = np.frombuffer(b"extensionnames", np.uint8)
_ATTRIBUTENAMES = np.frombuffer(b"attributenames", np.uint8)

_TYPE_VERSION = A_CORE
"""The place of eventTypeVersion among the names of 0.1."""
_EXTENSION = -1
_UNCERTAIN = -2
_QUOTE = 0x22
_MAX_DIGITS = 10
_MAX_INTEGER = (1 << 31) - 1


# What an attribute becomes


@inner(INT(BYTES, BYTES, INT, INT, BYTES))
def _is_named(data: ByteArray, pool: ByteArray, name: int, size: int, wanted: ByteArray) -> int:
    return is_text(data, name, size, wanted) if name >= 0 else is_text(pool, ~name, size, wanted)


@inner(INT(BYTES, BYTES, INTS, INT, INT), inline=False)
def _role(data: ByteArray, pool: ByteArray, work: IntArray, i: int, row: int) -> int:
    """Give the place among the names of 0.1 of attribute i that leaves, _EXTENSION or _UNCERTAIN."""
    if i < A_CORE:
        return _EXTENSION if i == A_SUBJECT else i
    name, size = work[row + N_NAME], work[row + N_NAME_SIZE]
    if _is_named(data, pool, name, size, _EVENTTYPEVERSION):
        return _TYPE_VERSION
    if _is_named(data, pool, name, size, _SCHEMAURL):
        return _UNCERTAIN
    if _is_named(data, pool, name, size, _EXTENSIONNAMES) or _is_named(
        data, pool, name, size, _ATTRIBUTENAMES
    ):
        return _UNCERTAIN
    return _EXTENSION


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def is_bare(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    """Say 1 for a text that reads as an Integer or a Boolean (core, Type System) where it has no quotes."""
    if _is_named(data, pool, text, size, _TRUE) or _is_named(data, pool, text, size, _FALSE):
        return 1
    negative = int(size > 0 and text_byte(data, pool, text, 0) == 0x2D)
    digits = size - negative
    if digits < 1 or digits > _MAX_DIGITS:
        return 0
    number = 0
    for i in range(negative, size):
        found = text_byte(data, pool, text, i)
        if found < 0x30 or found > 0x39 or (i == negative and found == 0x30 and digits > 1):
            return 0
        number = number * 10 + found - 0x30
    return int(number <= _MAX_INTEGER + negative)


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT), inline=False)
def _quotes(data: ByteArray, pool: ByteArray, work: IntArray, row: int, role: int, form: int) -> int:
    """Say whether the text of an attribute stands in quotes: 1, 0, or _UNCERTAIN (A4)."""
    if form == VALUES_RAW or (role == _EXTENSION and work[row + N_STYLE] == STYLE_RAW):
        return 0
    text, size = work[row + N_TEXT], work[row + N_SIZE]
    first = text_byte(data, pool, text, 0) if size > 0 else 0
    if form == VALUES_JSON:
        return _UNCERTAIN if role == _EXTENSION and first in (0x7B, 0x5B) else 1
    if first == _QUOTE:
        return _UNCERTAIN
    return is_bare(data, pool, text, size) if role == _EXTENSION else 0


# Sizes


@inner(INT(BYTES, BYTES, INTS, INT))
def _measure_properties(data: ByteArray, pool: ByteArray, work: IntArray, form: int) -> int:
    size = foreign_size(work)
    count = work[W_FOREIGN]
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = _role(data, pool, work, i, row)
        quotes = _quotes(data, pool, work, row, role, form)
        if role == _UNCERTAIN or quotes == _UNCERTAIN:
            return SLOW
        name = len(_PREFIX) + _SIZES[role] if role >= 0 else len(_EXTENSION_PREFIX) + work[row + N_NAME_SIZE]
        size += header_size(name, work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES]))
        count += 1
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        name = len(_PREFIX) + _SIZES[A_DATACONTENTTYPE]
        size += header_size(name, len(JSON) + 2 * int(form == VALUES_JSON))
        count += 1
    work[W_HEADERS_SIZE] = size
    work[W_HEADER_COUNT] = count
    return DONE


@inner(INT(BYTES, BYTES, INTS))
def _measure_members(data: ByteArray, pool: ByteArray, work: IntArray) -> int:
    size, typed, extensions = 1, 0, 0
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = _role(data, pool, work, i, row)
        quotes = _quotes(data, pool, work, row, role, VALUES_JSON)
        if role == _UNCERTAIN or quotes == _UNCERTAIN:
            return SLOW
        typed |= int(role == A_DATACONTENTTYPE)
        extensions += int(role == _EXTENSION)
        name = _SIZES[role] if role >= 0 else work[row + N_NAME_SIZE]
        size += 4 + name + work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES])  # ,"":
    # Between braces there is a comma less than names.
    size += len(_EXTENSIONS) if extensions else 0
    style = work[W_DATA_STYLE]
    if style == DATA_JSON:
        size += len(DATA) + work[W_DATA_SIZE]
        # JSON format 3.1.2: an implied application/json is made explicit.
        size += 0 if typed else 6 + _SIZES[A_DATACONTENTTYPE] + len(JSON)
    elif style == DATA_TEXT:
        size += len(DATA) + 2 + escaped_size(data, pool, work[W_DATA], work[W_DATA_SIZE])
    elif style == DATA_BASE64:
        # Without a type a reader would take it as JSON; a text that is none in its charset is an error.
        if not typed or work[W_MEDIA] & J_TEXT:
            return SLOW
        size += len(DATA) + 2 + base64_size(work[W_DATA_SIZE])
    work[W_VALUE_BYTES] = size
    work[W_HEADERS_SIZE] = foreign_size(work) + len(_MARKER)
    work[W_HEADER_COUNT] = work[W_FOREIGN] + 1
    return DONE


@inner(INT(BYTES, BYTES, INTS, INT), inline=False)
def measure_as(data: ByteArray, pool: ByteArray, work: IntArray, form: int) -> int:
    """Note the size of a record that was measured before, in another form: DONE or SLOW."""
    work[W_FORM] = form
    structured = work[W_DATA_STYLE] >= 0
    if form:
        if structured:
            return _measure_members(data, pool, work)
        return _measure_properties(data, pool, work, form)
    if structured:
        measure_structured(data, pool, work, work[W_DATA_STYLE])
    else:
        measure_binary(work, int(work[W_DATA_STYLE] == DATA_IS_JSON_VALUE))
    return DONE


# Bytes


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
        out[at] = _QUOTE
        at += 1
    text, size = work[row + N_TEXT], work[row + N_SIZE]
    if role == A_SPECVERSION:
        at = copy(_VERSION, 0, out, at, len(_VERSION))
    elif quotes and work[row + N_ESCAPES] > 0:
        at = escape_into(data, pool, text, size, out, at)
    else:
        at = copy_text(data, pool, text, size, out, at)
    if quotes:
        out[at] = _QUOTE
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
    at = write_varint(out, at, len(_PREFIX) + _SIZES[role])
    at = copy(_PREFIX, 0, out, at, len(_PREFIX))
    behind = copy(_NAMES, _STARTS[role], out, at, _SIZES[role])
    _capitalise(out, at)
    return behind


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT))
def _extension_name(
    data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int
) -> int:
    """Write the name of the property of an extension behind its length."""
    at = write_varint(out, at, len(_EXTENSION_PREFIX) + work[row + N_NAME_SIZE])
    at = copy(_EXTENSION_PREFIX, 0, out, at, len(_EXTENSION_PREFIX))
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
        role = _role(data, pool, work, i, row)
        if extensions != int(role == _EXTENSION):
            continue
        quotes = _quotes(data, pool, work, row, role, form)
        at = _property_name(role, out, at) if role >= 0 else _extension_name(data, pool, work, row, out, at)
        at = write_varint(out, at, work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES]))
        at = _write_text(data, pool, work, row, role, quotes, out, at)
    return at


@inner(INT(BYTES, BYTES, INTS, OUT, INT), inline=False)
def write_properties_01(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the headers that are not the application's; give the position behind them."""
    if work[W_DATA_STYLE] >= 0:
        return copy(_MARKER, 0, out, at, len(_MARKER))
    at = _write_properties(data, pool, work, 0, out, at)
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        quotes = int(work[W_FORM] == VALUES_JSON)
        at = _property_name(A_DATACONTENTTYPE, out, at)
        at = write_varint(out, at, len(JSON) + 2 * quotes)
        out[at] = _QUOTE  # written over where there are no quotes
        at = copy(JSON, 0, out, at + quotes, len(JSON))
        if quotes:
            out[at] = _QUOTE
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
        role = _role(data, pool, work, i, row)
        if extensions != int(role == _EXTENSION):
            continue
        out[at] = 0x2C
        out[at + 1] = _QUOTE
        if role >= 0:
            at = copy(_NAMES, _STARTS[role], out, at + 2, _SIZES[role])
        else:
            at = copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at + 2)
        out[at] = _QUOTE
        out[at + 1] = 0x3A
        quotes = _quotes(data, pool, work, row, role, VALUES_JSON)
        at = _write_text(data, pool, work, row, role, quotes, out, at + 2)
    return at


@inner(INT(INTS))
def _is_typed(work: IntArray) -> int:
    return int(work[written(work, A_DATACONTENTTYPE) + N_SIZE] >= 0)


@inner(INT(BYTES, BYTES, INTS, OUT, INT), inline=False)
def write_members_01(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the attributes of a structured event as members of an object; give the position behind them."""
    start = at
    at = _write_members(data, pool, work, 0, out, at)
    if work[W_DATA_STYLE] == DATA_JSON and not _is_typed(work):
        out[at] = 0x2C
        out[at + 1] = _QUOTE
        at = copy(_NAMES, _STARTS[A_DATACONTENTTYPE], out, at + 2, _SIZES[A_DATACONTENTTYPE])
        out[at] = _QUOTE
        out[at + 1] = 0x3A
        out[at + 2] = _QUOTE
        at = copy(JSON, 0, out, at + 3, len(JSON))
        out[at] = _QUOTE
        at += 1
    out[start] = 0x7B
    begin = at + len(_EXTENSIONS) - 1
    behind = _write_members(data, pool, work, 1, out, begin)
    if behind > begin:
        # The brace stands where the first of them has its comma.
        copy(_EXTENSIONS, 0, out, at, len(_EXTENSIONS))
        out[behind] = 0x7D
        at = behind + 1
    return at
