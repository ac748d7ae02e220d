"""Avro schemas as they travel to workers: JSON texts, parsed once in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from penstock.contract.codecs import SchemaProblem, parse_avro

__all__ = ["SchemaTexts", "is_recursive", "names_of", "parsed"]

SchemaTexts = tuple[str, ...]
"""A schema as JSON text, behind those that it refers to by name."""

_CACHED: Final = 512


def parsed(texts: SchemaTexts) -> Any:
    """Parse a schema; SchemaProblem if Avro refuses it."""
    return _parsed(texts)[0]


def names_of(texts: SchemaTexts) -> Mapping[str, Any]:
    """Give the named types of a schema."""
    return _parsed(texts)[1]


@lru_cache(maxsize=_CACHED)
def _parsed(texts: SchemaTexts) -> tuple[Any, Mapping[str, Any]]:
    names: dict[str, Any] = {}
    found: Any = None
    for text in texts:
        try:
            definition = orjson.loads(text)
        except ValueError as exc:
            raise SchemaProblem(f"the schema is no JSON: {exc}") from exc
        found = parse_avro(definition, names)
    _refuse_empty_items(found)
    return found, names


@lru_cache(maxsize=_CACHED)
def is_recursive(texts: SchemaTexts) -> bool:
    """Say whether a type of the schema holds itself, so that a value may nest as deep as its sender likes."""
    names = names_of(texts)
    edges = {name: frozenset(_referred(schema, names)) for name, schema in names.items()}
    return any(name in _reachable(edges, name) for name in edges)


def _reachable(edges: Mapping[str, frozenset[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = set(edges[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo |= edges.get(name, frozenset())
    return seen


def _referred(schema: Any, names: Mapping[str, Any]) -> Iterator[str]:
    """Name the named types that a type holds; those that are written inside it are there with their names."""
    todo = [schema]
    while todo:
        each = todo.pop()
        if isinstance(each, str) and each in names:
            yield each
        elif isinstance(each, list):
            todo += each
        elif isinstance(each, dict):
            todo += [each.get(key) for key in ("type", "items", "values")]
            todo += [member["type"] for member in each.get("fields", ())]
            if each is not schema and each.get("name") in names:
                yield each["name"]


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
