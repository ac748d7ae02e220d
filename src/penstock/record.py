"""The two things that travel: a Kafka record and a Pulsar message, as plain values.

Headers and properties are ordered tuples of pairs: repeated names and null values survive.
A value of None is a tombstone and differs from an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Header", "Headers", "KafkaRecord", "Properties", "PulsarMessage"]

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]
Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class KafkaRecord:
    """One record as Kafka stores it; the origin fields are None until a broker has given them."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    """Milliseconds since the epoch."""
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __init__(
        self,
        *,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        # The slots are set directly: the generated __init__ of a frozen class takes half as long again.
        _set_value(self, value)
        _set_key(self, key)
        _set_headers(self, headers)
        _set_timestamp(self, timestamp)
        _set_topic(self, topic)
        _set_partition(self, partition)
        _set_offset(self, offset)


_set_value, _set_key, _set_headers, _set_timestamp, _set_topic, _set_partition, _set_offset = (
    getattr(KafkaRecord, each.name).__set__ for each in fields(KafkaRecord)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarMessage:
    """One message as Pulsar stores it; properties are text, as its protocol has them."""

    payload: bytes | None = None
    """None is Pulsar's null_value flag: a tombstone for compaction."""
    key: str | None = None
    key_is_base64: bool = False
    """Pulsar's partition_key_b64_encoded: the key holds bytes, written in base64."""
    ordering_key: bytes | None = None
    properties: Properties = ()
    event_time: int | None = None
    """Milliseconds since the epoch; None if the producer gave none."""
    publish_time: int | None = None
    topic: str | None = None
    message_id: str | None = None
    """ledger:entry:partition:batch index, as Pulsar's tools print it."""
