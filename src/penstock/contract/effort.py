"""How many steps it may take to check a value against a JSON Schema, without checking it.

A schema whose parts refer to each other twice per level needs 2^n steps for n levels; a few lines can
keep a machine busy for years, so the effort is counted first and bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.contract.node import JsonValue

__all__ = ["MAX_EFFORT", "effort"]

MAX_EFFORT: Final = 1_000_000

# Keywords that apply a schema to the value itself, and those that apply one to a member of it.
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_LIST: Final = ("allOf", "anyOf", "oneOf")
_SAME_MAP: Final = ("dependencies",)
_MEMBER_ONE: Final = ("additionalItems", "additionalProperties", "contains", "items", "propertyNames")
_MEMBER_LIST: Final = ("items",)
_MEMBER_MAP: Final = ("patternProperties", "properties")


def effort(schema: JsonValue, value: JsonValue) -> int:
    """Count the schemas that a check may visit; a circle that does not go deeper counts once.

    >>> effort({"allOf": [True, {"type": "string"}]}, "x")
    3
    """
    try:
        return _Counter(schema).count(schema, _height(value))
    except RecursionError:  # a chain of references longer than Python's stack
        return MAX_EFFORT + 1


def _height(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max((_height(child) for child in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_height(child) for child in value), default=0)
    return 0


class _Counter:
    """Counts with memory, so that the count itself stays small."""

    def __init__(self, root: JsonValue) -> None:
        definitions = root.get("definitions") if isinstance(root, dict) else None
        self.definitions = definitions if isinstance(definitions, dict) else {}
        self.root = root
        self.known: dict[tuple[int, int], int] = {}

    def count(self, schema: JsonValue, height: int) -> int:
        """Count the visits for a value of this height."""
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), height)
        if key not in self.known:
            self.known[key] = 1  # a circle meets this before the sum is known
            self.known[key] = 1 + self._below(schema, height)
        return self.known[key]

    def _below(self, schema: dict[str, JsonValue], height: int) -> int:
        if "$ref" in schema:
            return self.count(self._target(schema["$ref"]), height)
        same = sum(self.count(part, height) for part in _parts(schema, _SAME_ONE, _SAME_LIST, _SAME_MAP))
        if height == 0:
            return same
        members = _parts(schema, _MEMBER_ONE, _MEMBER_LIST, _MEMBER_MAP)
        return min(same + sum(self.count(part, height - 1) for part in members), MAX_EFFORT + 1)

    def _target(self, reference: JsonValue) -> JsonValue:
        name = str(reference).removeprefix("#/definitions/")
        return self.root if name == "#" else self.definitions.get(name)


def _parts(
    schema: dict[str, JsonValue], ones: tuple[str, ...], lists: tuple[str, ...], maps: tuple[str, ...]
) -> Iterator[JsonValue]:
    for word in ones:
        if isinstance(schema.get(word), dict):
            yield schema[word]
    for word in lists:
        found = schema.get(word)
        yield from found if isinstance(found, list) else ()
    for word in maps:
        found = schema.get(word)
        yield from found.values() if isinstance(found, dict) else ()
