"""Avro payloads as JSON and back, by the writer's schema and the contract's (Avro 1.9, Schema Resolution).

JSON has fewer types than Avro: bytes and fixed are base64 text, a decimal is a number with all its digits,
moments are RFC 3339, dates, times and UUIDs are text. The same table is read in both directions.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import orjson

from penstock.contract.codecs import SchemaProblem
from penstock.errors import CannotEncode, InvalidEvent, MissingExtra
from penstock.pipeline.typed.avro_schema import SchemaTexts, is_recursive, parsed
from penstock.pipeline.typed.avro_values import Unfit, converter_of

__all__ = ["avro_from_json", "avro_to_json"]

_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS


def avro_to_json(raw: bytes, writer: SchemaTexts, reader: SchemaTexts | None) -> bytes:
    """Read one value as JSON text; InvalidEvent if the bytes do not fit the schemas."""
    try:
        value = _read(raw, writer, reader)
        written = orjson.dumps(value, default=_json_value, option=_OPTIONS)
    except SchemaProblem as exc:
        raise InvalidEvent(f"the schema of the data cannot be used: {exc}", attribute="data") from exc
    except TypeError as exc:
        raise InvalidEvent(f"data cannot be written as JSON: {exc}", attribute="data") from exc
    # orjson writes what is no number as null: only where a null is written may one hide.
    if b"null" in written and not _is_finite(value):
        raise InvalidEvent("data holds NaN or infinity, which JSON has not", attribute="data")
    return written


def _read(raw: bytes, writer: SchemaTexts, reader: SchemaTexts | None) -> Any:
    written, wanted = parsed(writer), None if reader in (None, writer) else parsed(reader or ())
    stream = io.BytesIO(raw)
    read = _reader(is_recursive(writer))
    try:
        value = read(stream, written, wanted)
    except Exception as exc:  # fastavro lets through whatever Python raises inside it
        raise InvalidEvent(f"data is not Avro of its schema: {_said(exc)}", attribute="data") from exc
    left = len(raw) - stream.tell()
    if left:
        raise InvalidEvent(f"data has {left} bytes behind its Avro value", attribute="data")
    return value


@lru_cache(maxsize=2)
def _reader(deep: bool) -> Callable[..., Any]:
    """Give fastavro's reader; its compiled one ends the process where values nest too deep."""
    try:
        from fastavro import schemaless_reader
        from fastavro._read_py import schemaless_reader as careful_reader
    except ImportError as exc:
        raise MissingExtra("contract", "fastavro", purpose="reading Avro data") from exc
    reader: Callable[..., Any] = careful_reader if deep else schemaless_reader
    return reader


@lru_cache(maxsize=1)
def _writer() -> Callable[..., Any]:
    try:
        from fastavro import schemaless_writer
    except ImportError as exc:
        raise MissingExtra("contract", "fastavro", purpose="writing Avro data") from exc
    writer: Callable[..., Any] = schemaless_writer
    return writer


def _said(exc: Exception) -> str:
    name, text = type(exc).__name__, str(exc)
    return f"{name}: {text[:200]}" if text else name


def _json_value(value: object) -> object:
    make = _TO_JSON.get(type(value))
    if make is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return make(value)


_TO_JSON: Final[dict[type, Callable[[Any], object]]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    Decimal: lambda value: orjson.Fragment(str(value)),
}


def _is_finite(value: object) -> bool:
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return False
        todo += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return True


def avro_from_json(value: object, schema: SchemaTexts, branch: str | None = None) -> bytes:
    """Write a JSON value by a schema, or by one branch of a union; CannotEncode if it does not fit."""
    stream = io.BytesIO()
    write = _writer()
    try:
        converted = converter_of(schema, branch)(value)
        write(stream, parsed(schema), (branch, converted) if branch else converted)
    except Unfit as exc:
        raise CannotEncode(
            f"data does not fit the Avro schema: {exc}", where="data", next="change the schema or the data"
        ) from exc
    except Exception as exc:
        raise CannotEncode(f"data cannot be written as Avro: {_said(exc)}", where="data") from exc
    return stream.getvalue()
