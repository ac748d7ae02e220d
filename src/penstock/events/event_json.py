"""An event as one JSON object for people and other programs: spec 004's AsJson, one way only."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.event_headers import PREDEFINED
from penstock.events.event_type import EventType
from penstock.events.jsontext import MAX_DEPTH, dumps, loads
from penstock.events.media import is_json
from penstock.events.timestamp import write_timestamp
from penstock.events.types import write_base64

if TYPE_CHECKING:
    from penstock.events.event import Event

__all__ = ["as_json", "body_member", "plain_attributes", "write_json"]


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
        return {"attributes": plain_attributes(event)}
    if event.body is None:
        return {}
    if is_json(event.headers.get("content-type", "")):
        with suppress(ValueError):
            return {"body": loads(event.body)}
    return body_member(event.body)


def plain_attributes(event: Event) -> dict[str, Any]:
    """Give structured attributes as JSON has them; CannotEncode for what has no form there.

    Bytes are base64 text, times with an offset are RFC 3339, dates are full-dates of it, decimals and UUIDs
    are their text, tuples and sets are arrays.
    """
    return {name: _plain(name, value, 0) for name, value in event.attributes().items()}


def _plain(name: str, value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise CannotEncode(f"attribute {name!r:.60} is nested deeper than {MAX_DEPTH} levels", why="RFC 8259")
    if isinstance(value, Mapping):
        return {key: _plain(name, item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(name, item, depth + 1) for item in value]
    written = next((write for kind, write in _TEXTS if isinstance(value, kind)), None)
    try:
        return value if written is None else written(value)
    except ValueError as exc:
        raise CannotEncode(
            f"attribute {name!r:.60} cannot be written as JSON: {exc}",
            why="RFC 3339",
            next="give the time an offset from UTC",
        ) from exc


# A datetime is a date, too: it comes first.
_TEXTS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((bytes, bytearray, memoryview), lambda value: write_base64(bytes(value))),
    (datetime, write_timestamp),
    (date, date.isoformat),
    ((Decimal, UUID), str),
)


def body_member(body: bytes) -> dict[str, str]:
    """Give a body as a member of an object: text if it is UTF-8, else base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body-base64": base64.b64encode(body).decode("ascii")}
