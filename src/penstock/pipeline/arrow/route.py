"""A route over a whole batch: which events it keeps, as columns; others are counted or left to the reference.

Verdicts are those of `reference.route`: a row that is not certainly kept or certainly dropped is *slow*, and
so is every row that would be rejected: rejects have one author.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.media import is_json
from penstock.pipeline.arrow.batch import STRING, EventColumns
from penstock.pipeline.arrow.calls import times_of
from penstock.pipeline.arrow.cells import broadcast, mask_of
from penstock.pipeline.arrow.certain import certainly_valid
from penstock.pipeline.arrow.evaluate import Columns, cannot, evaluate
from penstock.pipeline.arrow.found import Found, can_scan, find_paths
from penstock.pipeline.plan.attributes import may_be_missing
from penstock.pipeline.plan.identity import ID_LENGTH
from penstock.pipeline.plan.nodes import Node
from penstock.pipeline.plan.route import Expiry, ExpressionKey, RoutePlan, SimpleKey
from penstock.pipeline.plan.times import time_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

__all__ = ["Kept", "Routing", "changed_rows", "route_batch"]


@dataclass(frozen=True, slots=True)
class Kept:
    """The events that a route keeps, as they leave it, with their keys."""

    rows: Rows
    """Which rows of the batch they were, in order."""
    events: EventColumns
    keys: pa.BinaryArray
    is_json: Mask
    """Of which rows the data is known to be JSON text."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What one route makes of a batch: every event is in exactly one of these."""

    kept: Kept
    unmatched: Mask
    expired: Mask
    """Events that the route discards because their time is over."""
    slow: Mask
    """Events that the reference has to route."""

    def where(self, holds: Mask) -> Routing:
        """Take only rows for which a condition holds that was asked elsewhere; the others are unmatched."""
        kept = self.kept
        chosen = holds[kept.rows]
        gone = self.slow & ~holds
        gone[kept.rows[~chosen]] = True
        picked = pa.array(np.flatnonzero(chosen))
        return Routing(
            kept=Kept(
                rows=kept.rows[chosen],
                events=kept.events.take(picked),
                keys=kept.keys.take(picked),
                is_json=kept.is_json[chosen],
            ),
            unmatched=self.unmatched | gone,
            expired=self.expired,
            slow=self.slow & holds,
        )


@dataclass(slots=True)
class _Judged:
    plan: RoutePlan
    slow: Mask
    expired: Mask
    open: Mask
    """Rows that are neither decided nor slow so far."""


def route_batch(
    plans: Sequence[RoutePlan], events: EventColumns, keys: pa.BinaryArray, now: int
) -> list[Routing]:
    """Route the events of a batch on several routes; the data is read once for all of them."""
    alive = ~mask_of(events.rejected)
    columns = Columns(events, now)
    judged = [_guarded(plan, columns, alive) for plan in plans]
    scanned = _scanned(judged, events)
    return [_routed(one, columns, scanned, keys, alive) for one in judged]


# Which events


@lru_cache(maxsize=64)
def _can(plan: RoutePlan) -> bool:
    """Say whether columns can do a route: nothing stops it, and Arrow has a kernel for every step."""
    if not can_scan() or cannot(plan):
        return False
    nothing = EventColumns.empty()
    columns = Columns(nothing, 0, find_paths(nothing.data, np.empty(0, dtype=np.int64), plan.paths))
    try:
        for expression in plan.expressions:
            evaluate(expression, columns)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _guarded(plan: RoutePlan, columns: Columns, alive: Mask) -> _Judged:
    """Test what does not need the data."""
    none = np.zeros(len(alive), dtype=bool)
    if not _can(plan):
        return _Judged(plan, alive.copy(), none, none)
    expired, unsure = _expired(plan, columns)
    true, untrue = _tested(plan.guard, columns)
    slow = alive & (unsure | ~expired & ~untrue & ~true)
    return _Judged(plan, slow, alive & expired & ~unsure, alive & true & ~expired & ~unsure)


def _expired(plan: RoutePlan, columns: Columns) -> tuple[Mask, Mask]:
    none = np.zeros(columns.events.rows, dtype=bool)
    texts = columns.events.attributes.get("expirytime")
    if texts is None or plan.expiry is not Expiry.DISCARD:
        return none, none
    times = times_of(texts)
    return mask_of(pc.less(times.values, columns.now)), none if times.unsure is None else times.unsure


def _tested(conditions: tuple[Node, ...], columns: Columns) -> tuple[Mask, Mask]:
    """Say of which rows all conditions are certainly true, and of which one is certainly not."""
    rows = columns.events.rows
    true, untrue = np.ones(rows, dtype=bool), np.zeros(rows, dtype=bool)
    for condition in conditions:
        cells = evaluate(condition, columns)
        passed = mask_of(broadcast(cells.values, rows, pa.bool_()))
        sure = True if cells.unsure is None else ~cells.unsure
        true &= passed & sure
        untrue |= ~passed & sure
    return true, untrue


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The data of those rows that a route has to look at."""

    where: Rows
    """By row of the batch: its row in `found`; -1, the last one, for events without JSON."""
    found: Found
    """What was found, and one row more in which nothing was: that of events without JSON."""


def _scanned(judged: Sequence[_Judged], events: EventColumns) -> _Scanned | None:
    readers = [one for one in judged if one.plan.reads_data]
    if not readers:
        return None
    wanted = np.logical_or.reduce([one.open for one in readers])
    rows = np.flatnonzero(wanted & _has_json(events))
    where = np.full(events.rows, -1, dtype=np.int64)
    where[rows] = np.arange(len(rows))
    paths = frozenset().union(*(one.plan.paths for one in readers))
    return _Scanned(where, _with_nothing(find_paths(events.data, rows, paths)))


def _has_json(events: EventColumns) -> Mask:
    """Say which events have data that is JSON by its form or by its type."""
    there = mask_of(events.data.is_valid())
    by_form = mask_of(events.data_is_json)
    media_types = events.attributes.get("datacontenttype")
    if media_types is None:
        return there & by_form
    encoded = media_types.dictionary_encode()
    json_types = np.array([is_json(text) for text in encoded.dictionary.to_pylist()] + [False])
    codes = encoded.indices.fill_null(len(json_types) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(there & (by_form | json_types[codes]), dtype=bool)


def _routed(
    one: _Judged, columns: Columns, scanned: _Scanned | None, keys: pa.BinaryArray, alive: Mask
) -> Routing:
    rows = np.flatnonzero(one.open)
    if not len(rows):
        nothing = pa.array(rows)
        kept = Kept(rows, columns.events.take(nothing), keys.take(nothing), one.open[rows])
        return Routing(kept, alive & ~one.slow & ~one.expired, one.expired, one.slow)
    columns = _rows_of(columns, rows)
    is_json = np.zeros(len(rows), dtype=bool)
    if scanned is not None and one.plan.reads_data:
        found = scanned.found.take(scanned.where[rows])
        columns = Columns(columns.events, columns.now, found)
        true, untrue = _tested(one.plan.body, columns)
        one.slow[rows[~found.valid | ~true & ~untrue]] = True
        chosen = np.flatnonzero(true & found.valid)
        is_json = (scanned.where[rows] >= 0)[chosen]
        rows, columns = rows[chosen], _rows_of(columns, chosen)
    kept, unsure = _changed(one.plan, columns, rows, keys, is_json)
    one.slow[rows[unsure]] = True
    unmatched = alive & ~one.slow & ~one.expired
    unmatched[kept.rows] = False
    return Routing(kept, unmatched, one.expired, one.slow)


def _with_nothing(found: Found) -> Found:
    nothing = np.zeros((*found.cells.shape[:2], 1), dtype=np.int64)
    return replace(
        found, valid=np.append(found.valid, True), cells=np.concatenate([found.cells, nothing], axis=2)
    )


def _rows_of(columns: Columns, rows: Rows) -> Columns:
    if len(rows) == columns.events.rows:
        return columns
    found = None if columns.found is None else columns.found.take(rows)
    return Columns(columns.events.take(pa.array(rows)), columns.now, found)


# What becomes of them


def _changed(
    plan: RoutePlan, columns: Columns, rows: Rows, keys: pa.BinaryArray, is_json: Mask
) -> tuple[Kept, Mask]:
    """Set, rename and drop attributes; give the events, and which rows the reference has to do instead."""
    events = columns.events
    changes, unsure = _changes(plan, columns)
    differs = {name: _differs(events.attributes.get(name), new, events.rows) for name, new in changes.items()}
    for name, other in differs.items():
        unsure |= other & ~_legal(name, changes[name], events.rows)
    key, key_unsure = _key(plan, columns, keys, rows, changes)
    unsure |= key_unsure
    kept = Kept(rows, _with(plan, events, changes, differs), key, is_json)
    if unsure.any():
        certain = np.flatnonzero(~unsure)
        picked = pa.array(certain)
        kept = Kept(rows[certain], kept.events.take(picked), kept.keys.take(picked), is_json[certain])
    return kept, unsure


Texts: TypeAlias = "pa.StringArray | None"
"""The new texts of an attribute; None if it goes away everywhere."""


def _changes(plan: RoutePlan, columns: Columns) -> tuple[dict[str, Texts], Mask]:
    attributes = columns.events.attributes
    unsure = np.zeros(columns.events.rows, dtype=bool)
    changes: dict[str, Texts] = dict.fromkeys([*plan.drop, *(old for old, _ in plan.rename)])
    gone = frozenset(changes)
    for old, new in plan.rename:
        if old in attributes:
            stays = None if new in gone else attributes.get(new)
            changes[new] = attributes[old] if stays is None else pc.coalesce(attributes[old], stays)
    for assignment in plan.set:
        cells = evaluate(assignment.value, columns)
        changes[assignment.attribute] = _as_text(cells.values, columns.events.rows)
        if cells.unsure is not None:
            unsure |= cells.unsure
    return changes, unsure


def _as_text(values: pa.Array | pa.Scalar, rows: int) -> Texts:
    if pa.types.is_integer(values.type):
        moments = broadcast(values, rows, pa.int64()).to_pylist()
        return pa.array([None if micros is None else time_text(micros) for micros in moments], pa.utf8())
    return broadcast(values, rows, pa.utf8())


def _differs(old: Texts, new: Texts, rows: int) -> Mask:
    if old is None or new is None:
        there = new if old is None else old
        return np.zeros(rows, dtype=bool) if there is None else mask_of(there.is_valid())
    same = pc.equal(old, new)
    one_is_null = pc.xor(old.is_null(), new.is_null())
    return mask_of(pc.invert(same)) | mask_of(one_is_null)


def changed_rows(plan: RoutePlan, before: EventColumns, after: EventColumns) -> Mask:
    """Say which events have another text than before in an attribute that the route touches."""
    touched = {assignment.attribute for assignment in plan.set} | {*plan.drop}
    touched |= {name for pair in plan.rename for name in pair}
    changed = np.zeros(before.rows, dtype=bool)
    for name in touched:
        changed |= _differs(before.attributes.get(name), after.attributes.get(name), before.rows)
    return changed


def _legal(name: str, texts: Texts, rows: int) -> Mask:
    """Say which rows may certainly have this as the text of the attribute."""
    if texts is None:
        return np.full(rows, may_be_missing(name))
    there = mask_of(texts.is_valid())
    legal = certainly_valid(name, texts.fill_null("") if texts.null_count else texts)
    return np.where(there, legal, may_be_missing(name))


def _with(
    plan: RoutePlan, events: EventColumns, changes: Mapping[str, Texts], differs: Mapping[str, Mask]
) -> EventColumns:
    """Give the events with their changes; an event that is another one now has a new id."""
    masks = [mask for name, mask in differs.items() if name != "partitionkey"]
    transformed = np.logical_or.reduce(masks) if masks else np.zeros(events.rows, dtype=bool)
    if not transformed.any() and not any(mask.any() for mask in differs.values()):
        return events
    attributes = {**events.attributes, **changes}
    attributes.update(_identity(plan.name, events, transformed))
    types = dict(events.types)
    assigned = {assignment.attribute for assignment in plan.set}
    carried = {new: events.types[old] for old, new in plan.rename if old in events.types}
    for name, mask in {**differs, "causationid": transformed}.items():
        # A renamed extension keeps its type; what is set is text.
        kind = carried[name] if name in carried and name not in assigned else pa.scalar(STRING, pa.uint8())
        if name in types or name in carried:
            before = types.get(name, pa.scalar(STRING, pa.uint8()))
            types[name] = pc.if_else(pa.array(mask), kind, before)
    texts = {name: column for name, column in attributes.items() if column is not None}
    return replace(events, attributes=texts, types={name: types[name] for name in types if name in texts})


def _identity(route: str, events: EventColumns, transformed: Mask) -> dict[str, pa.StringArray]:
    old = events.attributes["id"]
    if not transformed.any():
        return {}
    derived = _derived_ids(route, events.attributes["source"], old)
    if transformed.all():
        return {"id": derived, "causationid": old}
    where = pa.array(transformed)
    cause = events.attributes.get("causationid", pa.scalar(None, pa.utf8()))
    return {"id": pc.if_else(where, derived, old), "causationid": pc.if_else(where, old, cause)}


def _derived_ids(route: str, sources: pa.StringArray, ids: pa.StringArray) -> pa.StringArray:
    """Do what `plan.identity.derived_id` does, row by row."""
    texts = pc.binary_join_element_wise(
        pa.scalar(f"{len(route.encode())}:{route},"),
        *(part for column in (sources, ids) for part in (_length(column), ":", column, ",")),
        "1:0,",
        "",
    ).cast(pa.binary())
    sha256 = hashlib.sha256
    return pa.array([sha256(text).hexdigest()[:ID_LENGTH] for text in texts.to_pylist()], pa.utf8())


def _length(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_length(texts).cast(pa.utf8())


def _key(
    plan: RoutePlan, columns: Columns, keys: pa.BinaryArray, rows: Rows, changes: Mapping[str, Texts]
) -> tuple[pa.BinaryArray, Mask]:
    sure = np.zeros(len(rows), dtype=bool)
    if plan.key is SimpleKey.KEEP:
        return (keys if len(rows) == len(keys) else keys.take(pa.array(rows))), sure
    texts: Texts = None
    if isinstance(plan.key, ExpressionKey):
        cells = evaluate(plan.key.expression, columns)
        texts = broadcast(cells.values, len(rows), pa.utf8())
        sure = sure if cells.unsure is None else cells.unsure
    elif plan.key is SimpleKey.PARTITIONKEY:
        name = "partitionkey"
        texts = changes[name] if name in changes else columns.events.attributes.get(name)
    return (pa.nulls(len(rows), pa.binary()) if texts is None else texts.cast(pa.binary())), sure
