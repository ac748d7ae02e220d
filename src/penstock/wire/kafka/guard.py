"""Lengths in a request, checked before kio reads it.

kio reserves memory for an array as soon as it has read its length: five bytes that claim 2**31
elements end the process. So every body is first walked by a kernel, along a program made from
kio's own description of the request: each length must fit in what is left of the frame, and all
arrays together must not have more elements than a request needs.

kio also refuses tagged fields that it does not know, which KIP-482 wants to be ignored; the walk
notes where tagged fields are, so that they can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin

import numpy as np

from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kernels import (
    BAD_VARINT,
    BYTES,
    INT,
    INTS,
    PAIR,
    TRUNCATED,
    ByteArray,
    IntArray,
    byte_at,
    kernel,
    part,
    read_uvarint,
)

__all__ = ["MOST_ELEMENTS", "REASONS", "check", "compile_guard", "without"]

MOST_ELEMENTS = 1 << 18
"""Elements of all arrays of a request together."""
TOO_MANY = -21
"""More elements than MOST_ELEMENTS."""
BAD_LENGTH = -22
"""A length that is negative, or larger than what is left."""

_FIXED, _SHORT, _LONG, _COMPACT, _ARRAY, _COMPACT_ARRAY, _NEXT, _TAGS, _NULLABLE, _END = range(10)
# The state of a walk; from LEFT on, the elements that are left in each array it is in.
_POS, _STEP, _LOOPS, _ELEMENTS, _CUTS, _LEFT = range(6)
STATE = _LEFT + 8
_MOST_CUTS = 32
_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
_CLASSIC = {"string": _SHORT, "bytes": _LONG, "records": _LONG}


def compile_guard(schema: Any) -> IntArray:
    """Make the program for one of kio's request classes: pairs of operation and operand."""
    program = list(_entity(schema, 0))
    return np.array([*program, (_END, 0)], np.int64).reshape(-1)


def _entity(schema: Any, at: int) -> Iterator[tuple[int, int]]:
    for field in fields(schema):
        if "tag" in field.metadata:
            continue
        for step in _field(field.type, field.metadata.get("kafka_type"), schema.__flexible__, at):
            yield step
            at += 1
    if schema.__flexible__:
        yield _TAGS, 0


def _field(kind: Any, name: str | None, flexible: bool, at: int) -> list[tuple[int, int]]:
    """Give the steps for a field that begin at step `at` of the program."""
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    inner = choices[0] if NoneType in get_args(kind) else kind
    if get_origin(inner) is tuple:
        body = _one(get_args(inner)[0], name, flexible, at + 1)
        # NEXT goes back to the first step of the body, an array without elements behind NEXT.
        operation = _COMPACT_ARRAY if flexible else _ARRAY
        return [(operation, at + len(body) + 2), *body, (_NEXT, at + 1)]
    if name is None and inner is not kind:
        body = _one(inner, name, flexible, at + 1)
        return [(_NULLABLE, at + 1 + len(body)), *body]
    return _one(inner, name, flexible, at)


def _one(kind: Any, name: str | None, flexible: bool, at: int) -> list[tuple[int, int]]:
    if is_dataclass(kind):
        return list(_entity(kind, at))
    assert name is not None
    if name in _SIZES:
        return [(_FIXED, _SIZES[name])]
    return [(_COMPACT if flexible else _CLASSIC[name], 0)]


@part(INT(BYTES, INT, INT, INT))
def _number(data: ByteArray, pos: int, end: int, size: int) -> int:
    """Read a signed number of `size` bytes; -2, which no length is, if it is not there."""
    if size > end - pos:
        return -2
    value = byte_at(data, pos)
    if value > 0x7F:
        value -= 0x100
    for i in range(1, size):
        value = value << 8 | byte_at(data, pos + i)
    return value


@part(INT(BYTES, INT, INT))
def _skip_tags(data: ByteArray, pos: int, end: int) -> int:
    count, pos = read_uvarint(data, pos, end)
    if count < 0 or count > end - pos:
        return BAD_LENGTH
    for _ in range(count):
        _, pos = read_uvarint(data, pos, end)
        size, pos = read_uvarint(data, pos, end)
        if pos < 0 or size < 0 or size > end - pos:
            return BAD_LENGTH
        pos += size
    return pos


@part(PAIR(BYTES, INT, INT, INT))
def _read_length(data: ByteArray, pos: int, end: int, operation: int) -> tuple[int, int]:
    """Read a length, 0 for null, and check that so much is left."""
    if operation in (_COMPACT, _COMPACT_ARRAY):
        value, pos = read_uvarint(data, pos, end)
        value -= 1
    else:
        width = 2 if operation == _SHORT else 4
        value = _number(data, pos, end, width)
        pos += width
    if pos < 0 or value < -1 or value > end - pos:
        return 0, BAD_LENGTH
    return max(value, 0), pos


@part(INT(BYTES, INT, INT, INT, INTS))
def _enter(data: ByteArray, end: int, operation: int, behind: int, state: IntArray) -> int:
    """Begin an array, or go behind it if it is empty."""
    count, state[_POS] = _read_length(data, state[_POS], end, operation)
    if count == 0:
        state[_STEP] = behind
    else:
        state[_LEFT + state[_LOOPS]] = count
        state[_LOOPS] += 1
        state[_ELEMENTS] += count
    return 0


@part(INT(INTS, INT))
def _repeat(state: IntArray, first: int) -> int:
    """Go back to the first step of the innermost array until its elements are through."""
    loop = _LEFT + state[_LOOPS] - 1
    state[loop] -= 1
    if state[loop] > 0:
        state[_STEP] = first
    else:
        state[_LOOPS] -= 1
    return 0


@part(INT(BYTES, INT, INTS, INTS))
def _cut(data: ByteArray, end: int, state: IntArray, cuts: IntArray) -> int:
    """Step over a section of tagged fields, and note where it is if it is not empty."""
    pos = state[_POS]
    state[_POS] = _skip_tags(data, pos, end)
    if state[_POS] > pos + 1 and state[_CUTS] + 2 <= len(cuts):
        cuts[state[_CUTS]] = pos
        cuts[state[_CUTS] + 1] = state[_POS]
        state[_CUTS] += 2
    return 0


@part(INT(BYTES, INT, INT, INT, INTS, INTS))
def _do(data: ByteArray, end: int, operation: int, operand: int, state: IntArray, cuts: IntArray) -> int:
    """Do one step of a program."""
    pos = state[_POS]
    if operation == _FIXED:
        state[_POS] = pos + operand
    elif operation in (_ARRAY, _COMPACT_ARRAY):
        _enter(data, end, operation, operand, state)
    elif operation == _NEXT:
        _repeat(state, operand)
    elif operation == _TAGS:
        _cut(data, end, state, cuts)
    elif operation == _NULLABLE:
        state[_POS] = pos + 1
        if _number(data, pos, end, 1) < 0:
            state[_STEP] = operand
    else:
        size, pos = _read_length(data, pos, end, operation)
        state[_POS] = pos + size
    return 0


@kernel(INT(BYTES, INT, INTS, INTS, INTS))
def walk(data: ByteArray, pos: int, program: IntArray, state: IntArray, cuts: IntArray) -> int:
    """Walk the body data[pos:] along its program; give the position behind it, or an error.

    `state` has STATE numbers; `cuts` receives begin and end of sections with tagged fields.
    """
    end = len(data)
    state[:] = 0
    state[_POS] = pos
    while program[2 * state[_STEP]] != _END:
        step = 2 * state[_STEP]
        state[_STEP] += 1
        _do(data, end, program[step], program[step + 1], state, cuts)
        if state[_POS] < 0:
            return int(state[_POS])
        if state[_POS] > end:
            return TRUNCATED
        if state[_ELEMENTS] > MOST_ELEMENTS:
            return TOO_MANY
    return int(state[_POS])


def check(frame: memoryview, body: int, program: IntArray) -> tuple[int, list[tuple[int, int]]]:
    """Walk a body; give the position behind it or an error, and where tagged fields are."""
    state = np.empty(STATE, np.int64)
    cuts = np.empty(2 * _MOST_CUTS, np.int64)
    end = walk(as_array(frame), body, program, state, cuts)
    pairs = cuts[: int(state[_CUTS])].reshape(-1, 2).tolist()
    return end, [(begin, behind) for begin, behind in pairs]


def without(frame: memoryview, cuts: list[tuple[int, int]]) -> bytes:
    """Copy a frame with empty sections in the place of those with tagged fields."""
    parts: list[Buffer] = []
    pos = 0
    for begin, behind in cuts:
        parts += [frame[pos:begin], b"\0"]
        pos = behind
    return b"".join([*parts, frame[pos:]])


REASONS = {
    TRUNCATED: "ends too early",
    BAD_VARINT: "has a number of more than 64 bits",
    BAD_LENGTH: "has a length that cannot be",
    TOO_MANY: f"has more than {MOST_ELEMENTS} elements",
}
"""What the errors mean, as the end of a sentence."""
