"""Events as plain values, for the way into the child and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.events import AttributeType, CloudEvent, Data, Event, Json, absent
from penstock.events.body_decoders import DECODERS, BodyDecoders
from penstock.events.media import is_json
from penstock.record import Headers, KafkaRecord

__all__ = ["Record", "opened", "packed", "parcel", "unpacked"]

_NO_TYPES: Final[Mapping[str, AttributeType]] = {}

Packed = tuple[Mapping[str, str], dict[str, str] | None, bytes | None, bool]
"""Attributes, declared types by name, data, and whether the data is a JSON value."""
Parcel = tuple[Packed, Headers, tuple[str | None, int | None, int | None, int | None], tuple[str, str]]
"""An event, the headers beside it, topic, partition, offset and timestamp, and its source and id as read."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a batch, as the child has it."""

    view: Event
    """What the function sees."""
    event: CloudEvent
    origin: tuple[str, str]


class _AlreadyDecoded(BodyDecoders):
    """Takes attributes from the JSON of the event, with its rules and errors."""

    __slots__ = ("_event",)

    def __init__(self, event: CloudEvent) -> None:
        self._event = event

    def decode(self, body: bytes, content_type: str | None) -> Mapping[str, Any]:
        """Decode the body of this event."""
        if not self._event.has_json:
            return DECODERS.decode(body, content_type)
        value: Any = self._event.json()
        return value if isinstance(value, dict) else {"body": value}


def packed(event: CloudEvent) -> Packed:
    """Give an event as plain values; CannotEncode if its JSON cannot be written."""
    types = {name: kind.value for name, kind in event.types.items()} if event.types else None
    media_type = event.datacontenttype
    # With a JSON media type the bytes say the same; without one only the JSON value says that it is JSON.
    by_value = isinstance(event.data, Json) and (media_type is None or not is_json(media_type))
    return event.attributes, types, event.data_bytes, by_value


def unpacked(values: Packed) -> CloudEvent:
    """Give the event again."""
    attributes, types, raw, by_value = values
    data: Data = absent if raw is None else Json.parse(raw) if by_value else raw
    kinds = {name: AttributeType(kind) for name, kind in types.items()} if types else _NO_TYPES
    return CloudEvent.unchecked(attributes, data, kinds)


def parcel(event: CloudEvent, headers: Headers, record: KafkaRecord, origin: tuple[str, str]) -> Parcel:
    """Pack what a function needs to know of a record."""
    place = (record.topic, record.partition, record.offset, record.timestamp)
    return packed(event), headers, place, origin


def opened(values: Parcel) -> Record:
    """Give the record to the child."""
    event = unpacked(values[0])
    topic, partition, offset, timestamp = values[2]
    view = Event.from_cloudevent(
        event,
        path=topic,
        headers=values[1],
        arrived=_moment(timestamp),
        source_address=f"{topic}/{partition}/{offset}",
        decoders=_AlreadyDecoded(event),
    )
    return Record(view, event, values[3])


def _moment(timestamp: int | None) -> datetime | None:
    try:
        return None if timestamp is None else datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
