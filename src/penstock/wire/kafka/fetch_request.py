"""Fetch requests, versions 4 to 18, what a gateway needs of them.

5 adds the log start, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 12 is flexible, 13 names topics by
id (KIP-516), 15 moves the replica into a tagged field (KIP-903).
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.kafka.apis import FETCH, is_flexible
from penstock.wire.kafka.cursor import Cursor
from penstock.wire.kafka.requests import RequestHeader, check_request

__all__ = ["FetchRequest", "PartitionToFetch", "TopicToFetch", "decode_fetch"]

_WAIT_AND_BYTES = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_SESSIONS_FROM = 7
_TOPIC_IDS_FROM = 13
_REPLICA_UNTIL = 14


class PartitionToFetch(NamedTuple):
    """From where one partition is wanted, and how much of it."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int


class TopicToFetch(NamedTuple):
    """The partitions of a topic, which has a name or, from version 13 on, an id."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionToFetch, ...]


class FetchRequest(NamedTuple):
    """The request without what is for replicas; what a session forgets is not read."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    topics: tuple[TopicToFetch, ...]


def _partition_struct(version: int) -> tuple[struct.Struct, int, int]:
    """Give the form of a partition, and which of its numbers are the offset and the size."""
    form, offset = ">i", 1
    if version >= 9:
        form, offset = form + "i", 2  # current leader epoch
    form += "q"
    if version >= 12:
        form += "i"  # last fetched epoch
    if version >= 5:
        form += "q"  # log start offset
    form += "i"
    return struct.Struct(form), offset, len(form) - 2


_PARTITIONS = {version: _partition_struct(version) for version in range(4, 19)}


def decode_fetch(header: RequestHeader, frame: memoryview) -> FetchRequest:
    """Read the body of a Fetch request."""
    if header.api_key != FETCH or header.body is None or header.api_version not in _PARTITIONS:
        raise WireError(f"API {header.api_key} v{header.api_version} is no Fetch request that can be read")
    check_request(header, frame)
    version = header.api_version
    cursor = Cursor(frame, header.body, is_flexible(FETCH, version))
    if version <= _REPLICA_UNTIL:
        cursor.take(4)
    wait, least, most, _ = _WAIT_AND_BYTES.unpack(cursor.take(_WAIT_AND_BYTES.size))
    session = 0
    if version >= _SESSIONS_FROM:
        session, _ = _SESSION.unpack(cursor.take(_SESSION.size))
    topics = tuple(_topic(cursor, version) for _ in range(cursor.count()))
    return FetchRequest(wait, least, most, session, topics)


def _topic(cursor: Cursor, version: int) -> TopicToFetch:
    if version >= _TOPIC_IDS_FROM:
        name, topic_id = "", UUID(bytes=bytes(cursor.take(16)))
    else:
        name, topic_id = cursor.string() or "", None
    partitions = tuple(_partition(cursor, version) for _ in range(cursor.count()))
    cursor.skip_tags()
    return TopicToFetch(name, topic_id, partitions)


def _partition(cursor: Cursor, version: int) -> PartitionToFetch:
    form, offset, size = _PARTITIONS[version]
    said = form.unpack(cursor.take(form.size))
    cursor.skip_tags()
    return PartitionToFetch(said[0], said[offset], said[size])
