"""The answers that group members ask for all the time, and those of a rebalance.

Heartbeat 0 to 4: 1 adds the throttle time, 4 is flexible. OffsetCommit 2 to 10: 3 adds the throttle time, 8
is flexible, 10 names topics by id (KIP-848). JoinGroup 0 to 9: 2 adds the throttle time, 5 instance ids, 6 is
flexible, 7 adds the protocol type, 9 says who computes nothing (KIP-814). SyncGroup 0 to 5: 1 adds the
throttle time, 4 is flexible, 5 adds the protocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import encoding

__all__ = [
    "JoinGroupAnswer",
    "MemberJoined",
    "OffsetCommitAnswer",
    "SyncGroupAnswer",
    "TopicCommitted",
    "encode_heartbeat",
    "encode_join_group",
    "encode_offset_commit",
    "encode_sync_group",
]

_HEARTBEAT = 12
_OFFSET_COMMIT = 8
_JOIN_GROUP = 11
_SYNC_GROUP = 14
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_HEARTBEAT_THROTTLE_FROM = 1
_COMMIT_THROTTLE_FROM = 3
_COMMIT_TOPIC_IDS_FROM = 10
_JOIN_THROTTLE_FROM, _JOIN_INSTANCE_FROM, _JOIN_TYPE_FROM, _JOIN_SKIP_FROM = 2, 5, 7, 9
_SYNC_THROTTLE_FROM, _SYNC_PROTOCOL_FROM = 1, 5


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined:
    """A member as its leader is told."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupAnswer:
    """The whole answer."""

    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[MemberJoined, ...] = ()
    throttle_time_ms: int = 0


def encode_join_group(answer: JoinGroupAnswer, version: int) -> bytes:
    """Write the body of an answer to JoinGroup; before 7 no protocol is an empty name."""
    form = encoding(is_flexible(_JOIN_GROUP, version))
    typed = version >= _JOIN_TYPE_FROM
    parts = [_INT32.pack(answer.throttle_time_ms)] if version >= _JOIN_THROTTLE_FROM else []
    parts += [_INT16.pack(answer.error_code), _INT32.pack(answer.generation_id)]
    if typed:
        parts.append(form.string(answer.protocol_type))
    parts.append(form.string(answer.protocol_name if typed else answer.protocol_name or ""))
    parts.append(form.string(answer.leader))
    if version >= _JOIN_SKIP_FROM:
        parts.append(b"\1" if answer.skip_assignment else b"\0")
    parts += [form.string(answer.member_id), form.length(len(answer.members))]
    for member in answer.members:
        instance = form.string(member.instance_id) if version >= _JOIN_INSTANCE_FROM else b""
        parts += [form.string(member.member_id), instance]
        parts += [form.length(len(member.metadata)), member.metadata, form.tags]
    parts.append(form.tags)
    return b"".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupAnswer:
    """The whole answer."""

    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    throttle_time_ms: int = 0


def encode_sync_group(answer: SyncGroupAnswer, version: int) -> bytes:
    """Write the body of an answer to SyncGroup."""
    form = encoding(is_flexible(_SYNC_GROUP, version))
    parts = [_INT32.pack(answer.throttle_time_ms)] if version >= _SYNC_THROTTLE_FROM else []
    parts.append(_INT16.pack(answer.error_code))
    if version >= _SYNC_PROTOCOL_FROM:
        parts += [form.string(answer.protocol_type), form.string(answer.protocol_name)]
    parts += [form.length(len(answer.assignment)), answer.assignment, form.tags]
    return b"".join(parts)
