"""Fields of a Protocol Buffers message, found without building objects.

A tag is the field number shifted left by three, with the wire type in the low bits. Wire types:
0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes; groups (3, 4) are refused.
"""

from __future__ import annotations

from numba import types

from penstock.wire.kernels.jit import BYTES, INT, INTS, ByteArray, IntArray, kernel
from penstock.wire.kernels.varint import BAD_VARINT, TRUNCATED, byte_at, read_uvarint

__all__ = ["BAD_FIELD", "ERRORS", "read_field", "scan"]

BAD_FIELD = -3
"""A tag that no message can have: field 0, a group, or more than 32 bits."""

_VARINT = 0
_FIXED64 = 1
_LENGTH = 2
_FIXED32 = 5
_FIELD = types.UniTuple(INT, 4)


@kernel(_FIELD(BYTES, INT, INT))
def read_field(data: ByteArray, pos: int, end: int) -> tuple[int, int, int, int]:
    """Read one field of data[pos:end]: its tag, its value, its size and the position behind it.

    The value of a varint is the number, of anything else the position where its bytes begin.
    A negative position is an error.
    """
    tag, pos = read_uvarint(data, pos, end)
    if pos < 0:
        return 0, 0, 0, pos
    if tag < 8 or tag > 0xFFFFFFFF:
        return 0, 0, 0, BAD_FIELD
    wire = tag & 7
    if wire == _VARINT:
        number, pos = read_uvarint(data, pos, end)
        return tag, number, 0, pos
    size = 0
    if wire == _LENGTH:
        size, pos = read_uvarint(data, pos, end)
        if pos < 0:
            return 0, 0, 0, pos
    elif wire == _FIXED64:
        size = 8
    elif wire == _FIXED32:
        size = 4
    else:
        return 0, 0, 0, BAD_FIELD
    if size < 0 or size > end - pos:
        return 0, 0, 0, TRUNCATED
    return tag, pos, size, pos + size


@kernel(INT(BYTES, INT, INT, BYTES, INTS))
def scan(data: ByteArray, pos: int, end: int, slots: ByteArray, found: IntArray) -> int:
    """Store the fields of data[pos:end] that `slots` names; give `end`, or a negative number on error.

    slots[tag] is the index in `found` for the value; the size goes to the next index when the field
    has bytes. Slot 0 receives what nobody asked for. The last of repeated fields wins.
    """
    while pos < end:
        tag, value, size, pos = read_field(data, pos, end)
        if pos < 0:
            return pos
        slot = byte_at(slots, tag) if tag < len(slots) else 0
        found[slot] = value
        if tag & 7 != _VARINT and slot > 0:
            found[slot + 1] = size
    return pos


ERRORS = {
    TRUNCATED: "ends inside a field",
    BAD_VARINT: "has a number of more than 64 bits",
    BAD_FIELD: "has a tag that no message has",
}
"""What the negative results mean, as the end of a sentence."""
