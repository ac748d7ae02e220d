"""The type of a Cloud-Native event: apiVersion, class and kind, in one header or in three (spec 004).

The specification names the three parts and leaves their spelling open. Ours is one header,
`event-type: apiVersion=v1;class=stream;kind=order.placed`; in a value `;`, `%`, control characters and spaces
at the ends are percent-encoded. Three split headers are read too, and a value without part names is the kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from penstock.errors import InvalidEvent

__all__ = ["LIST", "SPLIT_HEADERS", "EventType"]

LIST = "list"
"""The class of a list-typed event, whose body holds `records` (spec 004, Micro-Batch Considerations)."""

SPLIT_HEADERS = {
    "event-type-apiversion": "apiversion",
    "event-type-class": "class",
    "event-type-kind": "kind",
}
"""The three headers that are read in place of one, and the part that each holds."""

_CLAUSE = "spec 004, event-type"
_RESERVED = re.compile(r"[;%\x00-\x1f\x7f]|\A\s|\s\Z")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """What an event is an event of; only the kind is always there.

    >>> EventType.parse("apiVersion=shop/v1; class=async; kind=order.placed")
    EventType(api_version='shop/v1', class_='async', kind='order.placed')
    >>> str(EventType(kind="a;b"))
    'kind=a%3Bb'
    """

    api_version: str | None = None
    class_: str | None = None
    kind: str

    @property
    def is_list(self) -> bool:
        """Whether the event holds a list of records."""
        return self.class_ == LIST

    @classmethod
    def parse(cls, text: str) -> EventType:
        """Read the one-header form; InvalidEvent says which part is wrong."""
        if "=" not in text:
            return cls.of_parts({"kind": _unescaped(text.strip())})
        parts: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            name, _, value = part.partition("=")
            if name.strip().lower() in parts:
                raise _invalid(f"event-type has two parts {name.strip()!r:.40}")
            parts[name.strip().lower()] = _unescaped(value.strip())
        return cls.of_parts(parts)

    @classmethod
    def of_parts(cls, parts: dict[str, str]) -> EventType:
        """Make a type of parts named apiversion, class and kind."""
        unknown = parts.keys() - {"apiversion", "class", "kind"}
        if unknown:
            raise _invalid(f"event-type has an unknown part {min(unknown)!r:.40}")
        if not parts.get("kind"):
            raise _invalid("event-type has no kind")
        return cls(
            api_version=parts.get("apiversion") or None, class_=parts.get("class") or None, kind=parts["kind"]
        )

    def __str__(self) -> str:
        """Write the one-header form."""
        parts = {"apiVersion": self.api_version, "class": self.class_, "kind": self.kind}
        return ";".join(f"{name}={_escaped(value)}" for name, value in parts.items() if value)


def _invalid(what: str) -> InvalidEvent:
    return InvalidEvent(
        what,
        attribute="event-type",
        clause=_CLAUSE,
        fix="send event-type: apiVersion=...;class=...;kind=...",
    )


def _unescaped(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise _invalid(f"event-type has a broken escape in {text!r:.60}")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError as exc:
        raise _invalid(f"event-type does not decode as UTF-8: {text!r:.60}") from exc


def _escaped(text: str) -> str:
    return _RESERVED.sub(lambda match: quote(match[0], safe=""), text)
