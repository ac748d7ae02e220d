"""A whole route on one event: verdict, or output and key. What `penstock test` runs, and the oracle.

A plan is compiled once to a `RouteEvaluator`; then an event costs only what it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.errors import UnsupportedPlan
from penstock.events import CloudEvent, absent
from penstock.events.cloudevent import shaped
from penstock.events.rules import CORE
from penstock.events.types import AttributeType
from penstock.pipeline.evaluators.reference.evaluate import Expression, Scope, compile_expression
from penstock.pipeline.evaluators.reference.json_data import read_data, unreadable
from penstock.pipeline.plan.attributes import is_legal, may_be_missing
from penstock.pipeline.plan.identity import derivation
from penstock.pipeline.plan.route import (
    Assignment,
    Expiry,
    ExpressionKey,
    RoutePlan,
    SimpleKey,
    Tombstones,
)
from penstock.pipeline.plan.times import read_time, time_text
from penstock.pipeline.plan.verdict import (
    DATA_INVALID,
    EXPIRED,
    INVALID_ATTRIBUTE,
    KEEP,
    MISSING_ATTRIBUTE,
    TOMBSTONE,
    TOMBSTONE_DROPPED,
    UNMATCHED,
    Verdict,
)

__all__ = ["Output", "RouteEvaluator", "evaluator_of", "in_order", "is_expired", "scope_of"]

KeyFunction = Callable[[CloudEvent], bytes | None]
_UNREAD: Final = object()
"""Stands for the data of a scope until a route asks for it."""


@dataclass(slots=True)
class Output:
    """One event to write; `null_value` says that it came with a null value and leaves with one."""

    event: CloudEvent
    key: bytes | None
    null_value: bool


def scope_of(event: CloudEvent, now: int) -> Scope:
    """Return what the routes of an event share: its data is parsed once, by the first that reads it."""
    return Scope(event.attributes, _UNREAD, now)


def in_order(event: CloudEvent) -> CloudEvent:
    """Return the event with its attributes in the order in which every engine writes them."""
    attributes = event.attributes
    names = tuple(attributes)
    index = _layout(names)
    if names == tuple(index):
        return event
    return shaped(index, tuple([attributes[name] for name in index]), event.data, event.types, sound=False)


def is_expired(event: CloudEvent, now: int) -> bool:
    """Tell whether the event says of itself that its time is over."""
    text = event.get("expirytime")
    expiry = None if text is None else read_time(text)
    return expiry is not None and expiry < now


class RouteEvaluator:
    """One route, compiled: conditions, changes, key and the derivation of ids."""

    __slots__ = (
        "_assigned",
        "_assignments",
        "_body",
        "_derive",
        "_discards",
        "_guard",
        "_key",
        "_nulls_stay",
        "_reads_data",
        "_removed",
        "plan",
        "verdict_on_null",
    )

    def __init__(self, plan: RoutePlan) -> None:
        self.plan = plan
        self.verdict_on_null: Verdict = _ON_NULL.get(plan.tombstones, KEEP)
        """About a null value that is no event: there is nothing that a condition could ask."""
        self._discards = plan.expiry is Expiry.DISCARD
        self._guard = [compile_expression(node) for node in plan.guard]
        self._reads_data = plan.reads_data
        self._body = [compile_expression(node) for node in plan.body]
        self._removed: dict[str, str | None] = dict.fromkeys((*plan.drop, *(old for old, _ in plan.rename)))
        self._assignments = [(each.attribute, _text_of(each)) for each in plan.set]
        self._assigned = frozenset(each.attribute for each in plan.set)
        self._derive = derivation(plan.name)
        self._key = compile_expression(plan.key.expression) if isinstance(plan.key, ExpressionKey) else None
        self._nulls_stay = not plan.writes_no_data_as_event

    def route(
        self,
        event: CloudEvent,
        *,
        key: bytes | None = None,
        now: int = 0,
        key_function: KeyFunction | None = None,
        structured: bool = False,
    ) -> Output | Verdict:
        """Route one event; `now` is the moment in microseconds, `key` is that of the record it came in.

        `structured` says that it came in structured mode, where no data is no null value. The result is the
        output, or the verdict that there is none.
        """
        return self.decide(event, scope_of(event, now), key, structured, key_function)

    def decide(
        self,
        event: CloudEvent,
        scope: Scope,
        key: bytes | None,
        structured: bool,
        key_function: KeyFunction | None = None,
    ) -> Output | Verdict:
        """Do what `route` does, with the scope that all routes of the event share."""
        verdict = self._judge(event, scope)
        if verdict is not KEEP:
            return verdict
        result: CloudEvent | Verdict = event
        if self._assignments or self._removed:
            result = self._changed(event, scope)
            if type(result) is Verdict:
                return result
        assert type(result) is CloudEvent
        # Kafka 3.2.2: only in binary mode no data is a null value; 3.3.2: a structured event without data is
        # none.
        null = self._nulls_stay and not structured and event.data is absent
        if self.plan.key is not SimpleKey.KEEP:
            key = self._key_of(result, scope, key_function)
        return Output(result, key, null)

    def unmatched(self, event: CloudEvent, scope: Scope) -> Verdict:
        """Return the verdict on an event for which a condition does not hold that was asked elsewhere."""
        return EXPIRED if self._discards and is_expired(event, scope.now) else UNMATCHED

    def _judge(self, event: CloudEvent, scope: Scope) -> Verdict:
        """Ask the conditions, those that read data last."""
        if self._discards and is_expired(event, scope.now):
            return EXPIRED
        for condition in self._guard:
            if condition(scope) is not True:
                return UNMATCHED
        if self._reads_data:
            if scope.data is _UNREAD:
                scope.data = read_data(event)
            if scope.data is unreadable:
                return DATA_INVALID
            for condition in self._body:
                if condition(scope) is not True:
                    return UNMATCHED
        return KEEP

    def _changed(self, event: CloudEvent, scope: Scope) -> CloudEvent | Verdict:
        attributes = scope.attributes
        wanted = dict(self._removed)
        for old, new in self.plan.rename:
            if old in attributes:
                wanted[new] = attributes[old]
        for name, value in self._assignments:
            wanted[name] = value(scope)
        changes = {name: text for name, text in wanted.items() if text != attributes.get(name)}
        if not changes:
            return event
        for name, text in changes.items():
            if text is None:
                if not may_be_missing(name):
                    return MISSING_ATTRIBUTE
            elif not is_legal(name, text):
                return INVALID_ATTRIBUTE
        if len(changes) > 1 or "partitionkey" not in changes:
            id = attributes["id"]
            changes["id"] = self._derive(attributes["source"], id)
            changes["causationid"] = id
        merged = {**attributes, **changes}
        index = _layout(tuple([name for name, text in merged.items() if text is not None]))
        texts: tuple[str, ...] = tuple([merged[name] for name in index])  # type: ignore[misc]
        types = event.types
        return shaped(index, texts, event.data, types and self._types(types, index, changes), sound=False)

    def _types(
        self,
        types: Mapping[str, AttributeType],
        index: Mapping[str, int],
        changes: Mapping[str, str | None],
    ) -> Mapping[str, AttributeType]:
        """Return the types of the extensions; one that was renamed keeps its type, what is set is text."""
        kept = {name: kind for name, kind in types.items() if name in index and name not in changes}
        return kept | {
            new: types[old]
            for old, new in self.plan.rename
            if old in types and new in changes and new not in self._assigned
        }

    def _key_of(self, result: CloudEvent, scope: Scope, function: KeyFunction | None) -> bytes | None:
        rule = self.plan.key
        if rule is SimpleKey.NONE:
            return None
        if isinstance(rule, SimpleKey):
            return _bytes(result.get("partitionkey"))
        if self._key is not None:
            return _bytes(self._key(scope))
        if function is None:
            raise UnsupportedPlan("reference", (f"reference cannot: key {rule} without its function",))
        return function(result)


@lru_cache(maxsize=256)
def evaluator_of(plan: RoutePlan) -> RouteEvaluator:
    """Return the evaluator of a plan, compiled once; to look it up takes the hash of the whole plan."""
    return RouteEvaluator(plan)


_ON_NULL: Final[Mapping[Tombstones, Verdict]] = {
    Tombstones.DROP: TOMBSTONE_DROPPED,
    Tombstones.REJECT: TOMBSTONE,
}


def _text_of(assignment: Assignment) -> Expression:
    value = compile_expression(assignment.value)
    if assignment.attribute != "time":
        return value

    def written(scope: Scope) -> str | None:
        micros = value(scope)
        return None if micros is None else time_text(micros)

    return written


_layouts: dict[tuple[str, ...], Mapping[str, int]] = {}
_MAX_LAYOUTS: Final = 1024
_MAX_NAMES: Final = 2048
"""Characters of the names of a layout that is remembered: names come from outside."""


def _layout(names: tuple[str, ...]) -> Mapping[str, int]:
    """Return where attributes stand, in the order in which every engine writes them.

    Core attributes come first, then the others by name. Events of one producer have few sequences of names.
    """
    found = _layouts.get(names)
    if found is None:
        extensions = sorted(name for name in names if name not in CORE)
        found = {name: at for at, name in enumerate([*(n for n in CORE if n in names), *extensions])}
        if len(_layouts) < _MAX_LAYOUTS and sum(map(len, names)) <= _MAX_NAMES:
            _layouts[names] = found
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
