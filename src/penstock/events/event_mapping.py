"""Spec 004's headers and CloudEvents' attributes: one table, read in both directions.

Attributes that spec 004 has no header for travel as `ce-<name>`; headers that CloudEvents has no attribute
for are foreign and stay beside the event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json, absent
from penstock.events.event_headers import HeaderField
from penstock.events.event_json import plain_attributes
from penstock.events.event_type import SPLIT_HEADERS, EventType

if TYPE_CHECKING:
    from penstock.events.event import Event

__all__ = [
    "EVENT_TYPE_ATTRIBUTES",
    "HEADER_ATTRIBUTES",
    "PREFIX",
    "cloudevent_of",
    "foreign",
    "headers_of",
    "updated",
]

HEADER_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "event-id": "id",
        "source": "source",
        "created-at": "time",
        "content-type": "datacontenttype",
        "source-identity": "authid",
        "source-type": "sourcetype",
        "method": "method",
        "log-level": "severitytext",
        "receipt-queue": "receiptqueue",
    }
)
"""Header to attribute, for every header that holds one value."""

EVENT_TYPE_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {"kind": "type", "api_version": "apiversion", "class_": "eventclass"}
)
"""Part of event-type to attribute."""

PREFIX = "ce-"
_ATTRIBUTE_HEADERS = {attribute: header for header, attribute in HEADER_ATTRIBUTES.items()}
_IN_EVENT_TYPE = frozenset(EVENT_TYPE_ATTRIBUTES.values())
_KNOWN = frozenset(HEADER_ATTRIBUTES) | {"event-type"} | frozenset(SPLIT_HEADERS)


def headers_of(event: CloudEvent) -> Iterator[tuple[str, str]]:
    """Give a CloudEvent's attributes as headers."""
    kind = event.get("type")
    if kind:
        api_version, class_ = event.get("apiversion"), event.get("eventclass")
        yield "event-type", str(EventType(api_version=api_version, class_=class_, kind=kind))
    for name, text in event.attributes.items():
        if name not in _IN_EVENT_TYPE:
            yield _ATTRIBUTE_HEADERS.get(name) or PREFIX + name, text
    # JSON format 3.1.1: JSON data without datacontenttype is application/json; a header says so.
    if event.datacontenttype is None and isinstance(event.data, Json):
        yield "content-type", "application/json"


def foreign(fields: Iterable[HeaderField]) -> tuple[HeaderField, ...]:
    """Give the headers that no attribute carries."""
    named = ((field.name.lower(), field) for field in fields)
    return tuple(field for name, field in named if name not in _KNOWN and not name.startswith(PREFIX))


def cloudevent_of(event: Event, source: str | None = None) -> CloudEvent:
    """Give an event as a CloudEvent; one that cannot be (no id, no type, no source) raises InvalidEvent."""
    return CloudEvent(dict(_attributes(event, source)), _data(event))


def updated(viewed: CloudEvent, added: Event) -> CloudEvent:
    """Give the CloudEvent that was viewed, with the headers that were appended since."""
    attributes = dict(_attributes(added, None))
    return viewed.replace(attributes) if attributes else viewed


def _attributes(event: Event, source: str | None) -> Iterator[tuple[str, str]]:
    names = {field.name.lower() for field in event.header_fields}
    pairs = [(name, name.removeprefix(PREFIX)) for name in sorted(names) if name.startswith(PREFIX)]
    for header, attribute in (*pairs, *HEADER_ATTRIBUTES.items()):
        text = event.header(header)
        if text is not None:
            yield attribute, text
    event_type = event.event_type
    if event_type is not None:
        parts = ((attribute, getattr(event_type, part)) for part, attribute in EVENT_TYPE_ATTRIBUTES.items())
        yield from ((attribute, text) for attribute, text in parts if text)
    yield from _derived(event, source)


def _derived(event: Event, source: str | None) -> Iterator[tuple[str, str]]:
    """Give what is not in a header of its own."""
    if event.source is None and source is not None:
        yield "source", source
    if event.path and event.header("ce-subject") is None:
        yield "subject", event.path
    # Auth context: authtype goes with authid; nobody told us what kind of principal it is.
    if event.header("source-identity") is not None and event.header("ce-authtype") is None:
        yield "authtype", "unauthenticated" if event.source_identity is None else "unknown"
    if event.has_attributes and event.content_type is None:
        yield "datacontenttype", "application/json"


def _data(event: Event) -> Data:
    if event.has_attributes:
        return Json(plain_attributes(event))
    return absent if event.body is None else event.body
