"""The static type of a node, and the proof that a plan is well typed before anything runs.

Front ends build typed nodes; this check is for plans made by hand or by a front end with a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import PipelineError
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.functions import FUNCTIONS
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
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
    Text,
    Time,
    Type,
    children,
    walk,
)

__all__ = ["MAX_DEPTH", "MAX_NODES", "check", "common", "type_of"]

MAX_DEPTH = 100
"""Levels of a plan: whoever walks it may recurse."""
MAX_NODES = 5_000


def common(types: tuple[Type, ...]) -> Type | None:
    """Give the one type of several, NULL aside; None if there are two."""
    found = set(types) - {Type.NULL}
    return (found or {Type.NULL}).pop() if len(found) <= 1 else None


def type_of(node: Node) -> Type:
    """Give the type of a node that is well typed."""
    return _TYPES[type(node)](node)


def _one_of(nodes: tuple[Node, ...]) -> Type:
    return common(tuple(map(type_of, nodes))) or Type.NULL


_TYPES: dict[type, Callable[[Any], Type]] = {
    Null: lambda node: Type.NULL,
    **dict.fromkeys((Boolean, Compare, And, Or, Not, In, Like, IsNull), lambda node: Type.BOOLEAN),
    **dict.fromkeys((Number, Arithmetic), lambda node: Type.NUMBER),
    **dict.fromkeys((Text, Attribute), lambda node: Type.TEXT),
    **dict.fromkeys((Time, Now), lambda node: Type.TIME),
    Data: lambda node: Type.JSON,
    Coalesce: lambda node: _one_of(node.operands),
    If: lambda node: _one_of((node.then, node.otherwise)),
    Call: lambda node: FUNCTIONS[node.function].returns,
}


def check(node: Node, want: Type | None = None) -> None:
    """Raise PipelineError for a plan that is too large, or in which an operand has the wrong type."""
    _bound(node)
    for found in walk(node):
        _check_operands(found)
    if want is not None:
        _expect(node, want, node)


def _bound(node: Node) -> None:
    level: tuple[Node, ...] = (node,)
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise PipelineError(f"an expression of more than {MAX_NODES} nodes or {MAX_DEPTH} levels")
        level = tuple(child for parent in level for child in children(parent))


def _expect(node: Node, want: Type, parent: Node) -> None:
    found = type_of(node)
    if found not in (want, Type.NULL):
        raise PipelineError(
            f"{explain(node)} is {found}, not {want}",
            where=explain(parent),
            why="an operand of a plan has one type",
            next="convert it with a function of the plan",
        )


def _check_operands(node: Node) -> None:
    match node:
        case And() | Or():
            _expect_all(node.operands, Type.BOOLEAN, node)
        case Not():
            _expect(node.operand, Type.BOOLEAN, node)
        case If():
            _expect(node.condition, Type.BOOLEAN, node)
            _same((node.then, node.otherwise), node)
        case Like():
            _expect(node.operand, Type.TEXT, node)
        case Arithmetic():
            _expect_all((node.left, node.right), Type.NUMBER, node)
        case Compare() | In() | Coalesce():
            _same(children(node), node)
        case Call():
            _check_call(node)
        case _:
            return


def _expect_all(nodes: tuple[Node, ...], want: Type, parent: Node) -> None:
    for node in nodes:
        _expect(node, want, parent)


def _same(nodes: tuple[Node, ...], parent: Node) -> None:
    if common(tuple(map(type_of, nodes))) is None:
        raise PipelineError(
            f"{explain(parent)} has operands of different types",
            why=", ".join(f"{explain(node)} is {type_of(node)}" for node in nodes),
        )


def _check_call(node: Call) -> None:
    signature = FUNCTIONS.get(node.function)
    if signature is None or not signature.takes(len(node.arguments)):
        raise PipelineError(f"the plan has no function {node.function} of {len(node.arguments)} arguments")
    for index, argument in enumerate(node.arguments):
        _expect(argument, signature.parameter(index), node)
