"""The records that wait for their batch: one buffer cut into slots, a slot for each partition that has some.

`box` is an array of numbers: its head, a row for each target, the slot of every partition (-1 for none), and
a row for each slot. Slots are handed out as they are needed and emptied by the owner of the array.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import INT, INTS, IntArray, inner, kernel

__all__ = [
    "B_CAPACITY",
    "B_FULL",
    "B_HEAD",
    "B_PARTITIONS",
    "B_SIZE",
    "B_SLOTS",
    "B_SLOTS_AT",
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
B_HEAD = 5

# A row for each target.
B_WHERE = 0
"""Where the slots of its partitions stand."""
B_PARTITIONS = 1
B_STICKY = 2
"""The partition of records without a key."""
B_CAPACITY = 3
"""Bytes of records that a batch may hold."""
B_TARGET = 4

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
