"""Functions of texts, counted and cut in code points.

Arguments and results stand as `decimals` says. What is cut stays where it is; what is made anew is written
into the room of the pool. All texts are UTF-8, so that a sequence of bytes is found where its characters are.
"""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.decimals import NOT_WHOLE, set_value, whole
from penstock.wire.kernels.routing.grammar import character_size
from penstock.wire.kernels.routing.texts import copy_text, same, text_byte
from penstock.wire.kernels.varint import byte_at
from penstock.wire.routing_layout import (
    DONE,
    F_CONCAT,
    F_LEFT,
    F_LENGTH,
    F_LOWER,
    F_LTRIM,
    F_POSITION,
    F_REPLACE,
    F_RIGHT,
    F_RTRIM,
    F_SUBSTRING,
    F_TRIM,
    F_UNICODE_LOWER,
    F_UNICODE_UPPER,
    F_UPPER,
    FALSE,
    NULL,
    Q_BOOLEAN_OF_TEXT,
    Q_CONTAINS,
    Q_ENDS_WITH,
    Q_STARTS_WITH,
    TRUE,
    UNSURE,
    V_VALUE,
    W_SCRATCH,
)

__all__ = ["text_function", "text_test"]

_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_SMALL = 0x20
"""The bit that makes a letter of ASCII small."""
_MAX_STEPS = 100_000
_NOWHERE = -1
_TOO_LONG = -2


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def _byte(data: ByteArray, pool: ByteArray, text: int, i: int) -> int:
    """Give one byte of a text: apart from its callers, which are many."""
    return text_byte(data, pool, text, i)


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def _step(data: ByteArray, pool: ByteArray, text: int, at: int) -> int:
    """Give the length of the character that begins at a byte of a text."""
    return character_size(data, pool, text, at)


# Places in a text


@inner(INT(INT, INT))
def _behind(text: int, size: int) -> int:
    """Give the place so many bytes further on, in the records or in the pool."""
    return text + size if text >= 0 else text - size


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def _length(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    """Count the characters of a text: the bytes that do not continue one."""
    count = 0
    for i in range(size):
        count += int(_byte(data, pool, text, i) & 0xC0 != 0x80)
    return count


@inner(INT(BYTES, BYTES, INT, INT, INT), inline=False)
def _bytes_of(data: ByteArray, pool: ByteArray, text: int, size: int, count: int) -> int:
    """Give how many bytes the first characters of a text have, at most those of the text."""
    at = 0
    while at < size and count > 0:
        at += _step(data, pool, text, at)
        count -= 1
    return at


@inner(INT(BYTES, BYTES, INT, INT, INT, INT, INT), inline=False)
def _find(data: ByteArray, pool: ByteArray, text: int, size: int, other: int, length: int, start: int) -> int:
    """Give at which byte of a text another begins, from `start` on; _NOWHERE, or _TOO_LONG to look for."""
    steps = 0
    for i in range(start, size - length + 1):
        at = 0
        while at < length and _byte(data, pool, text, i + at) == _byte(data, pool, other, at):
            at += 1
        if at == length:
            return i
        steps += at + 1
        if steps > _MAX_STEPS:
            return _TOO_LONG
    return _NOWHERE


# Functions


@inner(INT(BYTES, OUT, INTS, INT, INT), inline=False)
def _change_case(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    """Change the letters of ASCII; UNSURE where others are to be changed, too."""
    text, size, start = work[at], work[at + 1], work[W_SCRATCH]
    first = 0x41 if function in (F_LOWER, F_UNICODE_LOWER) else 0x61
    every = function in (F_UNICODE_LOWER, F_UNICODE_UPPER)
    changed = 0
    for i in range(size):
        found = _byte(data, pool, text, i)
        if every and found >= 0x80:
            return UNSURE
        changed |= int(first <= found < first + 26)
    if not changed:
        return DONE
    if start + size > len(pool):
        return UNSURE
    for i in range(size):
        found = _byte(data, pool, text, i)
        pool[start + i] = found ^ _SMALL if first <= found < first + 26 else found
    work[W_SCRATCH] = start + size
    return set_value(work, at, ~start, size)


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT))
def _cut(data: ByteArray, pool: ByteArray, work: IntArray, at: int, first: int, count: int) -> int:
    """Keep so many characters behind the first ones."""
    text, size = work[at], work[at + 1]
    start = _bytes_of(data, pool, text, size, first)
    text = _behind(text, start)
    return set_value(work, at, text, _bytes_of(data, pool, text, size - start, count))


@inner(INT(BYTES, BYTES, INTS, INT, INT), inline=False)
def _end_of(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    """Cut the first or the last characters; null for a count that is not whole."""
    count = whole(work[at + 2], work[at + 3])
    if count == NOT_WHOLE:
        return set_value(work, at, 0, -1)
    first = 0
    if function == F_RIGHT:
        first = max(_length(data, pool, work[at], work[at + 1]) - max(count, 0), 0)
    return _cut(data, pool, work, at, first, count)


@inner(INT(BYTES, BYTES, INTS, INT), inline=False)
def _substring(data: ByteArray, pool: ByteArray, work: IntArray, at: int) -> int:
    """Cut from a position, counted from 1 or from the end, so many characters."""
    start = whole(work[at + 2], work[at + 3])
    count = whole(work[at + 4], work[at + 5])
    if start == NOT_WHOLE or count == NOT_WHOLE:
        return set_value(work, at, 0, -1)
    if start > 0:
        start -= 1
    elif start < 0:
        start += _length(data, pool, work[at], work[at + 1])
    # What would stand before the text counts, and is not there.
    return _cut(data, pool, work, at, max(start, 0), max(start + count, 0) - max(start, 0))


@inner(INT(BYTES, OUT, INTS, INT, INT), inline=False)
def _concat(data: ByteArray, pool: ByteArray, work: IntArray, at: int, count: int) -> int:
    start = work[W_SCRATCH]
    end = start
    for i in range(at, at + count * V_VALUE, V_VALUE):
        if end + work[i + 1] > len(pool):
            return UNSURE
        end = copy_text(data, pool, work[i], work[i + 1], pool, end)
    work[W_SCRATCH] = end
    return set_value(work, at, ~start, end - start)


@inner(INT(BYTES, BYTES, INT, INT, INT, INT), inline=False)
def _is_one_of(data: ByteArray, pool: ByteArray, text: int, size: int, characters: int, length: int) -> int:
    """Say 1 if a character is one of others."""
    at = 0
    while at < length:
        step = _step(data, pool, characters, at)
        if same(data, pool, text, size, _behind(characters, at), step):
            return 1
        at += step
    return 0


@inner(INT(BYTES, BYTES, INTS, INT, INT), inline=False)
def _trim(data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int) -> int:
    text, size, characters, length = work[at], work[at + 1], work[at + 2], work[at + 3]
    steps = 0
    start = 0
    while start < size and function != F_RTRIM:
        step = _step(data, pool, text, start)
        if not _is_one_of(data, pool, _behind(text, start), step, characters, length):
            break
        start += step
        steps += length
        if steps > _MAX_STEPS:
            return UNSURE
    end = size
    while end > start and function != F_LTRIM:
        step = 1
        while _byte(data, pool, text, end - step) & 0xC0 == 0x80:
            step += 1
        if not _is_one_of(data, pool, _behind(text, end - step), step, characters, length):
            break
        end -= step
        steps += length
        if steps > _MAX_STEPS:
            return UNSURE
    return set_value(work, at, _behind(text, start), end - start)


@inner(INT(BYTES, OUT, INTS, INT), inline=False)
def _replace(data: ByteArray, pool: ByteArray, work: IntArray, at: int) -> int:
    text, size, search, length = work[at], work[at + 1], work[at + 2], work[at + 3]
    if length == 0:
        return DONE
    start = work[W_SCRATCH]
    end = start
    done = 0
    while done >= 0:
        place = _find(data, pool, text, size, search, length, done)
        if place == _TOO_LONG:
            return UNSURE
        upto = size if place < 0 else place
        if end + upto - done + work[at + 5] > len(pool):
            return UNSURE
        end = copy_text(data, pool, _behind(text, done), upto - done, pool, end)
        if place >= 0:
            end = copy_text(data, pool, work[at + 4], work[at + 5], pool, end)
        done = place + length if place >= 0 else -1
    work[W_SCRATCH] = end
    return set_value(work, at, ~start, end - start)


@inner(INT(BYTES, BYTES, INTS, INT), inline=False)
def _position(data: ByteArray, pool: ByteArray, work: IntArray, at: int) -> int:
    place = _find(data, pool, work[at], work[at + 1], work[at + 2], work[at + 3], 0)
    if place == _TOO_LONG:
        return UNSURE
    return set_value(work, at, _length(data, pool, work[at], place) + 1 if place >= 0 else 0, 0)


@inner(INT(BYTES, OUT, INTS, INT, INT, INT))
def text_function(
    data: ByteArray, pool: ByteArray, work: IntArray, at: int, function: int, count: int
) -> int:
    """Call a function of texts with so many arguments."""
    if function in (F_LOWER, F_UPPER, F_UNICODE_LOWER, F_UNICODE_UPPER):
        return _change_case(data, pool, work, at, function)
    if function == F_LENGTH:
        return set_value(work, at, _length(data, pool, work[at], work[at + 1]), 0)
    if function in (F_LEFT, F_RIGHT):
        return _end_of(data, pool, work, at, function)
    if function == F_SUBSTRING:
        return _substring(data, pool, work, at)
    if function == F_CONCAT:
        return _concat(data, pool, work, at, count)
    if function in (F_TRIM, F_LTRIM, F_RTRIM):
        return _trim(data, pool, work, at, function)
    if function == F_REPLACE:
        return _replace(data, pool, work, at)
    if function == F_POSITION:
        return _position(data, pool, work, at)
    return UNSURE


# Tests


@inner(INT(BYTES, BYTES, INT, INT), inline=False)
def _boolean_of(data: ByteArray, pool: ByteArray, text: int, size: int) -> int:
    if text >= 0:
        return (
            TRUE if is_text(data, text, size, _TRUE) else FALSE if is_text(data, text, size, _FALSE) else NULL
        )
    return (
        TRUE if is_text(pool, ~text, size, _TRUE) else FALSE if is_text(pool, ~text, size, _FALSE) else NULL
    )


@inner(INT(BYTES, BYTES, INT, INT, BYTES))
def _is_word(data: ByteArray, pool: ByteArray, text: int, size: int, word: ByteArray) -> int:
    """Say 1 if a text is a word of small letters, in any case."""
    if size != len(word):
        return 0
    for i in range(size):
        if _byte(data, pool, text, i) | _SMALL != byte_at(word, i):
            return 0
    return 1


@inner(INT(BYTES, BYTES, INTS, INT, INT), inline=False)
def text_test(data: ByteArray, pool: ByteArray, work: IntArray, at: int, test: int) -> int:
    """Test texts; UNSURE if that takes long."""
    text, size, other, length = work[at], work[at + 1], work[at + 2], work[at + 3]
    if test == Q_BOOLEAN_OF_TEXT:
        return _boolean_of(data, pool, text, size)
    if test in (Q_STARTS_WITH, Q_ENDS_WITH):
        if length > size:
            return FALSE
        start = _behind(text, size - length) if test == Q_ENDS_WITH else text
        return TRUE if same(data, pool, start, length, other, length) else FALSE
    if test == Q_CONTAINS:
        place = _find(data, pool, text, size, other, length, 0)
        return UNSURE if place == _TOO_LONG else TRUE if place >= 0 else FALSE
    # CESQL 3.7, Boolean: no other letter than those of ASCII becomes one of these in lower case.
    if _is_word(data, pool, text, size, _TRUE):
        return TRUE
    return FALSE if _is_word(data, pool, text, size, _FALSE) else NULL
