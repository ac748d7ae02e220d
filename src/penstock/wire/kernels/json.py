"""A bounded scanner of JSON text (RFC 8259): validates whole values and finds paths by a trie.

One-sided: `VALID` is certain. Repeated or escaped member names, lone halves of surrogates and everything
beyond the bounds below is `UNSURE`: a full parser decides. Nothing is allocated and nothing recurses.

A trie is an array of numbers. A node is two of them: its first edge and its slot, -1 for none. An edge is
five: 1 for an index or 0 for a name; the index, or where the name begins in `names`; the name's length; the
node it leads to; the next edge of the same node. Nodes and edges are named by their position; node 0 is root.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, FOUR, INT, INTS, PAIR, ByteArray, IntArray, kernel
from penstock.wire.kernels.json_tokens import (
    NOT_JSON,
    UNSURE,
    literal_end,
    number_end,
    skip_space,
    string_end,
)
from penstock.wire.kernels.utf8 import is_utf8
from penstock.wire.kernels.varint import byte_at
from penstock.wire.kernels.words import WORD, equal, short_word, word_at

__all__ = [
    "ABSENT",
    "ARRAY",
    "ESCAPED",
    "FALSE",
    "FIELDS",
    "MAX_DEPTH",
    "NULL",
    "NUMBER",
    "OBJECT",
    "STACK_SIZE",
    "STRING",
    "TRUE",
    "VALID",
    "scan_json",
    "value_end",
]

VALID = 0
"""The text is JSON, and every path was found that is there."""

ABSENT = 0
NULL = 1
TRUE = 2
FALSE = 3
NUMBER = 4
STRING = 5
ESCAPED = 6
"""A string that has an escape."""
OBJECT = 7
ARRAY = 8

FIELDS = 3
"""What is noted of a path: its kind, where its text begins, and its length; a string's without quotes."""

MAX_DEPTH = 64
_MAX_BYTES = 8 << 20
_MAX_KEYS = 256
"""Names of all objects that are open at once: their digests are compared with each other."""
_MAX_NUMBER = 4_000
_MAX_NAME = 49_999

# The stack: names in use, then frames, then digests of names. A frame is named by its position.
_KEYS = 0
_OUTSIDE = 1
"""The frame that holds the whole value."""
_FRAME = 6
_DIGESTS = _OUTSIDE + _FRAME * (MAX_DEPTH + 1)
STACK_SIZE = _DIGESTS + _MAX_KEYS

# A frame: kind, node, position of its first byte, names in use below it, names as a set of bits, index.
_F_KIND = 0
_F_NODE = 1
_F_START = 2
_F_KEYS = 3
_F_BITS = 4
_F_INDEX = 5

_OPEN_OBJECT = 0x7B
_OPEN_ARRAY = 0x5B
_CLOSE_OBJECT = 0x7D
_CLOSE_ARRAY = 0x5D
_COMMA = 0x2C
_COLON = 0x3A
_QUOTE = 0x22
_FACTOR = 0x1E3779B97F4A7C15
_MASK = (1 << 63) - 1


@kernel(INT(INT, INT, BYTES, INT, INT, INTS, BYTES))
def _child(
    node: int, is_index: int, data: ByteArray, start: int, size: int, trie: IntArray, names: ByteArray
) -> int:
    """Give the node behind a name data[start:start+size], or behind the index `start`; -1 if none."""
    edge = trie[node] if node >= 0 else -1
    while edge >= 0:
        if trie[edge] == is_index:
            if is_index:
                if trie[edge + 1] == start:
                    return int(trie[edge + 3])
            elif trie[edge + 2] == size and equal(data, start, names, trie[edge + 1], size):
                return int(trie[edge + 3])
        edge = trie[edge + 4]
    return -1


@kernel(INT(INT, INT, INT, INT, INTS, INTS, INT, INT))
def _note(
    node: int, kind: int, start: int, size: int, trie: IntArray, found: IntArray, row: int, rows: int
) -> int:
    """Note a value at its slot, if its node has one."""
    slot = trie[node + 1] if node >= 0 else -1
    if slot >= 0:
        at = slot * FIELDS * rows + row
        found[at] = kind
        found[at + rows] = start
        found[at + 2 * rows] = size
    return slot


@kernel(INT(BYTES, INT, INT))
def _digest(data: ByteArray, start: int, size: int) -> int:
    """Digest a name; short ones are their own digest."""
    if size < WORD:
        return short_word(data, start, size)
    digest = int(size)
    for i in range(0, size - WORD, WORD):
        digest = (digest * _FACTOR + word_at(data, start + i)) & _MASK
    return (digest * _FACTOR + word_at(data, start + size - WORD)) & _MASK


@kernel(INT(BYTES, INT, INT, INTS, INT))
def _is_new(data: ByteArray, start: int, size: int, stack: IntArray, top: int) -> int:
    """Remember a name; 0 if it may have been there before in the same object, or there is no room."""
    digest = _digest(data, start, size)
    keys = stack[_KEYS]
    if keys >= _MAX_KEYS:
        return 0
    bit = 1 << (digest % 61)
    bits = stack[top + _F_BITS]
    if bits & bit:
        for i in range(stack[top + _F_KEYS], keys):
            if stack[_DIGESTS + i] == digest:
                return 0
    stack[top + _F_BITS] = bits | bit
    stack[_DIGESTS + keys] = digest
    stack[_KEYS] = keys + 1
    return 1


@kernel(PAIR(BYTES, INT, INT, INTS, BYTES, INTS, INT))
def _member(
    data: ByteArray, pos: int, end: int, trie: IntArray, names: ByteArray, stack: IntArray, top: int
) -> tuple[int, int]:
    """Read a name and its colon; give the node and the position of the value."""
    if pos >= end or byte_at(data, pos) != _QUOTE:
        return -1, NOT_JSON
    escaped, behind = string_end(data, pos + 1, end)
    if behind < 0:
        return -1, behind
    start, size = pos + 1, behind - pos - 2
    if escaped or size > _MAX_NAME or not _is_new(data, start, size, stack, top):
        return -1, UNSURE
    pos = skip_space(data, behind, end)
    if pos >= end or byte_at(data, pos) != _COLON:
        return -1, NOT_JSON
    node = _child(stack[top + _F_NODE], 0, data, start, size, trie, names)
    return node, skip_space(data, pos + 1, end)


@kernel(PAIR(BYTES, INT, INT, INTS, BYTES, INTS, INT))
def _item(
    data: ByteArray, pos: int, end: int, trie: IntArray, names: ByteArray, stack: IntArray, top: int
) -> tuple[int, int]:
    """Go to the next value of an object or array; give its node and its position."""
    pos = skip_space(data, pos, end)
    if stack[top + _F_KIND] == OBJECT:
        return _member(data, pos, end, trie, names, stack, top)
    index = stack[top + _F_INDEX]
    stack[top + _F_INDEX] = index + 1
    return _child(stack[top + _F_NODE], 1, data, index, 0, trie, names), pos


@kernel(INT(INT, INT, INT, INTS, INT))
def _push(kind: int, node: int, pos: int, stack: IntArray, top: int) -> int:
    """Open an object or array; give its frame."""
    top += _FRAME
    stack[top + _F_KIND] = kind
    stack[top + _F_NODE] = node
    stack[top + _F_START] = pos
    stack[top + _F_KEYS] = stack[_KEYS]
    stack[top + _F_BITS] = 0
    stack[top + _F_INDEX] = 0
    return top


@kernel(INT(INT, INTS, INTS, INTS, INT, INT, INT))
def _pop(pos: int, trie: IntArray, found: IntArray, stack: IntArray, row: int, rows: int, top: int) -> int:
    """Close an object or array, whose last byte is at pos; give the frame around it."""
    start = stack[top + _F_START]
    _note(stack[top + _F_NODE], stack[top + _F_KIND], start, pos + 1 - start, trie, found, row, rows)
    stack[_KEYS] = stack[top + _F_KEYS]
    return top - _FRAME


@kernel(PAIR(BYTES, INT, INT))
def _scalar(data: ByteArray, pos: int, end: int) -> tuple[int, int]:
    """Read a string, number or literal; give its kind and the position behind it."""
    first = byte_at(data, pos)
    if first == _QUOTE:
        escaped, behind = string_end(data, pos + 1, end)
        return STRING + escaped, behind
    if first == 0x74:
        return TRUE, literal_end(data, pos, end)
    if first == 0x66:
        return FALSE, literal_end(data, pos, end)
    if first == 0x6E:
        return NULL, literal_end(data, pos, end)
    behind = number_end(data, pos, end)
    return NUMBER, UNSURE if behind - pos > _MAX_NUMBER else behind


@kernel(INT(BYTES, INT, INT, INTS, INTS, INT, INT, INT))
def _note_scalar(
    data: ByteArray, pos: int, end: int, trie: IntArray, found: IntArray, row: int, rows: int, node: int
) -> int:
    """Read a scalar and note it; give the position behind it."""
    kind, behind = _scalar(data, pos, end)
    if behind >= 0:
        quote = 1 if kind in (STRING, ESCAPED) else 0
        _note(node, kind, pos + quote, behind - pos - 2 * quote, trie, found, row, rows)
    return behind


@kernel(FOUR(BYTES, INT, INT, INTS, BYTES, INTS, INTS, INT, INT, INT, INT))
def _enter(
    data: ByteArray,
    pos: int,
    end: int,
    trie: IntArray,
    names: ByteArray,
    found: IntArray,
    stack: IntArray,
    row: int,
    rows: int,
    top: int,
    node: int,
) -> tuple[int, int, int, int]:
    """Open an object or array and go to its first value, or close it again; give what `_go_on` gives."""
    if top >= _OUTSIDE + _FRAME * MAX_DEPTH:
        return node, UNSURE, top, 0
    is_object = byte_at(data, pos) == _OPEN_OBJECT
    top = _push(OBJECT if is_object else ARRAY, node, pos, stack, top)
    pos = skip_space(data, pos + 1, end)
    if pos < end and byte_at(data, pos) == (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
        return -1, pos + 1, _pop(pos, trie, found, stack, row, rows, top), 0
    node, pos = _item(data, pos, end, trie, names, stack, top)
    return node, pos, top, 1


@kernel(FOUR(BYTES, INT, INT, INTS, BYTES, INTS, INTS, INT, INT, INT))
def _go_on(
    data: ByteArray,
    pos: int,
    end: int,
    trie: IntArray,
    names: ByteArray,
    found: IntArray,
    stack: IntArray,
    row: int,
    rows: int,
    top: int,
) -> tuple[int, int, int, int]:
    """Go on behind a value of an object or array.

    Give the node, the position, the frame, and 1 if a value follows or 0 if one has ended.
    """
    pos = skip_space(data, pos, end)
    if pos >= end:
        return -1, NOT_JSON, top, 0
    first = byte_at(data, pos)
    if first == _COMMA:
        node, pos = _item(data, pos + 1, end, trie, names, stack, top)
        return node, pos, top, 1
    if first != (_CLOSE_OBJECT if stack[top + _F_KIND] == OBJECT else _CLOSE_ARRAY):
        return -1, NOT_JSON, top, 0
    return -1, pos + 1, _pop(pos, trie, found, stack, row, rows, top), 0


@kernel(INT(BYTES, INT, INT, INTS, BYTES, INTS, INTS, INT, INT), inline=False)
def value_end(
    data: ByteArray,
    pos: int,
    end: int,
    trie: IntArray,
    names: ByteArray,
    found: IntArray,
    stack: IntArray,
    row: int,
    rows: int,
) -> int:
    """Scan the value that begins at data[pos], which must be UTF-8; give the position behind it.

    NOT_JSON and UNSURE are as in `scan_json`; what is found is noted as row `row` of `rows`.
    """
    stack[_KEYS] = 0
    node, top, value_follows = 0, _OUTSIDE, 1
    while pos >= 0:
        if value_follows == 0:
            if top == _OUTSIDE:
                return pos
            node, pos, top, value_follows = _go_on(data, pos, end, trie, names, found, stack, row, rows, top)
        elif pos >= end:
            return NOT_JSON
        elif byte_at(data, pos) in (_OPEN_OBJECT, _OPEN_ARRAY):
            node, pos, top, value_follows = _enter(
                data, pos, end, trie, names, found, stack, row, rows, top, node
            )
        else:
            pos = _note_scalar(data, pos, end, trie, found, row, rows, node)
            value_follows = 0
    return pos


@kernel(INT(BYTES, INT, INT, INTS, BYTES, INTS, INTS, INT, INT))
def _row(
    data: ByteArray,
    pos: int,
    end: int,
    trie: IntArray,
    names: ByteArray,
    found: IntArray,
    stack: IntArray,
    row: int,
    rows: int,
) -> int:
    """Scan one value that fills data[pos:end]; give VALID, NOT_JSON or UNSURE."""
    pos = value_end(data, skip_space(data, pos, end), end, trie, names, found, stack, row, rows)
    if pos < 0:
        return pos
    return VALID if skip_space(data, pos, end) == end else NOT_JSON


@kernel(INT(BYTES, INTS, INTS, INTS, BYTES, INTS, INTS, INTS))
def scan_json(
    data: ByteArray,
    offsets: IntArray,
    rows: IntArray,
    trie: IntArray,
    names: ByteArray,
    status: IntArray,
    found: IntArray,
    stack: IntArray,
) -> int:
    """Scan the values `rows` of an Arrow array; give how many are VALID.

    status[i] is the verdict on row rows[i]. `found` holds zeros, FIELDS x len(rows) of them for each slot;
    what is found at a slot of a row that is not VALID means nothing. `stack` is room to work in.
    """
    count = len(rows)
    valid = 0
    for i in range(count):
        start, end = offsets[rows[i]], offsets[rows[i] + 1]
        verdict = UNSURE
        if end - start <= _MAX_BYTES:
            verdict = NOT_JSON
            if is_utf8(data, start, end):
                verdict = _row(data, start, end, trie, names, found, stack, i, count)
        status[i] = verdict
        valid += verdict == VALID
    return valid
