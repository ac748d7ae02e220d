"""The record that leaves: its key, the slot that has room for it, its bytes."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.base64 import encode_base64
from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, part
from penstock.wire.kernels.records import F_KEY, F_KEY_SIZE, F_OFFSET
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.boxes import (
    B_BLOCK,
    B_CAPACITY,
    B_HEAD,
    B_PARTITIONS,
    B_SIZE,
    B_STICKY,
    B_TARGET,
    S_COUNT,
    S_TARGET,
    S_USED,
    note_id,
    position_partition,
    slot_for,
    slot_row,
)
from penstock.wire.kernels.routing.changes import value_of
from penstock.wire.kernels.routing.output_01 import measure_as, write_members_01, write_properties_01
from penstock.wire.kernels.routing.sizes import (
    BASE64,
    CONTENT_TYPE,
    DATA,
    JSON,
    MARKER,
    PREFIX,
    record_limit,
    record_rest,
    written,
)
from penstock.wire.kernels.routing.texts import copy_text, escape_into
from penstock.wire.kernels.varint import read_varint, varint_size, write_varint
from penstock.wire.routing_layout import (
    A_CORE,
    DATA_IS_JSON_VALUE,
    DATA_JSON,
    DATA_NONE,
    DATA_TEXT,
    DONE,
    FULL,
    KEY_KEEP,
    KEY_PARTITIONKEY,
    KEY_VALUE,
    N_ESCAPES,
    N_HEAD,
    N_NAME,
    N_NAME_SIZE,
    N_SIZE,
    N_STYLE,
    N_TEXT,
    R_KEY,
    R_KEY_VALUE,
    R_TARGET_COUNT,
    R_TARGETS,
    SLOW,
    STYLE_MEDIA_TYPE,
    STYLE_RAW,
    T_KEYED,
    T_LIMIT,
    T_NUMBER,
    T_TARGET,
    T_VALUES,
    UNSURE,
    W_DATA,
    W_DATA_SIZE,
    W_DATA_STYLE,
    W_FOREIGN,
    W_FOREIGN_AT,
    W_FORM,
    W_HEADER_COUNT,
    W_KEY_TEXT,
    W_KEY_TEXT_SIZE,
    W_OUTPUTS,
    W_UNDO_AT,
    W_VALUE_BYTES,
    W_WRITTEN,
    X_BASE,
    X_DRY,
)

__all__ = ["choose_key", "emit", "undo"]

_PARTITIONKEY = np.frombuffer(b"partitionkey", np.uint8)
_QUOTE = 0x22

_LONGEST = 15
"""Bytes of a record's own length and offset, at most, and its attributes and timestamp."""


# The key


@inner(INT(BYTES, BYTES, INT, INT))
def _is_partitionkey(data: ByteArray, pool: ByteArray, name: int, size: int) -> int:
    if name >= 0:
        return is_text(data, name, size, _PARTITIONKEY)
    return is_text(pool, ~name, size, _PARTITIONKEY)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT), inline=False)
def _key_value(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, route: int
) -> int:
    verdict = value_of(data, pool, code, work, found, code[route + R_KEY_VALUE], W_KEY_TEXT)
    return SLOW if verdict == UNSURE else DONE


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def choose_key(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, route: int
) -> int:
    """Note the key with which the event leaves; SLOW if it is not certain."""
    rule = code[route + R_KEY]
    work[W_KEY_TEXT] = 0
    work[W_KEY_TEXT_SIZE] = -1
    if rule == KEY_KEEP:
        work[W_KEY_TEXT] = work[F_KEY]
        work[W_KEY_TEXT_SIZE] = work[F_KEY_SIZE]
    elif rule == KEY_VALUE:
        return _key_value(data, pool, code, work, found, route)
    elif rule == KEY_PARTITIONKEY:
        for i in range(A_CORE, work[W_WRITTEN]):
            at = written(work, i)
            if _is_partitionkey(data, pool, work[at + N_NAME], work[at + N_NAME_SIZE]):
                work[W_KEY_TEXT] = work[at + N_TEXT]
                work[W_KEY_TEXT_SIZE] = work[at + N_SIZE]
    return DONE


# The bytes


@part(INT(BYTES, OUT, INT))
def _blob(text: ByteArray, out: ByteArray, at: int) -> int:
    at = write_varint(out, at, len(text))
    return copy(text, 0, out, at, len(text))


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT), inline=False)
def _header_name(data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int) -> int:
    """Write the name of a header that has no head."""
    if work[row + N_STYLE] == STYLE_MEDIA_TYPE:
        return _blob(CONTENT_TYPE, out, at)
    at = write_varint(out, at, len(PREFIX) + work[row + N_NAME_SIZE])
    at = copy(PREFIX, 0, out, at, len(PREFIX))
    return copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at)


@part(INT(BYTES, BYTES, INTS, OUT, INT), boundscheck=False)
def _write_attributes(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the headers of binary mode."""
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        if work[row + N_SIZE] < 0:
            continue
        if work[row + N_HEAD] == 0 or work[row + N_STYLE] == STYLE_MEDIA_TYPE:
            at = _header_name(data, pool, work, row, out, at)
        else:
            at = copy(pool, work[row + N_HEAD], out, at, 1 + len(PREFIX) + work[row + N_NAME_SIZE])
        at = write_varint(out, at, work[row + N_SIZE])
        at = copy_text(data, pool, work[row + N_TEXT], work[row + N_SIZE], out, at)
    if work[W_DATA_STYLE] == DATA_IS_JSON_VALUE:
        at = _blob(CONTENT_TYPE, out, at)
        at = _blob(JSON, out, at)
    return at


@inner(INT(OUT, INT, INT))
def _put(out: ByteArray, at: int, byte: int) -> int:
    if at < 0 or at >= len(out):
        raise IndexError("byte leaves its array")
    out[at] = byte
    return at + 1


@inner(INT(BYTES, BYTES, INTS, INT, OUT, INT), inline=False)
def _member_name(data: ByteArray, pool: ByteArray, work: IntArray, row: int, out: ByteArray, at: int) -> int:
    """Write the name of a member that has no head, as far as the quote of its text."""
    out[at] = 0x2C
    out[at + 1] = _QUOTE
    at = copy_text(data, pool, work[row + N_NAME], work[row + N_NAME_SIZE], out, at + 2)
    out[at] = _QUOTE
    out[at + 1] = 0x3A
    out[at + 2] = _QUOTE
    return at + 3


@part(INT(BYTES, BYTES, INTS, OUT, INT), boundscheck=False)
def _write_members(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the attributes of structured mode as members of an object."""
    start = at
    for i in range(work[W_WRITTEN]):
        row = written(work, i)
        size = work[row + N_SIZE]
        if size < 0:
            continue
        head, length = work[row + N_HEAD], work[row + N_NAME_SIZE]
        if head == 0:
            at = _member_name(data, pool, work, row, out, at)
        else:
            at = copy(pool, head + 1 + len(PREFIX) + length, out, at, length + 5)
        raw = int(work[row + N_STYLE] == STYLE_RAW)
        at -= raw
        if work[row + N_ESCAPES] > 0:
            at = escape_into(data, pool, work[row + N_TEXT], size, out, at)
        else:
            at = copy_text(data, pool, work[row + N_TEXT], size, out, at)
        if not raw:
            at = _put(out, at, _QUOTE)
    _put(out, start, 0x7B)
    return at


@inner(INT(BYTES, BYTES, INTS, OUT, INT))
def _write_data(data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the data of a structured event, and the end of the object."""
    style, start, size = work[W_DATA_STYLE], work[W_DATA], work[W_DATA_SIZE]
    # 0.1 tells bytes by the content type, and has no member of its own for them.
    if style == DATA_JSON:
        at = copy(DATA, 0, out, at, len(DATA))
        at = copy(data, start, out, at, size)
    elif style != DATA_NONE:
        name = DATA if style == DATA_TEXT or work[W_FORM] else BASE64
        at = copy(name, 0, out, at, len(name))
        out[at] = _QUOTE
        if style == DATA_TEXT:
            at = escape_into(data, pool, start, size, out, at + 1)
        else:
            at = encode_base64(data, start, start + size, out, at + 1)
        out[at] = _QUOTE
        at += 1
    out[at] = 0x7D
    return at + 1


@inner(INT(BYTES, BYTES, INTS, OUT, INT, INT, INT))
def _write(
    data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, at: int, length: int, offset: int
) -> int:
    """Write one record, format v2; give the position behind it."""
    at = write_varint(out, at, length)
    out[at] = 0
    out[at + 1] = 0
    at = write_varint(out, at + 2, offset)
    at = write_varint(out, at, work[W_KEY_TEXT_SIZE])
    if work[W_KEY_TEXT_SIZE] > 0:
        at = copy_text(data, pool, work[W_KEY_TEXT], work[W_KEY_TEXT_SIZE], out, at)
    at = write_varint(out, at, work[W_VALUE_BYTES])
    structured = work[W_DATA_STYLE] >= 0
    form = work[W_FORM]
    if structured:
        if form:
            at = write_members_01(data, pool, work, out, at)
        else:
            at = _write_members(data, pool, work, out, at)
        at = _write_data(data, pool, work, out, at)
    elif work[W_DATA_SIZE] > 0:
        at = copy(data, work[W_DATA], out, at, work[W_DATA_SIZE])
    at = write_varint(out, at, work[W_HEADER_COUNT])
    if form:
        at = write_properties_01(data, pool, work, out, at)
    elif structured:
        at = copy(MARKER, 0, out, at, len(MARKER))
    else:
        at = _write_attributes(data, pool, work, out, at)
    for i in range(work[W_FOREIGN]):
        start = work[W_FOREIGN_AT + 2 * i]
        at = copy(data, start, out, at, work[W_FOREIGN_AT + 2 * i + 1] - start)
    return at


# Its place


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INT))
def _partition(
    data: ByteArray, pool: ByteArray, work: IntArray, state: IntArray, box: IntArray, target: int
) -> int:
    row = B_HEAD + target * B_TARGET
    key, size = work[W_KEY_TEXT], work[W_KEY_TEXT_SIZE]
    if size < 0 and box[row + B_BLOCK]:
        return position_partition(box, target, state[X_BASE] + work[F_OFFSET])
    if size < 0:
        return int(box[row + B_STICKY])
    if key >= 0:
        return partition_of(data, key, key + size, box[row + B_PARTITIONS])
    return partition_of(pool, ~key, ~key + size, box[row + B_PARTITIONS])


@inner(INT(INTS, INTS))
def undo(work: IntArray, box: IntArray) -> int:
    """Take back what was written for the record at hand."""
    for i in range(work[W_OUTPUTS] - 1, -1, -1):
        row = work[W_UNDO_AT + 3 * i]
        box[row + S_USED] = work[W_UNDO_AT + 3 * i + 1]
        box[row + S_COUNT] = work[W_UNDO_AT + 3 * i + 2]
    work[W_OUTPUTS] = 0
    return 0


@inner(INT(INTS, INTS, INT), inline=False)
def _ordinal(work: IntArray, box: IntArray, target: int) -> int:
    """Count what the record at hand has become for a target so far."""
    count = 0
    for i in range(work[W_OUTPUTS]):
        count += int(box[work[W_UNDO_AT + 3 * i] + S_TARGET] == target)
    return count


@inner(INT(BYTES, INTS), inline=False)
def _has_dashed(data: ByteArray, work: IntArray) -> int:
    """Say 1 if a header of the application is called CE-*, which is an attribute on Pulsar (spec 002 3.1)."""
    for i in range(work[W_FOREIGN]):
        start, end = work[W_FOREIGN_AT + 2 * i], work[W_FOREIGN_AT + 2 * i + 1]
        size, at = read_varint(data, start, end)
        if at < 0 or size > end - at:
            return 1
        if size >= 3 and data[at] == 0x43 and data[at + 1] == 0x45 and data[at + 2] == 0x2D:
            return 1
    return 0


@inner(INT(BYTES, BYTES, INTS, INTS, OUT, INTS, INT, INT))
def _place(
    data: ByteArray,
    pool: ByteArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    target: int,
    rest: int,
) -> int:
    """Write the record, of which `rest` bytes do not depend on its place: DONE or FULL."""
    slot = slot_for(box, target, _partition(data, pool, work, state, box, target), rest + _LONGEST)
    if slot < 0:
        return FULL
    row = slot_row(box, slot)
    used, count = box[row + S_USED], box[row + S_COUNT]
    if box[B_HEAD + target * B_TARGET + B_BLOCK]:
        note_id(box, slot, count, state[X_BASE] + work[F_OFFSET], _ordinal(work, box, target))
    undo_at = W_UNDO_AT + 3 * work[W_OUTPUTS]
    work[undo_at] = row
    work[undo_at + 1] = used
    work[undo_at + 2] = count
    work[W_OUTPUTS] += 1
    start = slot * box[B_SIZE]
    end = _write(data, pool, work, out, start + used, 2 + varint_size(count) + rest, count)
    box[row + S_USED] = end - start
    box[row + S_COUNT] = count + 1
    return DONE


@part(INT(BYTES, BYTES, INTS, INTS, INTS, OUT, INTS, INT))
def emit(
    data: ByteArray,
    pool: ByteArray,
    code: IntArray,
    work: IntArray,
    state: IntArray,
    out: ByteArray,
    box: IntArray,
    route: int,
) -> int:
    """Write the measured record to every target of a route: DONE, FULL or SLOW."""
    work[W_FORM] = 0
    rest, largest = record_rest(work), record_limit(work)
    for i in range(code[route + R_TARGET_COUNT]):
        at = code[route + R_TARGETS] + i * T_TARGET
        target = code[at + T_NUMBER]
        # A null value that is no event leaves as it came.
        form = code[at + T_VALUES] if work[W_WRITTEN] else 0
        if form != work[W_FORM]:
            if measure_as(data, pool, work, form) != DONE:
                return SLOW
            rest, largest = record_rest(work), record_limit(work)
        if (
            0 <= code[at + T_LIMIT] < largest
            or work[W_KEY_TEXT_SIZE] < code[at + T_KEYED]
            or rest + _LONGEST > box[B_HEAD + target * B_TARGET + B_CAPACITY]
            or (box[B_HEAD + target * B_TARGET + B_BLOCK] and _has_dashed(data, work))
        ):
            return SLOW
        if not state[X_DRY]:
            verdict = _place(data, pool, work, state, out, box, target, rest)
            if verdict != DONE:
                return verdict
    return DONE
