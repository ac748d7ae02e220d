"""A schema of the document: its format, and its definition as one self-contained value.

References are bundled into `definitions` for JSON Schema, so that circles survive, and written out for
Avro, which has names for that. What this costs is bounded over the whole document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NoReturn

from penstock.contract.avro_files import find_types
from penstock.contract.avro_types import AvroImport, imports_of, inlined, missing_types
from penstock.contract.node import JsonValue, Node, kind_of, plain
from penstock.contract.readers import follow
from penstock.contract.rules import reading as reading_rules
from penstock.contract.rules import references
from penstock.contract.rules import schemas as rules
from penstock.contract.shape import MAX_BUNDLED, NOWHERE, Reading, report_type
from penstock.contract.tree import MAX_DEPTH

__all__ = [
    "Schema",
    "SchemaFormat",
    "constants",
    "key_schema",
    "multi_format_schema",
    "name_schema",
    "schema",
]

MAX_DEFINITIONS: Final = 5_000

# Keywords whose values are data, and keywords whose values are maps from names to schemas.
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_MAPS: Final = frozenset({"definitions", "dependencies", "patternProperties", "properties"})
# They would move the base of the bundled references, or choose another draft.
_DROPPED: Final = frozenset({"$id", "$schema"})
_AVRO_ONLY: Final = frozenset(
    {"bytes", "double", "enum", "error", "fixed", "float", "int", "long", "map", "record"}
)


_ASYNCAPI: Final = "application/vnd.aai.asyncapi;version=3.0.0"
_AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
_OPENAPI: Final = "application/vnd.oai.openapi;version=3.0.0"
_PROTOBUF: Final = "application/vnd.google.protobuf;version=3"


class SchemaFormat(StrEnum):
    """The languages of schemas that Penstock tells apart."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One schema; `definition` is a JSON Schema, an Avro schema or the text of a .proto file."""

    format: SchemaFormat
    media_type: str
    """The schemaFormat, as read."""
    definition: JsonValue
    node: Node = field(default=NOWHERE, repr=False, compare=False)
    bundled: Mapping[str, Node] = field(default_factory=dict, repr=False, compare=False)
    """Where each of the bundled definitions stands."""
    written: JsonValue = field(default=None, repr=False)
    """An Avro schema that uses types of other files, as its own file has it; None if it uses none.

    `definition` holds these types too."""
    imports: tuple[AvroImport, ...] = field(default=(), repr=False)
    """The schemas of the other files, each behind those that it uses."""


@dataclass(frozen=True, slots=True)
class _Format:
    pattern: re.Pattern[str]
    format: SchemaFormat
    canonical: str


# AsyncAPI 3, Schema formats table; the version parameter is required there, and often forgotten.
_FORMATS: Final = tuple(
    _Format(re.compile(rf"{pattern}(?P<version>;\s*version=[^;]+)?\Z"), format_, canonical)
    for pattern, format_, canonical in (
        (r"application/vnd\.aai\.asyncapi(?:\+json|\+yaml)?", SchemaFormat.JSON, _ASYNCAPI),
        (r"application/schema\+(?:json|yaml)", SchemaFormat.JSON, "application/schema+json;version=draft-07"),
        (r"application/vnd\.apache\.avro(?:\+json|\+yaml)?", SchemaFormat.AVRO, _AVRO),
        (r"application/vnd\.google\.protobuf", SchemaFormat.PROTOBUF, _PROTOBUF),
        (r"application/vnd\.oai\.openapi(?:\+json|\+yaml)?", SchemaFormat.OTHER, _OPENAPI),
        (r"application/raml\+yaml", SchemaFormat.OTHER, "application/raml+yaml;version=1.0"),
    )
)


def schema(reading: Reading, node: Node) -> Schema | None:
    """Read a Schema Object, a boolean, or a reference to one."""
    target = follow(reading, node, "schemas")
    if target is None:
        return None
    if not isinstance(target.value, dict | bool):
        report_type(reading, node, "a schema")
        return None
    return _remembered(reading, target, SchemaFormat.JSON, _ASYNCAPI)


def multi_format_schema(reading: Reading, node: Node) -> Schema | None:
    """Read a Schema Object or a Multi Format Schema Object, or a reference to one."""
    target = follow(reading, node, "schemas")
    if target is None or not isinstance(target.value, dict) or "schemaFormat" not in target.value:
        return schema(reading, node)
    format_, media_type = _read_format(reading, target.value["schemaFormat"])
    inner = target.get("schema")
    if inner is None:
        report_type(reading, target, "a Multi Format Schema Object with the field schema")
        return None
    found = follow(reading, inner, "schemas")
    return None if found is None else _remembered(reading, found, format_, media_type)


def key_schema(reading: Reading, node: Node) -> Schema | None:
    """Read the key of a Kafka message: Schema, reference or Avro Schema Object (Kafka bindings 0.5.0)."""
    target = follow(reading, node, "schemas")
    kind = target.get("type") if target is not None else None
    # The text names the Avro Schema Object; the published JSON Schema of 0.5.0 lost it. The text wins.
    if target is not None and kind is not None and str(kind.value) in _AVRO_ONLY:
        return _remembered(reading, target, SchemaFormat.AVRO, _AVRO)
    return multi_format_schema(reading, node)


def name_schema(reading: Reading, node: Node) -> Schema | None:
    """Read the schema of a name such as groupId; a plain text gets the hint that everybody needs once."""
    if isinstance(node.value, str):
        report_type(reading, node, "a schema", f"write {{type: string, const: {node.value[:60]}}}")
        return None
    return schema(reading, node)


def constants(found: Schema | None) -> tuple[str, ...] | None:
    """Give the texts that a schema allows, by const or enum; None if it does not name them.

    >>> constants(Schema(format=SchemaFormat.JSON, media_type="", definition={"enum": ["a", "b"]}))
    ('a', 'b')
    """
    definition = found.definition if found is not None else None
    if not isinstance(definition, dict):
        return None
    values = [definition["const"]] if "const" in definition else definition.get("enum")
    if not isinstance(values, list) or not values:
        return None
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(values) else None


def _read_format(reading: Reading, node: Node) -> tuple[SchemaFormat, str]:
    if not isinstance(node.value, str):
        report_type(reading, node, "a text")
        return SchemaFormat.OTHER, ""
    for known in _FORMATS:
        match = known.pattern.match(node.value)
        if match is None:
            continue
        if not match["version"]:
            reading.report.add(rules.NO_FORMAT_VERSION, node, found=node.value, read_as=known.canonical)
            return known.format, known.canonical
        return known.format, node.value
    reading.report.add(rules.UNKNOWN_FORMAT, node, found=node.value)
    return SchemaFormat.OTHER, node.value


def _remembered(reading: Reading, node: Node, format_: SchemaFormat, media_type: str) -> Schema | None:
    key = (id(node), media_type)
    if key not in reading.schemas:
        reading.schemas[key] = _make(reading, node, format_, media_type)
    found: Schema | None = reading.schemas[key]
    return found


def _make(reading: Reading, node: Node, format_: SchemaFormat, media_type: str) -> Schema | None:
    if format_ is SchemaFormat.PROTOBUF and not isinstance(node.value, str):
        reading.report.add(rules.PROTOBUF_NOT_TEXT, node, found=kind_of(node.value))
        return None
    bundler = _Bundler(reading, node)
    definition = _BUILD[format_](bundler, node)
    if format_ is SchemaFormat.AVRO and missing_types(definition):
        return _with_other_files(bundler, node, definition, media_type)
    return Schema(
        format=format_,
        media_type=media_type,
        definition=definition,
        node=node,
        bundled=MappingProxyType(bundler.nodes),
    )


def _with_other_files(bundler: _Bundler, node: Node, definition: JsonValue, media_type: str) -> Schema:
    """Make an Avro schema that uses names which it does not define."""
    files = find_types(bundler.reading, definition, node.file, bundler.write_out)
    try:
        whole = inlined(definition, files, bundler.spend)
    except RecursionError:
        whole = None
    if whole is None or not _is_flat(whole):
        bundler.refuse(f"the types of its Avro files are nested deeper than {MAX_DEPTH} levels")
    imports = imports_of(definition, files)
    return Schema(
        format=SchemaFormat.AVRO,
        media_type=media_type,
        definition=whole,
        node=node,
        written=definition if imports else None,
        imports=imports or (),
    )


def _is_flat(value: JsonValue) -> bool:
    """Say whether a value is no deeper than a file may be, which is what all who read it count on."""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


class _Bundler:
    """Makes one schema self-contained."""

    def __init__(self, reading: Reading, root: Node) -> None:
        self.reading = reading
        self.names: dict[int, str] = {id(root): "#"}
        self.nodes: dict[str, Node] = {}
        self.queue: list[tuple[str, Node]] = []

    def bundle(self, root: Node) -> JsonValue:
        """Give the JSON Schema with every schema it refers to."""
        document = self._convert(root)
        definitions: dict[str, JsonValue] = {}
        while self.queue:
            name, node = self.queue.pop()
            definitions[name] = self._convert(node)
        if definitions and isinstance(document, dict):
            own = document.get("definitions")
            document["definitions"] = {**(own if isinstance(own, dict) else {}), **definitions}
        return document

    def write_out(self, node: Node, depth: int = 0) -> JsonValue:
        """Give an Avro schema with every reference replaced by what it names."""
        self.spend()
        if node.reference is not None:
            target = self.reading.library.resolve(node)
            if target is not None and depth > MAX_DEPTH:
                self.reading.report.add(references.LOOP, node, reference=node.reference)
                target = None
            return "null" if target is None else self.write_out(_unwrapped(target), depth + 1)
        if isinstance(node.value, dict):
            return {key: self.write_out(child, depth + 1) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self.write_out(child, depth + 1) for child in node.value]
        return node.value

    def _convert(self, node: Node) -> JsonValue:
        self.spend()
        if isinstance(node.value, list):
            return [self._convert(child) for child in node.value]
        if not isinstance(node.value, dict):
            return node.value
        if node.reference is not None:
            return self._refer(node)
        return {key: self._member(key, child) for key, child in node.value.items() if key not in _DROPPED}

    def _member(self, key: str, child: Node) -> JsonValue:
        if key in _DATA:
            return plain(child)
        if key in _MAPS and isinstance(child.value, dict):
            return {name: self._convert(member) for name, member in child.value.items()}
        return self._convert(child)

    def _refer(self, node: Node) -> JsonValue:
        target = self.reading.library.resolve(node)
        if target is None:
            return True
        if id(target) not in self.names:
            if len(self.nodes) >= MAX_DEFINITIONS:
                self.refuse(f"a schema refers to more than {MAX_DEFINITIONS} others")
            name = f"penstock-{len(self.nodes)}"
            self.names[id(target)] = f"#/definitions/{name}"
            self.nodes[name] = target
            self.queue.append((name, target))
        return {"$ref": self.names[id(target)]}

    def spend(self) -> None:
        """Count one value; too many of them are refused."""
        self.reading.budget.left -= 1
        if self.reading.budget.left < 0:
            self.refuse(f"its schemas expand to more than {MAX_BUNDLED} values")

    def refuse(self, problem: str) -> NoReturn:
        """Report that the schemas are too large, and stop."""
        root = self.reading.library.root or NOWHERE
        self.reading.report.add(reading_rules.TOO_LARGE, root, problem=problem)
        raise SchemasTooLarge


def _unwrapped(node: Node) -> Node:
    """The schema inside a Multi Format Schema Object; any other node is its own."""
    inner = node.get("schema")
    return inner if inner is not None and node.get("schemaFormat") is not None else node


class SchemasTooLarge(Exception):
    """The schemas refer to each other so often that checking them is refused; already reported."""


_BUILD: Final[Mapping[SchemaFormat, Callable[[_Bundler, Node], JsonValue]]] = {
    SchemaFormat.JSON: _Bundler.bundle,
    SchemaFormat.AVRO: _Bundler.write_out,
    SchemaFormat.PROTOBUF: lambda _bundler, node: plain(node),
    SchemaFormat.OTHER: lambda _bundler, node: plain(node),
}
