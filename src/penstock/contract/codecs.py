"""Schemas made usable: JSON Schema compiled, Avro parsed. The foreign libraries are met only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

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
        return jsonschema_rs.Draft7Validator(cast(Any, definition), offline=True)
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
    return None if error is None else SchemaProblem(error.message, list(error.instance_path))


def parse_avro(definition: JsonValue) -> Any:
    """Parse an Avro schema."""
    try:
        from fastavro.schema import parse_schema
    except ImportError as exc:
        raise MissingExtra("contract", "fastavro", purpose="reading Avro schemas") from exc
    try:
        return parse_schema(definition)
    except Exception as exc:
        raise SchemaProblem(str(exc) or type(exc).__name__) from exc
