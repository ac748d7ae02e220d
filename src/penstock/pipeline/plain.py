"""Plain records as events of spec 004 and back: the path is the topic, the rest is headers and body.

What the contract says of the one message of a topic stands in for headers that a record does not have; an
event-id and a created-at that are missing are appended, the same ones in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent, absent
from penstock.events.event import Event
from penstock.events.event_headers import HeaderField, Provenance
from penstock.events.event_record import stream_address
from penstock.events.event_type import SPLIT_HEADERS, EventType
from penstock.events.reading import Verdict
from penstock.events.timestamp import write_timestamp
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.evaluators.reference.reading import CODES, FOREIGN, Decoded, Reject
from penstock.pipeline.plain_columns import LAST_MILLISECOND, Part, header_places, join, read_by_columns
from penstock.pipeline.pulsar import PULSAR, rejected_rows, unless_rejected
from penstock.record import Headers, KafkaRecord

if TYPE_CHECKING:
    from penstock.contract import ResolvedOperation

__all__ = ["PlainReader", "PlainWriter", "is_plain", "plain_event", "plain_reader"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD: Final = [field.name for field in fields(KafkaRecord)]
_MOST_TEMPLATES: Final = 256
_MOST_TEXT: Final = 1024
"""Bytes of headers by which a record is remembered."""
_TYPE_HEADERS: Final = frozenset({"event-type", *SPLIT_HEADERS})


def is_plain(operation: ResolvedOperation) -> bool:
    """Say whether an operation has messages and the contract declares none of them as a CloudEvent."""
    return bool(operation.messages) and not any(message.cloud_event for message in operation.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReader:
    """Reads plain records; the fields are what a record without such a header gets."""

    source: str
    kind: str | None = None
    content_type: str | None = None
    on_pulsar: bool = field(default=False, repr=False)
    """Whether records may stand for entries of Pulsar that could not be read: those are rejects."""

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events of a batch, by columns where everything is certain."""
        parts, slow = read_by_columns(batch, self.source, self.kind, self.content_type)
        if slow is not None:
            parts.append(_one_by_one(slow, list(self._events(batch.take(slow)))))
        events = join(parts, batch.num_rows)
        return events.with_rejects(rejected_rows(batch.column("headers"))) if self.on_pulsar else events

    def _events(self, batch: pa.RecordBatch) -> Iterator[Decoded | Reject]:
        for row in batch.select(_RECORD).to_pylist():
            row["headers"] = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
            yield self.read(KafkaRecord(**row))

    def by_record(self) -> Callable[[KafkaRecord], Decoded | Reject]:
        """Return what reads one record; it remembers what records with the same headers became."""
        read = _Remembering(self).read
        return unless_rejected(read) if self.on_pulsar else read

    def read(self, record: KafkaRecord) -> Decoded | Reject:
        """Return the event of a record, or why it is none."""
        if record.value is None and not any(name.lower() in _TYPE_HEADERS for name, _ in record.headers):
            return Reject(FOREIGN, "a null value without a type")
        try:
            event = plain_event(record, kind=self.kind, content_type=self.content_type)
            found = event.to_cloudevent(source=self.source)
        except InvalidEvent as exc:
            return Reject(CODES[Verdict.INVALID], str(exc))
        # Only bytes and texts came, so nothing else goes on.
        raw = found.data_bytes
        plain = CloudEvent.unchecked(found.attributes, absent if raw is None else raw, sound=False)
        return Decoded(plain, _pairs(event.foreign_headers), structured=False)


@dataclass(frozen=True, slots=True)
class _Template:
    """What records with the same headers have in common."""

    attributes: Mapping[str, str]
    foreign: tuple[int, ...]
    """The places of headers that go on as they came."""


class _Remembering:
    """Reads records by what others with the same headers became: only id, time and body are their own.

    That is so where no header says the id or the time, and none needs a closer look (`header_places`).
    """

    def __init__(self, reader: PlainReader) -> None:
        self._reader = reader
        self._owned: dict[tuple[str, ...], tuple[int, ...] | None] = {}
        """By the names of the headers, the places of those that mean something; None: to be read in full."""
        self._templates: dict[object, _Template] = {}
        self._time = (-1, "")

    def read(self, record: KafkaRecord) -> Decoded | Reject:
        """Read one record, as `PlainReader.read` does."""
        headers, millis = record.headers, record.timestamp
        owned = self._places(tuple(name for name, _ in headers)) if headers else ()
        if owned is None or millis is None or not 0 <= millis <= LAST_MILLISECOND or record.offset is None:
            return self._reader.read(record)
        key = (record.topic, record.value is None, *[headers[place] for place in owned])
        template = self._templates.get(key)
        if template is None:
            return self._read_first(record, key, owned)
        attributes = {
            **template.attributes,
            "id": stream_address(record.topic or "", record.partition, record.offset),
            "time": self._time_text(millis),
        }
        data = absent if record.value is None else record.value
        foreign = headers if not owned else tuple(headers[place] for place in template.foreign)
        return Decoded(CloudEvent.unchecked(attributes, data, sound=False), foreign, structured=False)

    def _read_first(self, record: KafkaRecord, key: object, owned: tuple[int, ...]) -> Decoded | Reject:
        found = self._reader.read(record)
        known = sum(len(value or b"") for _, value in (record.headers[place] for place in owned))
        if isinstance(found, Decoded) and len(self._templates) < _MOST_TEMPLATES and known <= _MOST_TEXT:
            others = tuple(place for place in range(len(record.headers)) if place not in owned)
            self._templates[key] = _Template(found.event.attributes, others)
        return found

    def _places(self, names: tuple[str, ...]) -> tuple[int, ...] | None:
        try:
            return self._owned[names]
        except KeyError:
            found = header_places(names)
        own = None if found is None or found.keys() & {"id", "time"} else tuple(found.values())
        if len(self._owned) < _MOST_TEMPLATES and sum(map(len, names)) <= _MOST_TEXT:
            self._owned[names] = own
        return own

    def _time_text(self, millis: int) -> str:
        if self._time[0] != millis:
            self._time = millis, write_timestamp(_EPOCH + timedelta(milliseconds=millis))
        return self._time[1]


def plain_reader(operation: ResolvedOperation) -> PlainReader:
    """Make the reader of an operation.

    A type and a content type are known if the operation has one message: that of its name.
    """
    only = operation.messages[0] if len(operation.messages) == 1 else None
    return PlainReader(
        source=f"/{operation.server}/{operation.topic}",
        kind=only.name if only else None,
        content_type=only.content_type if only else None,
        on_pulsar=operation.protocol == PULSAR,
    )


def plain_event(record: KafkaRecord, *, kind: str | None = None, content_type: str | None = None) -> Event:
    """Take a record in as the invoker does; InvalidEvent if it breaks a rule of spec 004."""
    address = stream_address(record.topic or "", record.partition, record.offset)
    event = Event(record.topic or "", record.headers, record.value, source_address=address)
    # spec 004: "header elements can be appended by the gateway and/or invoker".
    known = {field.name.lower() for field in event.header_fields if field.value is not None}
    missing = dict(_missing(known, record, kind, content_type, address))
    return event.appended(missing, by=Provenance.INVOKER).checked()


def _missing(
    known: set[str], record: KafkaRecord, kind: str | None, content_type: str | None, address: str
) -> Iterator[tuple[str, str]]:
    # spec 004: "if a message doesn't contain a timestamp or an ID the gateway or invoker should add one".
    if "event-id" not in known:
        yield "event-id", address
    moment = _moment(record.timestamp)
    if "created-at" not in known and moment is not None:
        yield "created-at", write_timestamp(moment)
    # spec 004: "the content type and schema will probably be unique per stream topic" and can be kept beside.
    if not known & _TYPE_HEADERS and kind is not None:
        yield "event-type", str(EventType(kind=kind))
    if "content-type" not in known and content_type is not None and record.value is not None:
        yield "content-type", content_type


def _moment(milliseconds: int | None) -> datetime | None:
    """Give a broker's time; -1 and what no calendar holds is not known."""
    try:
        known = milliseconds is not None and milliseconds >= 0
        return _EPOCH + timedelta(milliseconds=milliseconds or 0) if known else None
    except OverflowError:
        return None


def _pairs(fields: Sequence[HeaderField]) -> Headers:
    return tuple((field.name, field.value) for field in fields)


def _one_by_one(rows: pa.IntegerArray, found: Sequence[Decoded | Reject]) -> Part:
    events = [each.event if isinstance(each, Decoded) else None for each in found]
    names = dict.fromkeys(name for event in events if event for name in event.attributes)
    texts = {
        name: pa.array([event.get(name) if event else None for event in events], pa.utf8()) for name in names
    }
    reasons = [each.reason if isinstance(each, Reject) else None for each in found]
    codes = [each.code if isinstance(each, Reject) else None for each in found]
    data = [event.data_bytes if event else None for event in events]
    headers = [each.foreign if isinstance(each, Decoded) else () for each in found]
    foreign = [[{"key": name, "value": value} for name, value in each] for each in headers]
    return Part(
        rows=rows,
        attributes=texts,
        data=pa.array(data, pa.binary()),
        foreign=pa.array(foreign, HEADERS),
        code=pa.array(codes, pa.utf8()),
        reason=pa.array(reasons, pa.utf8()),
    )


def _says(headers: Headers, media_type: str | None) -> bool:
    """Tell whether headers say nothing else of the content type than this."""
    said = [value for name, value in headers if name.lower() == "content-type" and value is not None]
    return not said or (media_type is not None and said[-1] == media_type.encode())


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """Writes events as plain records: attributes are headers by the table of spec 004, the body is data."""

    def __call__(
        self,
        event: CloudEvent,
        key: bytes | None,
        headers: Headers,
        *,
        null_value: bool = False,
        came: Headers | None = None,
    ) -> KafkaRecord:
        """Write one event, without data as a null value; a plain record that was not changed is as it `came`.

        Foreign headers come first, because of equal names the last counts.
        """
        if came is not None and _says(came, event.datacontenttype):
            return KafkaRecord(key=key, value=event.data_bytes, headers=came)
        shown = Event.from_cloudevent(event, headers=headers)
        return KafkaRecord(key=key, value=shown.body, headers=_pairs(shown.header_fields))
