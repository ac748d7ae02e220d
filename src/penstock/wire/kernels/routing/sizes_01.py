"""The size of the record that leaves in Pulsar's profile 0.1, and how each attribute is said there.

Names and values of properties are those of spec 002 3.1.2; an attribute that 0.1 does not define is an
extension, `subject` included. What would need more than its text is left to others: texts that begin like
JSON, and extensions that stand for an attribute of 0.1 or for the names of others.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import base64_size
from penstock.wire.kernels.jit import BYTES, INT, INTS, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.sizes import (
    DATA,
    JSON,
    foreign_size,
    header_size,
    written,
)
from penstock.wire.kernels.routing.texts import escaped_size, text_byte
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
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
    W_HEADER_COUNT,
    W_HEADERS_SIZE,
    W_MEDIA,
    W_VALUE_BYTES,
    W_WRITTEN,
)

__all__ = [
    "EXTENSION",
    "EXTENSIONS_01",
    "EXTENSION_PREFIX",
    "MARKER_01",
    "NAMES_01",
    "PROPERTY_PREFIX",
    "QUOTE",
    "SIZES_01",
    "STARTS_01",
    "is_bare",
    "measure_members_01",
    "measure_properties_01",
    "quotes_of",
    "role_of",
]

_MEMBERS = (
    *("cloudEventsVersion", "eventID", "source", "eventType", "", "eventTime", "contentType", "schemaURL"),
    "eventTypeVersion",
)
"""The names of 0.1: those of the attributes of core in their order, then one that 1.0 does not have."""
NAMES_01 = np.frombuffer("".join(_MEMBERS).encode(), np.uint8)
SIZES_01 = np.array([len(name) for name in _MEMBERS], np.int64)
STARTS_01 = np.cumsum(SIZES_01) - SIZES_01
PROPERTY_PREFIX = np.frombuffer(b"CE-", np.uint8)
EXTENSION_PREFIX = np.frombuffer(b"CE-X-", np.uint8)
MARKER_01 = np.frombuffer(b"\x1cCE-ContentType\x56application/cloudevents+json; charset=utf-8", np.uint8)
"""The property of structured mode, with its lengths (A6)."""
EXTENSIONS_01 = np.frombuffer(b',"extensions":{', np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)

# Extensions of 1.0 that stand for something else in 0.1.
_EVENTTYPEVERSION = np.frombuffer(b"eventtypeversion", np.uint8)
_SCHEMAURL = np.frombuffer(b"schemaurl", np.uint8)
_EXTENSIONNAMES = np.frombuffer(b"extensionnames", np.uint8)
_ATTRIBUTENAMES = np.frombuffer(b"attributenames", np.uint8)

_TYPE_VERSION = A_CORE
"""The place of eventTypeVersion among the names of 0.1."""
EXTENSION = -1
_UNCERTAIN = -2
QUOTE = 0x22
_MAX_DIGITS = 10
_MAX_INTEGER = (1 << 31) - 1


# What an attribute becomes


@inner(INT(BYTES, BYTES, INT, INT, BYTES))
def _is_named(data: ByteArray, pool: ByteArray, name: int, size: int, wanted: ByteArray) -> int:
    return is_text(data, name, size, wanted) if name >= 0 else is_text(pool, ~name, size, wanted)


@inner(INT(BYTES, BYTES, INTS, INT, INT), inline=False)
def role_of(data: ByteArray, pool: ByteArray, work: IntArray, i: int, row: int) -> int:
    """Give the place among the names of 0.1 of attribute i that leaves, EXTENSION or _UNCERTAIN."""
    if i < A_CORE:
        return EXTENSION if i == A_SUBJECT else i
    name, size = work[row + N_NAME], work[row + N_NAME_SIZE]
    if _is_named(data, pool, name, size, _EVENTTYPEVERSION):
        return _TYPE_VERSION
    if _is_named(data, pool, name, size, _SCHEMAURL):
        return _UNCERTAIN
    if _is_named(data, pool, name, size, _EXTENSIONNAMES) or _is_named(
        data, pool, name, size, _ATTRIBUTENAMES
    ):
        return _UNCERTAIN
    return EXTENSION


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
def quotes_of(data: ByteArray, pool: ByteArray, work: IntArray, row: int, role: int, form: int) -> int:
    """Say whether the text of an attribute stands in quotes: 1, 0, or _UNCERTAIN (A4)."""
    if form == VALUES_RAW or (role == EXTENSION and work[row + N_STYLE] == STYLE_RAW):
        return 0
    text, size = work[row + N_TEXT], work[row + N_SIZE]
    first = text_byte(data, pool, text, 0) if size > 0 else 0
    if form == VALUES_JSON:
        return _UNCERTAIN if role == EXTENSION and first in (0x7B, 0x5B) else 1
    if first == QUOTE:
        return _UNCERTAIN
    return is_bare(data, pool, text, size) if role == EXTENSION else 0


# Sizes


@inner(INT(BYTES, BYTES, INTS, INT))
def measure_properties_01(data: ByteArray, pool: ByteArray, work: IntArray, form: int) -> int:
    """Note the size of the record in binary mode: DONE or SLOW."""
    size = foreign_size(work)
    count = work[W_FOREIGN]
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = role_of(data, pool, work, i, row)
        quotes = quotes_of(data, pool, work, row, role, form)
        if role == _UNCERTAIN or quotes == _UNCERTAIN:
            return SLOW
        name = (
            len(PROPERTY_PREFIX) + SIZES_01[role]
            if role >= 0
            else len(EXTENSION_PREFIX) + work[row + N_NAME_SIZE]
        )
        size += header_size(name, work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES]))
        count += 1
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        name = len(PROPERTY_PREFIX) + SIZES_01[A_DATACONTENTTYPE]
        size += header_size(name, len(JSON) + 2 * int(form == VALUES_JSON))
        count += 1
    work[W_HEADERS_SIZE] = size
    work[W_HEADER_COUNT] = count
    return DONE


@inner(INT(BYTES, BYTES, INTS))
def measure_members_01(data: ByteArray, pool: ByteArray, work: IntArray) -> int:
    """Note the size of the record in structured mode: DONE or SLOW."""
    size, typed, extensions = 1, 0, 0
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        role = role_of(data, pool, work, i, row)
        quotes = quotes_of(data, pool, work, row, role, VALUES_JSON)
        if role == _UNCERTAIN or quotes == _UNCERTAIN:
            return SLOW
        typed |= int(role == A_DATACONTENTTYPE)
        extensions += int(role == EXTENSION)
        name = SIZES_01[role] if role >= 0 else work[row + N_NAME_SIZE]
        size += 4 + name + work[row + N_SIZE] + quotes * (2 + work[row + N_ESCAPES])  # ,"":
    # Between braces there is a comma less than names.
    size += len(EXTENSIONS_01) if extensions else 0
    style = work[W_DATA_STYLE]
    if style == DATA_JSON:
        size += len(DATA) + work[W_DATA_SIZE]
        # JSON format 3.1.2: an implied application/json is made explicit.
        size += 0 if typed else 6 + SIZES_01[A_DATACONTENTTYPE] + len(JSON)
    elif style == DATA_TEXT:
        size += len(DATA) + 2 + escaped_size(data, pool, work[W_DATA], work[W_DATA_SIZE])
    elif style == DATA_BASE64:
        # Without a type a reader would take it as JSON; a text that is none in its charset is an error.
        if not typed or work[W_MEDIA] & J_TEXT:
            return SLOW
        size += len(DATA) + 2 + base64_size(work[W_DATA_SIZE])
    work[W_VALUE_BYTES] = size
    work[W_HEADERS_SIZE] = foreign_size(work) + len(MARKER_01)
    work[W_HEADER_COUNT] = work[W_FOREIGN] + 1
    return DONE
