"""The headers of a Cloud-Native event: an ordered list that remembers who appended each (spec 004).

"Headers are optional, header elements can be added by the gateway and/or by the function invoker."
Names are compared without case; of several equal ones the last counts, and all are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from penstock.errors import InvalidEvent

__all__ = ["PREDEFINED", "EventHeaders", "HeaderField", "HeaderInput", "Provenance"]

PREDEFINED = (
    "event-id",
    "event-type",
    "content-type",
    "created-at",
    "source",
    "source-identity",
    "source-type",
    "method",
    "log-level",
    "receipt-queue",
)
"""The headers that spec 004 defines, in its order."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class Provenance(StrEnum):
    """Who put a header there."""

    CLIENT = "client"
    GATEWAY = "gateway"
    INVOKER = "invoker"


@dataclass(frozen=True, slots=True)
class HeaderField:
    """One header as received; the value may be bytes that are no text, or null as Kafka allows."""

    name: str
    value: bytes | None
    by: Provenance = Provenance.CLIENT

    @property
    def text(self) -> str | None:
        """The value as UTF-8 text; InvalidEvent if it is none."""
        if self.value is None:
            return None
        try:
            return self.value.decode()
        except UnicodeDecodeError as exc:
            raise InvalidEvent(
                f"header {self.name!r:.60} is not UTF-8",
                attribute=self.name,
                clause="spec 004, headers: map[string]string",
                fix="read it with header_bytes",
            ) from exc


HeaderInput = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
"""What a caller may give as headers."""


class EventHeaders:
    """An immutable list of header fields with lookup by name.

    >>> headers = EventHeaders.of({"Event-Id": "7"}).appended([("created-at", "2031-01-01T00:00:00Z")],
    ...     by=Provenance.GATEWAY)
    >>> headers.text("event-id"), headers.by("created-at")
    ('7', <Provenance.GATEWAY: 'gateway'>)
    """

    __slots__ = ("_last", "fields")
    fields: tuple[HeaderField, ...]
    _last: dict[str, HeaderField]

    def __init__(self, fields: Iterable[HeaderField] = ()) -> None:
        self.fields = tuple(fields)
        # A null is no value: it does not hide the one before it.
        self._last = {field.name.lower(): field for field in self.fields if field.value is not None}

    @classmethod
    def of(cls, headers: HeaderInput, by: Provenance = Provenance.CLIENT) -> EventHeaders:
        """Make headers of a mapping or of pairs; text becomes UTF-8."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return cls(HeaderField(name, _bytes(value), by) for name, value in pairs)

    def appended(self, headers: HeaderInput, by: Provenance) -> EventHeaders:
        """Give these headers and some more at the end; nothing is replaced."""
        return EventHeaders((*self.fields, *EventHeaders.of(headers, by).fields))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._last

    def __iter__(self) -> Iterator[HeaderField]:
        return iter(self.fields)

    def get(self, name: str) -> HeaderField | None:
        """Give the field that counts, or None."""
        return self._last.get(name.lower())

    def by(self, name: str) -> Provenance | None:
        """Tell who appended the field that counts."""
        field = self.get(name)
        return None if field is None else field.by

    def text(self, name: str) -> str | None:
        """Give a value as text; None if absent, InvalidEvent if it is no UTF-8."""
        field = self.get(name)
        return None if field is None else field.text

    def texts(self) -> Mapping[str, str]:
        """Give all that is text, by name in lower case."""
        texts: dict[str, str] = {}
        for name, field in self._last.items():
            with suppress(InvalidEvent):
                texts[name] = field.text or ""
        return MappingProxyType(texts)

    def integer(self, name: str) -> int | None:
        """Give a value as a number; None if absent, InvalidEvent if it is none."""
        text = self.text(name)
        if text is None:
            return None
        if _INTEGER.fullmatch(text):
            return int(text)
        raise InvalidEvent(
            f"header {name} is not an integer: {text!r:.60}",
            attribute=name,
            clause="decimal digits with an optional sign",
            fix="read it with header()",
        )

    def trusted(self, name: str) -> str | None:
        """Give the last value that did not come from the client."""
        texts = [f.text for f in self.fields if f.name.lower() == name and f.by is not Provenance.CLIENT]
        return texts[-1] if texts else None

    def __eq__(self, other: object) -> bool:
        return self.fields == other.fields if isinstance(other, EventHeaders) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return f"EventHeaders({self.fields!r})"


def _bytes(value: str | bytes | None) -> bytes | None:
    # An unpaired surrogate becomes bytes that are no UTF-8: reading headers never raises, reading text may.
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
