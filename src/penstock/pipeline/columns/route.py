"""Whole routes as columns: a verdict, the changed attributes, the key, and whether a null value is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.errors import UnsupportedPlan
from penstock.events.rules import NON_EMPTY
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.expressions import compile_expression
from penstock.pipeline.columns.jsontext import with_paths
from penstock.pipeline.columns.limits import cannot
from penstock.pipeline.columns.times import time_of, time_text
from penstock.pipeline.plan.attributes import may_be_missing
from penstock.pipeline.plan.identity import ID_LENGTH
from penstock.pipeline.plan.nodes import Node, Type
from penstock.pipeline.plan.route import Expiry, ExpressionKey, Mode, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.plan.typing import type_of
from penstock.pipeline.plan.verdict import (
    DATA_INVALID,
    EXPIRED,
    INVALID_ATTRIBUTE,
    KEEP,
    MISSING_ATTRIBUTE,
    UNMATCHED,
    Verdict,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["RouteColumns", "compile_route", "prepare"]

# core, String: the characters that no attribute may hold, in the words of Java's regular expressions.
_ILLEGAL: Final = (
    r"[\x00-\x1f\x7f-\x{9f}\x{fdd0}-\x{fdef}"
    + "".join(rf"\x{{{plane:x}fffe}}\x{{{plane:x}ffff}}" for plane in range(17)).replace("{0", "{")
    + "]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteColumns:
    """A route over a frame that `prepare` has made; all but the verdict count only where it is to keep."""

    verdict: Column
    """struct<decision string, code string>, as in `plan/verdict.py`."""
    attributes: Mapping[str, Column]
    """The new text of each attribute that the route may change, id and causationid among them; null: none."""
    key: Column
    null_value: Column
    transformed: Column


def prepare(frame: DataFrame, binding: Binding, plans: Iterable[RoutePlan]) -> DataFrame:
    """Parse the data once for all routes of a source, and only where a route asks for it."""
    readers = [plan for plan in plans if plan.reads_data]
    paths = sorted(frozenset().union(*(plan.paths for plan in readers)), key=str)
    needed = reduce(or_, (_all_true(plan.guard, binding) for plan in readers), F.lit(False))
    return with_paths(frame, binding, paths, needed)


def compile_route(plan: RoutePlan, binding: Binding) -> RouteColumns:
    """Give a route as columns; UnsupportedPlan says which part columns cannot do."""
    if stopped := cannot(plan):
        raise UnsupportedPlan("columns", stopped)
    changes = _changes(plan, binding)
    different = {name: ~text.eqNullSafe(binding.attribute(name)) for name, text in changes.items()}
    tests = [test for name, test in different.items() if name != "partitionkey"]
    transformed = reduce(or_, tests, F.lit(False))
    return RouteColumns(
        verdict=_verdict(plan, binding, changes),
        attributes=changes | _identity(plan, binding, transformed),
        key=_key(plan, binding, changes),
        null_value=_null_value(plan, binding),
        transformed=transformed,
    )


def _all_true(nodes: Iterable[Node], binding: Binding) -> Column:
    tests = (compile_expression(node, binding, Type.BOOLEAN) for node in nodes)
    return reduce(and_, (F.coalesce(test, F.lit(False)) for test in tests), F.lit(True))


def _struct(verdict: Verdict) -> Column:
    return F.struct(F.lit(verdict.decision.value).alias("decision"), F.lit(verdict.code).alias("code"))


def _verdict(plan: RoutePlan, binding: Binding, changes: Mapping[str, Column]) -> Column:
    """Ask in the order of the reference; the first that applies is the verdict."""
    found: list[tuple[Column, Verdict]] = []
    if plan.expiry is Expiry.DISCARD:
        expired = time_of(binding.attribute("expirytime")) < binding.now
        found.append((F.coalesce(expired, F.lit(False)), EXPIRED))
    found.append((~_all_true(plan.guard, binding), UNMATCHED))
    if plan.reads_data:
        found.append((F.col(binding.unreadable), DATA_INVALID))
    found.append((~_all_true(plan.body, binding), UNMATCHED))
    for name, text in changes.items():
        if not may_be_missing(name):
            found.append((text.isNull(), MISSING_ATTRIBUTE))
        found.append((F.coalesce(_is_illegal(name, text), F.lit(False)), INVALID_ATTRIBUTE))
    column = _struct(KEEP)
    for test, verdict in reversed(found):
        column = F.when(test, _struct(verdict)).otherwise(column)
    return column


def _is_illegal(name: str, text: Column) -> Column:
    illegal = text.rlike(_ILLEGAL)
    return illegal | (text == "") if name in NON_EMPTY else illegal


def _changes(plan: RoutePlan, binding: Binding) -> dict[str, Column]:
    nothing = F.lit(None).cast("string")
    changes = dict.fromkeys(plan.drop, nothing)
    changes |= dict.fromkeys((old for old, _ in plan.rename), nothing)
    for old, new in plan.rename:
        changes[new] = F.coalesce(binding.attribute(old), changes.get(new, binding.attribute(new)))
    for assignment in plan.set:
        changes[assignment.attribute] = _text(assignment.value, binding)
    return changes


def _text(node: Node, binding: Binding) -> Column:
    column = compile_expression(node, binding, Type.TEXT)
    return time_text(column) if type_of(node) is Type.TIME else column


def _identity(plan: RoutePlan, binding: Binding, transformed: Column) -> dict[str, Column]:
    id, source, cause = (binding.attribute(name) for name in ("id", "source", "causationid"))
    parts = [F.lit(plan.name), source, id, F.lit("0")]
    netstrings = [
        F.concat(F.octet_length(part).cast("string"), F.lit(":"), part, F.lit(",")) for part in parts
    ]
    digest = F.sha2(F.concat(*netstrings).cast("binary"), 256)
    derived = F.substring(digest, 1, ID_LENGTH)
    return {
        "id": F.when(transformed, derived).otherwise(id),
        "causationid": F.when(transformed, id).otherwise(cause),
    }


def _key(plan: RoutePlan, binding: Binding, changes: Mapping[str, Column]) -> Column:
    if isinstance(plan.key, ExpressionKey):
        return compile_expression(plan.key.expression, binding, Type.TEXT).cast("binary")
    if plan.key is SimpleKey.PARTITIONKEY:
        return changes.get("partitionkey", binding.attribute("partitionkey")).cast("binary")
    return F.lit(None).cast("binary") if plan.key is SimpleKey.NONE else F.col(binding.key)


def _null_value(plan: RoutePlan, binding: Binding) -> Column:
    as_event = plan.tombstones is Tombstones.EVENT and plan.mode is Mode.STRUCTURED
    return F.lit(False) if as_event else F.col(binding.data).isNull()
