"""The Pulsar binding for CloudEvents: profile 0.1 (spec 002) and profile 1.0 (Kafka's names).

The reader recognises by itself what a message is (A16): `CE-*` of 0.1, `CE-*` of 1.0, `ce_*`, and
structured by its marker; values that pulsar-io-kafka copied in base64 (A17) and structured JSON
without any marker (A8) only where asked for. No data is a null payload, which is not an empty one (A11).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from penstock.errors import CannotEncode, EventError, InvalidEvent, NotACloudEvent, UsageError
from penstock.events import headers as names
from penstock.events.bindings.kafka import KafkaBinding, event_of
from penstock.events.bindings.key import Key, KeyMapper, checked
from penstock.events.bindings.properties import PREFIX, Values, read_properties, write_properties
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Json, absent, json_of
from penstock.events.draft import Draft, conclude, failed
from penstock.events.formats import FORMATS, Formats
from penstock.events.formats.json import fill, looks_like_event, parse_envelope
from penstock.events.media import is_batch, is_cloudevents
from penstock.events.reading import Level, Mode, Reading
from penstock.events.types import AttributeType, read_base64
from penstock.events.v01 import decode_json, downgrade, encode_json, upgrade
from penstock.record import KafkaRecord, Properties, PulsarMessage

__all__ = ["Profile", "PulsarBinding", "Values", "is_own", "key_bytes"]

MARKER = "CE-ContentType"
_MARKERS_ANY_CASE = {name.lower(): name for name in (MARKER, names.CONTENT_TYPE)}
_VERSION_01, _VERSION_10 = "ce-cloudeventsversion", "ce-specversion"


class Profile(Enum):
    """Which names and which version of CloudEvents a writer uses."""

    V0_1 = "0.1"
    V1_0 = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarBinding:
    """Reads and writes events as Pulsar messages.

    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed"})
    >>> message = PulsarBinding().encode(event)
    >>> dict(message.properties)["CE-EventType"], message.payload
    ('order.placed', None)
    >>> PulsarBinding().decode(message) == event
    True
    """

    profile: Profile = Profile.V0_1
    mode: Mode = Mode.BINARY
    format: str = "json"
    """The event format of structured mode; profile 0.1 has JSON only."""
    values: Values = Values.AUTO
    key_mapper: KeyMapper | None = None
    """Asked for a key when the caller gives none (A12)."""
    mirror_time: bool = False
    """Also write `time` as the message's event time (A13)."""
    repeat_properties: bool = False
    """Structured mode also writes the properties of binary mode (3.2.2)."""
    keep_case: bool = False
    """Keep the case of 0.1 extension names in the extension `extensionnames`."""
    bridged: bool = False
    """Values of `ce_*` are base64, as pulsar-io-kafka copies them (A17)."""
    sniff: bool = False
    """Take a JSON object that looks like an event as one, without any property (A8)."""
    types: Mapping[str, AttributeType] = field(default_factory=dict, hash=False)
    """Declared types of extensions in profile 1.0, whose properties carry text only."""
    formats: Formats = FORMATS

    def decode(self, message: PulsarMessage) -> CloudEvent:
        """Read one message at the level `strict`."""
        return event_of(self.read(message))

    def read(self, message: PulsarMessage, level: Level = Level.STRICT) -> Reading:
        """Read one message at any level."""
        try:
            exact = _markers(message.properties, Level.STRICT)
            markers = exact or _markers(message.properties, level)
            if markers:
                draft = self._structured(message, markers[0])
                if not exact:
                    draft.report("the content type is spelled in another case", None, "spec 002 3.1.2.1")
                if len(set(markers)) > 1:
                    # A15: strict minds what is said twice, and not in the same way.
                    draft.report("two properties say the content type", None, "spec 002 3")
                return conclude(draft, level)
            return self._unmarked(message, level)
        except EventError as error:
            return failed(error, level)

    def foreign(self, message: PulsarMessage, level: Level = Level.STRICT) -> Properties:
        """Give the properties that belong to the application, in order.

        Names in another case that a level reads as ours are ours at that level.
        """
        return tuple(item for item in message.properties if not is_own(item[0], level))

    def encode(
        self,
        event: CloudEvent,
        *,
        key: Key = None,
        ordering_key: bytes | None = None,
        properties: Iterable[tuple[str, str]] = (),
    ) -> PulsarMessage:
        """Write one event; keys and foreign `properties` travel beside it."""
        if key is None and self.key_mapper is not None:
            key = self.key_mapper(event)
        key = checked(key)
        payload, own = _ENCODERS[self.profile, self.mode](self, event)
        nanoseconds = event.time_ns if self.mirror_time else None
        return PulsarMessage(
            payload=payload,
            # A12: Pulsar's key is text; bytes are written in base64 and flagged.
            key=base64.b64encode(key).decode() if isinstance(key, bytes) else key,
            key_is_base64=isinstance(key, bytes),
            ordering_key=ordering_key,
            properties=own + (properties if type(properties) is tuple else _pairs(properties)),
            event_time=None if nanoseconds is None else nanoseconds // 10**6,
        )

    def _structured(self, message: PulsarMessage, media_type: str) -> Draft:
        if is_batch(media_type):  # A18
            raise InvalidEvent("a batch cannot be read from Pulsar", clause="spec 002 1.3")
        event_format = self.formats.get(media_type, message)
        if not message.payload:
            raise InvalidEvent("a structured event has no payload", attribute="data", clause="spec 002 3.2.1")
        draft = (
            self._json(message.payload)
            if event_format.name == "json"
            else event_format.draft(message.payload)
        )
        draft.mode = Mode.STRUCTURED
        return draft

    def _json(self, payload: bytes) -> Draft:
        """Read a JSON event of 0.1 or of 1.0, whichever it says it is."""
        draft = Draft()
        envelope, members = parse_envelope(payload, draft)
        if not isinstance(members, dict):
            raise InvalidEvent("the event is not a JSON object", clause="JSON format 3")
        json_data = partial(json_of, raw=None, envelope=envelope)
        if "cloudEventsVersion" in members:
            decode_json(members, json_data, draft, keep_case=self.keep_case)
        else:
            fill(draft, members, json_data)
        return draft

    def _unmarked(self, message: PulsarMessage, level: Level) -> Reading:
        spelled = [name for name, _ in message.properties]
        exact = level is Level.STRICT
        dashed = {n.lower() for n in spelled if (n if exact else n.upper()).startswith(PREFIX)}
        scored = any(name.startswith(names.PREFIX) for name in spelled)
        if not dashed and not scored:
            return conclude(self._sniffed(message), level)
        if dashed and scored and exact:
            # A19: no mixture of prefixes in one message.
            raise InvalidEvent("CE-* and ce_* properties are mixed", clause="spec 002 3.1.2.1 (A19)")
        if _VERSION_01 in dashed or not (scored or _VERSION_10 in dashed):
            return conclude(self._properties_01(message, level), level)
        record = self._as_record(message, dashed=_VERSION_10 in dashed, exact=exact)
        return KafkaBinding(types=self.types, formats=self.formats).read(record, level)

    def _sniffed(self, message: PulsarMessage) -> Draft:
        if self.sniff and message.payload and _looks_like_event(message.payload):
            draft = self._json(message.payload)
            draft.mode = Mode.STRUCTURED
            return draft
        raise NotACloudEvent(
            "the message has no CloudEvents property", why="spec 002 3", next="treat it as a plain message"
        )

    def _properties_01(self, message: PulsarMessage, level: Level) -> Draft:
        draft = Draft(data=absent if message.payload is None else message.payload)
        core, undefined, extensions = read_properties(
            message.properties, self.values, draft, lenient=level is not Level.STRICT
        )
        if "cloudEventsVersion" not in core:
            draft.fatal("CE-CloudEventsVersion is missing", "cloudEventsVersion", "v0.1 spec: REQUIRED")
        if "contentType" not in core:  # A5: content-type is accepted too
            core.update(("contentType", v) for n, v in message.properties if n == names.CONTENT_TYPE)
        upgrade(core, extensions, draft, keep_case=self.keep_case, undefined=undefined)
        return draft

    def _as_record(self, message: PulsarMessage, *, dashed: bool, exact: bool) -> KafkaRecord:
        """Give a message of profile 1.0, or of `CE-*` 1.0, the headers it would have on Kafka."""
        typed = any(name == names.CONTENT_TYPE for name, _ in message.properties)
        headers = [
            (
                _scored(name, typed, exact) if dashed else name,
                self._unbridged(name, value),
            )
            for name, value in message.properties
        ]
        return KafkaRecord(value=message.payload, headers=tuple(headers))

    def _unbridged(self, name: str, value: str) -> bytes:
        if self.bridged and (name.startswith(names.PREFIX) or name == names.CONTENT_TYPE):
            try:
                return read_base64(value)
            except ValueError as exc:
                raise InvalidEvent(f"property {name} is not base64", attribute=name, clause="A17") from exc
        return value.encode("utf-8", "surrogatepass")


def _pairs(properties: Iterable[tuple[str, str]]) -> Properties:
    pairs = tuple(properties.items() if isinstance(properties, Mapping) else properties)
    for pair in pairs:
        match pair:
            case (str(), str()):
                continue
            case _:
                raise UsageError(f"{pair!r:.60} is not a property", next="give pairs of texts")
    return pairs


def key_bytes(message: PulsarMessage) -> bytes | None:
    """Give the key of a message as Kafka would have it: the ordering key first, then the key."""
    if message.ordering_key is not None or message.key is None:
        return message.ordering_key
    if not message.key_is_base64:
        return message.key.encode()
    try:
        return read_base64(message.key)
    except ValueError as exc:
        raise InvalidEvent("the key is flagged as base64 and is none", attribute="key", clause="A12") from exc


def _markers(properties: Properties, level: Level) -> list[str]:
    """Give the content types that say `structured`, whatever other properties there are (A7).

    Names are exact, `lenient` ignores their case (A3).
    """
    markers = (MARKER, names.CONTENT_TYPE)
    if level is not Level.STRICT:
        properties = tuple((_MARKERS_ANY_CASE.get(name.lower(), name), value) for name, value in properties)
    # spec 002 3: "prefixed with application/cloudevents"; case is ignored as on Kafka (A9).
    return [
        value.strip('"') for name, value in properties if name in markers and is_cloudevents(value.strip('"'))
    ]


def is_own(name: str, level: Level = Level.STRICT) -> bool:
    """Say whether a property belongs to the binding: in any of its dialects, it is not the application's."""
    if level is not Level.STRICT:
        lower = name.lower()
        return lower == names.CONTENT_TYPE or lower.startswith((PREFIX.lower(), names.PREFIX))
    return name == names.CONTENT_TYPE or name.startswith((PREFIX, names.PREFIX))


def _scored(name: str, typed: bool, exact: bool) -> str:
    """Give a `CE-*` 1.0 name as Kafka spells it; `typed` says that content-type is there as well.

    A prefix in another case, which only lenient reads, is in capitals, so that it is reported there.
    """
    if not name.upper().startswith(PREFIX) or (exact and not name.startswith(PREFIX)):
        return name
    attribute = name[len(PREFIX) :].lower().removeprefix("x-")
    scored = names.REPEATED if typed and attribute == "datacontenttype" else names.header_of(attribute)
    return scored if name.startswith(PREFIX) else scored.upper()


def _looks_like_event(payload: bytes) -> bool:
    return looks_like_event(payload) or looks_like_event(
        payload, "cloudEventsVersion", "eventID", "source", "eventType"
    )


Encoded = tuple[bytes | None, Properties]


def _encode_01(binding: PulsarBinding, event: CloudEvent) -> Encoded:
    core, undefined, extensions = downgrade(event)
    if isinstance(event.data, Json):
        # JSON format 3.1.2: an implied application/json is made explicit.
        core.setdefault("contentType", "application/json")
    return event.data_bytes, write_properties(core, undefined, extensions, binding.values)


def _encode_01_structured(binding: PulsarBinding, event: CloudEvent) -> Encoded:
    if binding.format != "json":
        raise CannotEncode("profile 0.1 has the JSON format only", why="spec 002 1.4", next="use profile 1.0")
    # A6: the receiver looks for this marker, so the writer must set it.
    own: Properties = ((MARKER, "application/cloudevents+json; charset=utf-8"),)
    if binding.repeat_properties:
        own += tuple(item for item in _encode_01(binding, event)[1] if item[0] != MARKER)
    return encode_json(event), own


def _encode_10(binding: PulsarBinding, event: CloudEvent, mode: Mode) -> Encoded:
    kafka = KafkaBinding(
        mode=mode, format=binding.format, repeat_headers=binding.repeat_properties, formats=binding.formats
    )
    record = kafka.encode(event)
    return record.value, names.to_properties(record.headers)


def _refuse_batch(binding: PulsarBinding, event: CloudEvent) -> Encoded:
    raise CannotEncode("Pulsar has no batch mode", why="spec 002 1.3", next="use binary or structured mode")


_ENCODERS: Mapping[tuple[Profile, Mode], Callable[[PulsarBinding, CloudEvent], Encoded]] = {
    (Profile.V0_1, Mode.BINARY): _encode_01,
    (Profile.V0_1, Mode.STRUCTURED): _encode_01_structured,
    (Profile.V1_0, Mode.BINARY): partial(_encode_10, mode=Mode.BINARY),
    (Profile.V1_0, Mode.STRUCTURED): partial(_encode_10, mode=Mode.STRUCTURED),
    **{(profile, Mode.BATCH): _refuse_batch for profile in Profile},
}
