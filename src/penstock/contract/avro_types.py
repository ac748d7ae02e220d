"""Named types of Avro that a schema uses and another file defines, as registries and build tools have it.

By Avro's text a schema is complete in itself; registries keep such a schema with references to others. Here
it is both: `inlined` makes one that is complete, `imports_of` names what it refers to, each before its users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.contract.node import JsonValue

__all__ = [
    "AvroImport",
    "Missing",
    "defined_names",
    "full_name",
    "imports_of",
    "inlined",
    "missing_types",
    "normal_form",
]

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)  # Avro 1.9, Primitive Types
NAMED: Final = ("record", "error", "enum", "fixed")
COMPLEX: Final = frozenset({*NAMED, "array", "map"})

Path = tuple[str | int, ...]
Definitions = Mapping[str, JsonValue]
"""The schema of a file by the full name of each type that it defines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroImport:
    """A schema of another file, as it is written there."""

    name: str
    """Its full name, and the subject under which it is registered."""
    definition: JsonValue
    uses: tuple[str, ...] = ()
    """The names of the imports that it uses itself."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that a schema uses and does not define."""

    name: str
    path: Path


def full_name(definition: Mapping[str, JsonValue], namespace: str | None = None) -> str | None:
    """Give the full name of a named type inside a namespace; None if it has none (Avro 1.9, Names)."""
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        return None
    own = definition.get("namespace")
    around = own if isinstance(own, str) else namespace
    return name if "." in name or not around else f"{around}.{name}"


def defined_names(definition: JsonValue) -> frozenset[str]:
    """Give the full names of all types that a schema defines, at its root and inside."""
    return frozenset(name for name, _ in _walk(definition, None, ()) if isinstance(name, _Defined))


def missing_types(definition: JsonValue) -> tuple[Missing, ...]:
    """Give the names that a schema uses and does not define anywhere, each where it is used first."""
    defined = defined_names(definition)
    used: dict[str, Path] = {}
    for name, path in _walk(definition, None, ()):
        if not isinstance(name, _Defined) and name not in defined:
            used.setdefault(name, path)
    return tuple(Missing(name, path) for name, path in used.items())


class _Defined(str):
    """A name at the place of its definition."""

    __slots__ = ()


def _walk(schema: JsonValue, namespace: str | None, path: Path) -> Iterator[tuple[str, Path]]:
    """Give every name that is defined or used, in full, with its path."""
    if isinstance(schema, str):
        if schema not in PRIMITIVES:
            yield _in_namespace(schema, namespace), path
    elif isinstance(schema, list):
        for index, branch in enumerate(schema):
            yield from _walk(branch, namespace, (*path, index))
    elif isinstance(schema, dict):
        if schema.get("type") in NAMED:
            name = full_name(schema, namespace)
            namespace = (name or "").rpartition(".")[0] or None
            if name is not None:
                yield _Defined(name), path
        for steps, child in _children(schema):
            yield from _walk(child, namespace, (*path, *steps))


def _children(schema: Mapping[str, JsonValue]) -> Iterator[tuple[Path, JsonValue]]:
    """Give the schemas inside a schema, with the way to each."""
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in COMPLEX:
        yield ("type",), kind
    for key in ("items", "values"):
        yield (key,), schema.get(key)
    fields = schema.get("fields")
    for index, each in enumerate(fields if isinstance(fields, list) else ()):
        yield ("fields", index, "type"), each.get("type") if isinstance(each, dict) else None


def _in_namespace(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def normal_form(schema: JsonValue, namespace: str | None = None) -> JsonValue:
    """Give a schema with every name in full, so that the same types are equal values.

    >>> normal_form({"type": "fixed", "name": "Id", "namespace": "com.shop", "size": 8})
    {'type': 'fixed', 'name': 'com.shop.Id', 'size': 8}
    """
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _in_namespace(schema, namespace)
    if isinstance(schema, list):
        return [normal_form(branch, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if schema.get("type") in NAMED and (name := full_name(schema, namespace)) is not None:
        namespace, made["name"] = name.rpartition(".")[0] or None, name
        made.pop("namespace", None)
    for (key, *rest), child in _children(schema):
        if not rest and key in schema:
            made[str(key)] = normal_form(child, namespace)
    fields = schema.get("fields")
    if isinstance(fields, list):
        made["fields"] = [
            {**each, "type": normal_form(each.get("type"), namespace)} if isinstance(each, dict) else each
            for each in fields
        ]
    return made


def imports_of(definition: JsonValue, files: Definitions) -> tuple[AvroImport, ...] | None:
    """Give the schemas of other files that a schema needs, each behind those that it uses itself.

    None if they cannot be kept one by one: two need each other, two define the same type, or the root of one
    has no name by which it could be referred to.
    """
    found: dict[str, AvroImport] = {}
    open_: set[str] = set()

    def needed(schema: JsonValue) -> tuple[str, ...]:
        used = (files[missing.name] for missing in missing_types(schema) if missing.name in files)
        return tuple(dict.fromkeys([add(each) for each in used]))

    def add(schema: JsonValue) -> str:
        name = _root_name(schema)
        if name is None or name in open_ or (name in found and found[name].definition is not schema):
            raise _Inseparable
        if name not in found:
            open_.add(name)
            uses = needed(schema)
            open_.discard(name)
            found[name] = AvroImport(name=name, definition=schema, uses=uses)
        return name

    try:
        needed(definition)
    except (_Inseparable, RecursionError):
        return None
    schemas = (definition, *(each.definition for each in found.values()))
    defined = Counter(name for schema in schemas for name in defined_names(schema))
    return tuple(found.values()) if defined.total() == len(defined) else None


class _Inseparable(Exception):
    """A file cannot be referred to by a name of its own."""


def _root_name(definition: JsonValue) -> str | None:
    if not isinstance(definition, dict) or definition.get("type") not in NAMED:
        return None
    return full_name(definition)


def inlined(definition: JsonValue, files: Definitions, spend: Callable[[], None]) -> JsonValue:
    """Give a schema with the types of other files written out where they are used first.

    `spend` is called for every value that is written, and stops a schema that grows too large.
    """
    return _Inliner(definition, files, spend).write(definition, None)


class _Inliner:
    """Writes one schema."""

    def __init__(self, definition: JsonValue, files: Definitions, spend: Callable[[], None]) -> None:
        schemas = {id(schema): schema for schema in files.values()}.values()
        self._types = {name: found for schema in schemas for name, found in _types_of(schema, None)}
        self._own = defined_names(definition)
        self._done: set[str] = set()
        self._spend = spend

    def write(self, schema: JsonValue, namespace: str | None) -> JsonValue:
        """Write a schema inside a namespace."""
        self._spend()
        if isinstance(schema, str):
            return self._write_name(schema, namespace)
        if isinstance(schema, list):
            return [self.write(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") not in NAMED:
            return self._write_members(schema, namespace)
        name = full_name(schema, namespace) or ""
        return name if name in self._done else self._write_type(schema, name)

    def _write_name(self, word: str, namespace: str | None) -> JsonValue:
        name = _in_namespace(word, namespace)
        if word in PRIMITIVES or name in self._own or name not in self._types:
            return word
        return name if name in self._done else self._write_type(self._types[name], name)

    def _write_type(self, schema: Mapping[str, JsonValue], name: str) -> JsonValue:
        namespace, _, simple = name.rpartition(".")
        if name not in self._own:
            self._done.add(name)
            # In full, or the namespace of the type around it would take hold of it.
            schema = {**schema, "name": simple, "namespace": namespace}
        return self._write_members(schema, namespace or None)

    def _write_members(self, schema: Mapping[str, JsonValue], namespace: str | None) -> JsonValue:
        made = dict(schema)
        for (key, *rest), child in _children(schema):
            if not rest and key in schema:
                made[str(key)] = self.write(child, namespace)
        fields = schema.get("fields")
        if isinstance(fields, list):
            made["fields"] = [self._write_field(each, namespace) for each in fields]
        return made

    def _write_field(self, field: JsonValue, namespace: str | None) -> JsonValue:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return {**field, "type": self.write(field["type"], namespace)}


def _types_of(schema: JsonValue, namespace: str | None) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    """Give every named type that is defined in a schema, by its full name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _types_of(branch, namespace)
    elif isinstance(schema, dict):
        if schema.get("type") in NAMED:
            name = full_name(schema, namespace)
            namespace = (name or "").rpartition(".")[0] or None
            if name is not None:
                yield name, schema
        for _, child in _children(schema):
            yield from _types_of(child, namespace)
