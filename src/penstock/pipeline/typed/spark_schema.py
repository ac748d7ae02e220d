"""The Spark type of a message's data: from JSON Schema (draft 07) or Avro, as DDL or as a Spark schema.

The types are those with which Spark's `from_json` reads data: whatever has no single type becomes VARIANT,
which keeps the value as it is. Every field may be null, as Spark reads JSON so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.contract.codecs import SchemaProblem
from penstock.contract.schema import Schema, SchemaFormat
from penstock.errors import ContractError, MissingExtra
from penstock.pipeline.typed.avro_schema import names_of, parsed
from penstock.pipeline.typed.form import CLOUDEVENTS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from penstock.contract import ResolvedMessage

__all__ = ["VARIANT", "data_ddl", "data_schema_of", "spark_ddl", "spark_schema"]

VARIANT: Final = "VARIANT"
_DEEPEST: Final = 60
_MOST_TYPES: Final = 10_000
_MOST_DIGITS: Final = 38


def spark_schema(schema: Schema) -> DataType:
    """Give the Spark type of a schema."""
    try:
        from pyspark.sql.types import DataType
    except ImportError as exc:
        raise MissingExtra("spark", "pyspark", purpose="typed data") from exc
    return DataType.fromDDL(spark_ddl(schema))


def spark_ddl(schema: Schema) -> str:
    """Write the Spark type of a schema as DDL.

    >>> order = {"type": "object", "properties": {"total": {"type": "number"}, "when": {"format": "date"}}}
    >>> spark_ddl(Schema(format=SchemaFormat.JSON, media_type="", definition=order))
    'STRUCT<`total`: DOUBLE, `when`: VARIANT>'
    """
    make = _LANGUAGES.get(schema.format)
    return VARIANT if make is None else make(schema)


def data_ddl(message: ResolvedMessage) -> str:
    """Give the DDL of the data of a message: of its payload, or of `data` inside a structured one."""
    found = data_schema_of(message)
    return VARIANT if found is None else spark_ddl(found)


def data_schema_of(message: ResolvedMessage) -> Schema | None:
    """Give the schema of the data of a message; None if the contract has none."""
    payload = message.payload
    if payload is None or not (message.content_type or "").startswith(CLOUDEVENTS):
        return payload
    definition = payload.definition
    properties = definition.get("properties") if isinstance(definition, dict) else None
    inner = properties.get("data") if isinstance(properties, dict) else None
    if not isinstance(inner, dict) or not isinstance(definition, dict):
        return None
    whole = {**inner, "definitions": definition.get("definitions", {})}
    return Schema(format=payload.format, media_type=payload.media_type, definition=whole)


class _Budget:
    """How many types one schema may become: those that it refers to are written out each time."""

    def __init__(self) -> None:
        self.left = _MOST_TYPES

    def spend(self) -> bool:
        """Take one; False if there is none left."""
        self.left -= 1
        return self.left >= 0


def _always(kind: str) -> Callable[..., str]:
    return lambda *_: kind


def _struct(fields: Iterator[tuple[str, str]]) -> str:
    """Write a struct; Spark knows no empty one, and compares names without case."""
    named = dict(fields)
    if not named or len({name.lower() for name in named}) < len(named):
        return VARIANT
    return "STRUCT<" + ", ".join(f"{_quoted(name)}: {kind}" for name, kind in named.items()) + ">"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# JSON Schema


@dataclass(frozen=True, slots=True)
class _Json:
    """Reads one JSON Schema; `open` are the references that are being followed."""

    root: Mapping[str, Any]
    open: frozenset[str] = frozenset()
    depth: int = 0
    budget: _Budget = field(default_factory=_Budget)

    def type_of(self, schema: object) -> str:
        """Give the type of a schema inside the root."""
        if not isinstance(schema, dict) or self.depth > _DEEPEST or not self.budget.spend():
            return VARIANT
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"])
        kinds = _kinds(schema)
        if len(kinds) != 1 or any(word in schema for word in _COMBINED):
            return VARIANT
        make = _JSON_TYPES.get(kinds[0])
        return VARIANT if make is None else make(replace(self, depth=self.depth + 1), schema)

    def _referred(self, reference: str) -> str:
        """Follow a bundled reference; a schema inside itself has no Spark type."""
        target: object = self.root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        if reference in self.open or target is self.root:
            return VARIANT
        within = replace(self, open=self.open | {reference}, depth=self.depth + 1)
        return within.type_of(target)

    def object(self, schema: Mapping[str, Any]) -> str:
        """Give the type of an object: a struct of its properties, or a map if only their type is known."""
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return _struct((name, self.type_of(each)) for name, each in properties.items())
        values = schema.get("additionalProperties")
        return f"MAP<STRING, {self.type_of(values)}>" if isinstance(values, dict) else VARIANT

    def array(self, schema: Mapping[str, Any]) -> str:
        """Give the type of a list; a tuple has several."""
        return f"ARRAY<{self.type_of(schema.get('items'))}>"

    def string(self, schema: Mapping[str, Any]) -> str:
        """Give the type of a text, by its format."""
        return _FORMATS.get(str(schema.get("format")), "STRING")


_COMBINED: Final = ("allOf", "anyOf", "oneOf", "not", "if")
_FORMATS: Final[Mapping[str, str]] = {"date-time": "TIMESTAMP", "date": "DATE"}
_JSON_TYPES: Final[Mapping[str, Callable[[_Json, Mapping[str, Any]], str]]] = {
    "object": _Json.object,
    "array": _Json.array,
    "string": _Json.string,
    "integer": _always("BIGINT"),
    "number": _always("DOUBLE"),
    "boolean": _always("BOOLEAN"),
}


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Give the types that a schema names, null aside; one that lists properties is an object."""
    said = schema.get("type", "object" if "properties" in schema else None)
    kinds = said if isinstance(said, list) else [said]
    return [str(kind) for kind in kinds if kind != "null"]


def _json_ddl(schema: Schema) -> str:
    definition = schema.definition
    return _Json(definition).type_of(definition) if isinstance(definition, dict) else VARIANT


# Avro, as its data is given: by the table of `typed.avro`


def _avro_ddl(schema: Schema) -> str:
    texts = (orjson.dumps(schema.definition).decode(),)
    try:
        return _Avro(names_of(texts)).type_of(parsed(texts))
    except SchemaProblem as exc:
        raise ContractError(f"an Avro schema cannot be used: {exc}") from exc


@dataclass(frozen=True, slots=True)
class _Avro:
    """Reads one parsed Avro schema; `open` are the records that are being written."""

    names: Mapping[str, Any]
    open: frozenset[str] = frozenset()
    budget: _Budget = field(default_factory=_Budget)

    def type_of(self, schema: Any) -> str:
        """Give the type of a schema inside the whole."""
        if not self.budget.spend():
            return VARIANT
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            return self.type_of(branches[0]) if len(branches) == 1 else VARIANT
        if isinstance(schema, str):
            return _AVRO_PRIMITIVES.get(schema) or self.type_of(self.names[schema])
        logical = _AVRO_LOGICAL.get(schema.get("logicalType", ""))
        if logical is not None:
            return logical(schema)
        make = _AVRO_COMPLEX.get(schema["type"]) if isinstance(schema["type"], str) else None
        return self.type_of(schema["type"]) if make is None else make(self, schema)

    def record(self, schema: Mapping[str, Any]) -> str:
        """Give the type of a record; one inside itself has none."""
        name = schema["name"]
        if name in self.open:
            return VARIANT
        within = _Avro(self.names, self.open | {name}, self.budget)
        return _struct((each["name"], within.type_of(each["type"])) for each in schema["fields"])

    def array(self, schema: Mapping[str, Any]) -> str:
        """Give the type of an array."""
        return f"ARRAY<{self.type_of(schema['items'])}>"

    def map(self, schema: Mapping[str, Any]) -> str:
        """Give the type of a map."""
        return f"MAP<STRING, {self.type_of(schema['values'])}>"


def _decimal(schema: Mapping[str, Any]) -> str:
    precision, scale = schema["precision"], schema.get("scale", 0)
    return f"DECIMAL({precision}, {scale})" if precision <= _MOST_DIGITS else VARIANT


_AVRO_PRIMITIVES: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
}
_AVRO_LOGICAL: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "decimal": _decimal,
    "date": _always("DATE"),
    "timestamp-millis": _always("TIMESTAMP"),
    "timestamp-micros": _always("TIMESTAMP"),
    "local-timestamp-millis": _always("TIMESTAMP_NTZ"),
    "local-timestamp-micros": _always("TIMESTAMP_NTZ"),
    "time-millis": _always("STRING"),
    "time-micros": _always("STRING"),
    "uuid": _always("STRING"),
}
_AVRO_COMPLEX: Final[Mapping[str, Callable[[_Avro, Mapping[str, Any]], str]]] = {
    "record": _Avro.record,
    "error": _Avro.record,
    "array": _Avro.array,
    "map": _Avro.map,
    "enum": _always("STRING"),
    "fixed": _always("BINARY"),
}
_LANGUAGES: Final[Mapping[SchemaFormat, Callable[[Schema], str]]] = {
    SchemaFormat.JSON: _json_ddl,
    SchemaFormat.AVRO: _avro_ddl,
}
