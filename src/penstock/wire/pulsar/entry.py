"""An entry: what Pulsar stores under one ledger and entry id, one message or a batch of them."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import InternalError, WireError
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kernels import ByteArray, crc32c
from penstock.wire.kernels.protobuf import ERRORS
from penstock.wire.pulsar import hot
from penstock.wire.pulsar.commands import encode_command

__all__ = ["Entry", "encode_send", "read_entry", "send_frame"]

_MAGIC = b"\x0e\x01"
_UINT32 = struct.Struct(">I")


class Entry(NamedTuple):
    """The head of an entry as numbers, metadata and payload as views; -1 where nothing was said."""

    broker_index: int
    """Broker-entry index: that of the LAST message in the entry."""
    broker_timestamp: int
    sequence_id: int
    highest_sequence_id: int
    publish_time: int
    compression: int
    uncompressed_size: int
    num_messages: int
    """Messages in the batch; 1 if there is no batch."""
    is_batch: bool
    """Whether the payload has SingleMessageMetadata; a batch of one message has them too."""
    is_encrypted: bool
    is_marker: bool
    """Whether Pulsar wrote it for itself: a transaction's end, a replicated subscription."""
    chunks: int
    chunk_id: int
    producer_name: memoryview
    metadata: memoryview
    payload: memoryview
    crc: int
    checked: memoryview
    is_transactional: bool = False
    """Whether it was written in a transaction of Pulsar."""

    @property
    def first_index(self) -> int:
        """Give the broker-entry index of the first message, -1 if the broker keeps none."""
        return -1 if self.broker_index < 0 else self.broker_index - self.num_messages + 1

    @property
    def is_chunk(self) -> bool:
        """Say whether the entry is a piece of a message that was cut."""
        return self.chunks > 1 or self.chunk_id >= 0

    @property
    def is_intact(self) -> bool:
        """Compare the checksum; an entry without one is taken as intact."""
        return self.crc < 0 or crc32c(self.checked) == self.crc


def read_entry(data: memoryview) -> Entry:
    """Read the head of an entry; the checksum is not looked at. Raises WireError if it cannot be read."""
    found = np.empty(hot.ENTRY_SLOTS, np.int64)
    begin = hot.read_entry(as_array(data), 0, len(data), found)
    if begin < 0:
        raise WireError(f"the metadata of a Pulsar entry {ERRORS[begin]}")
    said = found.tolist()
    if min(said[hot.PRODUCER], said[hot.PUBLISH_TIME]) < 0 or said[hot.NUM_MESSAGES] < -1:
        raise WireError("the metadata of a Pulsar entry lacks the producer's name or a publish time")
    producer, metadata = said[hot.PRODUCER], said[hot.METADATA]
    return Entry(
        broker_index=said[hot.INDEX],
        broker_timestamp=said[hot.BROKER_TIMESTAMP],
        sequence_id=said[hot.SEQUENCE_ID],
        highest_sequence_id=said[hot.HIGHEST_SEQUENCE_ID],
        publish_time=said[hot.PUBLISH_TIME],
        compression=said[hot.COMPRESSION],
        uncompressed_size=said[hot.UNCOMPRESSED_SIZE],
        num_messages=1 if said[hot.NUM_MESSAGES] < 0 else said[hot.NUM_MESSAGES],
        is_batch=said[hot.NUM_MESSAGES] >= 0,
        is_encrypted=said[hot.ENCRYPTION_KEYS] >= 0 or said[hot.ENCRYPTION_ALGO] >= 0,
        is_marker=said[hot.MARKER] >= 0,
        chunks=said[hot.CHUNKS],
        chunk_id=said[hot.CHUNK_ID],
        producer_name=data[producer : producer + said[hot.PRODUCER_SIZE]],
        metadata=data[metadata : metadata + said[hot.METADATA_SIZE]],
        payload=data[begin:],
        crc=said[hot.CRC],
        checked=data[max(said[hot.CHECKED], 0) :],
        is_transactional=said[hot.TRANSACTION] != -1,
    )


def send_frame(
    buffer: ByteArray,
    start: int,
    end: int,
    producer_name: ByteArray,
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    publish_time: int,
    highest_sequence_id: int = -1,
    compression: int = -1,
    uncompressed_size: int = -1,
) -> memoryview:
    """Make the SEND frame of a batch whose payload is buffer[start:end]; head and checksum go before it.

    The number of messages is set in the command and in the metadata: the broker counts by the one,
    readers by the other. There must be SEND_HEADROOM bytes and the producer's name before `start`.
    """
    begin = hot.write_send(
        buffer,
        start,
        end,
        producer_name,
        producer_id,
        sequence_id,
        highest_sequence_id,
        num_messages,
        publish_time,
        compression,
        uncompressed_size,
    )
    if begin < 0:
        raise InternalError(f"{start} bytes of room before a payload are too few for its head")
    return buffer.data[begin:end]


def encode_send(send: Any, metadata: Any, payload: Buffer) -> bytes:
    """Write a SEND frame with any metadata: CommandSend, MessageMetadata and the payload."""
    head = metadata.SerializeToString()
    entry = b"".join((_UINT32.pack(len(head)), head, payload))
    rest = b"".join((_MAGIC, _UINT32.pack(crc32c(entry)), entry))
    command = encode_command(send)
    return b"".join((_UINT32.pack(len(command) - 4 + len(rest)), command[4:], rest))
