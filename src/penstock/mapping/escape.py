"""Kafka headers that a Pulsar property cannot hold as they are, and how they are written instead.

A property is two texts. A header whose name and value are UTF-8 becomes the property of that name
and value. Any other is written under a name that begins with `kafka~`, a letter and `~`:

| letter | value                        | used for                                   |
|--------|------------------------------|--------------------------------------------|
| n      | empty                        | the value is null                          |
| b      | base64 of the value          | the value is not UTF-8                     |
| t      | the value                    | the name itself begins with `kafka~`       |

A capital letter says that the rest of the name is base64, because the name is not UTF-8.
What does not have exactly this form was not written by us and is taken as it is.
"""

from __future__ import annotations

import numpy as np
from numba import types

from penstock.wire.kernels import (
    BYTES,
    INT,
    OUT,
    ByteArray,
    base64_decoded_size,
    base64_size,
    byte_at,
    copy,
    decode_base64,
    encode_base64,
    is_utf8,
    part,
    uvarint_size,
    varint_size,
    write_uvarint,
    write_varint,
)

__all__ = [
    "PREFIX",
    "escape_of",
    "header_size",
    "property_size",
    "unescape",
    "write_header",
    "write_property",
]

PREFIX = b"kafka~"
"""How the name of an escaped property begins."""

PLAIN = 0
_N = ord("n")
_B = ord("b")
_T = ord("t")
_CAPITAL = 0x20
_TILDE = ord("~")
_MARK = np.frombuffer(PREFIX, np.uint8)
_MARK_SIZE = len(PREFIX)
_ESCAPE_SIZE = _MARK_SIZE + 2
_KEY = 0x0A
_VALUE = 0x12
_PROPERTY = 0x0A
_UNESCAPED = types.UniTuple(INT, 3)


@part(INT(BYTES, INT, INT))
def _is_marked(data: ByteArray, pos: int, end: int) -> int:
    if end - pos < _MARK_SIZE or byte_at(data, pos) != byte_at(_MARK, 0):
        return 0
    for i in range(1, _MARK_SIZE):
        if byte_at(data, pos + i) != byte_at(_MARK, i):
            return 0
    return 1


@part(INT(BYTES, INT, INT, INT, INT))
def escape_of(data: ByteArray, name: int, name_size: int, value: int, value_size: int) -> int:
    """Choose the letter for a header, PLAIN if it needs none; a size of -1 is a null value."""
    letter = PLAIN
    if value_size < 0:
        letter = _N
    elif is_utf8(data, value, value + value_size) == 0:
        letter = _B
    if is_utf8(data, name, name + name_size) == 0:
        return (_T if letter == PLAIN else letter) - _CAPITAL
    if letter == PLAIN and _is_marked(data, name, name + name_size):
        return _T
    return letter


@part(INT(INT, INT))
def _escaped_name_size(letter: int, size: int) -> int:
    if letter == PLAIN:
        return size
    return _ESCAPE_SIZE + (size if letter & _CAPITAL else base64_size(size))


@part(INT(INT, INT))
def _escaped_value_size(letter: int, size: int) -> int:
    return base64_size(size) if letter | _CAPITAL == _B else max(size, 0)


@part(INT(INT, INT, INT))
def property_size(letter: int, name_size: int, value_size: int) -> int:
    """Give the size of the KeyValue message for a header, without its own tag and length."""
    name = _escaped_name_size(letter, name_size)
    value = _escaped_value_size(letter, value_size)
    return 2 + uvarint_size(name) + name + uvarint_size(value) + value


@part(INT(BYTES, INT, INT, INT, INT, INT, OUT, INT))
def write_property(
    data: ByteArray,
    letter: int,
    name: int,
    name_size: int,
    value: int,
    value_size: int,
    out: ByteArray,
    at: int,
) -> int:
    """Write a header as SingleMessageMetadata.properties at out[at]; give the position behind it."""
    out[at] = _PROPERTY
    at = write_uvarint(out, at + 1, property_size(letter, name_size, value_size))
    out[at] = _KEY
    at = write_uvarint(out, at + 1, _escaped_name_size(letter, name_size))
    if letter != PLAIN:
        at = copy(_MARK, 0, out, at, _MARK_SIZE)
        out[at] = letter
        out[at + 1] = _TILDE
        at += 2
    if letter != PLAIN and letter & _CAPITAL == 0:
        at = encode_base64(data, name, name + name_size, out, at)
    else:
        at = copy(data, name, out, at, name_size)
    out[at] = _VALUE
    at = write_uvarint(out, at + 1, _escaped_value_size(letter, value_size))
    if letter | _CAPITAL == _B:
        return encode_base64(data, value, value + value_size, out, at)
    return copy(data, value, out, at, max(value_size, 0))


@part(_UNESCAPED(BYTES, INT, INT, INT, INT))
def unescape(data: ByteArray, name: int, name_size: int, value: int, value_size: int) -> tuple[int, int, int]:
    """Recognise an escaped property: its letter, the sizes of the header's name and value."""
    if name_size < _ESCAPE_SIZE or _is_marked(data, name, name + name_size) == 0:
        return PLAIN, name_size, value_size
    letter = byte_at(data, name + _MARK_SIZE)
    kind = letter | _CAPITAL
    known = kind in (_T, _B) or (kind == _N and value_size == 0)
    if not known or byte_at(data, name + _MARK_SIZE + 1) != _TILDE:
        return PLAIN, name_size, value_size
    real_name = name_size - _ESCAPE_SIZE
    if letter & _CAPITAL == 0:
        real_name = base64_decoded_size(data, name + _ESCAPE_SIZE, name + name_size)
    real_value = value_size
    if kind == _B:
        real_value = base64_decoded_size(data, value, value + value_size)
    if real_name < 0 or real_value < 0:
        return PLAIN, name_size, value_size
    return letter, real_name, -1 if kind == _N else real_value


@part(INT(INT, INT))
def header_size(name_size: int, value_size: int) -> int:
    """Give the size of a Kafka record header; a value size of -1 is null."""
    return varint_size(name_size) + name_size + varint_size(value_size) + max(value_size, 0)


@part(INT(BYTES, INT, INT, INT, INT, INT, OUT, INT))
def write_header(
    data: ByteArray,
    letter: int,
    name: int,
    name_size: int,
    value: int,
    value_size: int,
    out: ByteArray,
    at: int,
) -> int:
    """Write a property that `unescape` has looked at as a Kafka header; give the position behind it."""
    at = write_varint(out, at, name_size)
    if letter == PLAIN:
        at = copy(data, name, out, at, name_size)
    elif letter & _CAPITAL:
        at = copy(data, name + _ESCAPE_SIZE, out, at, name_size)
    else:
        at = decode_base64(data, name + _ESCAPE_SIZE, name + _ESCAPE_SIZE + base64_size(name_size), out, at)
    at = write_varint(out, at, value_size)
    if letter | _CAPITAL == _B:
        return decode_base64(data, value, value + base64_size(value_size), out, at)
    return copy(data, value, out, at, max(value_size, 0))
