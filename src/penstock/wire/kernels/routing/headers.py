"""The headers of a record: attributes of binary mode, the mark of structured mode, foreign ones.

Kafka binding 3.2.3: `ce_` stands before the name of an attribute, and content-type is datacontenttype.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, ByteArray, IntArray, inner
from penstock.wire.kernels.records import F_HEADERS, F_HEADERS_AT, read_blob
from penstock.wire.kernels.routing.attributes import add_extension, clear, core_index, is_text, set_core
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    A_DATACONTENTTYPE,
    BROKEN,
    DONE,
    MAX_FOREIGN,
    SLOW,
    STYLE_TEXT,
    W_FOREIGN,
    W_FOREIGN_AT,
    W_MEDIA,
)

__all__ = ["read_headers"]

_CONTENT_TYPE = np.frombuffer(b"content-type", np.uint8)
_PREFIX = 3


@inner(INT(BYTES, INT, INT))
def _is_ours(data: ByteArray, name: int, size: int) -> int:
    if size < _PREFIX:
        return 0
    return int(
        byte_at(data, name) == 0x63 and byte_at(data, name + 1) == 0x65 and byte_at(data, name + 2) == 0x5F
    )


@inner(INT(BYTES, INTS, INT, INT, INT, INT))
def _foreign(data: ByteArray, work: IntArray, start: int, name: int, length: int, end: int) -> int:
    """Note a header of the application, which travels as it is."""
    count = work[W_FOREIGN]
    if count >= MAX_FOREIGN or not is_utf8(data, name, name + length):
        return SLOW
    work[W_FOREIGN_AT + 2 * count] = start
    work[W_FOREIGN_AT + 2 * count + 1] = end
    work[W_FOREIGN] = count + 1
    return DONE


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT, INT))
def _attribute(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    name: int,
    length: int,
    text: int,
    size: int,
) -> int:
    index = core_index(data, name, length)
    # Kafka 3.2.1: content-type is the one header of datacontenttype.
    if index == A_DATACONTENTTYPE or size < 0:
        return SLOW
    if index >= 0:
        return set_core(data, pool, code, memory, state, work, index, text, size)
    return add_extension(data, pool, work, name, length, text, size, STYLE_TEXT)


@inner(INT(BYTES, INT, BYTES, INTS, INTS, INTS, INTS), inline=False)
def read_headers(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
) -> int:
    """Take what the headers of the record at hand say; DONE, SLOW, ASK or BROKEN."""
    clear(work)
    work[W_FOREIGN] = 0
    work[W_MEDIA] = 0
    pos = work[F_HEADERS_AT]
    for _ in range(work[F_HEADERS]):
        start = pos
        length, name = read_blob(data, pos, end)
        if name < 0 or length < 0:
            return BROKEN
        size, text = read_blob(data, name + length, end)
        if text < 0:
            return BROKEN
        pos = text + max(size, 0)
        if _is_ours(data, name, length):
            verdict = _attribute(
                data, pool, code, memory, state, work, name + _PREFIX, length - _PREFIX, text, size
            )
        elif is_text(data, name, length, _CONTENT_TYPE):
            verdict = set_core(data, pool, code, memory, state, work, A_DATACONTENTTYPE, text, size)
        else:
            verdict = _foreign(data, work, start, name, length, pos)
        if verdict != DONE:
            return verdict
    return DONE
