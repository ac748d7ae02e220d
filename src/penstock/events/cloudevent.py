"""One CloudEvent 1.0: attributes as text, data, and typed views that are read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType

from penstock.errors import InternalError, InvalidEvent, PenstockError, UsageError
from penstock.events.content import Absent, Data, Json, absent, parse_json
from penstock.events.jsontext import JsonValue
from penstock.events.media import is_json
from penstock.events.reading import Severity
from penstock.events.rules import CORE, findings
from penstock.events.shapes import index_of
from penstock.events.timestamp import read_nanoseconds
from penstock.events.types import AttributeType, AttributeValue, canonical, native

__all__ = ["NO_TYPES", "CloudEvent", "Types", "shaped", "with_data"]

Types = Mapping[str, AttributeType]
NO_TYPES: Types = MappingProxyType({})
new = object.__new__
from_iso = datetime.fromisoformat


class CloudEvent:
    """An immutable event; every rule of core holds for one that was made by calling the class.

    Attributes may be given as text or as native values, which declare their type:

    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed", "retries": 5})
    >>> event.attributes["retries"], event.integer("retries"), event.data
    ('5', 5, absent)

    A reader at the level `lenient` may give an event that breaks rules; its report says which.
    """

    __slots__ = ("_data", "_index", "_sound", "_texts", "_types")
    _index: Mapping[str, int]
    """Where in `_texts` an attribute stands; shared by all events whose names came in the same order."""
    _texts: tuple[str, ...]
    _types: Types
    _data: Data
    _sound: bool
    """Whether the rules of core are known to hold."""

    def __init__(self, attributes: Mapping[str, AttributeValue], data: Data = absent) -> None:
        texts, types = _canonical(attributes)
        index = index_of(texts)
        if index is None:
            raise _refusal(texts, types)
        if type(data) is not bytes:
            _check_data(data, texts.get("datacontenttype"))
        self._index = index
        self._texts = tuple(texts.values())
        self._types = types
        self._data = data
        self._sound = True

    @classmethod
    def unchecked(
        cls,
        attributes: Mapping[str, str],
        data: Data = absent,
        types: Types | None = NO_TYPES,
        sound: bool = True,
    ) -> CloudEvent:
        """Make an event of values that the caller has checked; `types` are those of its extensions.

        `sound` says that every rule of core holds; a lenient reader may give an event that is not.
        """
        index = {name: at for at, name in enumerate(attributes)}
        return shaped(index, tuple(attributes.values()), data, NO_TYPES if types is None else types, sound)

    @property
    def attributes(self) -> Mapping[str, str]:
        """Every attribute as canonical text, in the order received; a mapping of its own."""
        return dict(zip(self._index, self._texts, strict=True))

    @property
    def types(self) -> Types:
        """The declared types of extensions that are not Strings."""
        return self._types

    @property
    def extensions(self) -> Mapping[str, str]:
        """The attributes that core does not define, as text."""
        return {name: text for name, text in self.attributes.items() if name not in CORE}

    @property
    def id(self) -> str:
        """The event's id, unique for its source."""
        return self._texts[self._index["id"]]

    @property
    def source(self) -> str:
        """Where the event happened, a URI-reference."""
        return self._texts[self._index["source"]]

    @property
    def type(self) -> str:
        """What happened."""
        return self._texts[self._index["type"]]

    @property
    def specversion(self) -> str:
        """Always 1.0: other versions are converted when they are read."""
        return self._texts[self._index["specversion"]]

    @property
    def subject(self) -> str | None:
        """What it happened to, in the context of the source."""
        at = self._index.get("subject")
        return None if at is None else self._texts[at]

    @property
    def datacontenttype(self) -> str | None:
        """The media type of the data."""
        return self.get("datacontenttype")

    @property
    def dataschema(self) -> str | None:
        """The schema of the data, an absolute URI."""
        return self.get("dataschema")

    @property
    def time(self) -> datetime | None:
        """When it happened; microseconds at most, the text is in `attributes`."""
        try:
            if self._sound:  # RFC 3339 is known to hold, of which this reads all but leap seconds and `z`
                return from_iso(self._texts[self._index["time"]])
        except (KeyError, ValueError):
            pass
        return self.timestamp("time")

    @property
    def time_ns(self) -> int | None:
        """When it happened, in nanoseconds since the epoch."""
        text = self.get("time")
        try:
            return None if text is None else read_nanoseconds(text)
        except ValueError as exc:
            raise InvalidEvent(f"time: {exc}", attribute="time", clause="RFC 3339") from exc

    @property
    def data(self) -> Data:
        """`absent`, bytes, or a `Json` value."""
        return self._data

    def get(self, name: str) -> str | None:
        """Give one attribute as text; None if the event does not have it."""
        at = self._index.get(name)
        return None if at is None else self._texts[at]

    def value(self, name: str) -> AttributeValue | None:
        """Give one attribute as the type that core or its producer declares."""
        text = self.get(name)
        if text is None:
            return None
        return native(name, text, CORE.get(name) or self._types.get(name, AttributeType.STRING))

    def integer(self, name: str) -> int | None:
        """Read one attribute as an Integer; None if absent, InvalidEvent if it is none."""
        value = self._as(name, AttributeType.INTEGER)
        return value if isinstance(value, int) else None

    def boolean(self, name: str) -> bool | None:
        """Read one attribute as a Boolean; None if absent, InvalidEvent if it is none."""
        value = self._as(name, AttributeType.BOOLEAN)
        return value if isinstance(value, bool) else None

    def binary(self, name: str) -> bytes | None:
        """Read one attribute as Binary; None if absent, InvalidEvent if it is no base64."""
        value = self._as(name, AttributeType.BINARY)
        return value if isinstance(value, bytes) else None

    def timestamp(self, name: str) -> datetime | None:
        """Read one attribute as a Timestamp; None if absent, InvalidEvent if it is none."""
        value = self._as(name, AttributeType.TIMESTAMP)
        return value if isinstance(value, datetime) else None

    def _as(self, name: str, kind: AttributeType) -> AttributeValue | None:
        text = self.get(name)
        return None if text is None else native(name, text, kind)

    @property
    def data_bytes(self) -> bytes | None:
        """The data as bytes, JSON as its text; None if there is no data."""
        data = self._data
        if type(data) is bytes:
            return data
        return data.raw if isinstance(data, Json) else None

    @property
    def has_json(self) -> bool:
        """Whether the data is JSON by its form or by its content type."""
        if isinstance(self._data, Json):
            return True
        media_type = self.get("datacontenttype")
        return self._data is not absent and media_type is not None and is_json(media_type)

    def json(self) -> JsonValue:
        """Give the data as a JSON value; InvalidEvent if it is no JSON or absent.

        Each call gives a value of its own, so keep it: to edit it changes nothing of the event.
        """
        data = self._data
        if type(data) is Json:
            return data.value
        media_type = self.get("datacontenttype")
        if type(data) is bytes and media_type is not None and is_json(media_type):
            return parse_json(data)
        raise InvalidEvent(
            "the event's data is not JSON", attribute="data", clause="JSON format 3.1.1", fix="use data_bytes"
        )

    def replace(
        self, attributes: Mapping[str, AttributeValue | None] | None = None, data: Data | None = None
    ) -> CloudEvent:
        """Give a new event with some attributes changed, removed (None) or added, or other data."""
        changed: dict[str, AttributeValue] = {}
        for name, text in self.attributes.items():
            changed[name] = (
                text if name in CORE else native(name, text, self._types.get(name, AttributeType.STRING))
            )
        for name, value in (attributes or {}).items():
            changed.pop(name, None) if value is None else changed.__setitem__(name, value)
        return CloudEvent(changed, self._data if data is None else data)

    def _identity(self) -> tuple[object, ...]:
        data: object = self._data
        if isinstance(data, bytes) and self.has_json:
            with suppress(InvalidEvent):
                data = Json.parse(data)
        return self.attributes, dict(self._types), data

    def __eq__(self, other: object) -> bool:
        """Compare attributes, types and data; JSON data is compared as a value."""
        return self._identity() == other._identity() if isinstance(other, CloudEvent) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.get("source"), self.get("id")))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy what the event says; what was derived from it is derived again."""
        return CloudEvent.unchecked, (self.attributes, self._data, dict(self._types) or None, self._sound)

    def __repr__(self) -> str:
        return f"CloudEvent({self.attributes!r}, {self._data!r})"


def shaped(
    index: Mapping[str, int],
    texts: tuple[str, ...],
    data: Data,
    types: Types = NO_TYPES,
    sound: bool = True,
) -> CloudEvent:
    """Make an event as `unchecked` does, of an index of names and the texts in its order; the fastest way."""
    event = new(CloudEvent)
    event._index = index
    event._texts = texts
    event._types = types
    event._data = data
    event._sound = sound
    return event


def with_data(event: CloudEvent, data: Data) -> CloudEvent:
    """Return an event with other data and the same attributes; the caller has checked that it may."""
    return shaped(event._index, event._texts, data, event._types, event._sound)


def _canonical(attributes: Mapping[str, AttributeValue]) -> tuple[dict[str, str], Types]:
    """Give canonical text for every value, and the types that native values declare."""
    texts: dict[str, str] = {}
    types: dict[str, AttributeType] = {}
    for name, value in attributes.items():
        if type(value) is str:
            texts[name] = value
        else:
            texts[name], kind = canonical(name, value)
            if kind is AttributeType.STRING:
                continue
            if CORE.get(name, kind) is not kind:
                raise InvalidEvent(
                    f"{name} is a {CORE[name].value}, not a {kind.value}",
                    attribute=name,
                    clause=f"core, {name}",
                )
            if name not in CORE:
                types[name] = kind
    texts.setdefault("specversion", "1.0")
    return texts, types or NO_TYPES


def _check_data(data: object, media_type: str | None) -> None:
    if not isinstance(data, (Json, Absent)):
        raise UsageError(
            f"data cannot be a {type(data).__name__}", next="give bytes, Json(value), or leave it out"
        )
    if isinstance(data, Json) and media_type is not None and not is_json(media_type):
        # JSON format 3.1.2: a JSON value cannot be data of another media type.
        raise InvalidEvent(
            f"data is a JSON value, but datacontenttype is {media_type}",
            attribute="datacontenttype",
            clause="JSON format 3.1.2",
            fix="give the data as bytes",
        )


def _refusal(texts: Mapping[str, str], types: Types) -> PenstockError:
    errors = (each.error() for each in findings(texts, types) if each.severity is not Severity.WARNING)
    return next(errors, InternalError("an event was refused without a reason"))
