"""An event as one JSON object for people and other programs: spec 004's AsJson, one way only."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.event_headers import PREDEFINED
from penstock.events.event_type import EventType
from penstock.events.jsontext import dumps, loads
from penstock.events.media import is_json
from penstock.events.timestamp import write_timestamp

if TYPE_CHECKING:
    from penstock.events.event import Event

__all__ = ["as_json", "body_member", "write_json"]


def write_json(value: Any, what: str) -> bytes:
    """Write JSON text; what JSON cannot hold raises CannotEncode."""
    try:
        return dumps(value)
    except ValueError as exc:
        raise CannotEncode(f"{what} cannot be written as JSON: {exc}", why="RFC 8259") from exc


def as_json(event: Event) -> bytes:
    """Write the event: fixed members in a fixed order, and what is absent is left out."""
    members = {name: value for name, value in _summary(event) if value is not None}
    others = {name: text for name, text in event.headers.items() if name not in PREDEFINED}
    if others:
        members["headers"] = others
    members.update(_content(event))
    return write_json(members, "the event")


def _summary(event: Event) -> Iterator[tuple[str, Any]]:
    headers = event.headers
    yield "path", event.path or None
    yield "event-id", _readable(lambda: event.id)
    event_type = _readable(lambda: event.event_type)
    yield "event-type", event_type and _type_value(event_type)
    moment = _readable(lambda: event.timestamp)
    yield "timestamp", moment and write_timestamp(moment)
    yield "source-address", _readable(lambda: event.source_address)
    yield "source-identity", _readable(lambda: event.source_identity)
    for name in (
        "content-type",
        "created-at",
        "source",
        "source-type",
        "method",
        "log-level",
        "receipt-queue",
    ):
        yield name, headers.get(name)
    yield "url", event.url and event.url.geturl()


def _readable(read: Callable[[], Any]) -> Any:
    """Give what an accessor gives; None where the event holds something that cannot be read."""
    with suppress(InvalidEvent):
        return read()
    return None


def _type_value(event_type: EventType) -> dict[str, str]:
    parts = {"apiVersion": event_type.api_version, "class": event_type.class_, "kind": event_type.kind}
    return {name: text for name, text in parts.items() if text is not None}


def _content(event: Event) -> dict[str, Any]:
    if event.has_attributes:
        return {"attributes": dict(event.attributes())}
    if event.body is None:
        return {}
    if is_json(event.headers.get("content-type", "")):
        with suppress(ValueError):
            return {"body": loads(event.body)}
    return body_member(event.body)


def body_member(body: bytes) -> dict[str, str]:
    """Give a body as a member of an object: text if it is UTF-8, else base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body-base64": base64.b64encode(body).decode("ascii")}
