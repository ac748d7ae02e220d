"""The operands of a program as texts: constants, attributes, and what stands at a path of the data."""

from __future__ import annotations

from penstock.wire.kernels.jit import BYTES, INT, INTS, OUT, ByteArray, IntArray, inner, part
from penstock.wire.kernels.json import ESCAPED, FALSE, FIELDS, NUMBER, STRING, TRUE
from penstock.wire.kernels.json_values import read_decimal
from penstock.wire.kernels.routing.attributes import find_extension
from penstock.wire.kernels.routing.decimals import read_number, text_of_number
from penstock.wire.routing_layout import (
    DONE,
    N_ATTRIBUTE,
    N_SIZE,
    N_TEXT,
    P_COMPUTED,
    P_CONSTANT,
    P_CORE,
    P_EXTENSION,
    P_NULL,
    P_SCALAR,
    UNSURE,
    V_VALUE,
    W_COMPUTED_AT,
    W_CORE_AT,
    W_NUMBER,
)

__all__ = ["load"]


@inner(INT(BYTES, INT, INT, INTS))
def _is_as_written(data: ByteArray, text: int, size: int, work: IntArray) -> int:
    """Say 1 if a number stands as the plan writes numbers: no exponent, no zeros behind, no minus zero."""
    scale = read_decimal(data, text, text + size, work, W_NUMBER)
    if scale == 0:
        return int(work[W_NUMBER] != 0 or size == 1)
    return int(scale > 0 and work[W_NUMBER] % 10 != 0)


@inner(INT(BYTES, OUT, INTS, INT, INT, INT), inline=False)
def _write_number(data: ByteArray, pool: ByteArray, work: IntArray, text: int, size: int, to: int) -> int:
    """Load a number as the plan writes numbers: 100.0 as 100; UNSURE if it has an exponent or many digits."""
    if read_number(data, text, text + size, work, to) == UNSURE:
        return UNSURE
    return text_of_number(pool, work, to)


@inner(INT(BYTES, OUT, INTS, INTS, INT, INT, INT))
def _path(
    data: ByteArray, pool: ByteArray, work: IntArray, found: IntArray, kind: int, slot: int, to: int
) -> int:
    """Load what is at a path: a string, or with P_SCALAR any scalar as text."""
    at = slot * FIELDS
    it, text, size = found[at], found[at + 1], found[at + 2]
    if it == ESCAPED:
        return UNSURE
    there = it == STRING
    if kind == P_SCALAR and it == NUMBER:
        if not _is_as_written(data, text, size, work):
            return _write_number(data, pool, work, text, size, to)
        there = True
    if kind == P_SCALAR and it in (TRUE, FALSE):
        there = True
    work[to] = text
    work[to + 1] = size if there else -1
    return DONE


@part(INT(BYTES, OUT, INTS, INTS, INT, INT, INT, INT))
def load(
    data: ByteArray, pool: ByteArray, work: IntArray, found: IntArray, kind: int, a: int, b: int, to: int
) -> int:
    """Put an operand's text at work[to]; UNSURE if it is not certain. One that is written is at W_SCRATCH."""
    work[to] = 0
    work[to + 1] = -1
    if kind == P_CONSTANT:
        work[to] = ~a
        work[to + 1] = b
    elif kind == P_CORE:
        work[to] = work[W_CORE_AT + a * N_ATTRIBUTE + N_TEXT]
        work[to + 1] = work[W_CORE_AT + a * N_ATTRIBUTE + N_SIZE]
    elif kind == P_EXTENSION:
        at = find_extension(data, pool, work, ~a, b)
        if at >= 0:
            work[to] = work[at + N_TEXT]
            work[to + 1] = work[at + N_SIZE]
    elif kind == P_COMPUTED:
        work[to] = work[W_COMPUTED_AT + a * V_VALUE]
        work[to + 1] = work[W_COMPUTED_AT + a * V_VALUE + 1]
    elif kind != P_NULL:
        return _path(data, pool, work, found, kind, a, to)
    return DONE
