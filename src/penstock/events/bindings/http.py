"""The HTTP binding for CloudEvents (1.0.2): binary, structured and batch over (headers, body).

No server and no client is here: headers are pairs of text as HTTP carries them, the body is bytes.
HTTP cannot tell no body from an empty one: an empty body is data only if it has a content type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from penstock.errors import CannotEncode, EventError, InvalidEvent, NotACloudEvent
from penstock.events.bindings.kafka import event_of
from penstock.events.cloudevent import CloudEvent
from penstock.events.content import Json
from penstock.events.draft import Draft, conclude, failed
from penstock.events.formats import FORMATS, Formats
from penstock.events.media import is_batch, is_cloudevents
from penstock.events.reading import Level, Mode, Reading

__all__ = ["HttpBinding", "HttpMessage"]

PREFIX = "ce-"
CONTENT_TYPE = "content-type"
HttpHeaders = tuple[tuple[str, str], ...]

# HTTP 3.1.3.2: encoded are space, double quote, percent and all outside U+0021 to U+007E.
_MUST_ENCODE = re.compile(r"[^!#$&-~]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpMessage:
    """The part of an HTTP request or response that carries events."""

    headers: HttpHeaders = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBinding:
    """Reads and writes events as HTTP messages.

    >>> event = CloudEvent({"id": "1", "source": "/shop", "type": "order.placed", "subject": "Euro €"})
    >>> dict(HttpBinding().encode(event).headers)["ce-subject"]
    'Euro%20%E2%82%AC'
    """

    mode: Mode = Mode.BINARY
    format: str = "json"
    formats: Formats = field(default=FORMATS)

    def decode(self, message: HttpMessage) -> CloudEvent:
        """Read one event at the level `strict`."""
        return event_of(self.read(message))

    def read(self, message: HttpMessage, level: Level = Level.STRICT) -> Reading:
        """Read one event at any level; a batch needs `read_batch`."""
        try:
            media_type = _content_type(message)
            if is_batch(media_type):
                raise InvalidEvent("the message is a batch", clause="HTTP 3.3", fix="read it with read_batch")
            if is_cloudevents(media_type):
                # HTTP 3: structured if Content-Type is prefixed with application/cloudevents.
                draft = self.formats.get(media_type, message).draft(message.body or b"")
                draft.mode = Mode.STRUCTURED
            else:
                draft = _binary(message, media_type)
            if sum(name.lower() == CONTENT_TYPE for name, _ in message.headers) > 1:
                # RFC 9110 5.3: a field that is no list is sent once.
                what = f"header {CONTENT_TYPE} is repeated, the first one is taken"
                draft.report(what, "datacontenttype", "RFC 9110 5.3", fix="send it once")
            return conclude(draft, level)
        except EventError as error:
            return failed(error, level)

    def is_batch(self, message: HttpMessage) -> bool:
        """Tell whether the message is a batch."""
        return is_batch(_content_type(message))

    def read_batch(self, message: HttpMessage, level: Level = Level.STRICT) -> tuple[Reading, ...]:
        """Read a batch; an error of the whole batch is one reading at the level `forensic`."""
        try:
            media_type = _content_type(message)
            if not is_batch(media_type):
                raise NotACloudEvent("the message is not a batch of CloudEvents", why="HTTP 3.3")
            drafts = self.formats.get(media_type, message).drafts(message.body or b"")
            _check_versions(drafts)
            return tuple(_batched(draft, level) for draft in drafts)
        except EventError as error:
            return (failed(error, level, Mode.BATCH),)

    def encode(self, event: CloudEvent) -> HttpMessage:
        """Write one event."""
        if self.mode is Mode.BATCH:
            return self.encode_batch((event,))
        if self.mode is Mode.STRUCTURED:
            event_format = self.formats.named(self.format)
            return HttpMessage(
                headers=((CONTENT_TYPE, event_format.media_type),), body=event_format.encode(event)
            )
        return HttpMessage(headers=_headers(event), body=event.data_bytes)

    def encode_batch(self, events: Sequence[CloudEvent]) -> HttpMessage:
        """Write a batch of events, which may be empty."""
        event_format = self.formats.named(self.format)
        return HttpMessage(
            headers=((CONTENT_TYPE, event_format.batch_media_type),), body=event_format.encode_batch(events)
        )


def _batched(draft: Draft, level: Level) -> Reading:
    draft.mode = Mode.BATCH
    return conclude(draft, level)


def _check_versions(drafts: Sequence[Draft]) -> None:
    # All events of a batch have the same specversion; one without any says so itself.
    found = {draft.attributes.get("specversion") for draft in drafts} - {None}
    if len(found) > 1:
        raise InvalidEvent("the events of the batch differ in specversion", clause="HTTP 3.3")


def _content_type(message: HttpMessage) -> str:
    return next((value for name, value in message.headers if name.lower() == CONTENT_TYPE), "").strip()


def _binary(message: HttpMessage, media_type: str) -> Draft:
    draft = Draft()
    for name, value in message.headers:
        if name.lower().startswith(PREFIX):  # HTTP header names ignore case
            _add(draft, name.lower()[len(PREFIX) :], value)
    if not draft.attributes and not draft.findings:
        raise NotACloudEvent("the message has no CloudEvents header", why="HTTP 3")
    again = draft.attributes.get("datacontenttype")
    # Media types ignore case (RFC 2045 5.1): the same one twice contradicts nothing.
    if again is not None and again.lower() != media_type.lower():
        draft.report("ce-datacontenttype stands for content-type", "datacontenttype", "HTTP 3.1.1")
    if media_type:
        draft.attributes["datacontenttype"] = media_type
    if message.body or (message.body is not None and media_type):
        draft.data = message.body
    return draft


def _add(draft: Draft, attribute: str, value: str) -> None:
    if attribute in draft.attributes:
        draft.report(f"header ce-{attribute} is repeated", attribute, "core, Context Attributes")
    try:
        draft.attributes[attribute] = decode_value(value)
    except ValueError as exc:
        draft.attributes[attribute] = value
        draft.fatal(f"{attribute}: {exc}", attribute, "HTTP 3.1.3.2")


def decode_value(value: str) -> str:
    """Decode a header value: unquote it, then one round of percent-decoding as UTF-8."""
    text = value.strip(" \t")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = _ESCAPE.sub(r"\1", text[1:-1])
    if "%" not in text:
        return text
    if _BAD_PERCENT.search(text):
        raise ValueError("a percent sign is not followed by two hex digits")
    # Python's UTF-8 refuses overlong forms such as %C0%A0, as the binding demands.
    return unquote_to_bytes(text.encode("utf-8", "surrogatepass")).decode()


def encode_value(text: str) -> str:
    """Encode a header value by the rules of 3.1.3.2."""
    return _MUST_ENCODE.sub(lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode()), text)


def _headers(event: CloudEvent) -> HttpHeaders:
    if not (event.datacontenttype or "").isascii():
        # HTTP 3.1.1 takes it as it is, and RFC 9110 5.5 has no other characters.
        raise CannotEncode("datacontenttype is not ASCII, which HTTP cannot carry", where="datacontenttype")
    headers = [
        (CONTENT_TYPE, text) if name == "datacontenttype" else (PREFIX + name, encode_value(text))
        for name, text in event.attributes.items()
    ]
    if isinstance(event.data, Json) and event.datacontenttype is None:
        # JSON format 3.1.2: an implied application/json is made explicit.
        headers.append((CONTENT_TYPE, "application/json"))
    return tuple(headers)
