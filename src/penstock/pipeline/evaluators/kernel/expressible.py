"""Which expressions of a plan the routing kernel can evaluate, and which part stops it where it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import (
    Arithmetic,
    ArithmeticOperator,
    Call,
    Coalesce,
    Compare,
    Data,
    In,
    IsNull,
    Node,
    Number,
    Type,
    children,
)
from penstock.pipeline.plan.typing import type_of
from penstock.wire import routing_layout as at

__all__ = [
    "ARITHMETIC",
    "FUNCTIONS",
    "MAX_JOINED",
    "OF_PATH",
    "TESTS",
    "bound_of",
    "compared_type",
    "digits_of",
    "stops_condition",
    "stops_value",
]

ARITHMETIC: Final[Mapping[ArithmeticOperator, int]] = {
    ArithmeticOperator.ADD: at.F_ADD,
    ArithmeticOperator.SUBTRACT: at.F_SUBTRACT,
    ArithmeticOperator.MULTIPLY: at.F_MULTIPLY,
    ArithmeticOperator.DIVIDE: at.F_DIVIDE,
    ArithmeticOperator.REMAINDER: at.F_REMAINDER,
}
FUNCTIONS: Final[Mapping[str, int]] = {
    "lower": at.F_LOWER,
    "upper": at.F_UPPER,
    "unicode_lower": at.F_UNICODE_LOWER,
    "unicode_upper": at.F_UNICODE_UPPER,
    "length": at.F_LENGTH,
    "left": at.F_LEFT,
    "right": at.F_RIGHT,
    "substring": at.F_SUBSTRING,
    "concat": at.F_CONCAT,
    "trim": at.F_TRIM,
    "ltrim": at.F_LTRIM,
    "rtrim": at.F_RTRIM,
    "replace": at.F_REPLACE,
    "position": at.F_POSITION,
    "number_of_text": at.F_NUMBER_OF_TEXT,
    "cesql_integer": at.F_CESQL_INTEGER,
    "text_of_number": at.F_TEXT_OF_NUMBER,
    "quotient": at.F_QUOTIENT,
    "abs": at.F_ABS,
    "floor": at.F_FLOOR,
    "ceil": at.F_CEIL,
    "truncate": at.F_TRUNCATE,
    "round": at.F_ROUND,
    "within": at.F_WITHIN,
    "time_of_text": at.F_TIME_OF_TEXT,
    "text_of_time": at.F_TEXT_OF_TIME,
    "shift": at.F_SHIFT,
    "unix_seconds": at.F_UNIX_SECONDS,
    "unix_millis": at.F_UNIX_MILLIS,
    "unix_micros": at.F_UNIX_MICROS,
    "year": at.F_YEAR,
    "month": at.F_MONTH,
    "day": at.F_DAY,
    "hour": at.F_HOUR,
    "minute": at.F_MINUTE,
    "second": at.F_SECOND,
}
"""Functions of values to values."""
TESTS: Final[Mapping[str, int]] = {
    "starts_with": at.Q_STARTS_WITH,
    "ends_with": at.Q_ENDS_WITH,
    "contains": at.Q_CONTAINS,
    "boolean_of_text": at.Q_BOOLEAN_OF_TEXT,
    "cesql_boolean": at.Q_CESQL_BOOLEAN,
}
"""Functions of texts to booleans."""
OF_PATH: Final[Mapping[str, int]] = {"string_of_json": at.P_STRING, "text_of_json": at.P_SCALAR}
"""Functions of what is at a path to texts."""
MAX_JOINED: Final = 16
"""Texts that one instruction joins; more are joined step by step."""
_OF_JSON: Final = frozenset({*OF_PATH, "number_of_json", "boolean_of_json"})
_KNOWN: Final = frozenset({*FUNCTIONS, *TESTS, "text_of_boolean"})


def stops_condition(node: Node) -> Iterator[str]:
    """Name the parts of a condition that the kernel cannot do."""
    yield from _stops(node)
    if _depth(node) > at.MAX_VALUES:
        yield f"an expression of more than {at.MAX_VALUES} values at a time"


stops_value = stops_condition
"""Name the parts of a value that the kernel cannot make."""


def _stops(node: Node) -> Iterator[str]:
    match node:
        case IsNull(operand=Data()):
            return
        case IsNull(operand=Coalesce(operands=operands)) if type_of(node.operand) is Type.JSON:
            for each in operands:
                yield from _stops(IsNull(each))
        case Call(arguments=(Data(),)) if node.function in _OF_JSON:
            return
        case Call(function="within", arguments=(operand, *bounds)):
            yield from _stops(operand)
            yield from (explain(each) for each in bounds if bound_of(each) is None)
        case _ if _is_unknown(node):
            yield explain(node)
        case _:
            for each in children(node):
                yield from _stops(each)


def _is_unknown(node: Node) -> bool:
    match node:
        case Call():
            return node.function not in _KNOWN
        case Number():
            return digits_of(node) is None
        case Compare() | In():
            return compared_type(node) is Type.JSON
        case _:
            return isinstance(node, Data)


def compared_type(node: Compare | In) -> Type:
    """Give the type of what is compared; NULL if all of it is null."""
    types = (type_of(each) for each in children(node))
    return next((type_ for type_ in types if type_ is not Type.NULL), Type.NULL)


def digits_of(number: Number) -> tuple[int, int] | None:
    """Give a constant as digits and scale, without zeros behind; None if it has too many digits.

    >>> from decimal import Decimal
    >>> [digits_of(Number(Decimal(text))) for text in ("-12.50", "1E+3", "1E+18")]
    [(-125, 1), (1000, 0), None]
    """
    sign, digits, exponent = number.value.as_tuple()
    assert isinstance(exponent, int)  # a literal is finite
    if exponent > at.MAX_SCALE or (sign and not any(digits)):
        return None  # the reference keeps the sign of a zero that is written so
    whole, scale = int("".join(map(str, digits))) * 10 ** max(exponent, 0), max(-exponent, 0)
    while scale and whole % 10 == 0:
        whole, scale = whole // 10, scale - 1
    return (-whole if sign else whole, scale) if whole < at.MAX_NUMBER and scale <= at.MAX_SCALE else None


def bound_of(node: Node) -> tuple[int, int] | None:
    """Give a constant that numbers are compared with; one beyond all of the kernel as the last of them."""
    if not isinstance(node, Number):
        return None
    if abs(node.value) >= at.MAX_NUMBER:
        return (-1 if node.value < 0 else 1) * (at.MAX_NUMBER - 1), 0
    return digits_of(node)


def _depth(node: Node) -> int:
    """Count the values that are on the stack at one time, at most."""
    below = [_depth(each) for each in children(node)]
    match node:
        case In():
            # The operand stays, and a copy of it is compared.
            return max(below[0], 2 + max(below[1:], default=0))
        case Call(function="concat"):
            return max((min(number, MAX_JOINED) + each for number, each in enumerate(below)), default=1)
        case Compare() | Arithmetic() | Call():
            return max(number + each for number, each in enumerate(below))
        case _:
            return max(below, default=1)
