"""The opcodes of values: texts, numbers and moments on a stack of their own.

Booleans stay on the stack of `conditions`, so that a test may stand in a value and a value in a test. None of
this is in the loop's own code: a route that only compares attributes and paths does not come here.
"""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.json import FIELDS, NUMBER
from penstock.wire.kernels.routing.decimals import compare_numbers, number_function, read_number, set_value
from penstock.wire.kernels.routing.grammar import matches
from penstock.wire.kernels.routing.moments import time_function
from penstock.wire.kernels.routing.strings import text_function, text_test
from penstock.wire.kernels.routing.texts import compare
from penstock.wire.kernels.routing.values import load
from penstock.wire.routing_layout import (
    C_NOW,
    DONE,
    EQUAL,
    F_NUMBERS,
    F_TIMES,
    FALSE,
    GREATER,
    I_CALL,
    I_CONSTANT,
    I_COPY_VALUE,
    I_DROP_VALUE,
    I_INSTRUCTION,
    I_JUMP_NOT_NULL,
    I_JUMP_NOT_TRUE,
    I_NOW,
    I_TEST,
    I_VALUE,
    I_VALUE_IS_NULL,
    I_VALUE_OF_BOOLEAN,
    I_VALUE_OF_PATH,
    LESS,
    MAX_VALUES,
    NULL,
    Q_COMPARE_NUMBER,
    Q_COMPARE_TEXT,
    Q_COMPARE_TIME,
    Q_LIKE,
    TRUE,
    UNSURE,
    V_VALUE,
    W_DEPTH,
    W_STACK_AT,
    W_VALUES,
    W_VALUES_AT,
)

__all__ = ["POPPED", "accepts", "compute", "jump"]

POPPED = 3
"""What an operation leaves on no stack of booleans: a value that none of the three has."""
_TRUE_SIZE = 4
_FALSE_SIZE = 5


@inner(INT(INT, INT))
def accepts(comparison: int, sign: int) -> int:
    """Say whether a comparison holds for a sign: negative, zero or positive."""
    bit = LESS if sign < 0 else EQUAL if sign == 0 else GREATER
    return TRUE if comparison & bit else FALSE


@inner(INT(BYTES, BYTES, INTS, INTS, INT, INT))
def _test(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, at: int, first: int) -> int:
    """Test the values at work[first], none of which is null; give the boolean."""
    test, a, b = code[at + 1], code[at + 3], code[at + 4]
    left, size, right, other = work[first], work[first + 1], work[first + 2], work[first + 3]
    if test == Q_COMPARE_NUMBER:
        return accepts(a, compare_numbers(left, size, right, other))
    if test == Q_COMPARE_TIME:
        return accepts(a, left - right)
    if test == Q_COMPARE_TEXT:
        return accepts(a, compare(data, pool, left, size, right, other))
    if test == Q_LIKE:
        return matches(data, pool, left, size, a, b)
    return text_test(data, pool, work, first, test)


@inner(INT(BYTES, OUT, INTS, INTS, INT, INT))
def _call(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, at: int, first: int) -> int:
    """Call a function on the values at work[first], none of which is null; its result takes their place."""
    function = code[at + 1]
    if function < F_NUMBERS:
        return text_function(data, pool, work, first, function, code[at + 2])
    if function < F_TIMES:
        return number_function(data, pool, work, first, function)
    return time_function(data, pool, work, first, function)


@inner(INT(BYTES, OUT, INTS, INTS, INT))
def _apply(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, at: int) -> int:
    """Do a call or a test; a null argument makes it null."""
    count = code[at + 2]
    depth = work[W_VALUES] - count
    first = W_VALUES_AT + depth * V_VALUE
    is_test = code[at] == I_TEST
    work[W_VALUES] = depth + int(not is_test)
    for i in range(count):
        if work[first + i * V_VALUE + 1] < 0:
            work[first + 1] = -1
            return NULL if is_test else POPPED
    if is_test:
        return _test(data, pool, code, work, at, first)
    return UNSURE if _call(data, pool, code, work, at, first) == UNSURE else POPPED


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT, INT))
def _pushed(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int, to: int
) -> int:
    """Put a value at work[to]: DONE or UNSURE."""
    operation, a, b = code[at], code[at + 1], code[at + 2]
    if operation == I_VALUE:
        return load(data, pool, work, found, a, b, code[at + 3], to)
    if operation == I_CONSTANT:
        return set_value(work, to, a, b)
    if operation == I_VALUE_OF_PATH:
        kind, text = found[a * FIELDS], found[a * FIELDS + 1]
        if kind != NUMBER:
            return set_value(work, to, 0, -1)
        return read_number(data, text, text + found[a * FIELDS + 2], work, to)
    if operation == I_COPY_VALUE:
        return set_value(work, to, work[to - V_VALUE], work[to - V_VALUE + 1])
    if operation == I_NOW:
        return set_value(work, to, code[C_NOW], 0) if code[C_NOW] else UNSURE
    # I_VALUE_OF_BOOLEAN
    work[W_DEPTH] -= 1
    value = work[W_STACK_AT + work[W_DEPTH]]
    if value == NULL:
        return set_value(work, to, 0, -1)
    return set_value(work, to, ~(a if value == TRUE else b), _TRUE_SIZE if value == TRUE else _FALSE_SIZE)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def compute(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int
) -> int:
    """Do one instruction on values; give the boolean to push, POPPED for none, or UNSURE."""
    operation, depth = code[at], work[W_VALUES]
    if operation in (I_CALL, I_TEST):
        return _apply(data, pool, code, work, at)
    if operation in (I_VALUE, I_CONSTANT, I_VALUE_OF_PATH, I_COPY_VALUE, I_NOW, I_VALUE_OF_BOOLEAN):
        if depth >= MAX_VALUES:
            return UNSURE
        work[W_VALUES] = depth + 1
        verdict = _pushed(data, pool, code, work, found, at, W_VALUES_AT + depth * V_VALUE)
        return POPPED if verdict == DONE else UNSURE
    work[W_VALUES] = depth - 1
    if operation == I_VALUE_IS_NULL:
        return TRUE if work[W_VALUES_AT + (depth - 1) * V_VALUE + 1] < 0 else FALSE
    return POPPED if operation == I_DROP_VALUE else UNSURE


@inner(INT(INTS, INTS, INT))
def jump(code: IntArray, work: IntArray, at: int) -> int:
    """Give the place of the instruction that follows a jump."""
    if code[at] == I_JUMP_NOT_TRUE:
        work[W_DEPTH] -= 1
        jumps = work[W_STACK_AT + work[W_DEPTH]] != TRUE
    elif code[at] == I_JUMP_NOT_NULL:
        jumps = work[W_VALUES_AT + (work[W_VALUES] - 1) * V_VALUE + 1] >= 0
        work[W_VALUES] -= int(not jumps)
    else:
        jumps = True
    return int(code[at + 1] if jumps else at + I_INSTRUCTION)
