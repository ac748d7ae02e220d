"""A syntax tree back to text, with no more brackets than the precedence needs (CESQL 1.0.0, 3.6).

`parse(render(tree)) == tree` for every tree that `parse` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import UsageError
from penstock.events.cesql.parser import BINDING
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
    StringLiteral,
    Unary,
    UnaryOperator,
)

__all__ = ["render"]

_ATOM, _PREFIX, _POSTFIX = 7, 6, 5


def render(expression: Expression) -> str:
    """Write an expression as text; raises UsageError for a string that CESQL has no way to write.

    >>> from penstock.events.cesql import parse
    >>> render(parse("not (a=1 and b like 'x%')"))
    "NOT (a = 1 AND b LIKE 'x%')"
    """
    return _WRITERS[type(expression)](expression)


def _binding(expression: Expression) -> int:
    match expression:
        case Binary():
            return BINDING[expression.operator]
        case Like() | In():
            return _POSTFIX
        case Unary():
            return _PREFIX
        case _:
            return _ATOM


def _within(expression: Expression, binding: int) -> str:
    """Write an operand, in brackets if it binds less tightly than its place asks for."""
    text = render(expression)
    return text if _binding(expression) >= binding else f"({text})"


def _string(value: str) -> str:
    for quote in "'\"":
        text = _quoted(value, quote)
        if text is not None:
            return text
    raise UsageError(
        f"the string {value!r:.80} cannot be written in CESQL",
        why="2.2 has an escape for the quote and none for the backslash before it",
    )


def _quoted(value: str, quote: str) -> str | None:
    """Write text between quotes, or None: the reader takes a backslash and what follows as one."""
    written = quote
    characters = iter(value)
    for character in characters:
        pair = character + next(characters, quote) if character == "\\" else character
        if pair == f"\\{quote}":
            return None
        written += f"\\{quote}" if pair == quote else pair
    return written + quote


def _unary(node: Unary) -> str:
    if node.operator is UnaryOperator.NOT:
        return f"NOT {_within(node.operand, _PREFIX)}"
    operand = _within(node.operand, _PREFIX)
    # "-5" would be read as a number, and "-(-5)" and "- -5" are both "minus minus five".
    return f"-({operand})" if isinstance(node.operand, IntegerLiteral) else f"-{operand}"


def _binary(node: Binary) -> str:
    binding = BINDING[node.operator]
    return f"{_within(node.left, binding)} {node.operator} {_within(node.right, binding + 1)}"


def _like(node: Like) -> str:
    return f"{_within(node.operand, _POSTFIX)} {'NOT ' * node.negated}LIKE {_string(node.pattern)}"


def _in(node: In) -> str:
    elements = ", ".join(map(render, node.elements))
    return f"{_within(node.operand, _POSTFIX)} {'NOT ' * node.negated}IN ({elements})"


_WRITERS: dict[type, Callable[[Any], str]] = {
    StringLiteral: lambda node: _string(node.value),
    IntegerLiteral: lambda node: str(node.value),
    BooleanLiteral: lambda node: str(node.value).upper(),
    Identifier: lambda node: str(node.name),
    Exists: lambda node: f"EXISTS {node.name}",
    Call: lambda node: f"{node.name}({', '.join(map(render, node.arguments))})",
    Unary: _unary,
    Binary: _binary,
    Like: _like,
    In: _in,
}
