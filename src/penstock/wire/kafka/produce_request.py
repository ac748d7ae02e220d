"""Produce requests, versions 3 to 13, with the records as views into the frame.

kio copies the records; these are handed to the mapping where they lie. 9 is flexible, 13 names
topics by id (KIP-516). What most requests are, one batch for one partition, is read at once.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.kafka.apis import PRODUCE, is_flexible
from penstock.wire.kafka.cursor import Cursor
from penstock.wire.kafka.requests import RequestHeader, check_request

__all__ = ["PartitionToProduce", "ProduceRequest", "TopicToProduce", "decode_produce"]

_ACKS = struct.Struct(">hi")
_TOPIC_IDS_FROM = 13
_FLEXIBLE_FROM = 9
_NO_TRANSACTION_ONE_TOPIC = struct.Struct(">hhiih")
_ONE_PARTITION = struct.Struct(">iii")
_ONE_COMPACT = struct.Struct(">Bi")


class PartitionToProduce(NamedTuple):
    """The records for one partition; None if the client sent null."""

    partition: int
    records: memoryview | None


class TopicToProduce(NamedTuple):
    """The partitions of a topic, which has a name or, from version 13 on, an id."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionToProduce, ...]


class ProduceRequest(NamedTuple):
    """The whole request; its views are valid as long as the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: tuple[TopicToProduce, ...]


def decode_produce(header: RequestHeader, frame: memoryview) -> ProduceRequest:
    """Read the body of a Produce request."""
    if header.api_key != PRODUCE or header.body is None:
        raise WireError(f"API {header.api_key} v{header.api_version} is no Produce request that can be read")
    plain = _plain_classic if header.api_version < _FLEXIBLE_FROM else _plain_compact
    try:
        found = plain(header.api_version, frame, header.body)
    except (struct.error, IndexError, ValueError):
        # It ends too early or lies: the thorough way finds the words for it.
        found = None
    return _thorough(header, frame) if found is None else found


def _thorough(header: RequestHeader, frame: memoryview) -> ProduceRequest:
    """Read a request of any shape, every length checked before."""
    assert header.body is not None
    check_request(header, frame)
    cursor = Cursor(frame, header.body, is_flexible(PRODUCE, header.api_version))
    transactional_id = cursor.string()
    acks, timeout = _ACKS.unpack(cursor.take(_ACKS.size))
    topics = tuple(_topic(cursor, header.api_version) for _ in range(cursor.count()))
    return ProduceRequest(transactional_id, acks, timeout, topics)


def _plain_classic(_: int, frame: memoryview, pos: int) -> ProduceRequest | None:
    """Read a request without a transaction, with one batch for one partition; None if it is another."""
    transaction, acks, timeout, topics, size = _NO_TRANSACTION_ONE_TOPIC.unpack_from(frame, pos)
    name = pos + _NO_TRANSACTION_ONE_TOPIC.size
    if transaction != -1 or topics != 1 or size < 0:
        return None
    partitions, index, length = _ONE_PARTITION.unpack_from(frame, name + size)
    begin = name + size + _ONE_PARTITION.size
    if partitions != 1 or length < 0 or begin + length > len(frame):
        return None
    one = PartitionToProduce(index, frame[begin : begin + length])
    topic = TopicToProduce(str(frame[name : name + size], "utf-8"), None, (one,))
    return ProduceRequest(None, acks, timeout, (topic,))


def _plain_compact(version: int, frame: memoryview, pos: int) -> ProduceRequest | None:
    """Read the same in the flexible form (KIP-482)."""
    acks, timeout = _ACKS.unpack_from(frame, pos + 1)
    pos += 1 + _ACKS.size
    # KIP-482: lengths are one more than they are, so that 1 + 1 is one topic and 0 a null transaction.
    if frame[pos - 1 - _ACKS.size] != 0 or frame[pos] != 2:
        return None
    name, topic_id, pos = "", None, pos + 1
    if version >= _TOPIC_IDS_FROM:
        topic_id, pos = UUID(bytes=bytes(frame[pos : pos + 16])), pos + 16
    else:
        size = frame[pos] - 1
        if not 0 <= size < 0x7F:
            return None
        name, pos = str(frame[pos + 1 : pos + 1 + size], "utf-8"), pos + 1 + size
    partitions, index = _ONE_COMPACT.unpack_from(frame, pos)
    length, begin = _compact_length(frame, pos + _ONE_COMPACT.size)
    # Behind the records stand three empty sections of tagged fields: partition, topic, request.
    end = begin + length
    if partitions != 2 or length < 0 or bytes(frame[end : end + 3]) != b"\0\0\0":
        return None
    topic = TopicToProduce(name, topic_id, (PartitionToProduce(index, frame[begin:end]),))
    return ProduceRequest(None, acks, timeout, (topic,))


def _compact_length(frame: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = frame[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, pos
        shift += 7
    return -1, pos


def _topic(cursor: Cursor, version: int) -> TopicToProduce:
    if version >= _TOPIC_IDS_FROM:
        name, topic_id = "", UUID(bytes=bytes(cursor.take(16)))
    else:
        name, topic_id = cursor.string() or "", None
    partitions = tuple(_partition(cursor) for _ in range(cursor.count()))
    cursor.skip_tags()
    return TopicToProduce(name, topic_id, partitions)


def _partition(cursor: Cursor) -> PartitionToProduce:
    index = int.from_bytes(cursor.take(4), "big", signed=True)
    partition = PartitionToProduce(index, cursor.sized(4))
    cursor.skip_tags()
    return partition
