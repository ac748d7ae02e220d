"""The value of a plan expression for one event: the meaning that every other engine must give.

A value is None (null), bool, Decimal or float (number), str (text), int (time, in microseconds), or a JSON
value as `data.py` reads it. Evaluation is total: it never raises for an expression that `check` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    Comparison,
    Data,
    If,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Now,
    Null,
    Number,
    Or,
    Text,
    Time,
)
from penstock.pipeline.plan.numbers import EXACT, divided, in_range, multiplied, read_number
from penstock.pipeline.plan.patterns import matches_pattern
from penstock.pipeline.reference.calls import CALLS
from penstock.pipeline.reference.data import JsonNumber, member

__all__ = ["Scope", "evaluate"]

Value = Any


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may read: attributes as text, the JSON value of the data, and the moment."""

    attributes: Mapping[str, str]
    data: object = None
    now: int = 0


def evaluate(node: Node, scope: Scope) -> Value:
    """Give the value of an expression.

    >>> from penstock.pipeline.plan.sql import parse_sql
    >>> evaluate(parse_sql("hop < 5 AND subject IS NULL"), Scope({"hop": "3"}))
    True
    """
    return _RULES[type(node)](node, scope)


def _compare(node: Compare, scope: Scope) -> bool | None:
    return compared(node.operator, evaluate(node.left, scope), evaluate(node.right, scope))


def compared(operator: Comparison, left: Value, right: Value) -> bool | None:
    """Compare two values of one type."""
    left, right = _comparable(left), _comparable(right)
    if left is None or right is None or not _same_kind(left, right):
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return _COMPARISONS[operator](left, right)


def _comparable(value: Value) -> Value:
    return read_number(value.text) if isinstance(value, JsonNumber) else value


_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    Decimal: "number",
    float: "number",
    str: "text",
    int: "time",
}


def _same_kind(left: Value, right: Value) -> bool:
    """Tell whether two JSON values can be compared; objects and arrays cannot."""
    kind = _KINDS.get(type(left))
    return kind is not None and kind == _KINDS.get(type(right))


def _and(node: And, scope: Scope) -> bool | None:
    values = [evaluate(operand, scope) for operand in node.operands]
    return False if False in values else None if None in values else True


def _or(node: Or, scope: Scope) -> bool | None:
    values = [evaluate(operand, scope) for operand in node.operands]
    return True if True in values else None if None in values else False


def _not(node: Not, scope: Scope) -> bool | None:
    value = evaluate(node.operand, scope)
    return None if value is None else not value


def _in(node: In, scope: Scope) -> bool | None:
    operand = evaluate(node.operand, scope)
    found = [compared(Comparison.EQUAL, operand, evaluate(each, scope)) for each in node.elements]
    return True if True in found else None if None in found else False


def _like(node: Like, scope: Scope) -> bool | None:
    text = evaluate(node.operand, scope)
    return None if text is None else matches_pattern(text, node.pattern)


def _coalesce(node: Coalesce, scope: Scope) -> Value:
    values = (evaluate(operand, scope) for operand in node.operands)
    return next((value for value in values if value is not None), None)


def _if(node: If, scope: Scope) -> Value:
    return evaluate(node.then if evaluate(node.condition, scope) is True else node.otherwise, scope)


def _arithmetic(node: Arithmetic, scope: Scope) -> Decimal | None:
    left, right = evaluate(node.left, scope), evaluate(node.right, scope)
    if not isinstance(left, Decimal) or not isinstance(right, Decimal):
        return None  # null, or a double: arithmetic is for decimals
    return _ARITHMETIC[node.operator](left, right)


def _remainder(left: Decimal, right: Decimal) -> Decimal | None:
    """Give what is left, with the sign of the dividend."""
    return EXACT.plus(EXACT.remainder(left, right)) if right else None


def _call(node: Call, scope: Scope) -> Value:
    arguments = [evaluate(argument, scope) for argument in node.arguments]
    return None if any(argument is None for argument in arguments) else CALLS[node.function](*arguments)


_COMPARISONS: Final[dict[Comparison, Callable[[Value, Value], bool]]] = {
    Comparison.EQUAL: lambda left, right: left == right,
    Comparison.NOT_EQUAL: lambda left, right: left != right,
    Comparison.LESS: lambda left, right: left < right,
    Comparison.LESS_OR_EQUAL: lambda left, right: left <= right,
    Comparison.GREATER: lambda left, right: left > right,
    Comparison.GREATER_OR_EQUAL: lambda left, right: left >= right,
}
_ARITHMETIC: Final[dict[ArithmeticOperator, Callable[[Decimal, Decimal], Decimal | None]]] = {
    ArithmeticOperator.ADD: lambda left, right: in_range(EXACT.add(left, right)),
    ArithmeticOperator.SUBTRACT: lambda left, right: in_range(EXACT.subtract(left, right)),
    ArithmeticOperator.MULTIPLY: multiplied,
    ArithmeticOperator.DIVIDE: divided,
    ArithmeticOperator.REMAINDER: _remainder,
}
_RULES: Final[dict[type, Callable[[Any, Scope], Value]]] = {
    Null: lambda node, scope: None,
    **dict.fromkeys((Boolean, Number, Text), lambda node, scope: node.value),
    Time: lambda node, scope: node.micros,
    Now: lambda node, scope: scope.now,
    Attribute: lambda node, scope: scope.attributes.get(node.name),
    Data: lambda node, scope: member(scope.data, node.path),
    Compare: _compare,
    And: _and,
    Or: _or,
    Not: _not,
    In: _in,
    Like: _like,
    IsNull: lambda node, scope: evaluate(node.operand, scope) is None,
    Coalesce: _coalesce,
    If: _if,
    Arithmetic: _arithmetic,
    Call: _call,
}
