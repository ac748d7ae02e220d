"""A Pulsar entry as it is stored to a Kafka batch as it is fetched (spec 001, Consume Messages)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.errors import WireError
from penstock.mapping import to_kafka as kernel
from penstock.mapping.split import at_one_offset
from penstock.mapping.undecodable import Reason, Undecodable
from penstock.wire.buffer import as_array
from penstock.wire.kafka import write_batch_head
from penstock.wire.kafka.record_batch import HEAD_SIZE
from penstock.wire.kernels import BAD_FIELD, BAD_VARINT, TRUNCATED, ByteArray, IntArray
from penstock.wire.pulsar import Entry
from penstock.wire.pulsar.compression import decompress

__all__ = ["KafkaBatch", "entry_to_batch", "hole", "placeholder"]

PLACEHOLDER_HEADER = b"penstock.undecodable"
"""The header of a placeholder; its value is the reason."""

_PER_RECORD = 40
_SMALLEST_MESSAGE = 6
_ROOM = 5 * 32
_MOST_PLACEHOLDERS = 10_000
_LONGEST_BATCH = 1 << 31
"""Offsets that one batch can have: the delta of its last one is a signed number of 32 bits."""

_REASONS = {
    TRUNCATED: "ends too early",
    BAD_VARINT: "has a number of more than 64 bits",
    BAD_FIELD: "has a field that cannot be",
    kernel.BAD_SIZE: "has a size that cannot be",
    kernel.BAD_KEY: "has a key marked as base64 that is not",
    kernel.TRAILING: "is followed by bytes that belong to no message",
    kernel.NO_SPACE: "has more properties than bytes",
}


class KafkaBatch(NamedTuple):
    """A record batch as bytes; the messages that compaction took out are counted in the offsets only."""

    data: memoryview
    base_offset: int
    next_offset: int
    record_count: int
    max_timestamp: int

    @property
    def held_bytes(self) -> int:
        """The memory that the batch takes: its buffer is larger than what was written into it."""
        return len(self.data.obj)  # type: ignore[arg-type]


def entry_to_batch(
    entry: Entry, *, base_offset: int, limit: int, leader_epoch: int = -1, one_offset: bool = False
) -> KafkaBatch | Undecodable:
    """Carry an entry over to one batch whose first record has `base_offset`, or say why that cannot be.

    `limit` bounds what a compressed entry may inflate to. With `one_offset` all records have `base_offset`,
    as Pulsar counts a batch of a transaction: no Kafka client may be given such a batch.
    """
    refused = _look(entry)
    if refused is not None:
        return refused
    try:
        payload = decompress(entry.compression, entry.payload, entry.uncompressed_size, limit)
    except WireError as exc:
        return _no(Reason.CORRUPT, entry, str(exc))
    if entry.is_batch and entry.num_messages * _SMALLEST_MESSAGE > len(payload):
        return _no(Reason.CORRUPT, entry, f"{len(payload)} bytes for {entry.num_messages} messages")
    out, end, facts = _convert(entry, as_array(payload))
    if end < 0:
        return _no(Reason.CORRUPT, entry, f"message {facts[kernel.MESSAGE]} {_REASONS[end]}")
    if not one_offset:
        return _finish(out.data[:end], facts, base_offset, entry.num_messages, leader_epoch)
    records = at_one_offset(out.data[HEAD_SIZE:end], facts[kernel.KEPT])
    data = memoryview(bytearray().join((bytes(HEAD_SIZE), records)))
    return _finish(data, facts, base_offset, 1, leader_epoch)


def _look(entry: Entry) -> Undecodable | None:
    """Judge by the head of an entry, before its payload is touched."""
    if entry.is_marker:
        return _no(Reason.MARKER, entry, "written by Pulsar for itself")
    if not entry.is_intact:
        return _no(Reason.CORRUPT, entry, "wrong checksum")
    if entry.is_encrypted:
        return _no(Reason.ENCRYPTED, entry, "encrypted by its producer")
    if entry.is_chunk:
        piece = f"piece {entry.chunk_id + 1} of {entry.chunks} of a large message"
        return _no(Reason.CHUNK, entry, piece, last_piece=entry.chunk_id + 1 >= entry.chunks)
    if entry.is_batch and entry.num_messages < 1:
        return _no(Reason.CORRUPT, entry, f"a batch of {entry.num_messages} messages")
    return None


def _no(reason: Reason, entry: Entry, detail: str, *, last_piece: bool = True) -> Undecodable:
    return Undecodable(reason, detail, max(entry.num_messages, 1), last_piece)


def _convert(entry: Entry, payload: ByteArray) -> tuple[ByteArray, int, list[int]]:
    """Run the kernel, with more room for properties if a message has many."""
    size = len(payload) + len(entry.metadata) + _PER_RECORD * entry.num_messages + HEAD_SIZE
    out = np.empty(size, np.uint8)
    facts = np.empty(kernel.FACTS, np.int64)
    room = np.empty(_ROOM, np.int64)
    try:
        end = _run(entry, payload, facts, room, out)
        while end == kernel.NO_SPACE and len(room) < 5 * size:
            room = np.empty(8 * len(room), np.int64)
            end = _run(entry, payload, facts, room, out)
    except IndexError:  # the second wall: the kernel's own checks should have seen it
        end = kernel.BAD_SIZE
    return out, end, facts.tolist()


def _run(entry: Entry, payload: ByteArray, facts: IntArray, room: IntArray, out: ByteArray) -> int:
    if entry.is_batch:
        return kernel.entry_to_records(
            payload, 0, len(payload), entry.num_messages, entry.publish_time, facts, room, out, HEAD_SIZE
        )
    head = as_array(entry.metadata)
    return kernel.message_to_record(
        head, 0, len(head), payload, 0, len(payload), entry.publish_time, facts, room, out, HEAD_SIZE
    )


def _finish(
    data: memoryview, facts: list[int], base_offset: int, count: int, leader_epoch: int
) -> KafkaBatch:
    write_batch_head(
        data,
        base_offset=base_offset,
        last_offset_delta=count - 1,
        base_timestamp=facts[kernel.BASE_TIMESTAMP],
        max_timestamp=facts[kernel.MAX_TIMESTAMP],
        record_count=facts[kernel.KEPT],
        partition_leader_epoch=leader_epoch,
    )
    return KafkaBatch(data, base_offset, base_offset + count, facts[kernel.KEPT], facts[kernel.MAX_TIMESTAMP])


def placeholder(
    verdict: Undecodable, *, base_offset: int, timestamp: int, leader_epoch: int = -1
) -> KafkaBatch:
    """Stand in for an entry that cannot be decoded: null records with a header that says why.

    There is one for each message, so that no offset is missing; if the entry claims more than ten
    thousand, one at its last offset, because the claim may be a lie.
    """
    count = verdict.num_messages
    deltas = range(count) if count <= _MOST_PLACEHOLDERS else range(count - 1, count)
    reason = str(verdict).encode()
    header = _zigzag(len(PLACEHOLDER_HEADER)) + PLACEHOLDER_HEADER + _zigzag(len(reason)) + reason
    # Attributes 0, timestamp delta 0, offset delta, null key, null value, one header.
    bodies = [b"\0\0" + _zigzag(delta) + b"\1\1\2" + header for delta in deltas]
    records = b"".join(_zigzag(len(body)) + body for body in bodies)
    facts = [0] * kernel.FACTS
    facts[kernel.KEPT] = len(bodies)
    facts[kernel.BASE_TIMESTAMP] = facts[kernel.MAX_TIMESTAMP] = timestamp
    data = memoryview(bytearray(HEAD_SIZE) + records)
    return _finish(data, facts, base_offset, count, leader_epoch)


def hole(base_offset: int, next_offset: int) -> KafkaBatch:
    """Make a batch without records: it takes a client past offsets that hold none, as in Kafka's own logs.

    More offsets than a batch can have are passed by the last of them: batches need not touch each other.
    """
    base_offset = max(base_offset, next_offset - _LONGEST_BATCH)
    data = memoryview(bytearray(HEAD_SIZE))
    write_batch_head(
        data,
        base_offset=base_offset,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp=-1,
        max_timestamp=-1,
        record_count=0,
    )
    return KafkaBatch(data, base_offset, next_offset, 0, -1)


def _zigzag(value: int) -> bytes:
    """Write a number that is not negative as Kafka's varint."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
