"""The Protobuf event format and its batch (CloudEvents Protobuf format 1.0.2, package io.cloudevents.v1).

The wire form is written by hand from the public field numbers, so it needs no Protobuf library.

    CloudEvent      id 1, source 2, spec_version 3, type 4, attributes 5 (map),
                    binary_data 6, text_data 7, proto_data 8 (Any: type_url 1, value 2)
    attribute value ce_boolean 1, ce_integer 2, ce_string 3, ce_bytes 4, ce_uri 5, ce_uri_ref 6,
                    ce_timestamp 7 (seconds 1, nanos 2)
    CloudEventBatch events 1

A timestamp becomes seconds and nanoseconds: its offset and its spelling are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json
from penstock.events.draft import Draft
from penstock.events.formats.cursor import MAX_ATTRIBUTES, Cursor, varint
from penstock.events.formats.format import Format
from penstock.events.formats.text import decode_text, encode_text
from penstock.events.media import essence, is_json
from penstock.events.rules import CORE
from penstock.events.timestamp import read_nanoseconds, write_nanoseconds
from penstock.events.types import AttributeType, read_base64, write_base64

__all__ = ["ProtobufFormat"]

_CLAUSE = "Protobuf format 2"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_REQUIRED = {"id": 1, "source": 2, "specversion": 3, "type": 4}
_BY_NUMBER = {number: name for name, number in _REQUIRED.items()}
_PROTOBUF = "application/protobuf"
Field = tuple[int, int | bytes]


class ProtobufFormat(Format):
    """application/cloudevents+protobuf."""

    name = "protobuf"

    def encode(self, event: CloudEvent) -> bytes:
        """Write the message CloudEvent."""
        attributes = dict(event.attributes)
        if isinstance(event.data, Json):
            # core, datacontenttype: implied in JSON, so made explicit elsewhere.
            attributes.setdefault("datacontenttype", "application/json")
        required = [_field(number, attributes.pop(name).encode()) for name, number in _REQUIRED.items()]
        entries = [_entry(name, text, event.types.get(name)) for name, text in attributes.items()]
        return b"".join((*required, *entries, _write_data(event.data_bytes, attributes)))

    def encode_batch(self, events: Sequence[CloudEvent]) -> bytes:
        """Write the message CloudEventBatch."""
        return b"".join(_field(1, self.encode(event)) for event in events)

    def draft(self, raw: bytes) -> Draft:
        """Read the message CloudEvent; unknown fields are skipped, as Protobuf wants."""
        draft = Draft()
        data: Field | None = None
        left = MAX_ATTRIBUTES
        for number, value in _fields(raw):
            if number in _BY_NUMBER:
                _set_required(draft, _BY_NUMBER[number], value)
            elif number == 5:
                left -= 1
                if left < 0:
                    raise InvalidEvent(f"more than {MAX_ATTRIBUTES} attributes", clause=_CLAUSE)
                _read_attribute(draft, _message(value))
            elif number in _DATA_READERS:
                data = number, value  # a oneof: the last one counts
        if data is not None:
            draft.data = _DATA_READERS[data[0]](draft, _message(data[1]))
        return draft

    def drafts(self, raw: bytes) -> list[Draft]:
        """Read the message CloudEventBatch."""
        return [self.draft(_message(value)) for number, value in _fields(raw) if number == 1]


def _field(number: int, raw: bytes) -> bytes:
    return varint(number << 3 | _LENGTH) + varint(len(raw)) + raw


def _number_field(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value & (2**64 - 1))


def _write_timestamp(text: str) -> bytes:
    try:
        seconds, nanos = divmod(read_nanoseconds(text), 10**9)
        write_nanoseconds(seconds, nanos)  # google.protobuf.Timestamp: years 0001 to 9999
    except ValueError as exc:
        raise CannotEncode(f"{text[:40]} cannot be a Protobuf Timestamp: {exc}", why=_CLAUSE) from exc
    return _field(
        7, (_number_field(1, seconds) if seconds else b"") + (_number_field(2, nanos) if nanos else b"")
    )


_VALUE_WRITERS: Mapping[AttributeType, Callable[[str], bytes]] = {
    AttributeType.BOOLEAN: lambda text: _number_field(1, text == "true"),
    AttributeType.INTEGER: lambda text: _number_field(2, int(text)),
    AttributeType.STRING: lambda text: _field(3, text.encode()),
    AttributeType.BINARY: lambda text: _field(4, read_base64(text)),
    AttributeType.URI: lambda text: _field(5, text.encode()),
    AttributeType.URI_REFERENCE: lambda text: _field(6, text.encode()),
    AttributeType.TIMESTAMP: _write_timestamp,
}


def _entry(name: str, text: str, declared: AttributeType | None) -> bytes:
    kind = CORE.get(name) or declared or AttributeType.STRING
    return _field(5, _field(1, name.encode()) + _field(2, _VALUE_WRITERS[kind](text)))


_TYPE_URL = re.compile(r"https?://[^/?#]+/(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*")


def _write_data(body: bytes | None, attributes: Mapping[str, str]) -> bytes:
    if body is None:
        return b""
    media_type = attributes.get("datacontenttype")
    url = attributes.get("dataschema", "")
    if media_type is not None and essence(media_type) == _PROTOBUF and _TYPE_URL.fullmatch(url):
        # Protobuf format 3: a message goes to proto_data, dataschema is its type URL. Others find the type of
        # google.protobuf.Any behind the slash: with another schema there it could not be unpacked.
        return _field(8, _field(1, attributes["dataschema"].encode()) + _field(2, body))
    # Protobuf format 3: text MUST be stored in text_data, binary in binary_data.
    text = (
        None if media_type is None else decode_text(body, "text/json" if is_json(media_type) else media_type)
    )
    return _field(6, body) if text is None else _field(7, text.encode())


def _fields(raw: bytes) -> Iterator[Field]:
    cursor = Cursor(raw, _CLAUSE)
    while not cursor.done:
        tag = cursor.varint()
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (_VARINT, _LENGTH, *_FIXED):
            raise cursor.broken("a field has no number or an unknown wire type")
        if wire == _VARINT:
            yield number, cursor.varint()
        else:
            yield number, cursor.take(_FIXED[wire] if wire in _FIXED else cursor.varint())


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidEvent("a field has the wire type of a number", clause=_CLAUSE)
    return value


def _string(value: int | bytes) -> str:
    raw = _message(value)
    return Cursor(raw, _CLAUSE).text(raw)


def _set_required(draft: Draft, name: str, value: int | bytes) -> None:
    text = _string(value)
    if text:  # proto3: an empty string is the same as none
        draft.attributes[name] = text


def _read_attribute(draft: Draft, raw: bytes) -> None:
    entry = dict(_fields(raw))
    name = _string(entry.get(1, b""))
    values = [field for field in _fields(_message(entry.get(2, b""))) if field[0] in _VALUE_READERS]
    if name in draft.attributes or name in _REQUIRED:
        draft.report(f"{name} is repeated, the last one is taken", name, "core, Context Attributes")
    if not values:
        draft.report(f"{name} has no value", name, "Protobuf format 2.4")
        return
    number, value = values[-1]
    kind, read = _VALUE_READERS[number]
    draft.attributes[name] = read(value)
    if name in CORE and kind is not CORE[name] and kind is not AttributeType.STRING:
        draft.report(f"{name} is a {kind.value}, not a {CORE[name].value}", name, "Protobuf format 2.4")
    elif name not in CORE and kind is not AttributeType.STRING:
        draft.types[name] = kind


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise InvalidEvent("a number has the wire type of bytes", clause=_CLAUSE)
    return value


def _signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def _read_timestamp(value: int | bytes) -> str:
    parts = dict(_fields(_message(value)))
    seconds, nanos = _signed(_number(parts.get(1, 0)), 64), _signed(_number(parts.get(2, 0)), 32)
    try:
        return write_nanoseconds(seconds, nanos)
    except ValueError as exc:
        raise InvalidEvent(f"a timestamp is out of range: {exc}", clause="google.protobuf.Timestamp") from exc


_VALUE_READERS: Mapping[int, tuple[AttributeType, Callable[[int | bytes], str]]] = {
    1: (AttributeType.BOOLEAN, lambda value: "true" if _number(value) else "false"),
    2: (AttributeType.INTEGER, lambda value: str(_signed(_number(value), 32))),
    3: (AttributeType.STRING, _string),
    4: (AttributeType.BINARY, lambda value: write_base64(_message(value))),
    5: (AttributeType.URI, _string),
    6: (AttributeType.URI_REFERENCE, _string),
    7: (AttributeType.TIMESTAMP, _read_timestamp),
}


def _read_text(draft: Draft, raw: bytes) -> Data:
    text = _string(raw)
    media_type = draft.attributes.get("datacontenttype", "")
    try:
        return raw if is_json(media_type) else encode_text(text, media_type)
    except ValueError as exc:
        draft.report(str(exc), "data", "Protobuf format 3")
        return raw


def _read_message(draft: Draft, raw: bytes) -> Data:
    parts = dict(_fields(raw))
    url = _string(parts.get(1, b""))
    draft.attributes.setdefault("datacontenttype", _PROTOBUF)
    # google.protobuf.Any: a type URL without a scheme means https.
    draft.attributes.setdefault("dataschema", url if "://" in url else f"https://{url}")
    return _message(parts.get(2, b""))


_DATA_READERS: Mapping[int, Callable[[Draft, bytes], Data]] = {
    6: lambda draft, raw: raw,
    7: _read_text,
    8: _read_message,
}
