"""The headers of a record: attributes of binary mode, the mark of structured mode, foreign ones.

Kafka binding 3.2.3: `ce_` stands before the name of an attribute, and content-type is datacontenttype.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, part
from penstock.wire.kernels.records import F_HEADERS, F_HEADERS_AT, read_blob
from penstock.wire.kernels.routing.attributes import (
    add_extension,
    clear,
    core_index,
    find_extension,
    is_text,
    set_core,
    set_text,
)
from penstock.wire.kernels.routing.texts import judge
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import equal
from penstock.wire.routing_layout import (
    A_CORE,
    A_DATACONTENTTYPE,
    BROKEN,
    C_HEADS,
    C_RESPELLED,
    C_SHAPE,
    DONE,
    H_CORE,
    H_HEADER,
    H_NAME_SIZE,
    H_PLACE,
    MAX_FOREIGN,
    MAX_HEAD,
    MAX_SHAPE,
    N_ATTRIBUTE,
    N_ESCAPES,
    N_HEAD,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_TEXT,
    SHAPE_TEXT,
    SLOW,
    STYLE_TEXT,
    W_CORE_AT,
    W_FOREIGN,
    W_FOREIGN_AT,
    W_MEDIA,
    W_OTHERS,
    W_SHAPE,
    W_SHAPE_AT,
)

__all__ = ["CONTENT_TYPE", "is_ours", "read_headers", "take_foreign"]

CONTENT_TYPE = np.frombuffer(b"content-type", np.uint8)
_REPEATED = np.frombuffer(b"ce_datacontenttype", np.uint8)
"""Kafka 3.2.1: content-type is the one header of datacontenttype; another that says the same is borne."""
_PREFIX = 3
_LOWER = 0x20
"""The bit that makes a letter of ASCII small."""
_PATIENCE = 8
"""Of so many records in a row with new headers, those of one are remembered."""


@inner(INT(BYTES, INT, INT))
def is_ours(data: ByteArray, name: int, size: int) -> int:
    """Say 1 for a name that begins with ce_."""
    if size < _PREFIX:
        return 0
    return int(
        byte_at(data, name) == 0x63 and byte_at(data, name + 1) == 0x65 and byte_at(data, name + 2) == 0x5F
    )


@inner(INT(BYTES, INT, INT))
def _may_be_ours(data: ByteArray, name: int, length: int) -> int:
    """Say 1 for a name that begins with ce in any case, or is as long as content-type and begins with a c."""
    if length < _PREFIX or byte_at(data, name) | _LOWER != 0x63:
        return 0
    return int(byte_at(data, name + 1) | _LOWER == 0x65 or length == len(CONTENT_TYPE))


@inner(INT(BYTES, INTS, INTS, INT, INT, INT, INT))
def take_foreign(
    data: ByteArray, code: IntArray, work: IntArray, start: int, name: int, length: int, end: int
) -> int:
    """Note a header of the application, which travels as it is."""
    count = work[W_FOREIGN]
    if count >= MAX_FOREIGN or not is_utf8(data, name, name + length):
        return SLOW
    if code[C_RESPELLED] and _may_be_ours(data, name, length):
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
    if size < 0:
        return SLOW
    if index >= 0:
        return set_core(data, pool, code, memory, state, work, index, text, size)
    return add_extension(data, pool, work, name, length, text, size, STYLE_TEXT)


@inner(INT(BYTES, INTS, INT, INT), inline=False)
def _is_media_type(data: ByteArray, work: IntArray, text: int, size: int) -> int:
    """Say 1 if content-type was read and has this text."""
    at = W_CORE_AT + A_DATACONTENTTYPE * N_ATTRIBUTE
    return int(work[at + N_SIZE] == size and equal(data, work[at + N_TEXT], data, text, size) != 0)


@inner(INT(BYTES, INT, BYTES, INTS, INTS, INTS, INTS))
def _read_all(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
) -> int:
    """Take the headers one by one, whatever they are."""
    clear(work)
    work[W_FOREIGN] = 0
    work[W_MEDIA] = 0
    pos = work[F_HEADERS_AT]
    again, again_size = 0, -1
    for _ in range(work[F_HEADERS]):
        start = pos
        length, name = read_blob(data, pos, end)
        if name < 0 or length < 0:
            return BROKEN
        size, text = read_blob(data, name + length, end)
        if text < 0:
            return BROKEN
        pos = text + max(size, 0)
        if is_text(data, name, length, _REPEATED):
            verdict = DONE if again_size < 0 <= size else SLOW
            again, again_size = text, size
        elif is_ours(data, name, length):
            verdict = _attribute(
                data, pool, code, memory, state, work, name + _PREFIX, length - _PREFIX, text, size
            )
        elif is_text(data, name, length, CONTENT_TYPE):
            verdict = set_core(data, pool, code, memory, state, work, A_DATACONTENTTYPE, text, size)
        else:
            verdict = take_foreign(data, code, work, start, name, length, pos)
        if verdict != DONE:
            return verdict
    if again_size >= 0:
        return DONE if _is_media_type(data, work, again, again_size) else SLOW
    return DONE


# The same headers again: names and their order are those of the record before, mostly.


@inner(INT(BYTES, INT, INT, OUT, INT))
def _write_head(data: ByteArray, name: int, length: int, pool: ByteArray, to: int) -> int:
    """Write the head of an extension, see `routing_layout.head_of`; give the position behind it."""
    pool[to] = 2 * (_PREFIX + length)
    to = copy(data, name - _PREFIX, pool, to + 1, _PREFIX + length)
    pool[to] = 0x2C
    pool[to + 1] = 0x22
    to = copy(data, name, pool, to + 2, length)
    pool[to] = 0x22
    pool[to + 1] = 0x3A
    pool[to + 2] = 0x22
    return to + 3


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT))
def _note_header(data: ByteArray, pool: ByteArray, work: IntArray, row: int, name: int, length: int) -> int:
    """Note which attribute a header is; A_CORE stands for one that repeats content-type."""
    core, place = -1, -1
    if is_text(data, name, length, _REPEATED):
        core = A_CORE
    elif is_text(data, name, length, CONTENT_TYPE):
        core = A_DATACONTENTTYPE
    elif is_ours(data, name, length):
        core = core_index(data, name + _PREFIX, length - _PREFIX)
        place = find_extension(data, pool, work, name + _PREFIX, length - _PREFIX)
    work[row + H_CORE] = core
    work[row + H_PLACE] = place if core < 0 else W_CORE_AT + core * N_ATTRIBUTE
    return row


@inner(INT(BYTES, INT, OUT, INTS, INTS), inline=False)
def _remember(data: ByteArray, end: int, pool: ByteArray, code: IntArray, work: IntArray) -> int:
    """Note the names of the headers of a record that was read; give how many, 0 if they are too many."""
    count = work[F_HEADERS]
    pos = work[F_HEADERS_AT]
    at = code[C_SHAPE]
    head = code[C_HEADS]
    if count > MAX_SHAPE:
        return 0
    typed = 0
    for i in range(count):
        row = W_SHAPE_AT + i * H_HEADER
        length, name = read_blob(data, pos, end)
        behind = name + length
        if at + behind - pos > code[C_SHAPE] + SHAPE_TEXT:
            return 0
        _note_header(data, pool, work, row, name, length)
        typed |= int(work[row + H_CORE] == A_DATACONTENTTYPE)
        if work[row + H_CORE] == A_CORE and not typed:
            return 0  # what it repeats is not known yet when it is read
        work[row + H_NAME_SIZE] = behind - pos
        at = copy(data, pos, pool, at, behind - pos)
        if work[row + H_CORE] < 0 <= work[row + H_PLACE] and length - _PREFIX <= MAX_HEAD:
            work[work[row + H_PLACE] + N_HEAD] = head
            head = _write_head(data, name + _PREFIX, length - _PREFIX, pool, head)
        size, text = read_blob(data, behind, end)
        pos = text + max(size, 0)
    return int(count)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INTS, INT, INT, INT, INT))
def _again(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
    row: int,
    behind: int,
    text: int,
    size: int,
) -> int:
    """Give an attribute of the record before, whose name ends at `behind`, its text; 1 if that is legal."""
    core, place = work[row + H_CORE], work[row + H_PLACE]
    if core == A_CORE:
        return _is_media_type(data, work, text, size)
    if core >= 0:
        return int(set_text(data, pool, code, memory, state, work, core, text, size) == DONE)
    # An empty partitionkey is one thing that is not legal.
    escapes = judge(data, pool, text, size) if size > 0 else -1
    work[place + N_NAME] = behind - work[place + N_NAME_SIZE]
    work[place + N_TEXT] = text
    work[place + N_SIZE] = size
    work[place + N_ESCAPES] = escapes
    return int(escapes >= 0)


@inner(INT(BYTES, INT, BYTES, INTS, INTS, INTS, INTS))
def _read_same(
    data: ByteArray,
    end: int,
    pool: ByteArray,
    code: IntArray,
    memory: IntArray,
    state: IntArray,
    work: IntArray,
) -> int:
    """Take headers that have the names of the record before; 0 if they have not, or one is not legal."""
    work[W_FOREIGN] = work[W_MEDIA] = 0
    pos = work[F_HEADERS_AT]
    known = code[C_SHAPE]
    for i in range(work[W_SHAPE]):
        row = W_SHAPE_AT + i * H_HEADER
        start = pos
        length = work[row + H_NAME_SIZE]
        if length > end - pos or not equal(data, pos, pool, known, length):
            return 0
        size, text = read_blob(data, pos + length, end)
        if text < 0:
            return 0
        known += length
        pos = text + max(size, 0)
        if work[row + H_PLACE] < 0:
            count = work[W_FOREIGN]
            work[W_FOREIGN_AT + 2 * count] = start
            work[W_FOREIGN_AT + 2 * count + 1] = pos
            work[W_FOREIGN] = count + 1
        elif not _again(data, pool, code, memory, state, work, row, start + length, text, size):
            return 0
    return 1


@part(INT(BYTES, INT, OUT, INTS, INTS, INTS, INTS))
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
    if 0 < work[W_SHAPE] == work[F_HEADERS] and _read_same(data, end, pool, code, memory, state, work):
        work[W_OTHERS] = 0
        return DONE
    verdict = _read_all(data, end, pool, code, memory, state, work)
    if verdict == DONE:
        # Where each record has other headers than the one before it is not worth it.
        if work[W_OTHERS] % _PATIENCE == 0:
            work[W_SHAPE] = _remember(data, end, pool, code, work)
        work[W_OTHERS] += 1
    return verdict
