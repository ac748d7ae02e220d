"""The JSON event format and its batch (CloudEvents JSON format 1.0.2).

Which member holds the data of an event that is written (row 25 of the behaviour list, one choice
for every level): a JSON value, and bytes that are valid JSON of a JSON content type, become `data`
with their bytes unchanged; UTF-8 text of a text type becomes a string; all else is `data_base64`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.cloudevent import NO_TYPES, CloudEvent, Types, shaped
from penstock.events.content import Data, Json, absent, json_of
from penstock.events.draft import Draft
from penstock.events.formats.format import Format
from penstock.events.formats.json_heads import Heads
from penstock.events.formats.text import decode_text, encode_text
from penstock.events.jsontext import dumps, loads, loads_last_wins
from penstock.events.media import is_json, json_types_seen
from penstock.events.rules import CORE, REQUIRED
from penstock.events.shapes import index_of
from penstock.events.types import INT32_MAX, INT32_MIN, AttributeType, native, read_base64, write_base64

__all__ = ["JsonFormat", "fill", "looks_like_event", "parse_envelope"]

_DATA, _BASE64 = "data", "data_base64"
_heads = Heads()
_NATIVE = (AttributeType.INTEGER, AttributeType.BOOLEAN)


class JsonFormat(Format):
    """application/cloudevents+json, exact in both directions."""

    name = "json"
    charset = "; charset=utf-8"

    def encode(self, event: CloudEvent) -> bytes:
        """Write one JSON object: attributes, then data with its original bytes."""
        members: dict[str, Any] = dict(zip(event._index, event._texts))  # noqa: B905 - one text each
        if event._types:
            members |= _natives(event)
        data = event._data
        rest: tuple[bytes, ...] = ()
        if type(data) is Json:
            media_type = members.get("datacontenttype")
            if media_type is not None and media_type not in json_types_seen and not is_json(media_type):
                raise CannotEncode(
                    f"data is a JSON value, but datacontenttype is {media_type}", why="JSON format 3.1.2"
                )
            rest = (b',"data":', data.raw, b"}")
        elif type(data) is bytes:
            rest = (*_member(event, data), b"}")
        try:
            head = orjson.dumps(members)  # texts, integers and booleans: it has nothing to hide
        except TypeError:
            head = _written(members)
        return b"".join((head[:-1], *rest)) if rest else head

    def encode_batch(self, events: Sequence[CloudEvent]) -> bytes:
        """Write a JSON array of events."""
        return b"[" + b",".join(map(self.encode, events)) + b"]"

    def decode(self, raw: bytes) -> CloudEvent:
        """Read one event at the level `strict`; what is not plain goes the thorough way."""
        event = _heads.decode(raw)
        if event is None:
            event = _plain(raw)
        return event if event is not None else super().decode(raw)

    def draft(self, raw: bytes) -> Draft:
        """Read one JSON object with everything that is wrong with it."""
        draft = Draft()
        envelope, members = parse_envelope(raw, draft)
        if not isinstance(members, dict):
            raise InvalidEvent("the event is not a JSON object", clause="JSON format 3")
        fill(draft, members, partial(json_of, raw=None, envelope=envelope))
        return draft

    def drafts(self, raw: bytes) -> list[Draft]:
        """Read a JSON array of events."""
        first = Draft()
        _, elements = parse_envelope(raw, first)
        if not isinstance(elements, list):
            raise InvalidEvent("the batch is not a JSON array", clause="JSON format 4.1")
        drafts = [_element(element) for element in elements]
        for each in drafts:
            each.findings.extend(first.findings)
        return drafts


def _plain(raw: bytes) -> CloudEvent | None:
    """Read an event in which all is plain and valid; None sends it the thorough way."""
    try:
        members = loads(raw)
        data = members.pop(_DATA, absent)
        types: Types = NO_TYPES
        try:
            index = index_of(members) if _BASE64 not in members else None
        except TypeError:  # not all are strings
            types = _take_types(members)
            index = index_of(members)
        if index is None:
            return None
        if data is not absent:
            media_type = members.get("datacontenttype")
            data = _given_data(raw, data, media_type)
            if types is NO_TYPES and type(data) is Json:
                _heads.meet(tuple(members), media_type)
        if types is NO_TYPES:
            return shaped(index, tuple(members.values()), data)
        return CloudEvent.unchecked(members, data, types)
    except (ValueError, TypeError, AttributeError):
        return None  # the thorough way says what is wrong


def _given_data(raw: bytes, value: Any, media_type: str | None) -> Data:
    # JSON format 3.1.2: without datacontenttype the data is application/json.
    if media_type is None or is_json(media_type):
        return json_of(value, None, raw)
    return _text_data(value, media_type)


def _natives(event: CloudEvent) -> dict[str, Any]:
    """Give the extensions that JSON has types for (JSON format 2.2); the other types are strings."""
    return {n: native(n, event.get(n) or "", kind) for n, kind in event.types.items() if kind in _NATIVE}


def _take_types(members: dict[str, Any]) -> dict[str, AttributeType]:
    """Turn integers and booleans of extensions into text in place; TypeError for what is not plain."""
    types: dict[str, AttributeType] = {}
    for name, value in members.items():
        if type(value) is str:
            continue
        kind = _TYPES.get(type(value))
        if (
            kind is None
            or name in CORE
            or not (kind is not AttributeType.INTEGER or INT32_MIN <= value <= INT32_MAX)
        ):
            raise TypeError(name)
        types[name] = kind
        members[name] = json.dumps(value)
    return types


def _written(members: dict[str, Any]) -> bytes:
    try:
        return dumps(members)
    except ValueError as exc:
        raise CannotEncode(f"the event cannot be written as JSON: {exc}", why="RFC 8259") from exc


def _member(event: CloudEvent, body: bytes) -> tuple[bytes, ...]:
    """Write bytes as the member `data` if they are JSON or text, else as `data_base64`."""
    media_type = event.datacontenttype
    if media_type is not None and is_json(media_type) and _is_json_text(event):
        return b',"data":', body
    text = decode_text(body, media_type)
    if text is not None:
        return b',"data":', dumps(text)
    # JSON format 3.1.1: "data_base64 ... the Binary data".
    return b',"data_base64":"', write_base64(body).encode(), b'"'


def _is_json_text(event: CloudEvent) -> bool:
    try:
        event.json()
    except InvalidEvent:
        return False
    return True


def parse_envelope(raw: bytes, draft: Draft) -> tuple[bytes | None, Any]:
    """Give the text and its value; what only `strict` minds is noted, and ambiguous text is None."""
    # Row 73: RFC 8259 8.1 forbids a byte order mark; strict refuses, lenient strips it. UTF-16 is refused.
    if raw.startswith(codecs.BOM_UTF8):
        draft.report("a byte order mark stands before the JSON text", None, "RFC 8259 8.1", fix="send no BOM")
        raw = raw[len(codecs.BOM_UTF8) :]
    try:
        return raw, loads(raw)
    except ValueError as exc:
        try:
            value = loads_last_wins(raw)
        except ValueError:
            raise InvalidEvent(
                f"the event is not JSON: {exc}", clause="RFC 8259", fix="send UTF-8 JSON"
            ) from exc
        draft.report(f"a member is repeated, the last one is taken: {exc}", None, "core, Context Attributes")
        return None, value


def looks_like_event(raw: bytes, *required: str) -> bool:
    """Tell whether a text is a JSON object with these members, by default those that 1.0 requires."""
    try:
        _, members = parse_envelope(raw, Draft())
    except InvalidEvent:
        return False
    return isinstance(members, dict) and members.keys() >= set(required or REQUIRED)


def _element(element: object) -> Draft:
    if not isinstance(element, dict):
        draft = Draft()
        draft.fatal("an element of the batch is not an object", None, "JSON format 4.1")
        return draft
    draft = Draft()
    fill(draft, element, Json)
    return draft


def fill(draft: Draft, members: Mapping[str, Any], json_data: Callable[[Any], Json]) -> None:
    """Read the members of a JSON object into a draft; `json_data` wraps the value of `data`."""
    for name, value in members.items():
        if name not in (_DATA, _BASE64) and value is not None:  # JSON format 2.2: null is "unset"
            _add(draft, name, value)
    draft.data = _data(draft, members, json_data)


def _add(draft: Draft, name: str, value: Any) -> None:
    kind = _TYPES.get(type(value))
    draft.attributes[name] = value if type(value) is str else json.dumps(value)
    if kind is None or (name in CORE and kind is not AttributeType.STRING):
        # JSON format 2.2: strings, booleans and integers only; 1.0 and 1e3 are not integers.
        draft.report(f"{name} is of a type that attributes cannot have", name, "JSON format 2.2")
    elif kind is AttributeType.INTEGER and not INT32_MIN <= value <= INT32_MAX:
        draft.report(f"{name} is beyond the range of Integer", name, "core, Type System, Integer")
    elif kind is not AttributeType.STRING:
        draft.types[name] = kind


_TYPES: Mapping[type, AttributeType] = {
    str: AttributeType.STRING,
    bool: AttributeType.BOOLEAN,
    int: AttributeType.INTEGER,
}


def _data(draft: Draft, members: Mapping[str, Any], json_data: Callable[[Any], Json]) -> Data:
    encoded = members.get(_BASE64)
    if encoded is None:  # null is unset, as the schema of the format allows
        return _plain_data(draft, members, json_data)
    if _DATA in members:
        # JSON format 3.1.1: data and data_base64 are mutually exclusive.
        draft.fatal("data and data_base64 are both there", "data", "JSON format 3.1.1", fix="send only one")
    try:
        return read_base64(encoded)
    except (ValueError, TypeError):
        draft.fatal("data_base64 is not base64", "data_base64", "JSON format 3.1.1; RFC 4648 section 4")
        return absent


def _plain_data(draft: Draft, members: Mapping[str, Any], json_data: Callable[[Any], Json]) -> Data:
    if _DATA not in members:
        return absent
    media_type = draft.attributes.get("datacontenttype")
    # JSON format 3.1.2: without datacontenttype the data is application/json.
    if media_type is None or is_json(media_type) or not isinstance(members[_DATA], str):
        return json_data(members[_DATA])
    try:
        return _text_data(members[_DATA], media_type)
    except ValueError as exc:
        draft.report(str(exc), "data", "JSON format 3.1.2")
        return str(members[_DATA]).encode()


def _text_data(value: object, media_type: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError("data of a type that is not JSON must be a string")
    return encode_text(value, media_type)
