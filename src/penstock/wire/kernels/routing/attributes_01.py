"""The attributes of an event of CloudEvents 0.1 as those of 1.0: their names, and what becomes of extensions.

Names of extensions are in lower case in 1.0, so they stand in the pool. What 1.0 would take for something
else, and what 0.1 does not define, is left to others.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.attributes import add_extension, clear, core_index, is_text, set_core
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import equal
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
    A_DATASCHEMA,
    A_ID,
    A_SOURCE,
    A_SPECVERSION,
    A_SUBJECT,
    A_TIME,
    A_TYPE,
    C_NAMES,
    C_VERSION,
    DONE,
    N_ATTRIBUTE,
    N_ESCAPES,
    N_SIZE,
    N_TEXT,
    NAMES_TEXT,
    SLOW,
    STYLE_TEXT,
    W_CORE_AT,
    W_MEDIA,
    W_NAMES,
)

__all__ = ["begin_01", "index_01", "take_01", "take_extension_01"]

_TYPE_VERSION = A_CORE
_ATTRIBUTES = {
    "cloudEventsVersion": A_SPECVERSION,
    "eventID": A_ID,
    "source": A_SOURCE,
    "eventType": A_TYPE,
    "eventTime": A_TIME,
    "contentType": A_DATACONTENTTYPE,
    "schemaURL": A_DATASCHEMA,
    "schemaURI": A_DATASCHEMA,  # A10: spec 002 alone calls it so
    "eventTypeVersion": _TYPE_VERSION,
}
"""The names of 0.1 and the attributes of core that they are; 1.0 has no place for the last one."""
_NAMES = np.frombuffer("".join(_ATTRIBUTES).encode(), np.uint8)
_SIZES = np.array([len(name) for name in _ATTRIBUTES], np.int64)
_STARTS = np.cumsum(_SIZES) - _SIZES
_INDEXES = np.array(list(_ATTRIBUTES.values()), np.int64)
_VERSION = np.frombuffer(b"0.1", np.uint8)
_LOWER = 0x20
"""The bit that makes a letter of ASCII small."""


@inner(INT(INTS, INTS))
def begin_01(code: IntArray, work: IntArray) -> int:
    """Forget the attributes of the record before."""
    clear(work)
    work[W_MEDIA] = 0
    work[W_NAMES] = code[C_NAMES]
    return 0


@inner(INT(BYTES, INT, INT, INT), inline=False)
def index_01(data: ByteArray, name: int, size: int, capital: int) -> int:
    """Give the attribute of a name of 0.1, which with `capital` begins with one (A1); -1 if it is none."""
    for i in range(len(_SIZES)):
        if (
            _SIZES[i] == size
            and byte_at(data, name) == byte_at(_NAMES, _STARTS[i]) - _LOWER * capital
            and equal(data, name + 1, _NAMES, _STARTS[i] + 1, size - 1)
        ):
            return int(_INDEXES[i])
    return -1


@inner(INT(BYTES, INT, INT, OUT, INTS, INTS))
def _lowered(data: ByteArray, name: int, size: int, pool: ByteArray, code: IntArray, work: IntArray) -> int:
    """Put a name into the pool in lower case; give its place, -1 if there is no room."""
    place = work[W_NAMES]
    if size > code[C_NAMES] + NAMES_TEXT - place:
        return -1
    for i in range(size):
        found = byte_at(data, name + i)
        pool[place + i] = found | _LOWER if 0x41 <= found <= 0x5A else found
    work[W_NAMES] = place + size
    return int(place)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INT, INT, INT, INT, INT), inline=False)
def take_extension_01(
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
    style: int,
) -> int:
    """Take an extension; `subject`, which 0.1 does not have, is the attribute of 1.0."""
    place = _lowered(data, name, length, pool, code, work)
    if place < 0:
        return SLOW
    index = core_index(pool, place, length)
    if index == A_SUBJECT and style == STYLE_TEXT:
        return set_core(data, pool, code, memory, state, work, index, text, size)
    if index >= 0:
        return SLOW
    return add_extension(data, pool, work, ~place, length, text, size, style)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INT, INT, INT, INT, INT), inline=False)
def take_01(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    index: int,
    name: int,
    length: int,
    text: int,
    size: int,
) -> int:
    """Take what `index_01` has named: DONE, SLOW or ASK."""
    if index == _TYPE_VERSION:
        return take_extension_01(data, pool, code, memory, state, work, name, length, text, size, STYLE_TEXT)
    if index != A_SPECVERSION:
        return set_core(data, pool, code, memory, state, work, index, text, size)
    at = W_CORE_AT + A_SPECVERSION * N_ATTRIBUTE
    if work[at + N_SIZE] >= 0 or not is_text(data, text, size, _VERSION):
        return SLOW
    work[at + N_TEXT] = ~code[C_VERSION]
    work[at + N_SIZE] = len(_VERSION)
    work[at + N_ESCAPES] = 0
    return DONE
