"""A record of a micro-batch as a JSON value, and back exactly.

The form is spec 004's event message: path, headers, and a body or attributes. Headers are an array of
`[name, value]` or `[name, value, by]`, because they may repeat; a value is text, null, or `{"base64": ...}`.
A body is text in `body`, or base64 in `body-base64` if it is not UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from penstock.errors import InvalidEvent
from penstock.events.event import Event
from penstock.events.event_headers import EventHeaders, HeaderField, Provenance
from penstock.events.event_json import body_member
from penstock.events.timestamp import read_timestamp, write_timestamp

__all__ = ["event_of_value", "value_of_event"]

_MEMBERS = frozenset(
    {"path", "headers", "source-address", "arrived-at", "url", "body", "body-base64", "attributes"}
)


def value_of_event(event: Event) -> dict[str, Any]:
    """Give the record form as a JSON value."""
    value: dict[str, Any] = {"path": event.path} if event.path else {}
    value["headers"] = [_header_value(field) for field in event.header_fields]
    given = {"source-address": event.given_address, "url": event.given_url}
    value.update({name: text for name, text in given.items() if text is not None})
    if event.arrived is not None:
        value["arrived-at"] = write_timestamp(event.arrived)
    if event.has_attributes:
        value["attributes"] = dict(event.attributes())
    elif event.body is not None:
        value.update(body_member(event.body))
    return value


def _header_value(field: HeaderField) -> list[Any]:
    try:
        value: Any = field.text
    except InvalidEvent:
        value = {"base64": base64.b64encode(field.value or b"").decode("ascii")}
    return [field.name, value] if field.by is Provenance.CLIENT else [field.name, value, field.by.value]


def event_of_value(value: Any, where: str, *, trusted: bool) -> Event:
    """Read the record form; InvalidEvent says which part is wrong.

    Who appended a header is believed only if the JSON comes from a trusted hand: else all are the client's.
    """
    if not isinstance(value, dict):
        raise _wrong("not an object", where)
    unknown = value.keys() - _MEMBERS
    if unknown:
        raise _wrong(f"an unknown member {min(unknown)!r:.40}", where)
    if len(value.keys() & {"body", "body-base64", "attributes"}) > 1:
        raise _wrong("more than one of body, body-base64 and attributes", where)
    return Event(
        _text(value, "path", where) or "",
        EventHeaders(_headers(value.get("headers", []), f"{where}.headers", trusted)),
        _read_body(value, where),
        attributes=_read_attributes(value, where),
        arrived=_read_moment(value, where),
        source_address=_text(value, "source-address", where),
        url=_text(value, "url", where),
    )


def _wrong(what: str, where: str) -> InvalidEvent:
    return InvalidEvent(f"{where}: {what}", attribute=where, clause="spec 004, micro-batch records")


def _text(value: dict[str, Any], name: str, where: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise _wrong(f"{name} is not a string", where)
    return text


def _headers(value: Any, where: str, trusted: bool) -> Iterator[HeaderField]:
    # spec 004 has a map; it is read as well.
    pairs = [[name, text] for name, text in value.items()] if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise _wrong("neither an array nor an object", where)
    for number, pair in enumerate(pairs):
        name, raw, by = _header(pair, f"{where}[{number}]")
        yield HeaderField(name, raw, by if trusted else Provenance.CLIENT)


def _header(pair: Any, where: str) -> tuple[str, bytes | None, Provenance]:
    match pair:
        case [str(name), value]:
            return name, _header_bytes(value, where), Provenance.CLIENT
        case [str(name), value, str(by)] if by in Provenance.__members__.values():
            return name, _header_bytes(value, where), Provenance(by)
        case _:
            raise _wrong("not [name, value] or [name, value, client | gateway | invoker]", where)


def _header_bytes(value: Any, where: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text)} if len(value) == 1:
            return _base64(text, where)
        case _:
            raise _wrong('the value is not text, null or {"base64": ...}', where)


def _base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _wrong("not base64 of RFC 4648", where) from exc


def _read_body(value: dict[str, Any], where: str) -> bytes | None:
    encoded = _text(value, "body-base64", where)
    if encoded is not None:
        return _base64(encoded, f"{where}.body-base64")
    text = _text(value, "body", where)
    return None if text is None else text.encode()


def _read_attributes(value: dict[str, Any], where: str) -> dict[str, Any] | None:
    attributes = value.get("attributes")
    if attributes is not None and not isinstance(attributes, dict):
        raise _wrong("attributes are not an object", where)
    return attributes


def _read_moment(value: dict[str, Any], where: str) -> datetime | None:
    text = _text(value, "arrived-at", where)
    try:
        return None if text is None else read_timestamp(text)
    except ValueError as exc:
        raise _wrong(f"arrived-at is not a timestamp: {exc}", where) from exc
