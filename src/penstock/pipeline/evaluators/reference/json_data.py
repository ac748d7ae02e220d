"""The data of an event as routes read it: JSON parsed exactly, with every number as it was written.

Data is JSON if its form or its content type says so. Text that is then not JSON by the strict parser of
`penstock.events` is *unreadable*, and so is text beyond the bounds of `plan.bounds`, which keep every engine
safe. A number is an int, or a LosslessFloat if it was written with a fraction or an exponent.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from jiter import LosslessFloat

from penstock.events import CloudEvent
from penstock.events.jsontext import loads_lossless
from penstock.pipeline.plan.bounds import MAX_BYTES, MAX_DEPTH, MAX_NAME, MAX_NUMBER
from penstock.pipeline.plan.nodes import Step
from penstock.pipeline.plan.numbers import NumberValue, number_of_int, number_of_json_text

__all__ = ["Unreadable", "member", "number_text", "number_value", "read_data", "read_json", "unreadable"]


class Unreadable(Enum):
    """The type of `unreadable`."""

    UNREADABLE = "unreadable"


unreadable: Final = Unreadable.UNREADABLE
"""The data claims to be JSON and is not."""


def read_data(event: CloudEvent) -> object:
    """Return the event's JSON value, None for data that is absent or not JSON, or `unreadable`."""
    raw = event.data_bytes
    return None if raw is None or not event.has_json else read_json(raw)


def read_json(raw: bytes) -> object:
    """Return the value of JSON text; `unreadable` if it is none or beyond the bounds.

    >>> read_json(b'{"total": 10.50}'), read_json(b'{"a": 1, "a": 2}')
    ({'total': LosslessFloat(10.50)}, <Unreadable.UNREADABLE: 'unreadable'>)
    """
    if len(raw) > MAX_BYTES:
        return unreadable
    try:
        value = loads_lossless(raw)
    except ValueError:
        return unreadable
    # A name or a number is not longer than the text, and no container is without its bracket: of short
    # texts nothing has to be walked.
    short = len(raw) <= MAX_NUMBER or (len(raw) <= MAX_NAME and _LONG_NUMBER.search(raw) is None)
    if short and raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return value
    return value if _in_bounds(value) else unreadable


_LONG_NUMBER: Final = re.compile(rb"[-+0-9.eE]{%d}" % (MAX_NUMBER + 1))
"""Characters that may be a number beyond the bound, or part of a string."""
_TOO_LARGE: Final = 10**MAX_NUMBER
_TOO_SMALL: Final = -(10 ** (MAX_NUMBER - 1))


def _in_bounds(value: object) -> bool:
    """Check nesting, numbers and names level by level."""
    level, depth = [value], 0
    while level:
        containers = [each for each in level if isinstance(each, dict | list)]
        depth += bool(containers)
        if depth > MAX_DEPTH or any(map(_is_long_number, level)):
            return False
        if any(_has_long_name(each) for each in containers if isinstance(each, dict)):
            return False
        level = [child for each in containers for child in _children(each)]
    return True


def _is_long_number(value: object) -> bool:
    if type(value) is int:
        return not _TOO_SMALL < value < _TOO_LARGE
    return type(value) is LosslessFloat and len(bytes(value)) > MAX_NUMBER


def _children(container: dict[str, object] | list[object]) -> list[object]:
    return list(container.values()) if isinstance(container, dict) else container


def _has_long_name(value: dict[str, object]) -> bool:
    return any(len(name) > MAX_NAME // 2 and len(name.encode("utf-16-le")) // 2 > MAX_NAME for name in value)


def member(value: object, path: tuple[Step, ...]) -> object:
    """Return the value at a path; None if it is not there.

    >>> member({"items": [{"sku": "x"}]}, ("items", 0, "sku"))
    'x'
    """
    for step in path:
        if type(value) is dict and type(step) is str:
            value = value.get(step)
        elif type(value) is list and type(step) is int and step < len(value):
            value = value[step]
        else:
            return None
    return value


def number_value(value: object) -> NumberValue | None:
    """Return a JSON number as a number of the plan; None for any other value and beyond all ranges."""
    if type(value) is LosslessFloat:
        return number_of_json_text(str(value))
    return number_of_int(value) if type(value) is int else None


def number_text(value: object) -> str | None:
    """Return a JSON number as it was written, but for the sign of -0; None for any other value."""
    return str(value) if type(value) is LosslessFloat or type(value) is int else None
