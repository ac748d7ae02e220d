"""The value of a plan expression for one event: the meaning that every other engine must give.

An expression is compiled once to Python closures; what does not depend on the event is computed then. A value
is None (null), bool, Decimal or float (number), str (text), int (time, in microseconds), or a JSON value as
`json_data.py` reads it. Evaluation is total: it never raises for an expression that `check` accepts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from penstock.pipeline.evaluators.reference.calls import CALLS
from penstock.pipeline.evaluators.reference.json_data import member, number_value
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
    Type,
    walk,
)
from penstock.pipeline.plan.numbers import EXACT, divided, in_range, multiplied
from penstock.pipeline.plan.patterns import matcher
from penstock.pipeline.plan.typing import common, type_of

__all__ = ["Expression", "Scope", "compile_expression", "evaluate"]

Value = Any


@dataclass(slots=True)
class Scope:
    """What an expression may read: attributes as text, the JSON value of the data, and the moment.

    Not frozen only because that makes a scope for each event three times as slow; no expression changes it.
    """

    attributes: Mapping[str, str]
    data: object = None
    now: int = 0


Expression = Callable[[Scope], Value]


def evaluate(node: Node, scope: Scope) -> Value:
    """Return the value of an expression that is asked for once.

    >>> from penstock.pipeline.plan.sql import parse_sql
    >>> evaluate(parse_sql("hop < 5 AND subject IS NULL"), Scope({"hop": "3"}))
    True
    """
    return compile_expression(node)(scope)


def compile_expression(node: Node) -> Expression:
    """Return a function from a scope to the value; the node is well typed."""
    made = _COMPILERS[type(node)](node)
    return made if _reads(node) else _constant(made(_NOTHING))


_NOTHING: Final = Scope({})
_INPUTS: Final = (Attribute, Data, Now)


def _reads(node: Node) -> bool:
    return any(isinstance(found, _INPUTS) for found in walk(node))


def _constant(value: Value) -> Expression:
    return lambda scope: value


# What is read


def _attribute(node: Attribute) -> Expression:
    name = node.name
    return lambda scope: scope.attributes.get(name)


def _data(node: Data) -> Expression:
    path = node.path
    if len(path) != 1 or not isinstance(path[0], str):
        return lambda scope: member(scope.data, path)
    name = path[0]

    def top(scope: Scope) -> Value:
        data = scope.data
        return data.get(name) if type(data) is dict else None

    return top


# Comparisons


def _compare(node: Compare) -> Expression:
    left, right = compile_expression(node.left), compile_expression(node.right)
    kind = common((type_of(node.left), type_of(node.right))) or Type.NULL
    compared = _comparer(kind, node.operator)
    if _reads(node.right):
        return lambda scope: compared(left(scope), right(scope))
    constant = right(_NOTHING)
    return _with_constant(kind, _OPERATORS[node.operator], left, constant)


def _with_constant(
    kind: Type, compared: Callable[[Value, Value], bool], left: Expression, constant: Value
) -> Expression:
    """Compare with a value that is known; a JSON value never is, but for null."""
    if constant is None:
        return _constant(None)
    if kind is not Type.NUMBER:

        def plain(scope: Scope) -> bool | None:
            value = left(scope)
            return None if value is None else compared(value, constant)

        return plain
    double = float(constant)

    def number(scope: Scope) -> bool | None:
        value = left(scope)
        if type(value) is Decimal:
            return compared(value, constant)
        return None if value is None else compared(value, double)

    return number if type(constant) is Decimal else lambda scope: _numbers(compared, left(scope), constant)


def _comparer(kind: Type, comparison: Comparison) -> Callable[[Value, Value], bool | None]:
    """Return the comparison of two values of one static type."""
    compared = _OPERATORS[comparison]
    if kind is Type.NUMBER:
        return lambda left, right: _numbers(compared, left, right)
    if kind is Type.JSON:
        return lambda left, right: _json_values(compared, left, right)
    return lambda left, right: None if left is None or right is None else compared(left, right)


def _numbers(compared: Callable[[Value, Value], bool], left: Value, right: Value) -> bool | None:
    """Compare decimals exactly; as soon as one side is a double, both are."""
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return compared(left, right)


def _json_values(compared: Callable[[Value, Value], bool], left: Value, right: Value) -> bool | None:
    """Compare two numbers, strings or booleans; any other two cannot be compared."""
    if type(left) is type(right) and type(left) in (str, bool):
        return compared(left, right)
    return _numbers(compared, number_value(left), number_value(right))


def _in(node: In) -> Expression:
    operand = compile_expression(node.operand)
    kind = common(tuple(type_of(each) for each in (node.operand, *node.elements))) or Type.NULL
    if kind is Type.TEXT and not any(map(_reads, node.elements)):
        return _in_texts(operand, [compile_expression(each)(_NOTHING) for each in node.elements])
    elements = [compile_expression(each) for each in node.elements]
    equal = _comparer(kind, Comparison.EQUAL)

    def found(scope: Scope) -> bool | None:
        value, result = operand(scope), False
        for element in elements:
            same = equal(value, element(scope))
            if same:
                return True
            result = None if same is None else result  # type: ignore[assignment]
        return result

    return found


def _in_texts(operand: Expression, texts: list[str | None]) -> Expression:
    known = frozenset(texts) - {None}
    otherwise = None if None in texts else False
    of_null = None if texts else False

    def found(scope: Scope) -> bool | None:
        value = operand(scope)
        return of_null if value is None else True if value in known else otherwise

    return found


def _like(node: Like) -> Expression:
    operand, matches = compile_expression(node.operand), matcher(node.pattern)

    def like(scope: Scope) -> bool | None:
        text = operand(scope)
        return None if text is None else matches(text)

    return like


# Logic. Evaluation is total and changes nothing, so an operand that decides may be the last that is asked.


def _and(node: And) -> Expression:
    return _kleene(node.operands, False)


def _or(node: Or) -> Expression:
    return _kleene(node.operands, True)


def _kleene(nodes: tuple[Node, ...], decides: bool) -> Expression:
    """Return `decides` if any operand is that, else null if any is null, else the other."""
    operands = [compile_expression(node) for node in nodes]

    def logic(scope: Scope) -> bool | None:
        result: bool | None = not decides
        for operand in operands:
            value: bool | None = operand(scope)
            if value is decides:
                return decides
            if value is None:
                result = None
        return result

    return logic


def _not(node: Not) -> Expression:
    operand = compile_expression(node.operand)

    def inverted(scope: Scope) -> bool | None:
        value = operand(scope)
        return None if value is None else not value

    return inverted


def _is_null(node: IsNull) -> Expression:
    operand = compile_expression(node.operand)
    return lambda scope: operand(scope) is None


def _coalesce(node: Coalesce) -> Expression:
    operands = [compile_expression(operand) for operand in node.operands]

    def first(scope: Scope) -> Value:
        for operand in operands:
            value = operand(scope)
            if value is not None:
                return value
        return None

    return first


def _if(node: If) -> Expression:
    condition, then, otherwise = map(compile_expression, (node.condition, node.then, node.otherwise))
    return lambda scope: then(scope) if condition(scope) is True else otherwise(scope)


# Numbers and functions


def _arithmetic(node: Arithmetic) -> Expression:
    left, right = compile_expression(node.left), compile_expression(node.right)
    calculate = _ARITHMETIC[node.operator]

    def result(scope: Scope) -> Decimal | None:
        first, second = left(scope), right(scope)
        if type(first) is not Decimal or type(second) is not Decimal:
            return None  # null, or a double: arithmetic is for decimals
        return calculate(first, second)

    return result


def _remainder(left: Decimal, right: Decimal) -> Decimal | None:
    """Return what is left, with the sign of the dividend."""
    return EXACT.plus(EXACT.remainder(left, right)) if right else None


def _call(node: Call) -> Expression:
    function = CALLS[node.function]
    arguments = [compile_expression(argument) for argument in node.arguments]
    if len(arguments) == 1:
        (only,) = arguments

        def of_one(scope: Scope) -> Value:
            value = only(scope)
            return None if value is None else function(value)

        return of_one

    def of_many(scope: Scope) -> Value:
        values = [argument(scope) for argument in arguments]
        return None if None in values else function(*values)

    return of_many


_OPERATORS: Final[dict[Comparison, Callable[[Value, Value], bool]]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}
_ARITHMETIC: Final[dict[ArithmeticOperator, Callable[[Decimal, Decimal], Decimal | None]]] = {
    ArithmeticOperator.ADD: lambda left, right: in_range(EXACT.add(left, right)),
    ArithmeticOperator.SUBTRACT: lambda left, right: in_range(EXACT.subtract(left, right)),
    ArithmeticOperator.MULTIPLY: multiplied,
    ArithmeticOperator.DIVIDE: divided,
    ArithmeticOperator.REMAINDER: _remainder,
}
_COMPILERS: Final[dict[type, Callable[[Any], Expression]]] = {
    Null: lambda node: _constant(None),
    **dict.fromkeys((Boolean, Number, Text), lambda node: _constant(node.value)),
    Time: lambda node: _constant(node.micros),
    Now: lambda node: lambda scope: scope.now,
    Attribute: _attribute,
    Data: _data,
    Compare: _compare,
    And: _and,
    Or: _or,
    Not: _not,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Coalesce: _coalesce,
    If: _if,
    Arithmetic: _arithmetic,
    Call: _call,
}
