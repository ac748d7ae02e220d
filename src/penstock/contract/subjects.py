"""Subjects of a schema registry: how they are named, and the one schema that several messages share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.contract.avro_types import AvroImport, defined_names, full_name, missing_types
from penstock.contract.node import JsonValue
from penstock.contract.schema import Schema, SchemaFormat

__all__ = [
    "SCHEMA_TYPES",
    "Registration",
    "combined",
    "import_text",
    "is_plain_key",
    "record_name",
    "registration",
    "subject_name",
]

SCHEMA_TYPES: Final[Mapping[SchemaFormat, str]] = {
    SchemaFormat.JSON: "JSON",
    SchemaFormat.AVRO: "AVRO",
    SchemaFormat.PROTOBUF: "PROTOBUF",
}
DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_Name = Callable[[str, str, str], str]


def _by_topic(topic: str, part: str, _record: str) -> str:
    return f"{topic}-{part}"


def _by_record(_topic: str, _part: str, record: str) -> str:
    return record


def _by_both(topic: str, _part: str, record: str) -> str:
    return f"{topic}-{record}"


# RecordIdStrategy is missing on purpose: it needs Apicurio's groups, which the compatible API does not have.
_STRATEGIES: Final[Mapping[str, _Name]] = {
    "TopicNameStrategy": _by_topic,
    "TopicIdStrategy": _by_topic,
    "SimpleTopicIdStrategy": lambda topic, _part, _record: topic,
    "RecordNameStrategy": _by_record,
    "QualifiedRecordIdStrategy": _by_record,
    "TopicRecordNameStrategy": _by_both,
    "TopicRecordIdStrategy": _by_both,
}


def subject_name(strategy: str, topic: str, part: str, record: str | None) -> str | None:
    """Name the subject for the key or value of a topic; None if the strategy cannot say.

    >>> subject_name("TopicNameStrategy", "orders", "value", None)
    'orders-value'
    >>> subject_name("TopicRecordNameStrategy", "orders", "value", "com.shop.Order")
    'orders-com.shop.Order'
    """
    name = _STRATEGIES.get(strategy)
    if name is None or (record is None and name in (_by_record, _by_both)):
        return None
    return name(topic, part, record or "")


_PACKAGE: Final = re.compile(r"^\s*package\s+([\w.]+)\s*;", re.MULTILINE)
_MESSAGE: Final = re.compile(r"^\s*message\s+(\w+)", re.MULTILINE)


def record_name(schema: Schema) -> str | None:
    """Give the name of what a schema describes: Avro's full name, JSON's title, Protobuf's message."""
    definition = schema.definition
    if isinstance(definition, dict):
        if schema.format is SchemaFormat.AVRO:
            return full_name(definition)
        title = definition.get("title")
        return title if isinstance(title, str) and title else None
    if schema.format is SchemaFormat.PROTOBUF and isinstance(definition, str):
        message, package = _MESSAGE.search(definition), _PACKAGE.search(definition)
        return ".".join(match[1] for match in (package, message) if match) if message else None
    return None


def is_plain_key(schema: Schema) -> bool:
    """Say whether a key is one plain JSON value, which is written as text and needs no schema."""
    definition = schema.definition
    kind = definition.get("type") if isinstance(definition, dict) else None
    return schema.format is SchemaFormat.JSON and kind not in ("object", "array")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a subject holds: a schema, and the schemas of other subjects that it refers to by name."""

    text: str
    uses: tuple[str, ...] = ()
    """The imports to which the text itself refers."""
    imports: tuple[AvroImport, ...] = ()
    """All imports, each behind those that it uses."""


def registration(schemas: Mapping[str, Schema]) -> Registration | None:
    """Give what is registered for several messages of one subject; None as for `combined`.

    Avro types of other files stay there, and are referred to. Where two files give one name to different
    types the schemas are complete in themselves.
    """
    imports = {each.name: each for schema in schemas.values() for each in schema.imports}
    agreed = all(imports[each.name] == each for schema in schemas.values() for each in schema.imports)
    own = {name: replace(s, definition=s.written) if s.imports else s for name, s in schemas.items()}
    text = combined(own) if imports and agreed else None
    if text is None:
        whole = combined(schemas)
        return None if whole is None else Registration(text=whole)
    used = [missing.name for schema in own.values() for missing in missing_types(schema.definition)]
    roots = {name: each.name for each in imports.values() for name in defined_names(each.definition)}
    return Registration(
        text=text,
        uses=tuple(dict.fromkeys(roots[name] for name in used if name in roots)),
        imports=tuple(imports.values()),
    )


def import_text(each: AvroImport) -> str:
    """Write an import as its own subject holds it."""
    return _written(each.definition)


def combined(schemas: Mapping[str, Schema]) -> str | None:
    """Write the schemas of several messages as one: oneOf in JSON Schema, a union in Avro.

    Equal schemas count once. None if they are of different languages, of one that has no unions, or give
    one name to different types.
    """
    distinct: dict[str, Schema] = {}
    for name, schema in schemas.items():
        if schema not in distinct.values():
            distinct[name] = schema
    formats = {schema.format for schema in distinct.values()}
    if len(distinct) == 1:
        return _text(next(iter(distinct.values())))
    if formats == {SchemaFormat.JSON}:
        return _written(_with_draft(_one_of({name: schema.definition for name, schema in distinct.items()})))
    if formats == {SchemaFormat.AVRO}:
        union = _union([schema.definition for schema in distinct.values()])
        return None if union is None else _written(union)
    return None


def _text(schema: Schema) -> str:
    if schema.format is SchemaFormat.PROTOBUF and isinstance(schema.definition, str):
        return schema.definition
    is_json = schema.format is SchemaFormat.JSON
    return _written(_with_draft(schema.definition) if is_json else schema.definition)


def _written(definition: JsonValue) -> str:
    return json.dumps(definition, ensure_ascii=False)


def _with_draft(definition: JsonValue) -> JsonValue:
    """Name the draft: a Schema Object is draft 07, and Apicurio knows a JSON Schema by that word."""
    return {"$schema": DRAFT, **definition} if isinstance(definition, dict) else definition


# Keywords whose values are data, and keywords whose values are maps from names to schemas.
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_MAPS: Final = frozenset({"definitions", "dependencies", "patternProperties", "properties"})


def _one_of(definitions: Mapping[str, JsonValue]) -> JsonValue:
    """Put each schema below `definitions` with the schemas that it refers to; references move along."""
    moved: dict[str, JsonValue] = {}
    for name, definition in definitions.items():
        if not isinstance(definition, dict):
            moved[name] = definition
            continue
        inner = definition.get("definitions")
        moved[name] = _moved({key: definition[key] for key in definition if key != "definitions"}, name)
        for key, value in inner.items() if isinstance(inner, dict) else ():
            moved[f"{name}.{key}"] = _moved(value, name)
    return {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in definitions], "definitions": moved}


def _moved(schema: JsonValue, owner: str) -> JsonValue:
    if isinstance(schema, list):
        return [_moved(item, owner) for item in schema]
    if not isinstance(schema, dict):
        return schema
    target = schema.get("$ref")
    if isinstance(target, str):
        inner = target.removeprefix("#/definitions/")
        return {"$ref": f"#/definitions/{owner}" if target == "#" else f"#/definitions/{owner}.{inner}"}
    return {key: _moved_member(key, value, owner) for key, value in schema.items()}


def _moved_member(key: str, value: JsonValue, owner: str) -> JsonValue:
    if key in _DATA:
        return value
    if key in _MAPS and isinstance(value, dict):
        return {name: _moved(member, owner) for name, member in value.items()}
    return _moved(value, owner)


def _union(definitions: list[JsonValue]) -> JsonValue:
    """Join Avro schemas; a named type that comes again is only named, as Avro wants it."""
    known: dict[str, JsonValue] = {}
    try:
        return [_named_once(definition, None, known) for definition in definitions]
    except _NameTaken:
        return None


class _NameTaken(Exception):
    """Two different types have one name."""


_NAMED: Final = ("record", "error", "enum", "fixed")


def _named_once(schema: JsonValue, namespace: str | None, known: dict[str, JsonValue]) -> JsonValue:
    if isinstance(schema, list):
        return [_named_once(item, namespace, known) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        # Avro, Names: a name without a namespace takes that of the type around it.
        name = full_name(schema, namespace) or ""
        namespace = name.rpartition(".")[0] or None
        if known.setdefault(name, schema) is not schema:
            if known[name] != schema:
                raise _NameTaken
            return name
    return {
        key: _named_once(value, namespace, known) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }
