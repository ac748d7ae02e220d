"""Kafka records and Pulsar messages that carry spec 004's headers, as events; how an origin is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.events.body_decoders import DECODERS, BodyDecoders
from penstock.events.event import Event
from penstock.record import KafkaRecord, PulsarMessage

__all__ = ["event_of_record", "host_address", "stream_address"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def host_address(host: str, port: int) -> str:
    """Write where a request came from; an IPv6 address gets its brackets.

    >>> host_address("192.0.2.7", 443), host_address("2001:db8::7", 443)
    ('192.0.2.7:443', '[2001:db8::7]:443')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stream_address(topic: str, partition: int | None = None, offset: int | str | None = None) -> str:
    """Write where in a stream an event lies; for Pulsar the offset is its message id.

    >>> stream_address("orders", 3, 42)
    'orders/3/42'
    """
    return "/".join(str(part) for part in (topic, partition, offset) if part is not None)


def event_of_record(record: KafkaRecord | PulsarMessage, *, decoders: BodyDecoders = DECODERS) -> Event:
    """View a record whose headers or properties are those of spec 004; the topic is the path."""
    if isinstance(record, KafkaRecord):
        return Event(
            record.topic or "",
            record.headers,
            record.value,
            arrived=_moment(record.timestamp),
            source_address=record.topic and stream_address(record.topic, record.partition, record.offset),
            decoders=decoders,
        )
    return Event(
        record.topic or "",
        record.properties,
        record.payload,
        arrived=_moment(record.publish_time),
        source_address=record.topic and stream_address(record.topic, None, record.message_id),
        decoders=decoders,
    )


def _moment(milliseconds: int | None) -> datetime | None:
    """Give a broker's time; one that no calendar holds is not known."""
    try:
        return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
