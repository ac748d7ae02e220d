"""The answers that group members ask for all the time: Heartbeat 0 to 4 and OffsetCommit 2 to 10.

Heartbeat: 1 adds the throttle time, 4 is flexible. OffsetCommit: 3 adds the throttle time, 8 is
flexible, 10 names topics by id (KIP-848).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import encoding

__all__ = ["OffsetCommitAnswer", "TopicCommitted", "encode_heartbeat", "encode_offset_commit"]

_HEARTBEAT = 12
_OFFSET_COMMIT = 8
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_HEARTBEAT_THROTTLE_FROM = 1
_COMMIT_THROTTLE_FROM = 3
_COMMIT_TOPIC_IDS_FROM = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCommitted:
    """The partitions of a topic, each with its error code, as (index, error code)."""

    name: str = ""
    topic_id: UUID = UUID(int=0)
    partitions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitAnswer:
    """The whole answer."""

    topics: tuple[TopicCommitted, ...] = ()
    throttle_time_ms: int = 0


def encode_heartbeat(version: int, *, error_code: int = 0, throttle_time_ms: int = 0) -> bytes:
    """Write the body of an answer to Heartbeat."""
    throttle = _INT32.pack(throttle_time_ms) if version >= _HEARTBEAT_THROTTLE_FROM else b""
    return throttle + _INT16.pack(error_code) + encoding(is_flexible(_HEARTBEAT, version)).tags


def encode_offset_commit(answer: OffsetCommitAnswer, version: int) -> bytes:
    """Write the body of an answer to OffsetCommit."""
    form = encoding(is_flexible(_OFFSET_COMMIT, version))
    parts = [_INT32.pack(answer.throttle_time_ms)] if version >= _COMMIT_THROTTLE_FROM else []
    parts.append(form.length(len(answer.topics)))
    for topic in answer.topics:
        parts.append(topic.topic_id.bytes if version >= _COMMIT_TOPIC_IDS_FROM else form.string(topic.name))
        parts.append(form.length(len(topic.partitions)))
        parts += [_PARTITION.pack(*partition) + form.tags for partition in topic.partitions]
        parts.append(form.tags)
    parts.append(form.tags)
    return b"".join(parts)
