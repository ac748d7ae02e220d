"""Keys held against the `key` of the Kafka message binding: JSON Schema over text, or Avro.

A text is a string as it is; where the schema wants something else it is read as JSON. No key is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from penstock.contract.codecs import compile_json_schema, first_error
from penstock.contract.node import JsonValue
from penstock.contract.schema_ids import Part, SchemaId
from penstock.errors import InvalidEvent
from penstock.events.jsontext import loads
from penstock.pipeline.typed.avro import avro_to_json
from penstock.pipeline.typed.avro_schema import SchemaTexts
from penstock.pipeline.typed.form import KeyForm
from penstock.record import Headers

__all__ = ["KeySchemas", "json_validator", "key_problem"]

KeySchemas = Callable[[SchemaId], SchemaTexts]
"""Gives the writer's schema of an id; raises what the caller collects if it is not known."""


@lru_cache(maxsize=256)
def json_validator(schema: str) -> Any:
    """Compile a JSON Schema, once in each worker."""
    return compile_json_schema(orjson.loads(schema))


def key_problem(key: bytes | None, form: KeyForm, headers: Headers, writer: KeySchemas) -> str | None:
    """Say why a key does not fit; None if it does."""
    try:
        return _AVRO[form.is_avro](key, form, headers, writer)
    except InvalidEvent as exc:
        return exc.what


def _json_problem(key: bytes | None, form: KeyForm, _headers: Headers, _writer: KeySchemas) -> str | None:
    try:
        values = [None] if key is None else _readings(key)
    except UnicodeDecodeError:
        return "the key is not UTF-8"
    problems = [first_error(json_validator(form.schema), value) for value in values]
    if None in problems:
        return None
    return f"the key does not fit: {str(problems[0])[:200]}" if key is not None else "the record has no key"


def _readings(key: bytes) -> list[JsonValue]:
    """Give what a key can be: its text, and the JSON value that this text may be."""
    text: list[JsonValue] = [key.decode()]
    try:
        return [*text, loads(key)]
    except ValueError:
        return text


def _avro_problem(key: bytes | None, form: KeyForm, headers: Headers, writer: KeySchemas) -> str | None:
    if key is None:
        return "the record has no key"
    schema_id, body = form.frame.read(key, headers, Part.KEY) if form.frame else (None, key)
    own: SchemaTexts = (form.schema,)
    avro_to_json(body, own if schema_id is None else writer(schema_id), own)
    return None


_AVRO: Final[Mapping[bool, Callable[[bytes | None, KeyForm, Headers, KeySchemas], str | None]]] = {
    False: _json_problem,
    True: _avro_problem,
}
