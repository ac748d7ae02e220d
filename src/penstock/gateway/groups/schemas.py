"""Groups and offsets as the bytes of Kafka's `__consumer_offsets`.

| record | key | value |
|---|---|---|
| offset | 0 or 1: group, topic, partition | 0 to 4; 1 has an expiry, 3 the leader epoch, 4 is flexible |
| group | 2: group | 0 to 4; 1 rebalance time-out, 2 time of the state, 3 instance ids, 4 is flexible |
| cursor | 32766: group, topic, partition | 0: nothing |

Written in version 3, an offset with an expiry of its own in 1, as Kafka does. A null value is a tombstone.
The third kind is ours: a Pulsar subscription that must go because its group or offset went. Readers of
Kafka's schemas, and gateways that do not know it, pass it by.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock.errors import WireError
from penstock.gateway.groups.fields import FieldReader, array, nullable, sized, text
from penstock.gateway.groups.group import Group, Member
from penstock.gateway.groups.states import State

__all__ = [
    "Commit",
    "CursorKey",
    "GroupKey",
    "OffsetKey",
    "Record",
    "cursor_record",
    "group_record",
    "offset_record",
    "read_group",
    "read_key",
    "read_offset",
]

Record = tuple[bytes, bytes | None]
"""Key and value; None removes the key."""

_VERSION: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_KEY, _GROUP_KEY, _CURSOR_KEY = 1, 2, 0x7FFE
_CURSOR_VALUE: Final = _VERSION.pack(0)
_WRITTEN, _WITH_EXPIRY = 3, 1
_FLEXIBLE_FROM, _NEWEST = 4, 4
_EPOCH_FROM, _INSTANCE_FROM, _SINCE_FROM, _REBALANCE_FROM = 3, 3, 2, 1
_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Whose offset it is."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CursorKey:
    """The subscription of a group in a partition, which is to be deleted."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group it is."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A committed offset."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at: int = -1
    """In milliseconds."""
    expires_at: int = -1
    """-1: by the retention of the coordinator."""


def read_key(data: bytes) -> OffsetKey | CursorKey | GroupKey | None:
    """Read a key; None for one that a later Kafka, or a later gateway, writes and we do not know."""
    fields = FieldReader(data)
    version = fields.int16()
    if version in (0, _OFFSET_KEY):
        return OffsetKey(fields.string(), fields.string(), fields.int32())
    if version == _CURSOR_KEY:
        return CursorKey(fields.string(), fields.string(), fields.int32())
    return GroupKey(fields.string()) if version == _GROUP_KEY else None


def offset_record(key: OffsetKey, commit: Commit | None) -> Record:
    """Write an offset, or its tombstone."""
    return _place_key(_OFFSET_KEY, key), None if commit is None else _offset_value(commit)


def cursor_record(key: CursorKey, *, gone: bool) -> Record:
    """Write that a subscription is to be deleted, or the tombstone of that when it is gone."""
    return _place_key(_CURSOR_KEY, key), None if gone else _CURSOR_VALUE


def _place_key(kind: int, key: OffsetKey | CursorKey) -> bytes:
    return _VERSION.pack(kind) + text(key.group_id) + text(key.topic) + _INT32.pack(key.partition)


def _offset_value(commit: Commit) -> bytes:
    if commit.expires_at >= 0:
        return b"".join(
            (
                _VERSION.pack(_WITH_EXPIRY) + _INT64.pack(commit.offset) + text(commit.metadata),
                _INT64.pack(commit.committed_at) + _INT64.pack(commit.expires_at),
            )
        )
    head = _VERSION.pack(_WRITTEN) + _INT64.pack(commit.offset) + _INT32.pack(commit.leader_epoch)
    return head + text(commit.metadata) + _INT64.pack(commit.committed_at)


def _fields(data: bytes) -> tuple[FieldReader, int]:
    fields = FieldReader(data)
    version = fields.int16()
    if not 0 <= version <= _NEWEST:
        raise WireError(f"a stored group has version {version}, which is not known here")
    fields.flexible = version >= _FLEXIBLE_FROM
    return fields, version


def read_offset(data: bytes) -> Commit:
    """Read the value of an offset."""
    fields, version = _fields(data)
    return Commit(
        offset=fields.int64(),
        leader_epoch=fields.int32() if version >= _EPOCH_FROM else -1,
        metadata=fields.string(),
        committed_at=fields.int64(),
        expires_at=fields.int64() if version == _WITH_EXPIRY else -1,
    )


def group_record(group_id: str, group: Group | None) -> Record:
    """Write a group, or its tombstone."""
    key = _VERSION.pack(_GROUP_KEY) + text(group_id)
    if group is None:
        return key, None
    head = (
        _VERSION.pack(_WRITTEN) + text(group.protocol_type or ""),
        _INT32.pack(group.generation) + nullable(group.protocol) + nullable(group.leader),
        _INT64.pack(group.changed_at),
    )
    members = array(_member_bytes(member, group.protocol) for member in group.members.values())
    return key, b"".join(head) + members


def _member_bytes(member: Member, protocol: str | None) -> bytes:
    return b"".join(
        (
            text(member.member_id) + nullable(member.instance_id),
            text(member.client_id) + text(member.client_host),
            _INT32.pack(round(member.rebalance * _MS)) + _INT32.pack(round(member.session * _MS)),
            sized(member.metadata(protocol)) + sized(member.assignment),
        )
    )


def read_group(group_id: str, data: bytes, now: float) -> Group:
    """Read a group; the sessions of its members begin now."""
    fields, version = _fields(data)
    group = Group(
        group_id=group_id,
        protocol_type=fields.string() or None,
        generation=fields.int32(),
        protocol=fields.nullable_string(),
        leader=fields.nullable_string(),
        changed_at=fields.int64() if version >= _SINCE_FROM else -1,
    )
    members = [_read_member(fields, version, group.protocol, now) for _ in range(fields.count())]
    return Group(
        group_id=group_id,
        state=State.STABLE if members else State.EMPTY,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        members={member.member_id: member for member in members},
        statics={each.instance_id: each.member_id for each in members if each.instance_id is not None},
        changed_at=group.changed_at,
    )


def _read_member(fields: FieldReader, version: int, protocol: str | None, now: float) -> Member:
    member_id = fields.string()
    instance_id = fields.nullable_string() if version >= _INSTANCE_FROM else None
    client_id, client_host = fields.string(), fields.string()
    rebalance = fields.int32() / _MS if version >= _REBALANCE_FROM else -1.0
    session = fields.int32() / _MS
    metadata, assignment = fields.blob(), fields.blob()
    fields.tags()
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        session=session,
        rebalance=session if rebalance < 0 else rebalance,
        protocols=((protocol or "", metadata),),
        assignment=assignment,
        expires=now + session,
    )
