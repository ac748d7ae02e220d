"""The properties of a message of Pulsar's profile 0.1, or the mark of its structured mode (spec 002 3).

Certain are names that are spelled as the specification has them, and values without escapes. A mixture of
prefixes, `CE-*` of 1.0 and attributes that 0.1 does not define are left to others.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, PAIR, ByteArray, IntArray, inner
from penstock.wire.kernels.json_tokens import string_end
from penstock.wire.kernels.records import F_HEADERS, F_HEADERS_AT, read_blob
from penstock.wire.kernels.routing.attributes import is_text, set_core
from penstock.wire.kernels.routing.attributes_01 import begin_01, index_01, take_01, take_extension_01
from penstock.wire.kernels.routing.headers import CONTENT_TYPE, is_ours, take_foreign
from penstock.wire.kernels.routing.sizes_01 import is_bare
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    A_DATACONTENTTYPE,
    BROKEN,
    C_VALUES,
    DONE,
    J_STRUCTURED,
    SLOW,
    STYLE_RAW,
    STYLE_TEXT,
    VALUES_JSON,
    VALUES_RAW,
    W_FOREIGN,
    W_MEDIA,
)

__all__ = ["read_properties_01"]

_PREFIX = 3
_EXTENSION_PREFIX = 5
_QUOTE = 0x22
_UNCERTAIN = -1


@inner(INT(BYTES, INT, INT))
def _is_property(data: ByteArray, name: int, length: int) -> int:
    """Say 1 for a name that begins with CE-."""
    if length < _PREFIX:
        return 0
    return int(
        byte_at(data, name) == 0x43 and byte_at(data, name + 1) == 0x45 and byte_at(data, name + 2) == 0x2D
    )


@inner(INT(BYTES, INT, INT))
def _is_extension(data: ByteArray, name: int, length: int) -> int:
    """Say 1 for a name that begins with CE-X-."""
    if length < _EXTENSION_PREFIX:
        return 0
    return int(byte_at(data, name + 3) == 0x58 and byte_at(data, name + 4) == 0x2D)


@inner(PAIR(BYTES, BYTES, INT, INT, INT, INT), inline=False)
def _value(data: ByteArray, pool: ByteArray, text: int, size: int, core: int, values: int) -> tuple[int, int]:
    """Say how a property says its value (A4): the style of its text, or _UNCERTAIN, and 1 if it is quoted."""
    if values == VALUES_RAW:
        return STYLE_TEXT, 0
    if size > 0 and byte_at(data, text) == _QUOTE:
        escaped, behind = string_end(data, text + 1, text + size)
        return (STYLE_TEXT if behind == text + size and not escaped else _UNCERTAIN), 1
    if not core and is_bare(data, pool, text, size):
        # An Integer is written as the number that it is: -0 as 0.
        odd = size == 2 and byte_at(data, text) == 0x2D and byte_at(data, text + 1) == 0x30
        return (_UNCERTAIN if odd else STYLE_RAW), 0
    return (_UNCERTAIN if values == VALUES_JSON else STYLE_TEXT), 0


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INT, INT), inline=False)
def _content_type(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    text: int,
    size: int,
) -> int:
    """Take CE-ContentType; the mark of structured mode has no quotes, however values are said."""
    style, quoted = _value(data, pool, text, size, 1, code[C_VALUES])
    if style == _UNCERTAIN and quoted:
        return SLOW
    text, size = text + quoted, size - 2 * quoted
    verdict = set_core(data, pool, code, memory, state, work, A_DATACONTENTTYPE, text, size)
    return SLOW if verdict == DONE and style == _UNCERTAIN and not work[W_MEDIA] & J_STRUCTURED else verdict


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INTS, INT, INT, INT, INT), inline=False)
def _property(
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
    """Take a property whose name begins with CE-: DONE, SLOW or ASK."""
    if size < 0:
        return SLOW
    extension = _is_extension(data, name, length)
    index = _UNCERTAIN
    if not extension:
        index = index_01(data, name + _PREFIX, length - _PREFIX, 1)
        if index < 0:
            return SLOW
        if index == A_DATACONTENTTYPE:
            return _content_type(data, pool, code, memory, state, work, text, size)
    style, quoted = _value(data, pool, text, size, 1 - extension, code[C_VALUES])
    if style == _UNCERTAIN:
        return SLOW
    text, size = text + quoted, size - 2 * quoted
    if extension:
        name, length = name + _EXTENSION_PREFIX, length - _EXTENSION_PREFIX
        return take_extension_01(data, pool, code, memory, state, work, name, length, text, size, style)
    name, length = name + _PREFIX, length - _PREFIX
    return take_01(data, pool, code, memory, state, work, index, name, length, text, size)


@inner(INT(BYTES, INT, OUT, INTS, INTS, INTS, INTS), inline=False)
def read_properties_01(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
) -> int:
    """Take what the headers of the record at hand say, as properties: DONE, SLOW, ASK or BROKEN."""
    begin_01(code, work)
    work[W_FOREIGN] = 0
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
        if _is_property(data, name, length):
            verdict = _property(data, pool, code, memory, state, work, name, length, text, size)
        elif is_ours(data, name, length):
            verdict = SLOW  # A19: no mixture of prefixes
        elif is_text(data, name, length, CONTENT_TYPE):
            # A5: it stands for CE-ContentType, and is text as it is.
            verdict = set_core(data, pool, code, memory, state, work, A_DATACONTENTTYPE, text, size)
        else:
            verdict = take_foreign(data, code, work, start, name, length, pos)
        if verdict != DONE:
            return verdict
    return DONE
