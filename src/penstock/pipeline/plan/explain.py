"""A plan's expression back to text that a person can read; conversions are written as functions.

For `penstock routes --explain`, findings and logs. It is close to the SQL that was written, not equal to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
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
    Step,
    Text,
    Time,
)
from penstock.pipeline.plan.numbers import decimal_text
from penstock.pipeline.plan.times import time_text

__all__ = ["explain", "path_text"]

_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _ATOM = range(1, 8)
_SUMS = (ArithmeticOperator.ADD, ArithmeticOperator.SUBTRACT)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def explain(node: Node) -> str:
    """Write an expression as text.

    >>> from penstock.pipeline.plan.nodes import Comparison
    >>> explain(Not(And((Compare(Comparison.EQUAL, Attribute("type"), Text("a")), IsNull(Data(("b", 0)))))))
    "NOT (type = 'a' AND data.b[0] IS NULL)"
    """
    return _WRITERS[type(node)](node)


def path_text(path: tuple[Step, ...]) -> str:
    """Write a path into the data.

    >>> path_text(("items", 0, "net price"))
    'data.items[0].`net price`'
    """
    return "data" + "".join(_step(step) for step in path)


def _step(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f".`{step.replace('`', '``')}`"


def _binding(node: Node) -> int:
    match node:
        case Or():
            return _OR
        case And():
            return _AND
        case Not():
            return _NOT
        case Compare() | In() | Like() | IsNull():
            return _TEST
        case Arithmetic():
            return _SUM if node.operator in _SUMS else _PRODUCT
        case _:
            return _ATOM


def _within(node: Node, binding: int) -> str:
    text = explain(node)
    return text if _binding(node) >= binding else f"({text})"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _joined(word: str, binding: int) -> Callable[[Any], str]:
    return lambda node: f" {word} ".join(_within(operand, binding + 1) for operand in node.operands)


def _call(name: str, arguments: tuple[Node, ...]) -> str:
    return f"{name}({', '.join(map(explain, arguments))})"


def _infix(node: Compare | Arithmetic) -> str:
    binding = _binding(node)
    return f"{_within(node.left, binding)} {node.operator} {_within(node.right, binding + 1)}"


def _not(node: Not) -> str:
    if isinstance(node.operand, IsNull):
        return f"{_within(node.operand.operand, _SUM)} IS NOT NULL"
    return f"NOT {_within(node.operand, _NOT)}"


def _in(node: In) -> str:
    return f"{_within(node.operand, _SUM)} IN ({', '.join(map(explain, node.elements))})"


_WRITERS: dict[type, Callable[[Any], str]] = {
    Null: lambda node: "NULL",
    Boolean: lambda node: str(node.value).upper(),
    Number: lambda node: decimal_text(node.value),
    Text: lambda node: _quote(node.value),
    Time: lambda node: f"TIMESTAMP '{time_text(node.micros)}'",
    Now: lambda node: "now()",
    Attribute: lambda node: str(node.name),
    Data: lambda node: path_text(node.path),
    Compare: _infix,
    Arithmetic: _infix,
    And: _joined("AND", _AND),
    Or: _joined("OR", _OR),
    Not: _not,
    In: _in,
    Like: lambda node: f"{_within(node.operand, _SUM)} LIKE {_quote(node.pattern)}",
    IsNull: lambda node: f"{_within(node.operand, _SUM)} IS NULL",
    Coalesce: lambda node: _call("coalesce", node.operands),
    If: lambda node: _call("if", (node.condition, node.then, node.otherwise)),
    Call: lambda node: _call(node.function, node.arguments),
}
