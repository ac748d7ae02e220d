"""Whole routes as columns: a verdict, the changed attributes, the key, and whether the value is null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import UnsupportedPlan
from penstock.events.rules import NON_EMPTY
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.identity import derived_id
from penstock.pipeline.columns.jsontext import with_paths
from penstock.pipeline.columns.legal import ILLEGAL
from penstock.pipeline.columns.limits import cannot
from penstock.pipeline.columns.program import Program
from penstock.pipeline.plan.attributes import may_be_missing
from penstock.pipeline.plan.nodes import Attribute, Call, Node, Type
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteColumns:
    """A route over a frame to which `prepare` and the program's `apply` were given, in this order.

    All but the verdict count only where it is to keep.
    """

    verdict: Column
    """struct<decision string, code string>, as in `plan/verdict.py`."""
    attributes: Mapping[str, Column]
    """The new text of each attribute that the route may change, id and causationid among them; null: none."""
    key: Column
    null_value: Column
    transformed: Column


def prepare(
    frame: DataFrame, binding: Binding, plans: Iterable[RoutePlan], *, everywhere: bool = False
) -> DataFrame:
    """Parse the data once for all routes of a source: only where one asks for it, or everywhere."""
    readers = [plan for plan in plans if plan.reads_data]
    paths = sorted(frozenset().union(*(plan.paths for plan in readers)), key=str)
    if everywhere:
        return with_paths(frame, binding, paths)
    if not readers:
        return frame
    guards = Program(binding, "_guard")
    needed = reduce(or_, [_all_true(plan.guard, guards) for plan in readers])
    return with_paths(guards.apply(frame), binding, paths, needed).drop(*guards.names)


def compile_route(plan: RoutePlan, program: Program) -> RouteColumns:
    """Add a route to a program; UnsupportedPlan says which part columns cannot do."""
    if stopped := cannot(plan):
        raise UnsupportedPlan("columns", stopped)
    binding = program.binding
    changes = _changes(plan, program)
    tests = (_differs(name, text, binding) for name, text in changes.items() if name != "partitionkey")
    transformed = reduce(or_, tests, F.lit(False))
    return RouteColumns(
        verdict=_verdict(plan, program, changes),
        attributes=changes | _identity(plan, binding, transformed),
        key=_key(plan, program, changes),
        null_value=_null_value(plan, binding),
        transformed=transformed,
    )


def _differs(name: str, text: Column, binding: Binding) -> Column:
    return ~text.eqNullSafe(binding.attribute(name))


def _all_true(nodes: Iterable[Node], program: Program) -> Column:
    tests = (program.add(node, Type.BOOLEAN) for node in nodes)
    return reduce(and_, (F.coalesce(test, F.lit(False)) for test in tests), F.lit(True))


def _struct(verdict: Verdict) -> Column:
    return F.struct(F.lit(verdict.decision.value).alias("decision"), F.lit(verdict.code).alias("code"))


def _verdict(plan: RoutePlan, program: Program, changes: Mapping[str, Column]) -> Column:
    """Ask in the order of the reference; the first that applies is the verdict."""
    binding = program.binding
    found: list[tuple[Column, Verdict]] = []
    if plan.expiry is Expiry.DISCARD:
        expired = program.add(Call("time_of_text", (Attribute("expirytime"),))) < binding.now
        found.append((F.coalesce(expired, F.lit(False)), EXPIRED))
    found.append((~_all_true(plan.guard, program), UNMATCHED))
    if plan.reads_data:
        found.append((F.col(binding.unreadable), DATA_INVALID))
    found.append((~_all_true(plan.body, program), UNMATCHED))
    for name, text in changes.items():
        if not may_be_missing(name):
            found.append((text.isNull(), MISSING_ATTRIBUTE))
        illegal = _differs(name, text, binding) & _is_illegal(name, text)
        found.append((F.coalesce(illegal, F.lit(False)), INVALID_ATTRIBUTE))
    column = _struct(KEEP)
    for test, verdict in reversed(found):
        column = F.when(test, _struct(verdict)).otherwise(column)
    return column


def _is_illegal(name: str, text: Column) -> Column:
    illegal = text.rlike(ILLEGAL)
    return illegal | (text == "") if name in NON_EMPTY else illegal


def _changes(plan: RoutePlan, program: Program) -> dict[str, Column]:
    binding = program.binding
    nothing = F.lit(None).cast("string")
    changes = dict.fromkeys(plan.drop, nothing)
    changes |= dict.fromkeys((old for old, _ in plan.rename), nothing)
    for old, new in plan.rename:
        changes[new] = F.coalesce(binding.attribute(old), changes.get(new, binding.attribute(new)))
    for assignment in plan.set:
        value = assignment.value
        text = Call("text_of_time", (value,)) if type_of(value) is Type.TIME else value
        changes[assignment.attribute] = program.add(text, Type.TEXT)
    return changes


def _identity(plan: RoutePlan, binding: Binding, transformed: Column) -> dict[str, Column]:
    id, source, cause = (binding.attribute(name) for name in ("id", "source", "causationid"))
    derived = derived_id(plan.name, source, id)
    return {
        "id": F.when(transformed, derived).otherwise(id),
        "causationid": F.when(transformed, id).otherwise(cause),
    }


def _key(plan: RoutePlan, program: Program, changes: Mapping[str, Column]) -> Column:
    if isinstance(plan.key, ExpressionKey):
        return program.add(plan.key.expression, Type.TEXT).cast("binary")
    if plan.key is SimpleKey.PARTITIONKEY:
        return changes.get("partitionkey", program.binding.attribute("partitionkey")).cast("binary")
    return F.lit(None).cast("binary") if plan.key is SimpleKey.NONE else F.col(program.binding.key)


def _null_value(plan: RoutePlan, binding: Binding) -> Column:
    as_event = plan.tombstones is Tombstones.EVENT and plan.mode is Mode.STRUCTURED
    return F.lit(False) if as_event else F.col(binding.data).isNull()
