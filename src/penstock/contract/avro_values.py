"""Whether a JSON value, as people write it in an example, fits an Avro schema.

Unions are accepted in both forms: the bare value, or Avro's JSON encoding with the branch as the one member
(Avro 1.9, JSON Encoding). Bytes and fixed are texts of the code points 0 to 255, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock.contract.codecs import SchemaProblem, parse_avro
from penstock.contract.node import JsonValue

__all__ = ["AvroValues"]

_MOST_STEPS: Final = 100_000
"""A value against a union of records of unions grows with the power of its depth."""

Path = tuple[str | int, ...]


def _is_int(value: JsonValue, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_octets(value: JsonValue) -> bool:
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


_PRIMITIVES: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_int(value, 31),
    "long": lambda value: _is_int(value, 63),
    "float": _is_number,
    "double": _is_number,
    "bytes": _is_octets,
    "string": lambda value: isinstance(value, str),
}


class AvroValues:
    """Checks values against one schema."""

    def __init__(self, definition: JsonValue) -> None:
        self._names: dict[str, Any] = {}
        self._schema = parse_avro(definition, self._names)
        self._steps = 0

    def first_error(self, value: JsonValue) -> SchemaProblem | None:
        """Say why the value does not fit; None if it fits."""
        self._steps = 0
        try:
            self._check(self._schema, value, ())
        except SchemaProblem as problem:
            return problem
        except RecursionError:
            return SchemaProblem("it is nested too deeply")
        return None

    def _check(self, schema: Any, value: JsonValue, path: Path) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise SchemaProblem("checking this example would take too many steps", path)
        if isinstance(schema, list):
            self._union(schema, value, path)
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            self._check(kind, value, path)
        elif kind in _PRIMITIVES:
            if not _PRIMITIVES[kind](value):
                raise SchemaProblem(f"{_shown(value)} is no {kind}", path)
        elif kind in _COMPLEX:
            _COMPLEX[kind](self, schema, value, path)
        else:
            self._check(self._names[kind], value, path)

    def _union(self, branches: list[Any], value: JsonValue, path: Path) -> None:
        problems = []
        for branch, form, at in _forms(branches, value, path):
            try:
                self._check(branch, form, at)
            except SchemaProblem as problem:
                problems.append(problem)
            else:
                return
        # The branch that got furthest is the one that was meant.
        deepest = max(problems, key=lambda problem: len(problem.path), default=None)
        if deepest is not None and len(deepest.path) > len(path):
            raise deepest
        raise SchemaProblem(f"{_shown(value)} fits none of {', '.join(map(_name_of, branches))}", path)

    def _record(self, schema: Mapping[str, Any], value: JsonValue, path: Path) -> None:
        if not isinstance(value, dict):
            raise SchemaProblem(f"{_shown(value)} is no record {schema['name']}", path)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in value:
            if name not in fields:
                raise SchemaProblem(f"record {schema['name']} has no field {name[:60]!r}", (*path, name))
        for name, field in fields.items():
            if name in value:
                self._check(field["type"], value[name], (*path, name))
            elif "default" not in field:
                raise SchemaProblem(f"field {name!r} of record {schema['name']} is missing", path)

    def _enum(self, schema: Mapping[str, Any], value: JsonValue, path: Path) -> None:
        if value not in schema["symbols"]:
            raise SchemaProblem(f"{_shown(value)} is no symbol of {schema['name']}", path)

    def _array(self, schema: Mapping[str, Any], value: JsonValue, path: Path) -> None:
        if not isinstance(value, list):
            raise SchemaProblem(f"{_shown(value)} is no array", path)
        for index, item in enumerate(value):
            self._check(schema["items"], item, (*path, index))

    def _map(self, schema: Mapping[str, Any], value: JsonValue, path: Path) -> None:
        if not isinstance(value, dict):
            raise SchemaProblem(f"{_shown(value)} is no map", path)
        for name, item in value.items():
            self._check(schema["values"], item, (*path, name))

    def _fixed(self, schema: Mapping[str, Any], value: JsonValue, path: Path) -> None:
        if not _is_octets(value) or len(str(value)) != schema["size"]:
            raise SchemaProblem(f"{_shown(value)} is not {schema['size']} bytes of {schema['name']}", path)


_COMPLEX: Final[Mapping[str, Callable[[AvroValues, Mapping[str, Any], JsonValue, Path], None]]] = {
    "record": AvroValues._record,
    "error": AvroValues._record,
    "enum": AvroValues._enum,
    "array": AvroValues._array,
    "map": AvroValues._map,
    "fixed": AvroValues._fixed,
}


def _forms(branches: list[Any], value: JsonValue, path: Path) -> Iterator[tuple[Any, JsonValue, Path]]:
    """Give every reading of a value of a union: under the name of its branch, and bare."""
    for branch in branches:
        name = _name_of(branch)
        if isinstance(value, dict) and list(value) == [name]:
            yield branch, value[name], (*path, name)
        yield branch, value, path


def _name_of(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)


def _shown(value: JsonValue) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
