"""Plain records as events of spec 004 and back: the path is the topic, the rest is headers and body.

What the contract says of the one message of a topic stands in for headers that a record does not have; an
event-id and a created-at that are missing are appended, the same ones in every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent
from penstock.events.event import Event
from penstock.events.event_headers import HeaderField, Provenance
from penstock.events.event_record import stream_address
from penstock.events.event_type import SPLIT_HEADERS, EventType
from penstock.events.reading import Verdict
from penstock.events.timestamp import write_timestamp
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.decode import CODES, HEADERS
from penstock.pipeline.plain_columns import Part, join, read_by_columns
from penstock.record import Headers, KafkaRecord

if TYPE_CHECKING:
    from penstock.contract import ResolvedOperation

__all__ = ["PlainReader", "PlainWriter", "is_plain", "plain_event", "plain_reader"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD: Final = [field.name for field in fields(KafkaRecord)]
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

    def __call__(self, batch: pa.RecordBatch) -> EventColumns:
        """Give the events of a batch, by columns where everything is certain."""
        parts, slow = read_by_columns(batch, self.source, self.kind, self.content_type)
        if slow is not None:
            parts.append(_one_by_one(slow, list(self._events(batch.take(slow)))))
        return join(parts, batch.num_rows)

    def _events(self, batch: pa.RecordBatch) -> Iterator[tuple[CloudEvent | InvalidEvent | None, Headers]]:
        for row in batch.select(_RECORD).to_pylist():
            row["headers"] = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
            record = KafkaRecord(**row)
            if record.value is None and not any(name.lower() in _TYPE_HEADERS for name, _ in record.headers):
                yield None, ()
                continue
            try:
                event = plain_event(record, kind=self.kind, content_type=self.content_type)
                yield event.to_cloudevent(source=self.source), _pairs(event.foreign_headers)
            except InvalidEvent as exc:
                yield exc, ()


def plain_reader(operation: ResolvedOperation) -> PlainReader:
    """Make the reader of an operation.

    A type and a content type are known if the operation has one message: that of its name.
    """
    only = operation.messages[0] if len(operation.messages) == 1 else None
    return PlainReader(
        source=f"/{operation.server}/{operation.topic}",
        kind=only.name if only else None,
        content_type=only.content_type if only else None,
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


def _one_by_one(
    rows: pa.IntegerArray, found: Sequence[tuple[CloudEvent | InvalidEvent | None, Headers]]
) -> Part:
    events = [event if isinstance(event, CloudEvent) else None for event, _ in found]
    names = dict.fromkeys(name for event in events if event for name in event.attributes)
    texts = {
        name: pa.array([event.get(name) if event else None for event in events], pa.utf8()) for name in names
    }
    reasons = [str(event) if isinstance(event, InvalidEvent) else None for event, _ in found]
    codes = [
        None
        if event is not None and reason is None
        else CODES[Verdict.INVALID if reason else Verdict.FOREIGN]
        for (event, _), reason in zip(found, reasons, strict=True)
    ]
    data = [event.data_bytes if event else None for event in events]
    foreign = [[{"key": name, "value": value} for name, value in headers] for _, headers in found]
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
