"""What an event's data can be: absent, bytes, or a JSON value (explicit null included).

These three stay different through every binding and format that can carry the difference.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Final

from penstock.errors import CannotEncode, InvalidEvent
from penstock.events.jsontext import JsonValue, copied, dumps, loads, member_span

__all__ = ["Absent", "Data", "Json", "absent", "json_of", "parse_json"]


new = object.__new__


class Absent(Enum):
    """The type of `absent`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "absent"

    def __bool__(self) -> bool:
        return False


absent: Final = Absent.ABSENT
"""The event has no data; not the same as empty bytes or a JSON null."""


def parse_json(raw: bytes) -> JsonValue:
    """Read data as a JSON value; InvalidEvent if it is not JSON."""
    try:
        return loads(raw)
    except ValueError as exc:
        raise InvalidEvent(
            f"data is not JSON: {exc}", attribute="data", clause="RFC 8259", fix="send UTF-8 JSON text"
        ) from exc


class Json:
    """A JSON value as data; one that was read keeps its original bytes, to be forwarded unchanged.

    >>> Json.parse(b'{"total": 10.50}').raw
    b'{"total": 10.50}'
    >>> Json({"total": 10.5}).raw
    b'{"total":10.5}'

    It does not change: it is written when it is made, and `value` gives objects of its own each time.
    """

    __slots__ = ("_envelope", "_raw", "_value", "was_made")
    _envelope: bytes | None
    _raw: bytes | None
    _value: JsonValue
    """What was read, until somebody has got it; `absent` then, and if it was made here."""
    was_made: bool
    """Whether it was made here, so that there is no original text to be kept."""

    def __init__(self, value: JsonValue) -> None:
        """Take a value; CannotEncode if JSON cannot hold it (NaN, infinity, other types)."""
        self._raw = _written(value)
        self._value = absent
        self._envelope = None
        self.was_made = True

    @classmethod
    def parse(cls, raw: bytes) -> Json:
        """Read JSON text exactly; InvalidEvent if it is not JSON."""
        return json_of(parse_json(raw), raw, None)

    @property
    def value(self) -> JsonValue:
        """The value as Python objects, which may be changed: each call gives its own."""
        value = self._value
        if value is absent:
            return loads(self.raw)
        if self._raw is None and self._envelope is None:
            return copied(value)
        self._value = absent  # the first who asks gets what was parsed, the next a value that is parsed anew
        return value

    @property
    def raw(self) -> bytes:
        """The JSON text: as received, or compact if it was made here."""
        if self._raw is None and self._envelope is not None:
            self._raw = member_span(self._envelope, "data")
            self._envelope = None
        return self._raw if self._raw is not None else _written(self._value)

    def _canonical(self) -> str:
        return json.dumps(loads(self.raw) if self._value is absent else self._value, sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return self._canonical() == other._canonical() if isinstance(other, Json) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical())

    def __reduce__(self) -> tuple[object, ...]:
        # The envelope holds much more than the value: only the bytes of the value go along.
        return json_of, (self._value, self.raw, None, self.was_made)

    def __repr__(self) -> str:
        return f"Json({self.value!r})"


def _written(value: JsonValue) -> bytes:
    try:
        return dumps(value)
    except ValueError as exc:
        raise CannotEncode(f"data cannot be written as JSON: {exc}", where="data", why="RFC 8259") from exc


def json_of(
    value: JsonValue, raw: bytes | None, envelope: bytes | None, was_made: bool | None = None
) -> Json:
    """Take a value and the text that it was read from, or the object whose member `data` it is.

    Out of an envelope the bytes of the value are cut when they are asked for. With neither of the two the
    text was ambiguous, and the value is written anew.
    """
    found = new(Json)
    found._value = value
    found._raw = raw
    found._envelope = envelope
    found.was_made = raw is None and envelope is None if was_made is None else was_made
    return found


Data = Absent | bytes | Json
