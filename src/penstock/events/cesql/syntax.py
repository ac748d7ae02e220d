"""The syntax tree of a CESQL expression: plain frozen data, a closed union (CESQL 1.0.0, section 2).

The tree has no behaviour, so that an evaluator and a compiler to columns can both walk it.
Names are folded as the language folds them: attributes to lower case, functions to upper case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

__all__ = [
    "Binary",
    "BooleanLiteral",
    "Call",
    "Exists",
    "Expression",
    "Identifier",
    "In",
    "IntegerLiteral",
    "Like",
    "Operator",
    "StringLiteral",
    "Unary",
    "UnaryOperator",
    "children",
    "height",
    "identifiers",
    "walk",
]


class UnaryOperator(StrEnum):
    """The two prefix operators of 3.4.1."""

    NOT = "NOT"
    MINUS = "-"


class Operator(StrEnum):
    """The binary operators of 3.4.2; `<>` is read as `!=`, which it means."""

    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"
    ADD = "+"
    SUBTRACT = "-"
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    AND = "AND"
    OR = "OR"
    XOR = "XOR"


# Three literal classes, not one: in Python True == 1, and two different expressions must not be equal.
@dataclass(frozen=True, slots=True)
class StringLiteral:
    """Text between quotes, escapes of the quote removed."""

    value: str


@dataclass(frozen=True, slots=True)
class IntegerLiteral:
    """A signed 32-bit number."""

    value: int


@dataclass(frozen=True, slots=True)
class BooleanLiteral:
    """`TRUE` or `FALSE`, in any case."""

    value: bool


@dataclass(frozen=True, slots=True)
class Identifier:
    """The value of a context attribute or extension."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    """`NOT x` or `-x`."""

    operator: UnaryOperator
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison or logic on two expressions."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Like:
    """`x [NOT] LIKE 'pattern'`; the pattern keeps its backslashes."""

    operand: Expression
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS name`."""

    name: str


@dataclass(frozen=True, slots=True)
class In:
    """`x [NOT] IN (a, b, ...)`, with at least one element."""

    operand: Expression
    elements: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function invocation; the name is in upper case."""

    name: str
    arguments: tuple[Expression, ...] = ()


Expression = (
    StringLiteral | IntegerLiteral | BooleanLiteral | Identifier | Unary | Binary | Like | Exists | In | Call
)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Give the direct sub-expressions, left to right."""
    match expression:
        case StringLiteral() | IntegerLiteral() | BooleanLiteral() | Identifier() | Exists():
            return ()
        case Unary() | Like():
            return (expression.operand,)
        case Binary():
            return (expression.left, expression.right)
        case In():
            return (expression.operand, *expression.elements)
        case Call():
            return expression.arguments
        case _:
            assert_never(expression)


def walk(expression: Expression) -> Iterator[Expression]:
    """Give the expression and all its parts; no recursion, so any tree is safe."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children(node))


def height(expression: Expression) -> int:
    """Give the number of nodes on the longest way down."""
    tallest = 0
    pending = [(expression, 1)]
    while pending:
        node, level = pending.pop()
        tallest = max(tallest, level)
        pending += [(child, level + 1) for child in children(node)]
    return tallest


def identifiers(expression: Expression) -> frozenset[str]:
    """Give the names of all attributes that the expression may ask for."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Identifier | Exists))
