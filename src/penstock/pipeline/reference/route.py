"""A whole route on one event: verdict, output and key. What `penstock test` runs, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.errors import UnsupportedPlan
from penstock.events import CloudEvent, absent
from penstock.events.rules import CORE
from penstock.events.types import AttributeType
from penstock.pipeline.plan.attributes import is_legal, may_be_missing
from penstock.pipeline.plan.identity import derived_id
from penstock.pipeline.plan.nodes import Node
from penstock.pipeline.plan.route import Expiry, ExpressionKey, RoutePlan, SimpleKey, Tombstones
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
from penstock.pipeline.reference.data import read_data, unreadable
from penstock.pipeline.reference.evaluation import Scope, evaluate

__all__ = ["Output", "Routed", "is_expired", "route_event", "route_null"]

KeyFunction = Callable[[CloudEvent], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One event to write; `null_value` says that it came with a null value and leaves with one."""

    event: CloudEvent
    key: bytes | None
    null_value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What a route made of an event; outputs are there if the verdict is to keep."""

    verdict: Verdict
    outputs: tuple[Output, ...] = ()


def route_event(
    plan: RoutePlan,
    event: CloudEvent,
    *,
    key: bytes | None = None,
    now: int = 0,
    key_function: KeyFunction | None = None,
    structured: bool = False,
) -> Routed:
    """Route one event; `now` is the moment in microseconds, `key` is that of the record it came in.

    `structured` says that it came in structured mode, where no data is no null value.
    """
    verdict, scope = _judged(plan, event, now)
    if verdict is not KEEP:
        return Routed(verdict=verdict)
    changes = {name: text for name, text in _changes(plan, event, scope).items() if text != event.get(name)}
    for name, text in changes.items():
        if text is None and not may_be_missing(name):
            return Routed(verdict=MISSING_ATTRIBUTE)
        if text is not None and not is_legal(name, text):
            return Routed(verdict=INVALID_ATTRIBUTE)
    result = _changed(plan, event, changes)
    output = Output(
        event=result,
        key=_key(plan, result, scope, key, key_function),
        null_value=_is_null(plan, event, structured),
    )
    return Routed(verdict=KEEP, outputs=(output,))


def route_null(plan: RoutePlan) -> Verdict:
    """Judge a null value that is no event: there is nothing that a condition could ask."""
    verdicts = {Tombstones.DROP: TOMBSTONE_DROPPED, Tombstones.REJECT: TOMBSTONE}
    return verdicts.get(plan.tombstones, KEEP)


def _judged(plan: RoutePlan, event: CloudEvent, now: int) -> tuple[Verdict, Scope]:
    scope = Scope(event.attributes, now=now)
    if plan.expiry is Expiry.DISCARD and is_expired(event, now):
        return EXPIRED, scope
    if not _all_true(plan.guard, scope):
        return UNMATCHED, scope
    if plan.reads_data:
        data = read_data(event)
        if data is unreadable:
            return DATA_INVALID, scope
        scope = Scope(event.attributes, data, now)
    return KEEP if _all_true(plan.body, scope) else UNMATCHED, scope


def is_expired(event: CloudEvent, now: int) -> bool:
    """Tell whether the event says of itself that its time is over."""
    text = event.get("expirytime")
    expiry = None if text is None else read_time(text)
    return expiry is not None and expiry < now


def _all_true(nodes: tuple[Node, ...], scope: Scope) -> bool:
    return all(evaluate(node, scope) is True for node in nodes)


def _changes(plan: RoutePlan, event: CloudEvent, scope: Scope) -> dict[str, str | None]:
    """Give the new text of every attribute that the route touches; None removes it."""
    changes: dict[str, str | None] = dict.fromkeys(plan.drop)
    changes.update(dict.fromkeys(old for old, _ in plan.rename))
    for old, new in plan.rename:
        if (text := event.get(old)) is not None:
            changes[new] = text
    for assignment in plan.set:
        value = evaluate(assignment.value, scope)
        changes[assignment.attribute] = time_text(value) if isinstance(value, int) else value
    return changes


def _changed(plan: RoutePlan, event: CloudEvent, changes: dict[str, str | None]) -> CloudEvent:
    if not changes:
        return event
    new = dict(changes)
    if new.keys() - {"partitionkey"}:
        new["id"] = derived_id(plan.name, event.source, event.id)
        new["causationid"] = event.id
    merged = {**event.attributes, **new}
    # In the order in which every engine writes attributes: core first, then by name.
    attributes = {name: text for name in _in_order(merged) if (text := merged[name]) is not None}
    types = {name: kind for name, kind in event.types.items() if name in attributes and name not in new}
    types |= _renamed_types(plan, event, new)
    return CloudEvent.unchecked(attributes, event.data, types, sound=False)


def _renamed_types(
    plan: RoutePlan, event: CloudEvent, new: dict[str, str | None]
) -> dict[str, AttributeType]:
    """Give the types of extensions that leave under another name; what is set is text."""
    assigned = {assignment.attribute for assignment in plan.set}
    return {
        name: event.types[old]
        for old, name in plan.rename
        if old in event.types and name in new and name not in assigned
    }


def _in_order(names: Collection[str]) -> list[str]:
    return [*(name for name in CORE if name in names), *sorted(name for name in names if name not in CORE)]


def _key(
    plan: RoutePlan, result: CloudEvent, scope: Scope, key: bytes | None, function: KeyFunction | None
) -> bytes | None:
    if plan.key is SimpleKey.KEEP:
        return key
    if plan.key is SimpleKey.NONE:
        return None
    if isinstance(plan.key, ExpressionKey):
        return _bytes(evaluate(plan.key.expression, scope))
    if plan.key is SimpleKey.PARTITIONKEY:
        return _bytes(result.get("partitionkey"))
    if function is None:
        raise UnsupportedPlan("reference", (f"reference cannot: key {plan.key} without its function",))
    return function(result)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _is_null(plan: RoutePlan, event: CloudEvent, structured: bool) -> bool:
    """Tell whether the event is a tombstone that stays one: it came with a null value.

    Kafka 3.2.2: only in binary mode no data is a null value; 3.3.2: a structured event without data is none.
    """
    return event.data is absent and not structured and not plan.writes_no_data_as_event
