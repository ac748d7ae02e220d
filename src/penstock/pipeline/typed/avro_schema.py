"""Avro schemas as they travel to workers: JSON texts, parsed once in each."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import orjson

from penstock.contract.codecs import SchemaProblem, parse_avro

__all__ = ["SchemaTexts", "parsed"]

SchemaTexts = tuple[str, ...]
"""A schema as JSON text, behind those that it refers to by name."""

_CACHED: Final = 512


@lru_cache(maxsize=_CACHED)
def parsed(texts: SchemaTexts) -> Any:
    """Parse a schema; SchemaProblem if Avro refuses it."""
    names: dict[str, Any] = {}
    found: Any = None
    for text in texts:
        try:
            definition = orjson.loads(text)
        except ValueError as exc:
            raise SchemaProblem(f"the schema is no JSON: {exc}") from exc
        found = parse_avro(definition, names)
    _refuse_empty_items(found)
    return found


def _refuse_empty_items(schema: Any) -> None:
    """Refuse arrays of items that take no bytes: a few bytes would be as many items as their sender likes."""
    if isinstance(schema, list):
        for branch in schema:
            _refuse_empty_items(branch)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "array" and _is_empty(schema["items"]):
        raise SchemaProblem("an array of items without bytes has no bounds")
    for member in (schema.get("items"), schema.get("values"), schema.get("type")):
        _refuse_empty_items(member)
    for field in schema.get("fields", ()):
        _refuse_empty_items(field["type"])


def _is_empty(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return bool(schema == "null")
    fields = schema.get("fields")
    return schema.get("size") == 0 or (fields is not None and all(_is_empty(each["type"]) for each in fields))
