"""Where the record that leaves goes: its partition, its slot, and what every record has around its event."""

from __future__ import annotations

from penstock.wire.kernels.copying import copy
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.records import F_OFFSET
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
from penstock.wire.kernels.routing.texts import copy_text
from penstock.wire.kernels.varint import read_varint, varint_size, write_varint
from penstock.wire.routing_layout import (
    T_KEYED,
    T_LIMIT,
    T_NUMBER,
    W_FOREIGN,
    W_FOREIGN_AT,
    W_HEADER_COUNT,
    W_HEADERS_SIZE,
    W_KEY_TEXT,
    W_KEY_TEXT_SIZE,
    W_OUTPUTS,
    W_UNDO_AT,
    W_VALUE_BYTES,
    X_BASE,
)

__all__ = [
    "fits",
    "finish",
    "record_limit",
    "record_rest",
    "take_slot",
    "undo",
    "write_foreign",
    "write_start",
]

# What `pipeline.size` counts: the head of a batch, the numbers of a record, and five bytes for every length.
_LIMIT_HEAD = 61 + 21 + 5
_LIMIT_LENGTH = 5
_LONGEST = 15
"""Bytes of a record's own length and offset, at most, and its attributes and timestamp."""


@inner(INT(INTS))
def record_rest(work: IntArray) -> int:
    """Add up the bytes of the measured record that do not depend on its place."""
    key, value = max(work[W_KEY_TEXT_SIZE], 0), max(work[W_VALUE_BYTES], 0)
    rest = varint_size(work[W_KEY_TEXT_SIZE]) + key + varint_size(work[W_VALUE_BYTES]) + value
    return int(rest + varint_size(work[W_HEADER_COUNT]) + work[W_HEADERS_SIZE])


@inner(INT(INTS))
def record_limit(work: IntArray) -> int:
    """Give the size that limits are held against."""
    size = max(work[W_KEY_TEXT_SIZE], 0) + max(work[W_VALUE_BYTES], 0) + work[W_HEADERS_SIZE]
    return int(size + _LIMIT_HEAD + 2 * _LIMIT_LENGTH * (1 + work[W_HEADER_COUNT]))


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


@inner(INT(BYTES, INTS, INTS, INTS, INT, INT, INT))
def fits(
    data: ByteArray, code: IntArray, work: IntArray, box: IntArray, at: int, rest: int, largest: int
) -> int:
    """Say 1 if a target takes the measured record; 0 if somebody else has to say what becomes of it."""
    target = code[at + T_NUMBER]
    refused = (
        0 <= code[at + T_LIMIT] < largest
        or work[W_KEY_TEXT_SIZE] < code[at + T_KEYED]
        or rest + _LONGEST > box[B_HEAD + target * B_TARGET + B_CAPACITY]
        or (box[B_HEAD + target * B_TARGET + B_BLOCK] != 0 and _has_dashed(data, work) != 0)
    )
    return int(not refused)


@inner(INT(BYTES, BYTES, INTS, INTS, INTS, INT, INT))
def take_slot(
    data: ByteArray, pool: ByteArray, work: IntArray, state: IntArray, box: IntArray, target: int, rest: int
) -> int:
    """Give the slot that has room for the record, noting what is there now; negative if there is none."""
    slot = slot_for(box, target, _partition(data, pool, work, state, box, target), rest + _LONGEST)
    if slot >= 0:
        row = slot_row(box, slot)
        count = box[row + S_COUNT]
        if box[B_HEAD + target * B_TARGET + B_BLOCK]:
            note_id(box, slot, count, state[X_BASE] + work[F_OFFSET], _ordinal(work, box, target))
        undo_at = W_UNDO_AT + 3 * work[W_OUTPUTS]
        work[undo_at] = row
        work[undo_at + 1] = box[row + S_USED]
        work[undo_at + 2] = count
        work[W_OUTPUTS] += 1
    return int(slot)


@inner(INT(INTS, INT, INT))
def finish(box: IntArray, slot: int, end: int) -> int:
    """Note that a record was written to a slot, up to `end`."""
    row = slot_row(box, slot)
    box[row + S_USED] = end - slot * box[B_SIZE]
    box[row + S_COUNT] += 1
    return 0


@inner(INT(BYTES, BYTES, INTS, OUT, INTS, INT, INT))
def write_start(
    data: ByteArray, pool: ByteArray, work: IntArray, out: ByteArray, box: IntArray, slot: int, rest: int
) -> int:
    """Write a record, format v2, as far as its value; give the position behind it."""
    row = slot_row(box, slot)
    count = box[row + S_COUNT]
    at = slot * box[B_SIZE] + box[row + S_USED]
    at = write_varint(out, at, 2 + varint_size(count) + rest)
    out[at] = 0
    out[at + 1] = 0
    at = write_varint(out, at + 2, count)
    at = write_varint(out, at, work[W_KEY_TEXT_SIZE])
    if work[W_KEY_TEXT_SIZE] > 0:
        at = copy_text(data, pool, work[W_KEY_TEXT], work[W_KEY_TEXT_SIZE], out, at)
    return int(write_varint(out, at, work[W_VALUE_BYTES]))


@inner(INT(BYTES, INTS, OUT, INT))
def write_foreign(data: ByteArray, work: IntArray, out: ByteArray, at: int) -> int:
    """Write the headers of the application as they came; give the position behind them."""
    for i in range(work[W_FOREIGN]):
        start = work[W_FOREIGN_AT + 2 * i]
        at = copy(data, start, out, at, work[W_FOREIGN_AT + 2 * i + 1] - start)
    return at
