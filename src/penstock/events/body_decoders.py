"""The body of an event as attributes, by content type (spec 004, GetAttribute).

JSON, forms and text need nothing. Avro needs the writer's schema and Protobuf a message descriptor, so they
are registered: `DECODERS.with_decoder("application/avro", avro_decoder(schema))`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from penstock.errors import InvalidEvent, MissingExtra, UsageError
from penstock.events.jsontext import loads
from penstock.events.media import charset, essence, is_json, is_media_type

__all__ = ["DECODERS", "BodyDecoder", "BodyDecoders", "avro_decoder", "protobuf_decoder"]

BodyDecoder = Callable[[bytes, str], Any]
"""Takes the body and its content type; a ValueError says that the body is not what its type promises."""

MAX_FORM_FIELDS = 1000
_CLAUSE = "spec 004, body: encoded by the format specified in the content-type header"


class BodyDecoders:
    """An immutable table from media type to decoder; the longest match wins.

    A key is a media type (`application/avro`), a family (`text/*`) or a suffix (`+json`).
    """

    __slots__ = ("_table",)

    def __init__(self, table: Mapping[str, BodyDecoder]) -> None:
        self._table = MappingProxyType({key.lower(): decoder for key, decoder in table.items()})

    def __reduce__(self) -> str | tuple[object, ...]:
        # The usual table is one object: an event that was pickled has no table of its own.
        return "DECODERS" if self is DECODERS else (BodyDecoders, (dict(self._table),))

    def with_decoder(self, media_type: str, decoder: BodyDecoder) -> BodyDecoders:
        """Give this table with one decoder more, or with another one for the same type."""
        if not (media_type.startswith("+") or is_media_type(media_type)):
            raise UsageError(
                f"{media_type!r:.60} is not a media type", next="use type/subtype, type/* or +suffix"
            )
        return BodyDecoders({**self._table, media_type: decoder})

    def find(self, content_type: str) -> BodyDecoder | None:
        """Give the decoder for a content type, or None."""
        kind = essence(content_type)
        family, _, subtype = kind.partition("/")
        suffix = "+" + subtype.rpartition("+")[2] if "+" in subtype else ""
        if is_json(kind):
            suffix = "+json"  # JSON format 3.1.1: subtype json or suffix +json, any top-level type
        return self._table.get(kind) or self._table.get(suffix) or self._table.get(f"{family}/*")

    def decode(self, body: bytes, content_type: str | None) -> Mapping[str, Any]:
        """Decode a body to attributes; one that is no map becomes the single attribute `body`."""
        decoder = self.find(content_type) if content_type else None
        if decoder is None:
            raise InvalidEvent(
                f"no decoder for a body of type {content_type or 'unknown'!r:.80}",
                attribute="content-type",
                clause=_CLAUSE,
                fix="read the body itself, or register a decoder for the type",
            )
        try:
            value = decoder(body, content_type or "")
        except ValueError as exc:
            raise InvalidEvent(
                f"the body is not {content_type!r:.80}: {exc}", attribute="body", clause=_CLAUSE
            ) from exc
        return value if isinstance(value, dict) else {"body": value}


def _json(body: bytes, content_type: str) -> Any:
    return loads(body)


def _text(body: bytes, content_type: str) -> str:
    try:
        return body.decode(charset(content_type))
    except LookupError:
        raise ValueError(f"unknown charset {charset(content_type)!r:.40}") from None


def _form(body: bytes, content_type: str) -> dict[str, str | list[str]]:
    fields: dict[str, str | list[str]] = {}
    pairs = parse_qsl(
        body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS
    )
    for name, value in pairs:
        known = fields.get(name)
        if known is None:
            fields[name] = value
        else:
            fields[name] = [*known, value] if isinstance(known, list) else [known, value]
    return fields


DECODERS = BodyDecoders({"+json": _json, "application/x-www-form-urlencoded": _form, "text/*": _text})
"""What is decoded without being asked; `with_decoder` gives a larger table."""


def avro_decoder(schema: Any) -> BodyDecoder:
    """Make a decoder for Avro binary data that was written with this schema (parsed JSON)."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException
    except ImportError as exc:
        raise MissingExtra("avro", "fastavro", purpose="decoding an Avro body") from exc
    try:
        parsed = fastavro.parse_schema(schema)
    except (SchemaParseException, KeyError, TypeError, ValueError) as exc:
        raise UsageError(f"not an Avro schema: {exc}") from exc

    def decode(body: bytes, content_type: str) -> Any:
        stream = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as exc:  # fastavro documents no errors; hostile bytes raise a dozen kinds
            raise ValueError(f"not Avro of this schema ({type(exc).__name__})") from exc
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
        return value

    return decode


def protobuf_decoder(descriptor: Any) -> BodyDecoder:
    """Make a decoder for one message type, by its Descriptor; fields keep their proto names and types."""
    try:
        decode_error = import_module("google.protobuf.message").DecodeError
        message_class = import_module("google.protobuf.message_factory").GetMessageClass(descriptor)
    except ImportError as exc:
        raise MissingExtra("protobuf", "protobuf", purpose="decoding a Protobuf body") from exc

    def decode(body: bytes, content_type: str) -> Any:
        message = message_class()
        try:
            message.ParseFromString(body)
        except decode_error as exc:
            raise ValueError(f"not a message of type {descriptor.full_name}") from exc
        return _message(message)

    return decode


def _message(message: Any) -> dict[str, Any]:
    """Give a message as a dict; MessageToDict would turn 64-bit numbers and bytes into text."""
    fields = message.DESCRIPTOR.fields
    return {f.name: _field(message, f) for f in fields if not f.has_presence or message.HasField(f.name)}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        inner = entry.fields_by_name["value"]
        return {str(key): _scalar(value[key], inner) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_scalar(item, field) for item in value]
    return _scalar(value, field)


def _scalar(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return value
