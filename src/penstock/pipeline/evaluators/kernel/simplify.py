"""A condition of which only one thing is asked, whether it is true, in fewer tests.

Languages without null (filters, CESQL) compile to tests that say first that nothing is missing. Where only
true counts, a test that cannot be true without its operands says so by itself.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.events.rules import REQUIRED
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Or,
    children,
)

__all__ = ["where_only_true_counts"]

_TRUE = Boolean(True)
_FALSE = Boolean(False)
_ALWAYS: frozenset[Node] = frozenset(map(Attribute, REQUIRED))
"""core, Required Attributes: what has them not is no event, and no condition is asked."""


def where_only_true_counts(node: Node) -> Node:
    """Give a condition that is true for the same events; where it is not, false and null may be the other.

    >>> from penstock.pipeline.plan.cesql import parse_cesql
    >>> from penstock.pipeline.plan.explain import explain
    >>> explain(parse_cesql("hop > 5"))
    'NOT (hop IS NULL OR cesql_integer(hop) IS NULL) AND cesql_integer(hop) > 5'
    >>> explain(where_only_true_counts(parse_cesql("hop > 5")))
    'cesql_integer(hop) > 5'
    """
    match node:
        case And():
            return _and(tuple(map(where_only_true_counts, node.operands)))
        case Or():
            return replace(node, operands=tuple(map(where_only_true_counts, node.operands)))
        # Above AND and OR a null decides as false does.
        case Coalesce(operands=(operand, Boolean(value=False))):
            return where_only_true_counts(operand)
        case _:
            return node


def _and(operands: tuple[Node, ...]) -> Node:
    """Leave out the tests for null that other operands make anyway.

    Where one of the others is not true, the whole is not; so each may take for granted what they need. One
    after the other: what was left out is nothing that those behind it may rely on.
    """
    found = list(operands)
    for number, operand in enumerate(found):
        others = found[:number] + found[number + 1 :]
        found[number] = _without_null_tests(operand, _ALWAYS.union(*map(_needed_for_true, others)))
    kept = tuple(each for each in found if each != _TRUE)
    return kept[0] if len(kept) == 1 else And(kept)


def _without_null_tests(node: Node, present: frozenset[Node]) -> Node:
    """Give logic in which the tests for null of what is present are answered."""
    match node:
        case IsNull(operand=operand) if operand in present:
            return _FALSE
        case Not():
            operand = _without_null_tests(node.operand, present)
            return Boolean(not operand.value) if isinstance(operand, Boolean) else Not(operand)
        case And() | Or():
            decides, neutral = (_FALSE, _TRUE) if isinstance(node, And) else (_TRUE, _FALSE)
            left = [_without_null_tests(each, present) for each in node.operands]
            left = [decides] if decides in left else [each for each in left if each != neutral] or [neutral]
            return left[0] if len(left) == 1 else replace(node, operands=tuple(left))
        case _:
            return node


def _needed_for_true(node: Node) -> frozenset[Node]:
    """Give what must not be null if the condition is to be true."""
    match node:
        case And():
            return frozenset().union(*map(_needed_for_true, node.operands))
        case Or():
            return _common(tuple(map(_needed_for_true, node.operands)))
        case Not(operand=IsNull(operand=operand)):
            return frozenset({operand}) | _makes_null(operand)
        case _:
            return _makes_null(node)


def _makes_null(node: Node) -> frozenset[Node]:
    """Give the operands, and theirs, each of which makes the node null where it is null."""
    match node:
        case Compare() | Arithmetic() | Call() | Like() | Not():
            return frozenset(children(node)).union(*map(_makes_null, children(node)))
        case In(operand=operand, elements=(_, *_)):
            return frozenset({operand}) | _makes_null(operand)
        case And() | Or():
            return _common(tuple(map(_makes_null, node.operands)))
        case _:
            return frozenset()


def _common(sets: tuple[frozenset[Node], ...]) -> frozenset[Node]:
    return frozenset.intersection(*sets) if sets else frozenset()
