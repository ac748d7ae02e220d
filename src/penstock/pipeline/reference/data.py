"""The data of an event as routes read it: JSON parsed exactly, with every number as it was written.

Data is JSON if its form or its content type says so. Text that is then not JSON by the strict parser of
`penstock.events` is *unreadable*, and so is text beyond the bounds below, which keep every engine safe.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.events import CloudEvent
from penstock.events.jsontext import loads
from penstock.pipeline.plan.bounds import MAX_BYTES, MAX_DEPTH, MAX_NAME, MAX_NUMBER
from penstock.pipeline.plan.nodes import Step

__all__ = ["JsonNumber", "Unreadable", "member", "read_data", "read_json", "tagged", "unreadable"]


class Unreadable(Enum):
    """The type of `unreadable`."""

    UNREADABLE = "unreadable"


unreadable: Final = Unreadable.UNREADABLE
"""The data claims to be JSON and is not."""


@dataclass(frozen=True, slots=True)
class JsonNumber:
    """A number as it was written."""

    text: str


def read_data(event: CloudEvent) -> object:
    """Give the event's JSON value, None for data that is absent or not JSON, or `unreadable`."""
    raw = event.data_bytes
    return None if raw is None or not event.has_json else read_json(raw)


def read_json(raw: bytes) -> object:
    """Read JSON text; `unreadable` if it is none.

    >>> read_json(b'{"total": 10.50}'), read_json(b'{"a": 1, "a": 2}')
    ({'total': JsonNumber(text='10.50')}, <Unreadable.UNREADABLE: 'unreadable'>)
    """
    if len(raw) > MAX_BYTES:
        return unreadable
    try:
        loads(raw)
        value = json.loads(raw.decode(), parse_int=JsonNumber, parse_float=JsonNumber)
    except (ValueError, RecursionError):
        return unreadable
    return value if _in_bounds(value) else unreadable


def _in_bounds(value: object) -> bool:
    """Check nesting, numbers and names level by level."""
    level, depth = [value], 0
    while level:
        containers = [each for each in level if isinstance(each, dict | list)]
        depth += bool(containers)
        if depth > MAX_DEPTH or any(isinstance(n, JsonNumber) and len(n.text) > MAX_NUMBER for n in level):
            return False
        if any(_long_name(each) for each in containers if isinstance(each, dict)):
            return False
        level = [child for each in containers for child in _children(each)]
    return True


def _children(container: dict[str, object] | list[object]) -> list[object]:
    return list(container.values()) if isinstance(container, dict) else container


def _long_name(value: dict[str, object]) -> bool:
    return any(len(name) > MAX_NAME // 2 and len(name.encode("utf-16-le")) // 2 > MAX_NAME for name in value)


def member(value: object, path: tuple[Step, ...]) -> object:
    """Give the value at a path; None if it is not there.

    >>> member({"items": [{"sku": "x"}]}, ("items", 0, "sku"))
    'x'
    """
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def tagged(value: object) -> str | None:
    """Give a JSON value as one text that keeps its type: what a columns engine carries for a path.

    A string has the letter s before it, a number is as written, true and false are words, and of an object
    or array only its bracket is left.

    >>> [tagged(value) for value in ("5", JsonNumber("5"), True, None, {"a": 1})]
    ['s5', '5', 'true', None, '{']
    """
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return f"s{value}"
        case JsonNumber():
            return value.text
        case dict():
            return "{"
        case _:
            return "["
