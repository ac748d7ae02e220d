"""The size of the record that leaves, in either mode: known before a byte of it is written."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import base64_size
from penstock.wire.kernels.jit import BYTES, INT, INTS, ByteArray, IntArray, inner, part
from penstock.wire.kernels.routing.texts import escaped_size
from penstock.wire.kernels.varint import varint_size
from penstock.wire.routing_layout import (
    DATA_BASE64,
    DATA_IS_JSON_VALUE,
    DATA_IS_VALUE,
    DATA_JSON,
    DATA_TEXT,
    N_ATTRIBUTE,
    N_ESCAPES,
    N_NAME_SIZE,
    N_SIZE,
    N_STYLE,
    STYLE_MEDIA_TYPE,
    STYLE_RAW,
    W_DATA,
    W_DATA_SIZE,
    W_DATA_STYLE,
    W_FOREIGN,
    W_FOREIGN_AT,
    W_HEADER_COUNT,
    W_HEADERS_SIZE,
    W_VALUE_BYTES,
    W_WRITTEN,
    W_WRITTEN_AT,
)

__all__ = [
    "BASE64",
    "CONTENT_TYPE",
    "DATA",
    "JSON",
    "MARKER",
    "PREFIX",
    "foreign_size",
    "header_size",
    "measure_binary",
    "measure_structured",
    "written",
]

CONTENT_TYPE = np.frombuffer(b"content-type", np.uint8)
JSON = np.frombuffer(b"application/json", np.uint8)
MARKER = np.frombuffer(b"\x18content-type\x56application/cloudevents+json; charset=utf-8", np.uint8)
"""Kafka 3.3.1: the header of structured mode, with its lengths."""
PREFIX = np.frombuffer(b"ce_", np.uint8)
DATA = np.frombuffer(b',"data":', np.uint8)
BASE64 = np.frombuffer(b',"data_base64":', np.uint8)


@inner(INT(INT, INT))
def header_size(name: int, value: int) -> int:
    """Give the size of a header by those of its name and its value."""
    return varint_size(name) + name + varint_size(value) + value


@part(INT(INTS, INT), boundscheck=False)
def written(work: IntArray, i: int) -> int:
    """Give the row of an attribute that leaves, all of which is inside `work`; else IndexError."""
    if i < 0 or i >= len(work) - W_WRITTEN_AT:
        raise IndexError("no such attribute")
    row = work[W_WRITTEN_AT + i]
    if row < 0 or row > len(work) - N_ATTRIBUTE:
        raise IndexError("attribute leaves its array")
    return int(row)


@part(INT(INTS), boundscheck=False)
def _members_size(work: IntArray) -> int:
    """Add up the attributes of structured mode, and the brace behind them."""
    size = 1
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] >= 0:
            signs = 4 if work[row + N_STYLE] == STYLE_RAW else 6  # {"":"" or ,"":""
            size += signs + work[row + N_NAME_SIZE] + work[row + N_SIZE] + work[row + N_ESCAPES]
    return size


@part(INT(INTS))
def foreign_size(work: IntArray) -> int:
    """Add up the headers of the application."""
    size = 0
    for i in range(work[W_FOREIGN]):
        size += work[W_FOREIGN_AT + 2 * i + 1] - work[W_FOREIGN_AT + 2 * i]
    return size


@inner(INT(INTS, INT), boundscheck=False, inline=False)
def measure_binary(work: IntArray, explicit: int) -> int:
    """Note the size of the record in binary mode; `explicit` adds the content-type of JSON."""
    size = foreign_size(work)
    count = work[W_FOREIGN]
    for i in range(work[W_WRITTEN]):
        at = written(work, i)
        if work[at + N_SIZE] >= 0:
            media = work[at + N_STYLE] == STYLE_MEDIA_TYPE
            name = len(CONTENT_TYPE) if media else len(PREFIX) + work[at + N_NAME_SIZE]
            size += header_size(name, work[at + N_SIZE])
            count += 1
    if explicit:
        size += header_size(len(CONTENT_TYPE), len(JSON))
        count += 1
    work[W_HEADERS_SIZE] = size
    work[W_HEADER_COUNT] = count
    work[W_VALUE_BYTES] = work[W_DATA_SIZE]
    work[W_DATA_STYLE] = DATA_IS_JSON_VALUE if explicit else DATA_IS_VALUE
    return size


@part(INT(BYTES, BYTES, INTS, INT))
def measure_structured(data: ByteArray, pool: ByteArray, work: IntArray, style: int) -> int:
    """Note the size of the record in structured mode, with data in this style."""
    size = _members_size(work)
    if style == DATA_JSON:
        size += len(DATA) + work[W_DATA_SIZE]
    elif style == DATA_TEXT:
        size += len(DATA) + 2 + escaped_size(data, pool, work[W_DATA], work[W_DATA_SIZE])
    elif style == DATA_BASE64:
        size += len(BASE64) + 2 + base64_size(work[W_DATA_SIZE])
    work[W_VALUE_BYTES] = size
    work[W_HEADERS_SIZE] = foreign_size(work) + len(MARKER)
    work[W_HEADER_COUNT] = work[W_FOREIGN] + 1
    work[W_DATA_STYLE] = style
    return size
