"""The Kafka protocol binding for CloudEvents (1.0.3, spec 000): records to events and back.

Decisions where the binding is silent (rows 59 to 64 of the behaviour list): header names are exact
at the level `strict`; `lenient` also takes other cases, never two spellings of one; a repeated
header is refused by `strict`, the last one wins in `lenient`; a null header is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from penstock.errors import (
    CannotEncode,
    EventError,
    InternalError,
    InvalidEvent,
    NotACloudEvent,
    UsageError,
)
from penstock.events.bindings.key import KeyMapper, as_bytes
from penstock.events.cloudevent import CloudEvent, shaped
from penstock.events.content import Json, absent
from penstock.events.draft import Draft, conclude, failed
from penstock.events.formats import FORMATS, Formats
from penstock.events.formats.json import looks_like_event
from penstock.events.headers import (
    CONTENT_TYPE,
    DASH,
    PREFIX,
    header_of,
    known,
    read_headers,
    without_repeated,
    written,
)
from penstock.events.media import LONGEST_KEPT, is_batch, is_cloudevents
from penstock.events.reading import Finding, Level, Mode, Reading, Severity
from penstock.events.rules import is_sound
from penstock.events.shapes import Shapes
from penstock.events.types import AttributeType
from penstock.record import Header, Headers, KafkaRecord

__all__ = ["KafkaBinding", "event_of"]

_MEMORY = 512
_BINARY = Mode.BINARY
_MARKED = (CONTENT_TYPE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBinding:
    """Reads and writes events as Kafka records.

    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed"})
    >>> record = KafkaBinding().encode(event, key=b"customer-7")
    >>> record.headers[0], record.value
    (('ce_id', b'1'), None)
    >>> KafkaBinding().decode(record) == event
    True
    """

    mode: Mode = Mode.BINARY
    format: str = "json"
    """The event format of structured mode."""
    key_mapper: KeyMapper | None = None
    """Asked for a key when the caller gives none."""
    repeat_headers: bool = False
    """Structured mode also writes the headers of binary mode (3.3.3)."""
    target_has_headers: bool = True
    """False for brokers before 0.11 and for clients without headers."""
    dash: bool = False
    """Also read `ce-` names, which one SDK wrote until 2024."""
    sniff: bool = False
    """Take a JSON object that looks like an event as one, without any header of ours (1.3, 3.3.1)."""
    types: Mapping[str, AttributeType] = field(default_factory=dict, hash=False)
    """Declared types of extensions, because headers carry text only."""
    formats: Formats = FORMATS

    def decode(self, record: KafkaRecord) -> CloudEvent:
        """Read one record at the level `strict`."""
        try:
            names, raws = zip(*record.headers)  # noqa: B905 - pairs
            shape = _shape_of(names)
            if shape is not None:
                own = raws if shape.pick is None else shape.pick(raws)
                match = shape.match(b"\n".join(own).decode())  # no valid value holds a line break
                if match is not None and not self.types:
                    texts = match.groups()
                    if shape.content_type is None or texts[shape.content_type] in _opaque:
                        value = record.value
                        return shaped(shape.index, texts, absent if value is None else value)
            elif names == _MARKED:
                event_format = self.formats.by_marker.get(raws[0])
                if event_format is not None and record.value is not None:
                    return event_format.decode(record.value)
        except (ValueError, TypeError):
            pass  # no headers, a null, not UTF-8: the next way finds out
        event = self._plain(record)
        return event if event is not None else event_of(self.read(record))

    def read(self, record: KafkaRecord, level: Level = Level.STRICT) -> Reading:
        """Read one record at any level."""
        try:
            exact = self._content_types(record, Level.STRICT)
            media_types = exact or self._content_types(record, level)
            # Lenient takes the last one of several.
            media_type = media_types[-1] if media_types else ""
            if is_batch(media_type):
                # Kafka 1.3: "does not currently support the batch content mode".
                raise InvalidEvent("a batch cannot be read from Kafka", clause="Kafka 1.3")
            # Kafka 3: structured if content-type is prefixed with application/cloudevents.
            if not is_cloudevents(media_type):
                return conclude(self._binary(record, level), level)
            draft = self._structured(record, media_type)
            if not exact:
                draft.report("content-type is spelled in another case", None, "Kafka 3.2.3.1")
            if len(media_types) > 1:
                what = f"header {CONTENT_TYPE} is repeated"
                draft.report(what, "datacontenttype", "core, Context Attributes", fix="send it once")
            return conclude(draft, level)
        except EventError as error:
            return failed(error, level)

    def foreign(self, record: KafkaRecord, level: Level = Level.STRICT) -> Headers:
        """Give the headers that belong to the application, in order, repeated and null ones included.

        Names in another spelling that a level reads as ours are ours at that level.
        """
        return tuple(header for header in record.headers if not self.is_own(header[0], level))

    def is_own(self, name: str, level: Level = Level.STRICT) -> bool:
        """Say whether a header of this name belongs to the binding at a level."""
        spelled = name if level is Level.STRICT else name.lower()
        return spelled == CONTENT_TYPE or spelled.startswith((PREFIX, DASH) if self.dash else PREFIX)

    def encode(
        self, event: CloudEvent, *, key: bytes | str | None = None, headers: Iterable[Header] = ()
    ) -> KafkaRecord:
        """Write one event; `key` and foreign `headers`, pairs of name and bytes or None, travel beside it."""
        # Kafka 3.1: the key of the user by default; a mapper is opt-in and does not change the event.
        if key is None and self.key_mapper is not None:
            key = self.key_mapper(event)
        encode = _encode_binary if self.mode is _BINARY else _ENCODERS[self.mode]
        value, own = encode(self, event)
        if headers:
            own += headers if type(headers) is tuple else _pairs(headers)
        return KafkaRecord(value=value, key=key if key is None else as_bytes(key), headers=own)

    def _plain(self, record: KafkaRecord) -> CloudEvent | None:
        """Read a record in which all is plain and valid; None sends it the thorough way."""
        attributes = _collect(record.headers)
        if attributes is None:
            headers = without_repeated(record.headers) or record.headers
            attributes = _collect(tuple(h for h in headers if known.get(h[0], "") is not None))
            if attributes is None:
                return None
        value = record.value
        media_type = attributes.get("datacontenttype")
        if media_type is not None and is_cloudevents(media_type):
            if value is None or is_batch(media_type):
                return None
            return self.formats.marked(media_type, record).decode(value)
        if self.types or not is_sound(attributes):
            return None
        _shapes.meet(tuple(name for name, _ in record.headers))
        _learn_opaque(media_type)
        return CloudEvent.unchecked(attributes, absent if value is None else value)

    def _content_types(self, record: KafkaRecord, level: Level) -> list[str]:
        exact = level is Level.STRICT
        return [
            raw.decode("utf-8", "replace")
            for name, raw in record.headers
            if (name if exact else name.lower()) == CONTENT_TYPE and raw is not None
        ]

    def _structured(self, record: KafkaRecord, media_type: str) -> Draft:
        event_format = self.formats.get(media_type, record)
        if record.value is None:
            # Kafka 3.3.2: in structured mode the message "still has a data section".
            raise InvalidEvent("a structured event has no value", attribute="data", clause="Kafka 3.3.2")
        draft = event_format.draft(record.value)
        draft.mode = Mode.STRUCTURED
        draft.findings.extend(self._mismatches(record, draft))
        return draft

    def _mismatches(self, record: KafkaRecord, draft: Draft) -> list[Finding]:
        """Compare repeated headers (3.3.3) with the payload, which wins."""
        found = []
        for name, raw in record.headers:
            attribute = name[len(PREFIX) :] if name.startswith(PREFIX) else None
            if attribute is None or raw is None:
                continue
            if draft.attributes.get(attribute, "").encode("utf-8", "replace") != raw:
                what = f"header {name} differs from the event in the value; the value is taken"
                found.append(Finding(what, attribute, "Kafka 3.3.3", severity=Severity.WARNING))
        return found

    def _binary(self, record: KafkaRecord, level: Level) -> Draft:
        draft = Draft(data=absent if record.value is None else record.value)
        claimed = read_headers(draft, record.headers, dash=self.dash, lenient=level is not Level.STRICT)
        if not claimed and self.sniff and record.value and looks_like_event(record.value):
            draft = self.formats.named("json").draft(record.value)
            draft.mode = Mode.STRUCTURED
            return draft
        if not claimed:
            raise NotACloudEvent(
                "the record has no CloudEvents header and no CloudEvents content-type",
                why="Kafka 3",
                next="treat it as a plain record",
            )
        draft.types = {name: kind for name, kind in self.types.items() if name in draft.attributes}
        return draft


_shapes = Shapes(lambda name: known.get(name, ""))
_shape_of = _shapes.by_names.get
_opaque: set[str | None] = {None}
"""Valid content types of binary mode seen so far; bounded, because they come from outside."""


def _pairs(headers: Iterable[Header]) -> Headers:
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        match pair:
            case (str(), bytes() | None):
                continue
            case _:
                raise UsageError(
                    f"{pair!r:.60} is not a header", next="give pairs of a name and bytes or None"
                )
    return pairs


def _learn_opaque(media_type: str | None) -> None:
    if len(media_type or "") <= LONGEST_KEPT and len(_opaque) < _MEMORY:
        _opaque.add(media_type)


def _collect(headers: Headers) -> dict[str, str] | None:
    """Give attributes if every header is known, ours, text and there once."""
    attributes: dict[str | None, str] = {}
    try:
        for name, raw in headers:
            attributes[known[name]] = raw.decode()  # type: ignore[union-attr]
    except (KeyError, AttributeError, UnicodeDecodeError):
        return None
    plain = len(attributes) == len(headers) and None not in attributes
    return cast("dict[str, str]", attributes) if plain else None


def event_of(reading: Reading) -> CloudEvent:
    """Give the event of a strict reading, which has one."""
    if reading.event is None:
        raise InternalError("a strict reading ended without an event")
    return reading.event


def _encode_binary(binding: KafkaBinding, event: CloudEvent) -> tuple[bytes | None, Headers]:
    if not binding.target_has_headers:
        raise CannotEncode(
            "binary mode needs record headers, which the target does not have",
            why="Kafka 1.3: 0.10 and below MUST only use structured mode",
            next="use structured mode",
        )
    data = event._data
    # Kafka 3.2.2: the bytes of data are the value; no data is no value.
    return data.raw if type(data) is Json else event.data_bytes, _headers(event)


def _headers(event: CloudEvent) -> Headers:
    pairs = zip(event._index, event._texts)  # noqa: B905 - one text for each name
    try:
        headers = [(written[name], text.encode()) for name, text in pairs]
    except KeyError:
        headers = [(header_of(name), text.encode()) for name, text in event.attributes.items()]
    if "datacontenttype" not in event._index and isinstance(event._data, Json):
        # JSON format 3.1.2: an implied application/json is made explicit.
        headers.append((CONTENT_TYPE, b"application/json"))
    return tuple(headers)


def _encode_structured(binding: KafkaBinding, event: CloudEvent) -> tuple[bytes, Headers]:
    event_format = binding.formats.named(binding.format)
    if not binding.target_has_headers:  # Kafka 3.3.1: content-type only "if present"
        return event_format.encode(event), ()
    marker: Headers = ((CONTENT_TYPE, event_format.marker),)
    if binding.repeat_headers:
        marker += tuple(header for header in _headers(event) if header[0] != CONTENT_TYPE)
    return event_format.encode(event), marker


def _refuse_batch(binding: KafkaBinding, event: CloudEvent) -> tuple[bytes | None, Headers]:
    raise CannotEncode("Kafka has no batch mode", why="Kafka 1.3", next="use binary or structured mode")


_ENCODERS: Mapping[Mode, Callable[[KafkaBinding, CloudEvent], tuple[bytes | None, Headers]]] = {
    Mode.BINARY: _encode_binary,
    Mode.STRUCTURED: _encode_structured,
    Mode.BATCH: _refuse_batch,
}
