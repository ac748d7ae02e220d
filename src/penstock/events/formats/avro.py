"""The Avro event format (CloudEvents Avro format 1.0.2): a map of typed attributes and the data.

Written by hand against the one fixed schema of the specification, so it needs no Avro library and
meets hostile bytes with bounds. Data is written as bytes; every branch of the data union is read.
A JSON null cannot be told from absent data in this format unless it is bytes, as we write it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping

from penstock.errors import InvalidEvent
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Data, Json, absent
from penstock.events.draft import Draft
from penstock.events.formats.cursor import MAX_ATTRIBUTES, Cursor, varint
from penstock.events.formats.format import Format
from penstock.events.formats.text import encode_text
from penstock.events.jsontext import JsonValue
from penstock.events.media import is_json
from penstock.events.rules import CORE
from penstock.events.types import AttributeType, native, write_base64

__all__ = ["AvroFormat"]

_CLAUSE = "Avro format 2.4"
_MAX_DEPTH = 100
_INT32 = range(-(2**31), 2**31)


class AvroFormat(Format):
    """application/cloudevents+avro."""

    name = "avro"

    def encode(self, event: CloudEvent) -> bytes:
        """Write the record {attribute, data}."""
        attributes = dict(event.attributes)
        if isinstance(event.data, Json):
            # core, datacontenttype: implied in JSON, so made explicit elsewhere.
            attributes.setdefault("datacontenttype", "application/json")
        entries = b"".join(_entry(name, text, event.types.get(name)) for name, text in attributes.items())
        body = event.data_bytes
        data = _long(1) if body is None else _long(0) + _bytes(body)
        return _long(len(attributes)) + entries + _long(0) + data

    def draft(self, raw: bytes) -> Draft:
        """Read the record, and see that nothing follows it."""
        draft, cursor = Draft(), Cursor(raw, _CLAUSE)
        for number, _ in enumerate(_blocks(cursor)):
            if number >= MAX_ATTRIBUTES:
                raise cursor.broken(f"more than {MAX_ATTRIBUTES} attributes")
            _read_attribute(draft, cursor)
        draft.data = _read_data(draft, cursor)
        if not cursor.done:
            raise cursor.broken("bytes follow the event")
        return draft


def _long(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def _bytes(raw: bytes) -> bytes:
    return _long(len(raw)) + raw


def _entry(name: str, text: str, kind: AttributeType | None) -> bytes:
    # Avro format 2.1: the branches null, boolean, int, string, bytes; the other types are strings.
    if kind is not None and kind in _WRITERS:
        branch, write = _WRITERS[kind]
        return _bytes(name.encode()) + _long(branch) + write(native(name, text, kind))
    return _bytes(name.encode()) + _long(3) + _bytes(text.encode())


_WRITERS: Mapping[AttributeType, tuple[int, Callable[..., bytes]]] = {
    AttributeType.BOOLEAN: (1, lambda value: b"\x01" if value else b"\x00"),
    AttributeType.INTEGER: (2, _long),
    AttributeType.BINARY: (4, _bytes),
}


def _read_long(cursor: Cursor) -> int:
    number = cursor.varint()
    return (number >> 1) ^ -(number & 1)


def _read_bytes(cursor: Cursor) -> bytes:
    return cursor.take(_read_long(cursor))


def _read_string(cursor: Cursor) -> str:
    return cursor.text(_read_bytes(cursor))


def _read_boolean(cursor: Cursor) -> bool:
    return cursor.take(1) == b"\x01"


def _read_double(cursor: Cursor) -> float:
    (number,) = struct.unpack("<d", cursor.take(8))
    if not math.isfinite(number):
        raise cursor.broken("a number is not finite")
    return float(number)


def _blocks(cursor: Cursor) -> Iterator[None]:
    """Step through the items of an Avro map or array, block by block."""
    while count := _read_long(cursor):
        if count < 0:  # a negative count is followed by the size of the block
            _read_long(cursor)
        for _ in range(abs(count)):
            yield


def _read_attribute(draft: Draft, cursor: Cursor) -> None:
    name = _read_string(cursor)
    branch = _read_long(cursor)
    if branch not in _ATTRIBUTE_READERS:
        raise cursor.broken("an attribute is of a branch that the schema does not have")
    text, kind = _ATTRIBUTE_READERS[branch](cursor)
    if text is None:
        return
    if name in draft.attributes:
        draft.report(f"{name} is repeated, the last one is taken", name, "core, Context Attributes")
    draft.attributes[name] = text
    if kind is not AttributeType.STRING and name in CORE:
        draft.report(f"{name} is a {kind.value}", name, "Avro format 2.1")
    elif kind is not AttributeType.STRING:
        draft.types[name] = kind


def _read_int(cursor: Cursor) -> int:
    number = _read_long(cursor)
    if number not in _INT32:
        raise cursor.broken("an int is longer than 32 bits")
    return number


_ATTRIBUTE_READERS: Mapping[int, Callable[[Cursor], tuple[str | None, AttributeType]]] = {
    0: lambda cursor: (None, AttributeType.STRING),
    1: lambda cursor: ("true" if _read_boolean(cursor) else "false", AttributeType.BOOLEAN),
    2: lambda cursor: (str(_read_int(cursor)), AttributeType.INTEGER),
    3: lambda cursor: (_read_string(cursor), AttributeType.STRING),
    4: lambda cursor: (write_base64(_read_bytes(cursor)), AttributeType.BINARY),
}


def _read_data(draft: Draft, cursor: Cursor) -> Data:
    branch = _read_long(cursor)
    if branch == 0:
        return _read_bytes(cursor)
    if branch == 1:
        return absent
    value = _read_branch(_DATA_BRANCHES, branch, cursor, 0)
    media_type = draft.attributes.get("datacontenttype")
    if media_type is None or is_json(media_type) or not isinstance(value, str):
        return Json(value)
    try:
        return encode_text(value, media_type)
    except ValueError as exc:
        raise InvalidEvent(str(exc), attribute="data", clause="Avro format 3") from exc


# The unions of the schema, as the names of their branches in order.
_DATA_BRANCHES = ("bytes", "null", "boolean", "object", "array", "double", "string")
_OBJECT_BRANCHES = ("null", "boolean", "record", "double", "string")
_RECORD_BRANCHES = ("null", "boolean", "records", "array", "double", "string")


def _read_branch(branches: tuple[str, ...], branch: int, cursor: Cursor, depth: int) -> JsonValue:
    if not 0 <= branch < len(branches) or depth > _MAX_DEPTH:
        raise cursor.broken("data is of a branch that the schema does not have, or nested too deep")
    return _VALUE_READERS[branches[branch]](cursor, depth + 1)


def _read_map(branches: tuple[str, ...], cursor: Cursor, depth: int) -> dict[str, JsonValue]:
    return {
        _read_string(cursor): _read_branch(branches, _read_long(cursor), cursor, depth)
        for _ in _blocks(cursor)
    }


def _read_record(cursor: Cursor, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        raise cursor.broken("data is nested too deep")
    return _read_map(_RECORD_BRANCHES, cursor, depth)


_VALUE_READERS: Mapping[str, Callable[[Cursor, int], JsonValue]] = {
    "null": lambda cursor, depth: None,
    "boolean": lambda cursor, depth: _read_boolean(cursor),
    "double": lambda cursor, depth: _read_double(cursor),
    "string": lambda cursor, depth: _read_string(cursor),
    "object": lambda cursor, depth: _read_map(_OBJECT_BRANCHES, cursor, depth),
    "record": _read_record,
    "records": lambda cursor, depth: {
        _read_string(cursor): _read_record(cursor, depth + 1) for _ in _blocks(cursor)
    },
    "array": lambda cursor, depth: [_read_record(cursor, depth + 1) for _ in _blocks(cursor)],
}
