"""The opcodes of conditions, in three-valued logic: AND is the smaller, OR the larger, NOT the mirror."""

from __future__ import annotations

import numpy as np

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner
from penstock.wire.kernels.json import ABSENT, FIELDS, NUMBER
from penstock.wire.kernels.json import FALSE as JSON_FALSE
from penstock.wire.kernels.json import NULL as JSON_NULL
from penstock.wire.kernels.json import TRUE as JSON_TRUE
from penstock.wire.kernels.json_tokens import UNSURE as NOT_SIMPLE
from penstock.wire.kernels.json_values import read_decimal
from penstock.wire.kernels.routing.attributes import is_text
from penstock.wire.kernels.routing.computed import POPPED, accepts, compute, jump
from penstock.wire.kernels.routing.decimals import set_value
from penstock.wire.kernels.routing.grammar import matches
from penstock.wire.kernels.routing.texts import compare, same
from penstock.wire.kernels.routing.values import load
from penstock.wire.routing_layout import (
    C_SCRATCH,
    DONE,
    EQUAL,
    FALSE,
    GREATER,
    I_AND,
    I_BOOLEAN_IS_NULL,
    I_BOOLEAN_OF_PATH,
    I_BOOLEAN_OF_TEXT,
    I_COALESCE,
    I_COMPARE_BOOLEAN,
    I_COMPARE_CORE,
    I_COMPARE_NUMBER,
    I_COMPARE_TEXT,
    I_END,
    I_INSTRUCTION,
    I_JUMP,
    I_JUMP_FALSE,
    I_JUMP_TRUE,
    I_LIKE,
    I_LOAD_LEFT,
    I_LOAD_RIGHT,
    I_NOT,
    I_NUMBER_IS_NULL,
    I_NUMBER_OF_PATH,
    I_OR,
    I_PATH_IS_NULL,
    I_PUSH,
    I_TEXT_IS_NULL,
    I_VALUE,
    LESS,
    MAX_STACK,
    N_ATTRIBUTE,
    N_SIZE,
    N_TEXT,
    NULL,
    R_COMPUTED,
    R_COMPUTED_COUNT,
    TRUE,
    UNSURE,
    V_VALUE,
    W_COMPUTED_AT,
    W_CORE_AT,
    W_DEPTH,
    W_LEFT,
    W_LEFT_SIZE,
    W_NUMBER,
    W_RIGHT,
    W_RIGHT_SIZE,
    W_SCALE,
    W_SCRATCH,
    W_STACK_AT,
    W_VALUES,
    W_VALUES_AT,
)

__all__ = ["compute_values", "evaluate"]

_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_TENS = np.array([10.0**n for n in range(32)], np.float64)


@inner(INT(INTS, INT))
def _push(work: IntArray, value: int) -> int:
    depth = work[W_DEPTH]
    if value == UNSURE or depth >= MAX_STACK:
        return UNSURE
    work[W_STACK_AT + depth] = value
    work[W_DEPTH] = depth + 1
    return value


@inner(INT(INTS))
def _pop(work: IntArray) -> int:
    work[W_DEPTH] -= 1
    return int(work[W_STACK_AT + work[W_DEPTH]])


@inner(INT(INTS, INT, INT))
def _logic(work: IntArray, operation: int, a: int) -> int:
    """Do what needs nothing but the stack; give the value to push."""
    if operation == I_PUSH:
        return a
    right = _pop(work)
    if operation == I_NOT:
        return TRUE - right
    if operation == I_BOOLEAN_IS_NULL:
        return TRUE if right == NULL else FALSE
    left = _pop(work)
    if operation == I_AND:
        return min(left, right)
    if operation == I_OR:
        return max(left, right)
    if operation == I_COALESCE:
        return right if left == NULL else left
    if left == NULL or right == NULL:
        return NULL
    return accepts(a, left - right)


@inner(INT(BYTES, BYTES, INT, INT, INT, INT, INT))
def _compare_texts(
    data: ByteArray, pool: ByteArray, comparison: int, left: int, size: int, right: int, other: int
) -> int:
    if comparison in (EQUAL, LESS | GREATER):
        return accepts(comparison, int(not same(data, pool, left, size, right, other)))
    return accepts(comparison, compare(data, pool, left, size, right, other))


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT, INT))
def _compare_core(
    data: ByteArray, pool: ByteArray, work: IntArray, index: int, comparison: int, place: int, length: int
) -> int:
    """Compare an attribute of core with a constant."""
    at = W_CORE_AT + index * N_ATTRIBUTE
    size = work[at + N_SIZE]
    if size < 0:
        return NULL
    return _compare_texts(data, pool, comparison, work[at + N_TEXT], size, ~place, length)


@inner(INT(BYTES, BYTES, INTS, INT, INT, INT))
def _texts(data: ByteArray, pool: ByteArray, work: IntArray, operation: int, a: int, b: int) -> int:
    """Do what needs the loaded texts; give the value to push."""
    left, size = work[W_LEFT], work[W_LEFT_SIZE]
    if operation == I_TEXT_IS_NULL:
        return TRUE if size < 0 else FALSE
    if size < 0:
        return NULL
    if operation == I_LIKE:
        return matches(data, pool, left, size, a, b)
    if operation == I_COMPARE_TEXT:
        if work[W_RIGHT_SIZE] < 0:
            return NULL
        return _compare_texts(data, pool, a, left, size, work[W_RIGHT], work[W_RIGHT_SIZE])
    if is_text(data, left, size, _TRUE):
        return TRUE
    return FALSE if is_text(data, left, size, _FALSE) else NULL


@inner(INT(INTS, INT, INT, INT))
def _compare_number(work: IntArray, comparison: int, digits: int, scale: int) -> int:
    if work[W_SCALE] < 0:
        return NULL
    # Both are integers that a double holds, and IEEE 754 division rounds once: the nearest double.
    left = work[W_NUMBER] / _TENS[work[W_SCALE]]
    right = digits / _TENS[scale]
    return accepts(comparison, -1 if left < right else int(left > right))


@inner(INT(BYTES, INTS, INT, INT))
def _read_number(data: ByteArray, work: IntArray, text: int, size: int) -> int:
    """Read a number; one that is none is null, one of too many digits is UNSURE."""
    scale = read_decimal(data, text, text + size, work, W_NUMBER) if size >= 0 else -1
    work[W_SCALE] = max(scale, -1)
    return UNSURE if scale == NOT_SIMPLE else POPPED


@inner(INT(BYTES, INTS, INTS, INT, INT))
def _paths(data: ByteArray, work: IntArray, found: IntArray, operation: int, slot: int) -> int:
    """Do what needs a value of the data; give the value to push."""
    at = slot * FIELDS
    kind = found[at]
    if operation == I_NUMBER_OF_PATH:
        return _read_number(data, work, found[at + 1], found[at + 2] if kind == NUMBER else -1)
    if operation == I_PATH_IS_NULL:
        return TRUE if kind in (ABSENT, JSON_NULL) else FALSE
    if kind == JSON_TRUE:
        return TRUE
    return FALSE if kind == JSON_FALSE else NULL


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def _operation(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int
) -> int:
    """Do one instruction that does not jump; give the value to push, POPPED for none, or UNSURE."""
    operation, a, b, c = code[at], code[at + 1], code[at + 2], code[at + 3]
    if operation == I_COMPARE_CORE:
        return _compare_core(data, pool, work, a, b, c, code[at + 4])
    if operation in (I_LOAD_LEFT, I_LOAD_RIGHT):
        to = W_LEFT if operation == I_LOAD_LEFT else W_RIGHT
        return UNSURE if load(data, pool, work, found, a, b, c, to) == UNSURE else POPPED
    if operation in (I_COMPARE_TEXT, I_LIKE, I_TEXT_IS_NULL, I_BOOLEAN_OF_TEXT):
        return _texts(data, pool, work, operation, a, b)
    if operation in (I_NUMBER_OF_PATH, I_PATH_IS_NULL, I_BOOLEAN_OF_PATH):
        return _paths(data, work, found, operation, a)
    if operation == I_COMPARE_NUMBER:
        return _compare_number(work, a, b, c)
    if operation == I_NUMBER_IS_NULL:
        return TRUE if work[W_SCALE] < 0 else FALSE
    if operation in (I_PUSH, I_AND, I_OR, I_NOT, I_COALESCE, I_BOOLEAN_IS_NULL, I_COMPARE_BOOLEAN):
        return _logic(work, operation, a)
    return _read_number(data, work, work[W_LEFT], work[W_LEFT_SIZE])


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT), inline=False)
def _run(data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int) -> int:
    """Do instructions up to I_END; UNSURE or DONE, with what they leave on the stacks."""
    work[W_DEPTH] = work[W_VALUES] = 0
    while code[at] != I_END:
        operation = code[at]
        if operation in (I_JUMP_FALSE, I_JUMP_TRUE):
            top = work[W_STACK_AT + work[W_DEPTH] - 1]
            decided = FALSE if operation == I_JUMP_FALSE else TRUE
            at = code[at + 1] if top == decided else at + I_INSTRUCTION
            continue
        if operation < I_VALUE:
            value = _operation(data, pool, code, work, found, at)
        elif operation < I_JUMP:
            value = compute(data, pool, code, work, found, at)
        else:
            at = jump(code, work, at)
            continue
        if value == UNSURE or (value != POPPED and _push(work, value) == UNSURE):
            return UNSURE
        at += I_INSTRUCTION
    return DONE


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def _evaluate(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int
) -> int:
    """Give the value of any condition; texts that it makes are not needed behind it."""
    work[W_SCRATCH] = code[C_SCRATCH]
    return UNSURE if _run(data, pool, code, work, found, at) == UNSURE else _pop(work)


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT), inline=False)
def compute_values(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, route: int
) -> int:
    """Compute the values of a route that have instructions; UNSURE if one is not certain, else DONE."""
    for i in range(code[route + R_COMPUTED_COUNT]):
        if _run(data, pool, code, work, found, code[code[route + R_COMPUTED] + i]) == UNSURE:
            return UNSURE
        set_value(work, W_COMPUTED_AT + i * V_VALUE, work[W_VALUES_AT], work[W_VALUES_AT + 1])
    return DONE


@inner(INT(BYTES, INTS, INTS, INTS, INT))
def _compare_path(data: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int) -> int:
    """Compare the number at a path with a constant: two instructions at once."""
    if _paths(data, work, found, I_NUMBER_OF_PATH, code[at + 1]) == UNSURE:
        return UNSURE
    at += I_INSTRUCTION
    if code[at] == I_NUMBER_IS_NULL:
        return TRUE if work[W_SCALE] < 0 else FALSE
    return _compare_number(work, code[at + 1], code[at + 2], code[at + 3])


@inner(INT(BYTES, OUT, INTS, INTS, INTS, INT))
def evaluate(
    data: ByteArray, pool: ByteArray, code: IntArray, work: IntArray, found: IntArray, at: int
) -> int:
    """Give the value of the condition that begins at code[at]: TRUE, FALSE, NULL or UNSURE."""
    # One comparison of an attribute, most often of the type, or of a number: worth ways of their own.
    if code[at] == I_COMPARE_CORE and code[at + I_INSTRUCTION] == I_END:
        return _compare_core(data, pool, work, code[at + 1], code[at + 2], code[at + 3], code[at + 4])
    if code[at] == I_NUMBER_OF_PATH and code[at + 2 * I_INSTRUCTION] == I_END:
        return _compare_path(data, code, work, found, at)
    return _evaluate(data, pool, code, work, found, at)
