"""The Cloud-Native event: spec 004's consumer API, every method of its Go interface in Python form.

An Event is an immutable view over path, headers and body, or over a CloudEvent. It changes nothing when it is
read: a missing event-id or created-at is added only by `Event.received`, at an entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, Unpack
from urllib.parse import SplitResult, urlsplit

from penstock.errors import InvalidEvent, UsageError
from penstock.events.body_decoders import DECODERS, BodyDecoders
from penstock.events.cloudevent import CloudEvent
from penstock.events.event_attributes import as_bytes, as_int, as_str, at, under
from penstock.events.event_headers import PREDEFINED, EventHeaders, HeaderField, HeaderInput, Provenance
from penstock.events.event_json import as_json
from penstock.events.event_mapping import cloudevent_of, foreign, headers_of, updated
from penstock.events.event_rules import findings
from penstock.events.event_type import SPLIT_HEADERS, EventType
from penstock.events.jsontext import copied
from penstock.events.reading import Finding, Level, Severity
from penstock.events.timestamp import read_timestamp, write_timestamp

__all__ = ["Event"]


_NO_HEADERS = EventHeaders()


class _View(NamedTuple):
    """The CloudEvent that an event shows, the headers beside it, and who answers for its attributes."""

    event: CloudEvent
    foreign: tuple[HeaderField, ...]
    by: Provenance
    known: int = 0
    """How many headers that makes, once they were asked for."""


class EventOptions(TypedDict, total=False):
    """What else an event may be made with; see `Event`."""

    attributes: Mapping[str, Any] | None
    source_address: str | None
    url: str | None
    decoders: BodyDecoders


class Event:
    """One event as a function sees it.

    >>> event = Event("orders", {"event-id": "7", "content-type": "application/json"}, b'{"total": 12}')
    >>> event.id, event.attribute_int("total")
    ('7', 12)
    """

    __slots__ = (
        "_arrived",
        "_body",
        "_decoded",
        "_decoders",
        "_given",
        "_headers",
        "_path",
        "_source_address",
        "_url",
        "_view",
    )

    def __init__(
        self,
        path: str = "",
        headers: HeaderInput | EventHeaders = (),
        body: bytes | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        arrived: datetime | None = None,
        source_address: str | None = None,
        url: str | None = None,
        decoders: BodyDecoders = DECODERS,
    ) -> None:
        """Make an event of a body or of structured attributes; `arrived` is the gateway's time."""
        if body is not None and attributes is not None:
            raise UsageError(
                "an event has a body or structured attributes, not both", why="spec 004, Event API"
            )
        if arrived is not None and arrived.utcoffset() is None:
            raise UsageError("the arrival time needs an offset from UTC", next="use datetime.now(UTC)")
        self._path = path
        self._headers: EventHeaders | None = (
            headers if isinstance(headers, EventHeaders) else EventHeaders.of(headers)
        )
        self._body = body
        self._given = None if attributes is None else MappingProxyType(dict(attributes))
        self._arrived = arrived
        self._source_address = source_address
        self._url = url
        self._decoders = decoders
        self._decoded: Mapping[str, Any] | None = self._given
        self._view: _View | None = None

    # Where events come from

    @classmethod
    def read(
        cls,
        path: str = "",
        headers: HeaderInput | EventHeaders = (),
        body: bytes | None = None,
        *,
        level: Level = Level.STRICT,
        arrived: datetime | None = None,
        **more: Unpack[EventOptions],
    ) -> Event:
        """Make an event and hold it against the rules: `strict` raises, the others leave it to `findings`."""
        return cls(path, headers, body, arrived=arrived, **more).checked(level)

    @classmethod
    def received(
        cls,
        path: str,
        headers: HeaderInput | EventHeaders = (),
        body: bytes | None = None,
        *,
        at: datetime,
        id: str,
        identity: str | None = None,
        by: Provenance = Provenance.GATEWAY,
        level: Level = Level.STRICT,
        **more: Unpack[EventOptions],
    ) -> Event:
        """Take an event in at an entry point: what is missing is appended, what is there is kept.

        `at` and `id` are used for created-at and event-id if the client gave none; `identity` is who the
        entry point authenticated, and is appended even if the client claims another one.
        """
        event = cls(path, headers, body, arrived=at, **more)
        # spec 004: "if a message doesn't contain a timestamp or an ID the gateway or invoker should add one".
        added = {"event-id": id, "created-at": write_timestamp(at)}
        missing = {name: text for name, text in added.items() if name not in event._fields}
        if identity is not None:
            missing["source-identity"] = identity
        return event.appended(missing, by=by).checked(level)

    @classmethod
    def from_cloudevent(
        cls,
        event: CloudEvent,
        *,
        path: str | None = None,
        headers: HeaderInput = (),
        by: Provenance = Provenance.CLIENT,
        arrived: datetime | None = None,
        source_address: str | None = None,
        decoders: BodyDecoders = DECODERS,
    ) -> Event:
        """View a CloudEvent; `headers` are the foreign ones of its record, the path defaults to its subject.

        `by` says who answers for the attributes: authid is an identity only if that is not the client.
        """
        path = (event.subject or "") if path is None else path
        shown = cls(path, _NO_HEADERS, event.data_bytes, arrived=arrived, source_address=source_address)
        shown._decoders = decoders
        shown._headers = None
        shown._view = _View(event, EventHeaders.of(headers, by).fields if headers else (), by)
        return shown

    @property
    def _fields(self) -> EventHeaders:
        """The headers; a view makes them when they are first asked for."""
        if self._headers is None:
            assert self._view is not None
            event, others, by, _ = self._view
            # The last one counts: a foreign header that is called `source` must not hide the event's.
            self._headers = EventHeaders(others).appended(headers_of(event), by)
            self._view = _View(event, others, by, len(self._headers.fields))
        return self._headers

    def _shown(self, attribute: str) -> str | None:
        """Give an attribute of the event that is shown, if that is all that a header would say."""
        text = self._view.event.get(attribute) if self._headers is None and self._view is not None else None
        return text if text is not None and text.isascii() else None

    def to_cloudevent(self, *, source: str | None = None) -> CloudEvent:
        """Give the event as a CloudEvent by the mapping table; `source` is used if no header names one."""
        if self._view is None:
            return cloudevent_of(self, source)
        if self._headers is None:
            return self._view.event
        return updated(self._view.event, Event("", EventHeaders(self._headers.fields[self._view.known :])))

    @property
    def is_view(self) -> bool:
        """Whether the event shows a CloudEvent."""
        return self._view is not None

    @property
    def foreign_headers(self) -> tuple[HeaderField, ...]:
        """The headers that no attribute of a CloudEvent carries, for the record beside it."""
        if self._view is None:
            return foreign(self._fields)
        if self._headers is None:
            return self._view.foreign
        return self._view.foreign + foreign(self._headers.fields[self._view.known :])

    def appended(self, headers: HeaderInput, *, by: Provenance) -> Event:
        """Give this event with more headers; one that spec 004 defines can be added, never replaced."""
        added = EventHeaders.of(headers, by)
        # A client's claim of an identity is not one: the gateway's own comes beside it.
        fixed = {name for name in PREDEFINED if name in self._fields} - {"source-identity"}
        if any(name in self._fields for name in SPLIT_HEADERS):
            fixed.add("event-type")
        taken = [field.name for field in added if field.name.lower() in fixed]
        if taken:
            raise UsageError(
                f"header {taken[0]} is there already",
                why="spec 004: header elements can be appended by the gateway and/or invoker",
            )
        copy = object.__new__(Event)
        for slot in Event.__slots__:
            setattr(copy, slot, getattr(self, slot))
        copy._headers = EventHeaders((*self._fields.fields, *added.fields))
        return copy

    # The rules

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every rule of spec 004 that the event breaks: the report of `lenient` and `forensic`."""
        return tuple(findings(self))

    def checked(self, level: Level = Level.STRICT) -> Event:
        """Give the event itself; at the level `strict`, raise InvalidEvent for the first broken rule."""
        if level is Level.STRICT:
            for finding in self.findings:
                if finding.severity is Severity.ERROR:
                    raise finding.error()
        return self

    # The consumer API

    @property
    def id(self) -> str | None:
        """GetID: unique ID of the event."""
        return self._shown("id") or self._fields.text("event-id")

    @property
    def event_type(self) -> EventType | None:
        """GetEventType: class, kind and apiVersion; None if the event says nothing about them."""
        text = self._fields.text("event-type")
        if text is not None:
            return EventType.parse(text)
        split = {part: self._fields.text(name) for name, part in SPLIT_HEADERS.items()}
        parts = {part: text for part, text in split.items() if text is not None}
        return EventType.of_parts(parts) if parts else None

    @property
    def source_address(self) -> str | None:
        """GetSourceAddress: host:port or topic/partition/offset; without them the `source` header."""
        return self._source_address or self.source

    @property
    def source_identity(self) -> str | None:
        """GetSourceIdentity: who the gateway or invoker authenticated; a client's own claim is not one."""
        return self._fields.trusted("source-identity")

    @property
    def content_type(self) -> str | None:
        """GetContentType: e.g. application/json."""
        return self._shown("datacontenttype") or self._fields.text("content-type")

    @property
    def body(self) -> bytes | None:
        """GetBody: content as received; None if the event has none."""
        return self._body

    def header(self, name: str) -> str | None:
        """GetHeader: one header as text, whatever the case of its name; None if absent."""
        return self._fields.text(name)

    def header_bytes(self, name: str) -> bytes | None:
        """Give one header as received; None if absent."""
        field = self._fields.get(name)
        return None if field is None else field.value

    def header_int(self, name: str) -> int | None:
        """Give one header as a number; None if absent, InvalidEvent if it is none."""
        return self._fields.integer(name)

    @property
    def headers(self) -> Mapping[str, str]:
        """GetHeaders: names in lower case to text; what is no text is only in `header_fields`."""
        return self._fields.texts()

    @property
    def header_fields(self) -> tuple[HeaderField, ...]:
        """Every header in order: repeated ones, nulls, bytes, and who appended it."""
        return self._fields.fields

    def provenance(self, name: str) -> Provenance | None:
        """Tell who put a header there; None if absent."""
        return self._fields.by(name)

    def attribute(self, key: str) -> Any:
        """GetAttribute: one attribute, or one inside another by `outer.inner`; None if absent."""
        return self._own(at(self._attributes(), key))

    def attribute_bytes(self, key: str) -> bytes | None:
        """GetAttributeByteSlice: bytes, or text as UTF-8; InvalidEvent for anything else."""
        return as_bytes(key, self.attribute(key))

    def attribute_str(self, key: str) -> str | None:
        """GetAttributeString: text; InvalidEvent for anything else."""
        return as_str(key, self.attribute(key))

    def attribute_int(self, key: str) -> int | None:
        """GetAttributeInt: a whole number, or text that is one (forms); InvalidEvent for anything else."""
        return as_int(key, self.attribute(key))

    def attributes(self, prefix: str = "") -> Mapping[str, Any]:
        """GetAttributes: all, or those under a branch: members of `prefix`, names that start with `prefix.`.

        They are given as structured attributes, or decoded from the body by its content type, once. To edit
        what was decoded changes nothing of the event.
        """
        found = under(self._attributes(), prefix) if prefix else self._attributes()
        if self._given is not None:
            return found
        return MappingProxyType({name: self._own(value) for name, value in found.items()})

    def _own(self, value: Any) -> Any:
        return value if self._given is not None else copied(value)

    def _attributes(self) -> Mapping[str, Any]:
        if self._decoded is None:
            self._decoded = self._decode()
        return self._decoded

    def _decode(self) -> Mapping[str, Any]:
        if self._body is None:
            return MappingProxyType({})
        return MappingProxyType(dict(self._decoders.decode(self._body, self.content_type)))

    @property
    def has_attributes(self) -> bool:
        """Whether the event came with structured attributes in place of a body."""
        return self._given is not None

    @property
    def timestamp(self) -> datetime | None:
        """GetTimestamp: created-at, else the time of arrival; None if neither is known."""
        text = self._fields.text("created-at")
        if text is None:
            return self._arrived
        try:
            return read_timestamp(text)
        except ValueError as exc:
            if self._arrived is not None:
                return self._arrived
            raise InvalidEvent(
                f"created-at is not a timestamp: {text!r:.60}", attribute="created-at", clause="RFC 3339"
            ) from exc

    @property
    def arrived(self) -> datetime | None:
        """When the gateway took the event in."""
        return self._arrived

    @property
    def path(self) -> str:
        """GetPath: the path of a request, or the topic."""
        return self._path

    @property
    def url(self) -> SplitResult | None:
        """GetURL: the URL of an HTTP request; None for anything else."""
        try:
            url = urlsplit(self._url or self._path)
            return url if url.scheme in ("http", "https") and url.hostname and url.port != 0 else None
        except ValueError:
            return None

    @property
    def given_address(self) -> str | None:
        """The address that the event was made with, without the `source` header in its place."""
        return self._source_address

    @property
    def given_url(self) -> str | None:
        """The URL that the event was made with, as text."""
        return self._url

    @property
    def method(self) -> str | None:
        """GetMethod: the HTTP or transport method."""
        return self._fields.text("method")

    def as_json(self) -> bytes:
        """AsJson: the event as one JSON object, for people and other programs; docs/events/event-api.md."""
        return as_json(self)

    # The other predefined headers

    @property
    def source(self) -> str | None:
        """The source resource which published the event."""
        return self._fields.text("source")

    @property
    def source_type(self) -> str | None:
        """The type of the event source."""
        return self._fields.text("source-type")

    @property
    def log_level(self) -> str | None:
        """The level of logging that the publisher wants for this event."""
        return self._fields.text("log-level")

    @property
    def receipt_queue(self) -> str | None:
        """Where a completion event is to be sent."""
        return self._fields.text("receipt-queue")

    def _identity(self) -> tuple[object, ...]:
        given = None if self._given is None else dict(self._given)
        origin = self._arrived, self._source_address, self._url
        return self._path, self._fields, self._body, given, origin

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._path, self._fields, self._body))

    def __getstate__(self) -> dict[str, Any]:
        """Give what the event was made of; attributes that were decoded from the body are decoded again."""
        state = {slot: getattr(self, slot) for slot in Event.__slots__}
        given = None if self._given is None else dict(self._given)
        return {**state, "_given": given, "_decoded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for slot, value in state.items():
            setattr(self, slot, value)
        if self._given is not None:
            self._given = self._decoded = MappingProxyType(dict(self._given))

    def __repr__(self) -> str:
        return f"Event({self._path!r}, {dict(self.headers)!r}, {self._body!r})"
