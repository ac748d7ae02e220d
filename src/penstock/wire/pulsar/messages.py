"""The messages of an entry, one by one: for tools that show or count them, not for a hot path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from penstock.errors import WireError
from penstock.record import PulsarMessage
from penstock.wire.pulsar.compression import decompress
from penstock.wire.pulsar.entry import Entry
from penstock.wire.pulsar.message_id import MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

__all__ = ["LARGEST", "metadata_of", "unpack"]

LARGEST: Final = 64 << 20
"""Bytes of a payload when it is inflated."""
_SIZE: Final = 4


def unpack(entry: Entry, message_id: MessageId, *, topic: str | None = None) -> Iterator[PulsarMessage]:
    """Give the messages of an entry; WireError if it cannot be read, with the reason."""
    if entry.is_marker:
        return
    for wrong, why in (
        (entry.is_chunk, "it is a piece of a message that was cut"),
        (entry.is_encrypted, "it is encrypted"),
        (not entry.is_intact, "its checksum is wrong"),
    ):
        if wrong:
            raise WireError(f"entry {message_id} cannot be read: {why}")
    compressed = max(entry.compression, 0)
    payload = decompress(compressed, entry.payload, max(entry.uncompressed_size, 0), LARGEST)
    try:
        metadata = MessageMetadata.FromString(bytes(entry.metadata))
        if not entry.is_batch:
            yield _message(metadata, payload, metadata.publish_time, message_id, topic)
            return
        yield from _batch(entry, metadata.publish_time, payload, message_id, topic)
    except DecodeError as exc:
        raise WireError(f"the metadata in entry {message_id} cannot be read") from exc


def _batch(
    entry: Entry, publish_time: int, payload: memoryview, message_id: MessageId, topic: str | None
) -> Iterator[PulsarMessage]:
    at = 0
    for number in range(entry.num_messages):
        size = int.from_bytes(payload[at : at + _SIZE], "big")
        begin = at + _SIZE + size
        if at + _SIZE > len(payload) or begin > len(payload):
            raise WireError(f"entry {message_id} ends inside of message {number}")
        single = SingleMessageMetadata.FromString(bytes(payload[at + _SIZE : begin]))
        at = begin + max(single.payload_size, 0)
        if at > len(payload):
            raise WireError(f"entry {message_id} ends inside of message {number}")
        if not single.compacted_out:
            own = message_id._replace(batch_index=number)
            yield _message(single, payload[begin:at], publish_time, own, topic)


def _message(
    said: Any, payload: memoryview, publish_time: int, message_id: MessageId, topic: str | None
) -> PulsarMessage:
    return PulsarMessage(
        payload=None if said.null_value else bytes(payload),
        key=said.partition_key if said.HasField("partition_key") and not said.null_partition_key else None,
        key_is_base64=said.partition_key_b64_encoded,
        ordering_key=said.ordering_key if said.HasField("ordering_key") else None,
        properties=tuple((pair.key, pair.value) for pair in said.properties),
        event_time=said.event_time if said.HasField("event_time") else None,
        publish_time=publish_time,
        topic=topic,
        message_id=str(message_id),
    )


def metadata_of(message: PulsarMessage, publish_time: int) -> Any:
    """Write the metadata of a message that is sent alone."""
    made = MessageMetadata(publish_time=publish_time, null_value=message.payload is None)
    for name, value in message.properties:
        made.properties.add(key=name, value=value)
    if message.key is not None:
        made.partition_key, made.partition_key_b64_encoded = message.key, message.key_is_base64
    if message.ordering_key is not None:
        made.ordering_key = message.ordering_key
    if message.event_time is not None:
        made.event_time = message.event_time
    return made
