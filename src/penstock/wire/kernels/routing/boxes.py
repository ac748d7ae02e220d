"""The records that wait for their batch: one buffer cut into slots, a slot for each partition that has some.

`box` is an array of numbers: its head, a row for each target, the slot of every partition (-1 for none), a
row for each slot, and where a target wants them the ids of the records in each slot. Slots are handed out as
they are needed and emptied by the owner of the array.

The id of a record is the offset of the record that it was made of, shifted, plus its ordinal among what that
one became for the same target: ids of one source partition grow, and a second run gives the same ones.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import INT, INTS, IntArray, inner, kernel
from penstock.wire.routing_layout import ORDINAL_BITS

__all__ = [
    "B_BLOCK",
    "B_CAPACITY",
    "B_FULL",
    "B_HEAD",
    "B_IDS",
    "B_IDS_AT",
    "B_PARTITIONS",
    "B_SIZE",
    "B_SLOTS",
    "B_SLOTS_AT",
    "B_SOURCE",
    "B_STICKY",
    "B_TAKEN",
    "B_TARGET",
    "B_WHERE",
    "NO_ROOM",
    "S_COUNT",
    "S_PARTITION",
    "S_SLOT",
    "S_TARGET",
    "S_USED",
    "S_WHERE",
    "note_id",
    "position_partition",
    "slot_for",
    "slot_row",
]

B_SLOTS = 0
"""How many slots there are."""
B_SIZE = 1
"""Bytes of a slot."""
B_TAKEN = 2
"""How many slots are in use; they are taken in order."""
B_FULL = 3
"""After NO_ROOM: the slot that is full, -1 if none is free."""
B_SLOTS_AT = 4
"""Where the rows of the slots begin."""
B_IDS_AT = 5
"""Where the ids of the records begin."""
B_IDS = 6
"""For how many ids a slot has room; 0 if no target wants them."""
B_SOURCE = 7
"""The partition that the records come from."""
B_HEAD = 8

# A row for each target.
B_WHERE = 0
"""Where the slots of its partitions stand."""
B_PARTITIONS = 1
B_STICKY = 2
"""The partition of records without a key."""
B_CAPACITY = 3
"""Bytes of records that a batch may hold."""
B_BLOCK = 4
"""After so many offsets records without a key go to the next partition; 0: to B_STICKY, and have no ids."""
B_TARGET = 5

# A row for each slot.
S_USED = 0
S_COUNT = 1
S_WHERE = 2
S_TARGET = 3
S_PARTITION = 4
S_SLOT = 5

NO_ROOM = -1


@kernel(INT(INTS, INT))
def slot_row(box: IntArray, slot: int) -> int:
    """Give where the row of a slot begins."""
    return int(box[B_SLOTS_AT]) + slot * S_SLOT


@inner(INT(INTS, INT, INT))
def _taken(box: IntArray, target: int, partition: int) -> int:
    """Take a new slot for a partition; NO_ROOM if none is free."""
    slot = box[B_TAKEN]
    if slot >= box[B_SLOTS]:
        box[B_FULL] = -1
        return NO_ROOM
    where = box[B_HEAD + target * B_TARGET + B_WHERE] + partition
    row = slot_row(box, slot)
    box[row + S_USED] = 0
    box[row + S_COUNT] = 0
    box[row + S_WHERE] = where
    box[row + S_TARGET] = target
    box[row + S_PARTITION] = partition
    box[where] = slot
    box[B_TAKEN] = slot + 1
    return int(slot)


@kernel(INT(INTS, INT, INT, INT), inline=False)
def slot_for(box: IntArray, target: int, partition: int, size: int) -> int:
    """Give the slot of a partition if it has so many bytes left; NO_ROOM says that it must be emptied."""
    slot = box[box[B_HEAD + target * B_TARGET + B_WHERE] + partition]
    if slot < 0:
        slot = _taken(box, target, partition)
    if slot >= 0 and box[slot_row(box, slot) + S_USED] + size > box[B_HEAD + target * B_TARGET + B_CAPACITY]:
        box[B_FULL] = slot
        return NO_ROOM
    return int(slot)


@kernel(INT(INTS, INT, INT), inline=False)
def position_partition(box: IntArray, target: int, offset: int) -> int:
    """Return the partition of a record without a key, by where its input stands."""
    row = B_HEAD + target * B_TARGET
    return int((offset // box[row + B_BLOCK] + box[B_SOURCE]) % box[row + B_PARTITIONS])


@kernel(INT(INTS, INT, INT, INT, INT), inline=False)
def note_id(box: IntArray, slot: int, count: int, offset: int, ordinal: int) -> int:
    """Note the id of the record number `count` of a slot."""
    box[box[B_IDS_AT] + slot * box[B_IDS] + count] = (offset << ORDINAL_BITS) + ordinal
    return 0
