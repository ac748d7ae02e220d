"""What a function emits, as the route's output: ids of transformed events, keys, and headers beside it.

An event that is not changed keeps its id. One that is changed gets an id derived from route, source, id and
its number among the events that the record became, and `causationid`; a second run gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.errors import InvalidEvent, UsageError
from penstock.events import CloudEvent, Event, Json
from penstock.events.event_headers import Provenance
from penstock.events.reading import Severity
from penstock.events.rules import findings, is_valid
from penstock.pipeline.functions.parcels import Packed, Record, packed
from penstock.pipeline.plan.identity import derived_id
from penstock.record import Headers

__all__ = ["MOST_EVENTS", "Emission", "KeyFunction", "emissions"]

MOST_EVENTS: Final = 10_000
"""What one record may become."""

KeyFunction = Callable[[CloudEvent], Any]
Emission = tuple[Packed | None, bytes | None, Headers | None]
"""An event (None: the one that came in), its key if a function makes it, its headers if they are others."""


def emissions(
    events: tuple[Event | CloudEvent, ...], record: Record, route: str, key: KeyFunction | None
) -> Iterator[Emission]:
    """Give each emitted event with its id and key; UsageError or InvalidEvent if one cannot be."""
    if len(events) > MOST_EVENTS:
        raise UsageError(f"a record became {len(events)} events; the limit is {MOST_EVENTS}")
    kept = False
    for number, given in enumerate(events):
        event = _cloudevent(given, record)
        if not kept and _is_unchanged(event, record.event):
            kept = True
        else:
            event = _derived(event, record, route, number)
        content = None if event is record.event else packed(_checked(event))
        yield content, _key(key, event), None if given is record.view else _headers(given)


def _cloudevent(given: Event | CloudEvent, record: Record) -> CloudEvent:
    if given is record.view:
        return record.event
    if isinstance(given, CloudEvent):
        return given
    if given.id is None:  # it gets its own below
        given = given.appended({"event-id": record.event.id}, by=Provenance.INVOKER)
    return given.to_cloudevent(source=record.event.source)


def _is_unchanged(event: CloudEvent, before: CloudEvent) -> bool:
    if event is before:
        return True
    if isinstance(event.data, Json) and event.data.was_made:
        return False
    same_data = event.data_bytes == before.data_bytes and event.types == before.types
    return same_data and _without_key(event) == _without_key(before)


def _without_key(event: CloudEvent) -> dict[str, str]:
    return {name: text for name, text in event.attributes.items() if name != "partitionkey"}


def _derived(event: CloudEvent, record: Record, route: str, number: int) -> CloudEvent:
    source, id = record.origin
    attributes = {**event.attributes, "id": derived_id(route, source, id, number), "causationid": id}
    types = {name: kind for name, kind in event.types.items() if name != "causationid"}
    return CloudEvent.unchecked(attributes, event.data, types)


def _checked(event: CloudEvent) -> CloudEvent:
    if is_valid(event.attributes):
        return event
    found = findings(event.attributes, event.types)
    errors = (each.error() for each in found if each.severity is not Severity.WARNING)
    raise next(errors, None) or InvalidEvent("an emitted event breaks a rule of CloudEvents")


def _key(function: KeyFunction | None, event: CloudEvent) -> bytes | None:
    if function is None:
        return None
    key = function(event)
    if key is None or isinstance(key, bytes):
        return None if key is None else bytes(key)
    if isinstance(key, str):
        return key.encode()
    raise UsageError(f"the key is a {type(key).__name__}", next="return bytes, text or None")


def _headers(given: Event | CloudEvent) -> Headers | None:
    if isinstance(given, CloudEvent):
        return None
    return tuple((field.name, field.value) for field in given.foreign_headers)
