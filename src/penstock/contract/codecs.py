"""Schemas made usable: JSON Schema compiled, Avro parsed. The foreign libraries are met only here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from penstock.contract.node import JsonValue
from penstock.errors import MissingExtra

__all__ = ["SchemaProblem", "compile_json_schema", "first_error", "parse_avro"]


class SchemaProblem(Exception):
    """A schema that its own language refuses; `path` leads to the place inside the schema."""

    def __init__(self, message: str, path: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = tuple(path)


def compile_json_schema(definition: JsonValue) -> Any:
    """Check a JSON Schema of draft 07 and compile it."""
    try:
        import jsonschema_rs
    except ImportError as exc:
        raise MissingExtra("contract", "jsonschema-rs", purpose="checking JSON schemas") from exc
    try:
        # The value is shown at the end and shortened, where it hides no reason.
        return jsonschema_rs.Draft7Validator(cast(Any, definition), offline=True, mask=_MASK)
    except jsonschema_rs.ValidationError as exc:
        raise SchemaProblem(exc.message, list(exc.instance_path)) from exc
    except (ValueError, OverflowError, RecursionError, jsonschema_rs.ReferencingError) as exc:
        raise SchemaProblem(str(exc)) from exc


def first_error(validator: Any, value: JsonValue) -> SchemaProblem | None:
    """Say why a value does not fit a compiled schema; None if it fits."""
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (ValueError, OverflowError, RecursionError) as exc:
        return SchemaProblem(str(exc))
    return None if error is None else _described(error)


_MASK: Final = "it"
_SHOWN: Final = 60
_NESTED: Final = 5
"""How deep alternatives inside alternatives are looked into."""


def _distance(errors: Sequence[Any]) -> tuple[int, int]:
    """Few errors are close; of as many those that are deep inside."""
    return len(errors), -max(len(each.instance_path) for each in errors)


def _described(error: Any) -> SchemaProblem:
    """Say the reason first: of alternatives that of the one that comes closest, then the value, short."""
    words: list[str] = []
    while len(words) < _NESTED and error.kind.name in ("anyOf", "oneOf"):
        branches = {n: b for n, b in enumerate(getattr(error.kind, "context", None) or (), 1) if b}
        if not branches:
            break
        number, closest = min(branches.items(), key=lambda item: _distance(item[1]))
        words.append(f"it fits none of {error.kind.name}, number {number} comes closest: ")
        error = max(closest, key=lambda each: len(each.instance_path))
    try:
        value = json.dumps(error.instance, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        value = "..."
    shown = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
    return SchemaProblem(f"{''.join(words)}{error.message}, here it is {shown}", list(error.instance_path))


def parse_avro(definition: JsonValue, names: dict[str, Any] | None = None) -> Any:
    """Parse an Avro schema; its named types are added to `names`."""
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError as exc:
        raise MissingExtra("contract", "fastavro", purpose="reading Avro schemas") from exc
    _check_avro_shape(definition, ())
    try:
        return parse_schema(definition, named_schemas=names)
    except UnknownType as exc:
        raise SchemaProblem(f"the type {_type_name(exc.name)} is not known") from exc
    except SchemaParseException as exc:
        raise SchemaProblem(str(exc)) from exc
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as exc:
        # fastavro answers a wrong shape with whatever Python raised inside it.
        raise SchemaProblem(f"its shape is wrong ({type(exc).__name__}: {exc})") from exc


# Avro 1.9, Complex Types: what each needs, and of which type; fastavro lets a record without fields pass.
_AVRO_NEEDS: Final[Mapping[str, Mapping[str, type]]] = {
    "record": {"name": str, "fields": list},
    "error": {"name": str, "fields": list},
    "enum": {"name": str, "symbols": list},
    "fixed": {"name": str, "size": int},
    "array": {"items": object},
    "map": {"values": object},
}


def _check_avro_shape(schema: JsonValue, path: tuple[str | int, ...]) -> None:
    if isinstance(schema, list):
        for index, branch in enumerate(schema):
            _check_avro_shape(branch, (*path, index))
        return
    if not isinstance(schema, dict):
        if not isinstance(schema, str):
            raise SchemaProblem("a schema is a name, an object or a list", path)
        return
    kind = schema.get("type")
    if kind is None:
        raise SchemaProblem("the field type is missing", path)
    for field, wanted in _AVRO_NEEDS.get(kind if isinstance(kind, str) else "", {}).items():
        if not isinstance(schema.get(field), wanted) or field not in schema:
            raise SchemaProblem(f"{kind} needs the field {field}", path)
    _check_avro_members(schema, path)


def _check_avro_members(schema: dict[str, JsonValue], path: tuple[str | int, ...]) -> None:
    for field in ("items", "values"):
        if field in schema:
            _check_avro_shape(schema[field], (*path, field))
    if not isinstance(schema["type"], str):
        _check_avro_shape(schema["type"], (*path, "type"))
    fields = schema.get("fields")
    for index, member in enumerate(fields if isinstance(fields, list) else ()):
        if not isinstance(member, dict):
            raise SchemaProblem("a field is an object with name and type", (*path, "fields", index))
        _check_avro_shape(member, (*path, "fields", index))


def _type_name(found: object) -> str:
    return str(found.get("type") if isinstance(found, dict) else found)
