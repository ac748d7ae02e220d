"""JSON values made into what an Avro schema asks for: one converter a type, compiled once a schema.

Avro 1.9, Schema Resolution: a member that the schema does not know is ignored, one that is missing takes the
default of its field.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from penstock.events.timestamp import read_timestamp
from penstock.pipeline.typed.avro_schema import SchemaTexts, names_of, parsed

__all__ = ["Unfit", "converter_of"]

Converter = Callable[[Any], Any]
_INT, _LONG = 1 << 31, 1 << 63
_SHOWN: Final = 60


class Unfit(Exception):
    """A value that its schema does not allow; `str` says where and why."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path or 'the value'}: {problem}")
        self.problem = problem
        self.path = path


def _inside(step: str, convert: Converter, value: Any) -> Any:
    try:
        return convert(value)
    except Unfit as exc:
        raise Unfit(exc.problem, f"{step}.{exc.path}" if exc.path else step) from None


@lru_cache(maxsize=512)
def converter_of(schema: SchemaTexts, branch: str | None = None) -> Converter:
    """Give the converter of a schema, or of the branch of a union that has a name."""
    compiler = _Compiler()
    compiler.learn(names_of(schema))
    whole = compiler.compile(parsed(schema))
    return whole if branch is None else compiler.named[branch]


class _Compiler:
    """Compiles one parsed schema; named types are looked up when a value is there, so that circles end."""

    def __init__(self) -> None:
        self.named: dict[str, Converter] = {}

    def compile(self, schema: Any) -> Converter:
        """Give the converter of a schema."""
        if isinstance(schema, list):
            return _union([self.compile(branch) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVE.get(schema) or self._by_name(schema)
        logical = _LOGICAL.get(schema.get("logicalType", ""))
        kind = schema["type"]
        if logical is not None and not isinstance(kind, dict | list):
            return logical(self._plain(kind, schema))
        return self._plain(kind, schema)

    def learn(self, schemas: Mapping[str, Any]) -> None:
        """Compile the named types."""
        for name, schema in schemas.items():
            if name not in self.named:
                self.named[name] = self._by_name(name)  # until it is compiled, for circles
                self.named[name] = self.compile(schema)

    def _by_name(self, name: str) -> Converter:
        def convert(value: Any) -> Any:
            return self.named[name](value)

        return convert

    def _plain(self, kind: Any, schema: Mapping[str, Any]) -> Converter:
        make = _COMPLEX.get(kind) if isinstance(kind, str) else None
        converter = self.compile(kind) if make is None else make(self, schema)
        if "name" in schema and isinstance(kind, str):
            self.named[schema["name"]] = converter
        return converter

    def record(self, schema: Mapping[str, Any]) -> Converter:
        """Give the converter of a record."""
        fields = [(each["name"], self.compile(each["type"]), "default" in each) for each in schema["fields"]]

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _unfit(value, "an object")
            made = {}
            for name, inner, has_default in fields:
                if name in value:
                    made[name] = _inside(name, inner, value[name])
                elif not has_default:
                    raise Unfit("it is missing and has no default", name)
            return made

        return convert

    def array(self, schema: Mapping[str, Any]) -> Converter:
        """Give the converter of an array."""
        inner = self.compile(schema["items"])

        def convert(value: Any) -> Any:
            if not isinstance(value, list):
                raise _unfit(value, "a list")
            return [_inside(str(index), inner, item) for index, item in enumerate(value)]

        return convert

    def map(self, schema: Mapping[str, Any]) -> Converter:
        """Give the converter of a map."""
        inner = self.compile(schema["values"])

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _unfit(value, "an object")
            return {name: _inside(name, inner, member) for name, member in value.items()}

        return convert

    def enum(self, schema: Mapping[str, Any]) -> Converter:
        """Give the converter of an enum."""
        symbols = frozenset(schema["symbols"])

        def convert(value: Any) -> Any:
            if not isinstance(value, str) or value not in symbols:
                raise _unfit(value, f"one of {', '.join(sorted(symbols))[:200]}")
            return value

        return convert

    def fixed(self, schema: Mapping[str, Any]) -> Converter:
        """Give the converter of a fixed."""
        size = schema["size"]

        def convert(value: Any) -> Any:
            raw = _bytes(value)
            if len(raw) != size:
                raise Unfit(f"{len(raw)} bytes in place of {size}")
            return raw

        return convert


_COMPLEX: Final[Mapping[str, Callable[[_Compiler, Mapping[str, Any]], Converter]]] = {
    "record": _Compiler.record,
    "error": _Compiler.record,
    "array": _Compiler.array,
    "map": _Compiler.map,
    "enum": _Compiler.enum,
    "fixed": _Compiler.fixed,
}


def _unfit(value: Any, wanted: str) -> Unfit:
    return Unfit(f"{str(value)[:_SHOWN]!r} is not {wanted}")


def _union(branches: list[Converter]) -> Converter:
    """Take the first branch that fits, as Avro's own JSON encoding cannot be asked of JSON from elsewhere."""

    def convert(value: Any) -> Any:
        problems = []
        for branch in branches:
            try:
                return branch(value)
            except Unfit as exc:
                problems.append(exc)
        raise max(problems, key=lambda exc: len(exc.path))

    return convert


# Primitive types


def _null(value: Any) -> None:
    if value is not None:
        raise _unfit(value, "null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unfit(value, "true or false")
    return value


def _whole(bound: int) -> Converter:
    def convert(value: Any) -> int:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if not is_number or value != value // 1 or not -bound <= value < bound:
            raise _unfit(value, f"a whole number of {bound.bit_length()} bits")
        return int(value)

    return convert


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _unfit(value, "a number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(value, "a text")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise _unfit(value, "base64") from None


_PRIMITIVE: Final[Mapping[str, Converter]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(_INT),
    "long": _whole(_LONG),
    "float": _real,
    "double": _real,
    "string": _text,
    "bytes": _bytes,
}


# Logical types: text of a known form; numbers go the way of the type beneath


def _from_text(read: Callable[[str], Any], wanted: str) -> Callable[[Converter], Converter]:
    def make(beneath: Converter) -> Converter:
        def convert(value: Any) -> Any:
            if not isinstance(value, str):
                return beneath(value)
            try:
                return read(value)
            except (ValueError, OverflowError):
                raise _unfit(value, wanted) from None

        return convert

    return make


def _decimal(_beneath: Converter) -> Converter:
    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            raise _unfit(value, "a number")
        try:
            return Decimal(str(value))
        except InvalidOperation:
            raise _unfit(value, "a number") from None

    return convert


def _local(text: str) -> Any:
    return read_timestamp(text if text.endswith(("Z", "z")) else f"{text}Z").replace(tzinfo=None)


_MOMENT: Final = _from_text(read_timestamp, "a moment of RFC 3339")
_LOCAL: Final = _from_text(_local, "a moment without offset")
_TIME: Final = _from_text(time.fromisoformat, "a time")
_LOGICAL: Final[Mapping[str, Callable[[Converter], Converter]]] = {
    "decimal": _decimal,
    "date": _from_text(date.fromisoformat, "a date"),
    "time-millis": _TIME,
    "time-micros": _TIME,
    "timestamp-millis": _MOMENT,
    "timestamp-micros": _MOMENT,
    "local-timestamp-millis": _LOCAL,
    "local-timestamp-micros": _LOCAL,
}
