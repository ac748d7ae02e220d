"""The expressions of a plan over a whole batch, where that can be done exactly.

One-sided, as everything here: a row is certain and then has the value that `reference.evaluate` gives, or it
is unsure. `stops` names the nodes that cannot be done by columns at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.calls import CALLS, OF_JSON
from penstock.pipeline.arrow.cells import Cells, any_unsure, broadcast, mask_of
from penstock.pipeline.arrow.found import Found
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    Comparison,
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
    children,
    walk,
)
from penstock.pipeline.plan.route import FunctionKey, RoutePlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

__all__ = ["Columns", "cannot", "evaluate", "stops"]

MAX_DIGITS: Final = 15
_TESTS: Final = frozenset({"starts_with", "ends_with", "contains"})
# By `pa.scalar` Arrow would import pandas, which the driver of a job does without.
_NO_BOOLEAN: Final = pa.nulls(1, pa.bool_())[0]


@dataclass(frozen=True, slots=True)
class Columns:
    """What an expression may read, for each row of a batch, and what was evaluated already."""

    events: EventColumns
    now: int
    found: Found | None = None
    """Row for row the data; None as long as no expression reads it."""
    known: dict[Node, Cells] = field(default_factory=dict)


# What can be done


def cannot(plan: RoutePlan) -> tuple[str, ...]:
    """Say which parts of a route stop this engine; none: it can be done by columns."""
    found = [stop for expression in plan.expressions for stop in stops(expression)]
    if isinstance(plan.key, FunctionKey):
        found.append(f"no column form: key {plan.key.name}: a function of Python")
    return tuple(found)


def stops(node: Node) -> tuple[str, ...]:
    """Say which parts of an expression cannot be done by columns; none: all can.

    >>> from penstock.pipeline.plan.sql import parse_sql
    >>> stops(parse_sql("type = 'a' AND hop + 1 < 5"))
    ('no column form: number_of_text(hop) + 1',)
    """
    return tuple(f"no column form: {explain(part)}" for part in walk(node) if _stops(part))


def _stops(node: Node) -> bool:
    match node:
        case Arithmetic():
            return True
        case Number():
            return (
                len(node.value.normalize().as_tuple().digits) > MAX_DIGITS or abs(node.value.adjusted()) > 18
            )
        case Call(function=name) if name in OF_JSON:
            return not isinstance(node.arguments[0], Data)
        case Call(function=name) if name in _TESTS:
            return not isinstance(node.arguments[1], Text)
        case Call(function=name):
            return name not in CALLS or any(isinstance(part, Null) for part in node.arguments)
        case Like():
            return isinstance(node.operand, Null)
        case IsNull():
            return False
        case _:
            return any(isinstance(part, Data) for part in children(node))


# The values


def evaluate(node: Node, columns: Columns) -> Cells:
    """Give the values of an expression that nothing stops."""
    if node not in columns.known:
        columns.known[node] = _RULES[type(node)](node, columns)
    return columns.known[node]


def _all(nodes: tuple[Node, ...], columns: Columns) -> Iterator[Cells]:
    return (evaluate(node, columns) for node in nodes)


def _attribute(node: Attribute, columns: Columns) -> Cells:
    texts = columns.events.attributes.get(node.name)
    return Cells(pa.nulls(columns.events.rows, pa.utf8()) if texts is None else texts)


def _compare(node: Compare, columns: Columns) -> Cells:
    return _compared(node.operator, evaluate(node.left, columns), evaluate(node.right, columns))


def _compared(operator: Comparison, left: Cells, right: Cells) -> Cells:
    if _is_null(left) or _is_null(right):
        return Cells(_NO_BOOLEAN)
    return Cells(_COMPARISONS[operator](left.values, right.values), any_unsure([left, right]))


def _is_null(cells: Cells) -> bool:
    return isinstance(cells.values, pa.Scalar) and not cells.values.is_valid


def _boolean(cells: Cells) -> pa.Array | pa.Scalar:
    return _NO_BOOLEAN if _is_null(cells) else cells.values


def _joined(function: Callable[..., Any], decisive: bool, operands: list[Cells]) -> Cells:
    """Join booleans; a row is certain as soon as one operand decides it."""
    values = _boolean(operands[0])
    for operand in operands[1:]:
        values = function(values, _boolean(operand))
    unsure = any_unsure(operands)
    if unsure is None:
        return Cells(values)
    for operand in operands:
        decided = broadcast(pc.equal(_boolean(operand), decisive), len(unsure), pa.bool_())
        sure = mask_of(decided) if operand.unsure is None else mask_of(decided) & ~operand.unsure
        unsure = unsure & ~sure
        if sure.any():
            values = pc.if_else(pa.array(sure), decisive, values)
    return Cells(values, unsure if unsure.any() else None)


def _and(node: And, columns: Columns) -> Cells:
    return _joined(pc.and_kleene, False, list(_all(node.operands, columns)))


def _or(node: Or, columns: Columns) -> Cells:
    return _joined(pc.or_kleene, True, list(_all(node.operands, columns)))


def _not(node: Not, columns: Columns) -> Cells:
    operand = evaluate(node.operand, columns)
    return Cells(pc.invert(_boolean(operand)), operand.unsure)


def _in(node: In, columns: Columns) -> Cells:
    if not node.elements:
        return Cells(pa.scalar(False))
    operand = evaluate(node.operand, columns)
    equal = [_compared(Comparison.EQUAL, operand, element) for element in _all(node.elements, columns)]
    return _joined(pc.or_kleene, True, equal)


def _like(node: Like, columns: Columns) -> Cells:
    operand = evaluate(node.operand, columns)
    return Cells(pc.match_substring_regex(operand.values, _expression(node.pattern)), operand.unsure)


_PART = re.compile(r"\\.|.", re.DOTALL)
_WILD: Final = {"%": ".*", "_": "."}


def _expression(pattern: str) -> str:
    """Write a pattern for RE2, whose dot is one code point and whose time is linear."""
    parts = (_WILD.get(part) or _quoted(part[-1]) for part in _PART.findall(pattern))
    return rf"\A(?s:{''.join(parts)})\z"


def _quoted(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"


def _null(node: IsNull, columns: Columns) -> Cells:
    if isinstance(node.operand, Data):
        return _no_value(node.operand, columns)
    operand = evaluate(node.operand, columns)
    return Cells(pc.is_null(operand.values), operand.unsure)


def _no_value(node: Data, columns: Columns) -> Cells:
    from penstock.wire.kernels.json import ABSENT, NULL

    assert columns.found is not None  # an expression that reads data comes after the scan
    kinds = columns.found.kinds(node.path)
    return Cells(pa.array((kinds == ABSENT) | (kinds == NULL)))


def _coalesce(node: Coalesce, columns: Columns) -> Cells:
    result: Cells | None = None
    for operand in reversed([cells for cells in _all(node.operands, columns) if not _is_null(cells)]):
        result = operand if result is None else _first(operand, result)
    return result or Cells(pa.scalar(None))


def _first(left: Cells, right: Cells) -> Cells:
    """Give the left value where there is one; the right one matters only elsewhere."""
    values = pc.coalesce(left.values, right.values)
    if right.unsure is None or isinstance(left.values, pa.Scalar):
        return Cells(values, left.unsure)
    unsure = right.unsure & mask_of(pc.is_null(left.values))
    return Cells(values, unsure if left.unsure is None else unsure | left.unsure)


def _if(node: If, columns: Columns) -> Cells:
    condition, then, otherwise = _all((node.condition, node.then, node.otherwise), columns)
    chosen = pc.fill_null(_boolean(condition), False)
    values = pc.if_else(chosen, then.values, otherwise.values)
    return Cells(values, any_unsure([condition, then, otherwise]))


def _call(node: Call, columns: Columns) -> Cells:
    if node.function in OF_JSON:
        path = node.arguments[0]
        assert isinstance(path, Data) and columns.found is not None  # `stops` saw to that
        return OF_JSON[node.function](columns.found, path.path)
    arguments = list(_all(node.arguments, columns))
    kept = 1 if node.function in _TESTS else len(arguments)
    arguments[:kept] = [_spread(argument, columns) for argument in arguments[:kept]]
    return CALLS[node.function](*arguments)


def _spread(cells: Cells, columns: Columns) -> Cells:
    return Cells(broadcast(cells.values, columns.events.rows, cells.values.type), cells.unsure)


_COMPARISONS: Final[dict[Comparison, Callable[..., Any]]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_OR_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_OR_EQUAL: pc.greater_equal,
}
_RULES: Final[dict[type, Callable[[Any, Columns], Cells]]] = {
    Null: lambda node, columns: Cells(pa.scalar(None)),
    **dict.fromkeys((Boolean, Text), lambda node, columns: Cells(pa.scalar(node.value))),
    Number: lambda node, columns: Cells(pa.scalar(float(node.value), pa.float64())),
    Time: lambda node, columns: Cells(pa.scalar(node.micros, pa.int64())),
    Now: lambda node, columns: Cells(pa.scalar(columns.now, pa.int64())),
    Attribute: _attribute,
    Compare: _compare,
    And: _and,
    Or: _or,
    Not: _not,
    In: _in,
    Like: _like,
    IsNull: _null,
    Coalesce: _coalesce,
    If: _if,
    Call: _call,
}
