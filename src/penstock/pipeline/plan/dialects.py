"""The subscription dialects (Subscriptions API 3.2.4) to plan nodes.

A dialect has no null: an attribute that is missing does not match, and `not` of that does. So each test is
made true or false before the next is asked.
"""

from __future__ import annotations

from typing import assert_never

from penstock.events.filters import AllOf, AnyOf, Exact, Filter, Prefix, Sql, Suffix
from penstock.events.filters import Not as NotFilter
from penstock.pipeline.plan.cesql import compile_cesql
from penstock.pipeline.plan.checked import FALSE, TRUE
from penstock.pipeline.plan.nodes import (
    And,
    Attribute,
    Call,
    Coalesce,
    Compare,
    Comparison,
    Node,
    Not,
    Or,
    Text,
    Type,
)
from penstock.pipeline.plan.typing import check

__all__ = ["compile_filter", "compile_filters"]


def compile_filters(filters: tuple[Filter, ...]) -> Node:
    """Give the condition that all filters of a subscription match; none at all match every event.

    >>> from penstock.events.filters import parse_filters
    >>> from penstock.pipeline.plan.explain import explain
    >>> explain(compile_filters(parse_filters([{"prefix": {"type": "shop."}}])))
    "coalesce(starts_with(type, 'shop.'), FALSE)"
    """
    node = _all(tuple(map(_compile, filters)))
    check(node, Type.BOOLEAN)
    return node


def compile_filter(filter: Filter) -> Node:
    """Give the condition that one filter matches."""
    return compile_filters((filter,))


def _compile(filter: Filter) -> Node:
    match filter:
        case Exact(pairs):
            return _all(
                tuple(_sure(Compare(Comparison.EQUAL, Attribute(name), Text(text))) for name, text in pairs)
            )
        case Prefix(pairs):
            return _all(tuple(_sure(_test("starts_with", name, text)) for name, text in pairs))
        case Suffix(pairs):
            return _all(tuple(_sure(_test("ends_with", name, text)) for name, text in pairs))
        case AllOf(filters):
            return _all(tuple(map(_compile, filters)))
        case AnyOf(filters):
            return Or(tuple(map(_compile, filters))) if len(filters) > 1 else _compile(filters[0])
        case NotFilter(child):
            return Not(_compile(child))
        case Sql():
            return _sure(compile_cesql(filter.expression).passes)
        case _:
            assert_never(filter)


def _test(function: str, name: str, text: str) -> Node:
    return Call(function, (Attribute(name), Text(text)))


def _sure(node: Node) -> Node:
    return Coalesce((node, FALSE))


def _all(nodes: tuple[Node, ...]) -> Node:
    if len(nodes) > 1:
        return And(nodes)
    return nodes[0] if nodes else TRUE
