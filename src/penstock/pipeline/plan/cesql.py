"""CESQL 1.0.0 to plan nodes: each expression becomes two, its value and whether it fails.

Nothing of SQL's null shows through: `missing != 2` is an error, so the event does not pass, and `EXISTS x` is
true or false. The error is never null; the value may be null only where the error is true. Attributes are
text in a route, so the type of every expression is known before an event is seen. Errors disappear only where
AND and OR do not evaluate their right side (3.4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.errors import InvalidExpression, PipelineError
from penstock.events import cesql
from penstock.events.cesql import Operator, UnaryOperator
from penstock.events.cesql import Type as CesqlType
from penstock.events.cesql.evaluation import REQUIRED
from penstock.events.cesql.result import INTEGER_MAX, INTEGER_MIN
from penstock.pipeline.plan.cesql_calls import CALLS
from penstock.pipeline.plan.checked import FALSE, TRUE, Checked, cast_to, either, number
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Boolean,
    Call,
    Compare,
    Comparison,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    Text,
    Type,
)
from penstock.pipeline.plan.patterns import quoted
from penstock.pipeline.plan.typing import check

__all__ = ["compile_cesql", "parse_cesql"]


def parse_cesql(text: str, *, path: str | None = None) -> Node:
    """Read a CESQL expression as the condition of a route; InvalidExpression if it cannot be one.

    >>> from penstock.pipeline.plan.explain import explain
    >>> explain(parse_cesql("EXISTS subject AND type = 'a'"))
    "NOT (subject IS NOT NULL AND type IS NULL) AND subject IS NOT NULL AND type = 'a'"
    """
    try:
        checked = compile_cesql(cesql.parse(text))
        if checked.type is not Type.BOOLEAN:
            raise InvalidExpression(
                f"the expression gives {checked.type}: no event would pass", path=path, next="compare it"
            )
        node = checked.passes
        check(node, Type.BOOLEAN)
    except PipelineError as error:
        raise InvalidExpression(error.what, path=path, why=error.why, next=error.next) from error
    return node


def compile_cesql(expression: cesql.Expression) -> Checked:
    """Give value and error of a CESQL expression as plan nodes."""
    return _RULES[type(expression)](expression)


def _identifier(node: cesql.Identifier) -> Checked:
    attribute = Attribute(node.name)
    # 3.2: a missing attribute is an error; those that every event has cannot be missing.
    return Checked(attribute, IsNull(attribute), Type.TEXT)


def _exists(node: cesql.Exists) -> Checked:
    present = TRUE if node.name in REQUIRED else Not(IsNull(Attribute(node.name)))
    return Checked(present, FALSE, Type.BOOLEAN)


def _operand(node: cesql.Expression, want: Type) -> Checked:
    return cast_to(compile_cesql(node), want)


def _unary(node: cesql.Unary) -> Checked:
    if node.operator is UnaryOperator.NOT:
        operand = _operand(node.operand, Type.BOOLEAN)
        return Checked(Not(operand.value), operand.error, Type.BOOLEAN)
    operand = _operand(node.operand, Type.NUMBER)
    return _in_range(Arithmetic(ArithmeticOperator.SUBTRACT, number(0), operand.value), operand.error)


def _in_range(value: Node, error: Node) -> Checked:
    # 3.1: Integer has 32 bits; a result beyond is an error, and so is a division by 0 (3.4.2), here null.
    within = Call("within", (value, number(INTEGER_MIN), number(INTEGER_MAX)))
    return Checked(within, either(error, IsNull(within)), Type.NUMBER)


def _and(node: cesql.Binary) -> Checked:
    left, right = _operand(node.left, Type.BOOLEAN), _operand(node.right, Type.BOOLEAN)
    # 3.4.2: when the left operand of AND evaluates to false, the right operand MUST NOT be evaluated.
    late = FALSE if right.error == FALSE else And((left.value, right.error))
    return Checked(And((left.value, right.value)), either(left.error, late), Type.BOOLEAN)


def _or(node: cesql.Binary) -> Checked:
    left, right = _operand(node.left, Type.BOOLEAN), _operand(node.right, Type.BOOLEAN)
    # 3.4.2: when the left operand of OR evaluates to true, the right operand MUST NOT be evaluated.
    late = FALSE if right.error == FALSE else And((Not(left.value), right.error))
    return Checked(Or((left.value, right.value)), either(left.error, late), Type.BOOLEAN)


def _xor(node: cesql.Binary) -> Checked:
    left, right = _operand(node.left, Type.BOOLEAN), _operand(node.right, Type.BOOLEAN)
    value = Compare(Comparison.NOT_EQUAL, left.value, right.value)
    return Checked(value, either(left.error, right.error), Type.BOOLEAN)


def _equality(node: cesql.Binary) -> Checked:
    right = compile_cesql(node.right)
    # 3.7: `=` is ambiguous; the type of the right operand chooses, and the left one is cast to it.
    left = _operand(node.left, right.type)
    operator = Comparison.EQUAL if node.operator is Operator.EQUAL else Comparison.NOT_EQUAL
    return Checked(Compare(operator, left.value, right.value), either(left.error, right.error), Type.BOOLEAN)


def _comparison(node: cesql.Binary) -> Checked:
    left, right = _operand(node.left, Type.NUMBER), _operand(node.right, Type.NUMBER)
    value = Compare(Comparison(node.operator.value), left.value, right.value)
    return Checked(value, either(left.error, right.error), Type.BOOLEAN)


def _arithmetic(node: cesql.Binary) -> Checked:
    left, right = _operand(node.left, Type.NUMBER), _operand(node.right, Type.NUMBER)
    error = either(left.error, right.error)
    if node.operator is Operator.DIVIDE:
        value: Node = Call("quotient", (left.value, right.value))
    else:
        value = Arithmetic(ArithmeticOperator(node.operator.value), left.value, right.value)
    return _in_range(value, error)


def _like(node: cesql.Like) -> Checked:
    operand = _operand(node.operand, Type.TEXT)
    value: Node = Like(operand.value, _pattern(node.pattern))
    return Checked(Not(value) if node.negated else value, operand.error, Type.BOOLEAN)


def _pattern(pattern: str) -> str:
    """Give the plan's form: 3.4.3 escapes only `%` and `_`, any other backslash is itself."""
    written, rest = "", pattern
    while rest:
        size = 2 if rest[:2] in (r"\%", r"\_") else 1
        part, rest = rest[:size], rest[size:]
        written += part if size == 2 or part in "%_" else quoted(part)
    return written


def _in(node: cesql.In) -> Checked:
    wanted = compile_cesql(node.operand)
    # 3.7: for IN the left argument MUST be used as the target type to cast the set elements.
    elements = [_operand(element, wanted.type) for element in node.elements]
    value: Node = In(wanted.value, tuple(element.value for element in elements))
    error = either(wanted.error, *(element.error for element in elements))
    return Checked(Not(value) if node.negated else value, error, Type.BOOLEAN)


def _call(node: cesql.Call) -> Checked:
    function = cesql.BUILTINS.find(node.name, len(node.arguments))
    build = CALLS.get(node.name) if function else None
    if function is None or build is None:
        raise PipelineError(
            f"no function {node.name} takes {len(node.arguments)} arguments", why="CESQL 1.0.0, 3.5"
        )
    types = function.types(len(node.arguments))
    return build(
        [
            compile_cesql(argument) if type_ is CesqlType.ANY else _operand(argument, _TYPES[type_])
            for argument, type_ in zip(node.arguments, types, strict=True)
        ]
    )


_TYPES: Final = {
    CesqlType.STRING: Type.TEXT,
    CesqlType.INTEGER: Type.NUMBER,
    CesqlType.BOOLEAN: Type.BOOLEAN,
}
_BINARY: Final[dict[Operator, Callable[[cesql.Binary], Checked]]] = {
    **dict.fromkeys(
        (Operator.MULTIPLY, Operator.DIVIDE, Operator.REMAINDER, Operator.ADD, Operator.SUBTRACT), _arithmetic
    ),
    **dict.fromkeys(
        (Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL), _comparison
    ),
    Operator.EQUAL: _equality,
    Operator.NOT_EQUAL: _equality,
    Operator.AND: _and,
    Operator.OR: _or,
    Operator.XOR: _xor,
}
_RULES: Final[dict[type, Callable[[Any], Checked]]] = {
    cesql.StringLiteral: lambda node: Checked(Text(node.value), FALSE, Type.TEXT),
    cesql.IntegerLiteral: lambda node: Checked(number(node.value), FALSE, Type.NUMBER),
    cesql.BooleanLiteral: lambda node: Checked(Boolean(node.value), FALSE, Type.BOOLEAN),
    cesql.Identifier: _identifier,
    cesql.Exists: _exists,
    cesql.Unary: _unary,
    cesql.Binary: lambda node: _BINARY[node.operator](node),
    cesql.Like: _like,
    cesql.In: _in,
    cesql.Call: _call,
}
