"""Produce requests, versions 3 to 13, with the records as views into the frame.

kio copies the records; these are handed to the mapping where they lie. 9 is flexible, 13 names
topics by id (KIP-516).
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.kafka.apis import PRODUCE, is_flexible
from penstock.wire.kafka.requests import RequestHeader, check_request

__all__ = ["PartitionToProduce", "ProduceRequest", "TopicToProduce", "decode_produce"]

_ACKS = struct.Struct(">hi")
_TOPIC_IDS_FROM = 13


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
    check_request(header, frame)
    cursor = _Cursor(frame, header.body, is_flexible(PRODUCE, header.api_version))
    transactional_id = cursor.string()
    acks, timeout = _ACKS.unpack(cursor.take(_ACKS.size))
    topics = tuple(_topic(cursor, header.api_version) for _ in range(cursor.count()))
    return ProduceRequest(transactional_id, acks, timeout, topics)


def _topic(cursor: _Cursor, version: int) -> TopicToProduce:
    if version >= _TOPIC_IDS_FROM:
        name, topic_id = "", UUID(bytes=bytes(cursor.take(16)))
    else:
        name, topic_id = cursor.string() or "", None
    partitions = tuple(_partition(cursor) for _ in range(cursor.count()))
    cursor.skip_tags()
    return TopicToProduce(name, topic_id, partitions)


def _partition(cursor: _Cursor) -> PartitionToProduce:
    index = int.from_bytes(cursor.take(4), "big", signed=True)
    partition = PartitionToProduce(index, cursor.sized(4))
    cursor.skip_tags()
    return partition


class _Cursor:
    """A position in a body whose lengths have been checked."""

    __slots__ = ("flexible", "frame", "pos")

    def __init__(self, frame: memoryview, pos: int, flexible: bool) -> None:
        self.frame = frame
        self.pos = pos
        self.flexible = flexible

    def take(self, size: int) -> memoryview:
        begin = self.pos
        self.pos = begin + size
        return self.frame[begin : self.pos]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.frame[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, width: int) -> int:
        """Read a length, -1 for null: compact, or of `width` bytes."""
        if self.flexible:
            return self.uvarint() - 1
        return int.from_bytes(self.take(width), "big", signed=True)

    def count(self) -> int:
        return max(self.length(4), 0)

    def sized(self, width: int) -> memoryview | None:
        size = self.length(width)
        return None if size < 0 else self.take(size)

    def string(self) -> str | None:
        data = self.sized(2)
        try:
            return None if data is None else bytes(data).decode()
        except UnicodeDecodeError as exc:
            raise WireError("a Produce request has a name that is not UTF-8", why=str(exc)) from exc

    def skip_tags(self) -> None:
        for _ in range(self.uvarint() if self.flexible else 0):
            self.uvarint()
            self.take(self.uvarint())
