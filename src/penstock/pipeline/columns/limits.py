"""What columns cannot do exactly: asked before a session is there, so nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.pipeline.plan.attributes import GRAMMAR
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import Attribute, Call, Data, Node, Null, Number, Text, walk
from penstock.pipeline.plan.route import FunctionKey, RoutePlan

__all__ = ["cannot", "stops"]

_UNICODE: Final = "Java and Python know different versions of Unicode"
_FUNCTIONS: Final = {"unicode_lower": _UNICODE, "unicode_upper": _UNICODE}


def stops(node: Node) -> tuple[str, ...]:
    """Say which parts of an expression columns cannot do exactly; none: they can.

    >>> from penstock.pipeline.plan.cesql import parse_cesql
    >>> stops(parse_cesql("LOWER(type) = 'a'"))
    ('columns cannot: unicode_lower(type): Java and Python know different versions of Unicode',)
    """
    found = ((part, _stop(part)) for part in walk(node))
    return tuple(f"columns cannot: {explain(part)}: {why}" for part, why in found if why)


def _stop(node: Node) -> str | None:
    match node:
        case Call(function="round", arguments=(_, digits)) if not isinstance(digits, Number):
            return "the number of digits is not a constant"
        case Call():
            return _FUNCTIONS.get(node.function)
        case Data():
            both = any(isinstance(step, str) and "'" in step and '"' in step for step in node.path)
            return "a member name with both kinds of quotes" if both else None
        case _:
            return None


def cannot(plan: RoutePlan) -> tuple[str, ...]:
    """Say which parts of a route stop the columns engine; none: it can be done."""
    return tuple(_plan_stops(plan))


def _plan_stops(plan: RoutePlan) -> Iterator[str]:
    for expression in plan.expressions:
        yield from stops(expression)
    if isinstance(plan.key, FunctionKey):
        yield f"columns cannot: key {plan.key.name}: a function of Python"
    for assignment in plan.set:
        if assignment.attribute in GRAMMAR and not _is_sure(assignment.attribute, assignment.value):
            yield (
                f"columns cannot: set {assignment.attribute} = {explain(assignment.value)}: "
                "whether the text is a URI is not asked of a regular expression in Java"
            )


def _is_sure(attribute: str, value: Node) -> bool:
    """Tell whether a text is known to follow its grammar: a constant was checked, the same attribute is."""
    return isinstance(value, Text | Null) or value == Attribute(attribute)
