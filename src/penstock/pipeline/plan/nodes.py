"""The expressions of a route plan: a closed union of frozen nodes, each with one static type.

Every node is monomorphic: both sides of a comparison have the same type, and a change of type is a call of
the function table, written out by the front end. So a backend decides nothing about meaning; `functions.py`,
`numbers.py`, `times.py` and docs/pipeline/expressions.md say what a node means.

Logic is three-valued (Kleene): a null operand gives null, but for IS NULL, COALESCE, IF and where AND and OR
are decided by the other side. A route keeps an event only where its condition is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

__all__ = [
    "And",
    "Arithmetic",
    "ArithmeticOperator",
    "Attribute",
    "Boolean",
    "Call",
    "Coalesce",
    "Compare",
    "Comparison",
    "Data",
    "If",
    "In",
    "IsNull",
    "Like",
    "Node",
    "Not",
    "Now",
    "Null",
    "Number",
    "Or",
    "Step",
    "Text",
    "Time",
    "Type",
    "attributes_read",
    "children",
    "paths_read",
    "reads_data",
    "walk",
]


class Type(StrEnum):
    """The static types; NULL is the type of the literal NULL and fits everywhere."""

    BOOLEAN = "boolean"
    NUMBER = "number"
    TEXT = "text"
    TIME = "time"
    JSON = "JSON value"
    NULL = "null"


class Comparison(StrEnum):
    """The six comparisons: numbers by value, text by code point, false before true, times as moments."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class ArithmeticOperator(StrEnum):
    """Arithmetic on decimals; see `numbers.py` for range and rounding."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


@dataclass(frozen=True, slots=True)
class Null:
    """The value that is not there."""


# One class for each literal: in Python True == 1 == Decimal(1), and different plans must not be equal.
@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    value: bool


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal in the range of `numbers.py`."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class Text:
    """Characters, any of Unicode but surrogates."""

    value: str


@dataclass(frozen=True, slots=True)
class Time:
    """A moment, in microseconds since 1970-01-01T00:00:00Z."""

    micros: int


@dataclass(frozen=True, slots=True)
class Now:
    """The moment at which the batch is evaluated; given from outside, the same for a whole batch."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The text of a context attribute or extension; null if the event does not have it."""

    name: str


Step = str | int
"""A member of an object, or the index of an array, counted from 0."""


@dataclass(frozen=True, slots=True)
class Data:
    """The JSON value at a path in the data; null if it is not there, is null, or the data is not JSON."""

    path: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values of the same type; JSON values compare if both are numbers, strings or booleans."""

    operator: Comparison
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class And:
    """False if any operand is false, true if all are true, else null."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any operand is true, false if all are false, else null."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Null stays null."""

    operand: Node


@dataclass(frozen=True, slots=True)
class In:
    """True if equal to an element; else null if the operand or an element is null; else false."""

    operand: Node
    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Like:
    r"""Text against a pattern: `%` any characters, `_` one, and `\` before `%`, `_` or `\` means itself."""

    operand: Node
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """True or false, never null."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first operand that is not null."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class If:
    """`then` where the condition is true, `otherwise` where it is false or null."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers to one; null where the result is not in the range of `numbers.py`."""

    operator: ArithmeticOperator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `functions.py`; null if an argument is null."""

    function: str
    arguments: tuple[Node, ...]


Node = (
    Null
    | Boolean
    | Number
    | Text
    | Time
    | Now
    | Attribute
    | Data
    | Compare
    | And
    | Or
    | Not
    | In
    | Like
    | IsNull
    | Coalesce
    | If
    | Arithmetic
    | Call
)

_LEAF: Callable[[Any], tuple[Node, ...]] = lambda node: ()  # noqa: E731
_CHILDREN: dict[type, Callable[[Any], tuple[Node, ...]]] = {
    **dict.fromkeys((Null, Boolean, Number, Text, Time, Now, Attribute, Data), _LEAF),
    **dict.fromkeys((Compare, Arithmetic), lambda node: (node.left, node.right)),
    **dict.fromkeys((And, Or, Coalesce), lambda node: node.operands),
    **dict.fromkeys((Not, Like, IsNull), lambda node: (node.operand,)),
    In: lambda node: (node.operand, *node.elements),
    If: lambda node: (node.condition, node.then, node.otherwise),
    Call: lambda node: node.arguments,
}


def children(node: Node) -> tuple[Node, ...]:
    """Give the direct operands, left to right."""
    return _CHILDREN[type(node)](node)


def walk(node: Node) -> Iterator[Node]:
    """Give the node and all below it, each before its operands; no recursion."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending += reversed(children(found))


def attributes_read(node: Node) -> frozenset[str]:
    """Give the names of the attributes that the expression reads."""
    return frozenset(found.name for found in walk(node) if isinstance(found, Attribute))


def paths_read(node: Node) -> frozenset[tuple[Step, ...]]:
    """Give the paths into the data that the expression reads."""
    return frozenset(found.path for found in walk(node) if isinstance(found, Data))


def reads_data(node: Node) -> bool:
    """Tell whether the expression reads the data."""
    return any(isinstance(found, Data) for found in walk(node))
