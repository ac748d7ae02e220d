"""The value of an expression for one event, and the errors on the way (CESQL 1.0.0, section 3).

Evaluation is total: it never raises. An operator or function of which an operand failed gives the zero value
of its own type, and all errors are kept, in the order in which they happened. So `1 / missing` is 0 with one
missingAttribute error and no division by zero (3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import InvalidExpression
from penstock.events.cesql.builtins import BUILTINS
from penstock.events.cesql.casts import as_value, cast, type_of
from penstock.events.cesql.functions import Failed, Function, Functions
from penstock.events.cesql.like import like
from penstock.events.cesql.parser import parse
from penstock.events.cesql.result import (
    INTEGER_MAX,
    INTEGER_MIN,
    ZERO,
    ErrorKind,
    EvaluationError,
    Result,
    Type,
    Value,
)
from penstock.events.cesql.syntax import (
    Binary,
    BooleanLiteral,
    Call,
    Exists,
    Expression,
    Identifier,
    In,
    IntegerLiteral,
    Like,
    Operator,
    StringLiteral,
    Unary,
    UnaryOperator,
)

__all__ = ["REQUIRED", "evaluate", "returns"]

REQUIRED = frozenset({"id", "source", "specversion", "type"})
"""3.4.4: EXISTS MUST always return true for the REQUIRED context attributes."""


def evaluate(
    expression: Expression | str,
    attributes: Mapping[str, object],
    *,
    functions: Functions = BUILTINS,
    fail_fast: bool = False,
) -> Result:
    """Evaluate an expression over attribute names and values (str, int, bool, bytes; None is absent).

    With `fail_fast` the first error ends the evaluation (4.1), which is enough for a filter.

    >>> evaluate("subject LIKE 'order-%' AND hop < 5", {"subject": "order-17", "hop": "3"})
    Result(value=True, errors=())
    """
    try:
        tree = parse(expression) if isinstance(expression, str) else expression
    except InvalidExpression as error:
        return Result(False, (EvaluationError(ErrorKind.PARSE, str(error)),))
    run = _Run(attributes, functions, fail_fast)
    try:
        return Result(run.value(tree), tuple(run.errors))
    except _FirstError:
        # 4.1: fail fast returns the error, with the zero value for the return type of the expression.
        return Result(ZERO[returns(tree, functions)], tuple(run.errors))
    except RecursionError:
        # A tree that did not come from parse() may be deeper than MAX_DEPTH.
        return _generic("the expression is nested too deeply")
    except Exception as error:  # noqa: BLE001 - one event must not end the evaluation of those beside it
        return _generic(f"{type(error).__name__}: {error!s:.200}")


def _generic(message: str) -> Result:
    return Result(False, (EvaluationError(ErrorKind.GENERIC, message),))


def returns(expression: Expression, functions: Functions = BUILTINS) -> Type:
    """Give the type of an expression; Boolean where only an event could tell (3.2)."""
    match expression:
        case StringLiteral():
            return Type.STRING
        case IntegerLiteral() | Unary(operator=UnaryOperator.MINUS):
            return Type.INTEGER
        case Binary(operator=operator) if operator in _ARITHMETIC:
            return Type.INTEGER
        case Call(name=name, arguments=arguments):
            function = functions.find(name, len(arguments))
            return function.returns if function else Type.BOOLEAN
        case _:
            return Type.BOOLEAN


class _FirstError(Exception):
    """Leaves a fail-fast evaluation; never leaves this module."""


class _Run:
    """One evaluation: what it reads, and the errors it has met."""

    __slots__ = ("attributes", "errors", "fail_fast", "functions")

    def __init__(self, attributes: Mapping[str, object], functions: Functions, fail_fast: bool) -> None:
        self.attributes = attributes
        self.functions = functions
        self.fail_fast = fail_fast
        self.errors: list[EvaluationError] = []

    def failed(self, kind: ErrorKind, message: str) -> None:
        self.errors.append(EvaluationError(kind, message))
        if self.fail_fast:
            raise _FirstError

    def value(self, node: Expression) -> Value:
        return _RULES[type(node)](self, node)

    def operand(self, node: Expression, target: Type) -> Any:
        """Evaluate and cast; the zero value of the target type if either fails."""
        before = len(self.errors)
        value = self.value(node)
        return ZERO[target] if len(self.errors) > before else self.cast(value, target)

    def cast(self, value: Value, target: Type) -> Any:
        result = cast(value, target)
        if result is None:
            self.failed(ErrorKind.CAST, f"{value!r:.80} cannot be read as {target}")
            return ZERO[target]
        return result


def _literal(run: _Run, node: StringLiteral | IntegerLiteral | BooleanLiteral) -> Value:
    return node.value


def _identifier(run: _Run, node: Identifier) -> Value:
    attribute = run.attributes.get(node.name)
    if attribute is None:
        run.failed(ErrorKind.MISSING_ATTRIBUTE, f"the event has no attribute {node.name}")
        return False  # 3.2: where the type cannot be determined, Boolean is assumed
    return as_value(attribute)


def _exists(run: _Run, node: Exists) -> bool:
    return node.name in REQUIRED or run.attributes.get(node.name) is not None


def _unary(run: _Run, node: Unary) -> Value:
    before = len(run.errors)
    if node.operator is UnaryOperator.NOT:
        value = run.operand(node.operand, Type.BOOLEAN)
        return len(run.errors) == before and not value
    return _in_range(run, -run.operand(node.operand, Type.INTEGER), "-")


def _in_range(run: _Run, number: int, operator: str) -> int:
    # 3.1 bounds Integer and 3.3 asks for the zero value where there is no obvious one.
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    run.failed(ErrorKind.MATH, f"the result {number} of {operator} is not a 32-bit integer")
    return 0


def _and(run: _Run, node: Binary) -> bool:
    # 3.4.2: when the left operand of AND evaluates to false, the right operand MUST NOT be evaluated.
    return bool(run.operand(node.left, Type.BOOLEAN) and run.operand(node.right, Type.BOOLEAN))


def _or(run: _Run, node: Binary) -> bool:
    before = len(run.errors)
    # 3.4.2: when the left operand of OR evaluates to true, the right operand MUST NOT be evaluated.
    value = run.operand(node.left, Type.BOOLEAN) or run.operand(node.right, Type.BOOLEAN)
    return value and len(run.errors) == before


def _xor(run: _Run, node: Binary) -> bool:
    before = len(run.errors)
    left, right = run.operand(node.left, Type.BOOLEAN), run.operand(node.right, Type.BOOLEAN)
    return len(run.errors) == before and left != right


def _equality(run: _Run, node: Binary) -> bool:
    before = len(run.errors)
    left, right = run.value(node.left), run.value(node.right)
    if len(run.errors) == before:
        # 3.7: `=` is ambiguous; the type of the right operand chooses, and the left one is cast to it.
        left = run.cast(left, type_of(right))
    return len(run.errors) == before and (left == right) is (node.operator is Operator.EQUAL)


def _comparison(run: _Run, node: Binary) -> bool:
    before = len(run.errors)
    left, right = run.operand(node.left, Type.INTEGER), run.operand(node.right, Type.INTEGER)
    return len(run.errors) == before and _COMPARISONS[node.operator](left, right)


def _arithmetic(run: _Run, node: Binary) -> int:
    before = len(run.errors)
    left, right = run.operand(node.left, Type.INTEGER), run.operand(node.right, Type.INTEGER)
    if len(run.errors) > before:
        return 0
    number = _ARITHMETIC[node.operator](left, right)
    if number is None:
        # 3.4.2: returns 0 and a MathError if y = 0.
        run.failed(ErrorKind.MATH, f"{left} {node.operator} 0")
        return 0
    return _in_range(run, number, node.operator)


def _divided(left: int, right: int) -> int | None:
    """Divide towards zero; Python's // rounds down."""
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _remainder(left: int, right: int) -> int | None:
    """Give the remainder with the sign of the left operand; Python's % takes the right one's."""
    quotient = _divided(left, right)
    return None if quotient is None else left - right * quotient


def _binary(run: _Run, node: Binary) -> Value:
    return _BINARY[node.operator](run, node)


def _like(run: _Run, node: Like) -> bool:
    before = len(run.errors)
    text = run.operand(node.operand, Type.STRING)
    return len(run.errors) == before and like(text, node.pattern) is not node.negated


def _in(run: _Run, node: In) -> bool:
    before = len(run.errors)
    wanted = run.value(node.operand)
    elements = [run.value(element) for element in node.elements]
    if len(run.errors) == before:
        # 3.7: for IN the left argument MUST be used as the target type to cast the set elements.
        elements = [run.cast(element, type_of(wanted)) for element in elements]
    return len(run.errors) == before and (wanted in elements) is not node.negated


def _call(run: _Run, node: Call) -> Value:
    function = run.functions.find(node.name, len(node.arguments))
    if function is None:
        # 3.5: when an invocation cannot be dispatched, the return value is false.
        run.failed(
            ErrorKind.MISSING_FUNCTION, f"no function {node.name} takes {len(node.arguments)} arguments"
        )
        return False
    before = len(run.errors)
    types = function.types(len(node.arguments))
    arguments = [run.operand(argument, type_) for argument, type_ in zip(node.arguments, types, strict=True)]
    return ZERO[function.returns] if len(run.errors) > before else _called(run, function, arguments)


def _called(run: _Run, function: Function, arguments: list[Value]) -> Value:
    """Call it; 3.5.3: a user function that fails to give a valid value gives the zero value and an error."""
    try:
        outcome = function.call(*arguments)
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything, evaluation may not
        outcome = Failed(ZERO[function.returns], f"{function.name} raised {type(error).__name__}: {error}")
    if isinstance(outcome, Failed):
        run.failed(outcome.kind, outcome.message)
        outcome = outcome.value
    if not _is_a(outcome, function.returns):
        run.failed(ErrorKind.FUNCTION_EVALUATION, f"{function.name} did not return {function.returns}")
        return ZERO[function.returns]
    return outcome


def _is_a(value: object, type_: Type) -> bool:
    match value:
        case bool():
            return type_ is Type.BOOLEAN
        case int():
            return type_ is Type.INTEGER and INTEGER_MIN <= value <= INTEGER_MAX
        case _:
            return type_ is Type.STRING and isinstance(value, str)


_Rule = Callable[[_Run, Any], Value]

_ARITHMETIC: dict[Operator, Callable[[int, int], int | None]] = {
    Operator.MULTIPLY: lambda left, right: left * right,
    Operator.DIVIDE: _divided,
    Operator.REMAINDER: _remainder,
    Operator.ADD: lambda left, right: left + right,
    Operator.SUBTRACT: lambda left, right: left - right,
}
_COMPARISONS: dict[Operator, Callable[[int, int], bool]] = {
    Operator.LESS: lambda left, right: left < right,
    Operator.LESS_OR_EQUAL: lambda left, right: left <= right,
    Operator.GREATER: lambda left, right: left > right,
    Operator.GREATER_OR_EQUAL: lambda left, right: left >= right,
}
_BINARY: dict[Operator, _Rule] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_COMPARISONS, _comparison),
    Operator.EQUAL: _equality,
    Operator.NOT_EQUAL: _equality,
    Operator.AND: _and,
    Operator.OR: _or,
    Operator.XOR: _xor,
}
_RULES: dict[type, _Rule] = {
    StringLiteral: _literal,
    IntegerLiteral: _literal,
    BooleanLiteral: _literal,
    Identifier: _identifier,
    Unary: _unary,
    Binary: _binary,
    Like: _like,
    Exists: _exists,
    In: _in,
    Call: _call,
}
