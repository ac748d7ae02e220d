"""OffsetCommit (8), versions 2 to 10.

2 to 4 carry a retention time, 6 the leader epoch, 7 instance ids (KIP-345), 8 is flexible, 10 names topics by
id (KIP-848). The answer comes when the offsets are stored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.errors import ApiError
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.ports import Coordinator
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Topic
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.groups import OffsetCommitAnswer, TopicCommitted, encode_offset_commit

__all__ = ["API"]

_NOT_FOUND_FROM, _IDS_FROM = 9, 10
_NOBODY = UUID(int=0)
# Nobody knows whether there is such a topic: the client shall come again, and not drop the offset.
_TOLD: Final[Mapping[int, ErrorCode]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_MILLISECOND = timedelta(milliseconds=1)
_BY_COORDINATOR = -_MILLISECOND


class _Row(NamedTuple):
    """One topic of a request: as it was asked for, and its name, None if there is none."""

    asked: Any
    name: str | None
    error: ErrorCode
    """For partitions that there are not, and for all if there is no topic."""
    partitions: frozenset[int] = frozenset()
    """The partitions that were asked for and are there."""


async def _handle(request: Request, services: Services) -> Body:
    body, by_id = request.body, request.version >= _IDS_FROM
    try:
        shard = services.groups.shard(body.group_id)
        known = shard.committed(body.group_id)
        rows = [await _find(each, by_id, known, services) for each in body.topics]
        errors = _told(await _commit(body, rows, shard), request.version)
    except ApiError as exc:
        rows = [_Row(each, None, ErrorCode(exc.error_code)) for each in body.topics]
        errors = {}
    answer = OffsetCommitAnswer(topics=tuple(_committed(row, errors) for row in rows))
    return (encode_offset_commit(answer, request.version),)


async def _commit(body: Any, rows: list[_Row], shard: Coordinator) -> Mapping[Place, ErrorCode]:
    who = Identity(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id_or_member_epoch,
    )
    now = int(time.time() * 1000)
    retention = getattr(body, "retention_time", _BY_COORDINATOR) // _MILLISECOND
    expires_at = now + retention if retention >= 0 else -1
    wanted = {
        (row.name, each.partition_index): Commit(
            offset=each.committed_offset,
            leader_epoch=getattr(each, "committed_leader_epoch", -1),
            metadata=each.committed_metadata or "",
            committed_at=now,
            expires_at=expires_at,
        )
        for row in rows
        if row.name is not None
        for each in row.asked.partitions
        if each.partition_index in row.partitions
    }
    return await shard.commit(body.group_id, who, wanted)


def _told(errors: Mapping[Place, ErrorCode], version: int) -> Mapping[Place, ErrorCode]:
    """Before version 9 a group that is not there is told as a generation that is not there (KIP-848)."""
    if version >= _NOT_FOUND_FROM:
        return errors
    old = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION}
    return {place: old.get(error, error) for place, error in errors.items()}


async def _find(asked: Any, by_id: bool, known: Mapping[Place, Commit], services: Services) -> _Row:
    """Find a topic; one in which the group has offsets is there, and costs no question to Pulsar."""
    if by_id:
        found = await services.topics.by_id(asked.topic_id or _NOBODY)
        return _row(asked, found, ErrorCode.UNKNOWN_TOPIC_ID)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = frozenset(each.partition_index for each in asked.partitions)
    if all(index >= 0 and (asked.name, index) in known for index in wanted):
        return _Row(asked, asked.name, unknown, wanted)
    try:
        return _row(asked, await services.topics.get(asked.name), unknown)
    except ApiError as exc:
        return _Row(asked, None, _TOLD.get(exc.error_code, unknown))


def _row(asked: Any, topic: Topic | None, unknown: ErrorCode) -> _Row:
    """Take the partitions that there are; each other one is refused by itself, as in Kafka."""
    if topic is None:
        return _Row(asked, None, unknown)
    there = range(topic.partitions)
    found = frozenset(each.partition_index for each in asked.partitions if each.partition_index in there)
    return _Row(asked, topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, found)


def _committed(row: _Row, errors: Mapping[Place, ErrorCode]) -> TopicCommitted:
    partitions = tuple(
        (
            each.partition_index,
            tell(row.error if row.name is None else errors.get((row.name, each.partition_index), row.error)),
        )
        for each in row.asked.partitions
    )
    return TopicCommitted(
        name=row.name or str(getattr(row.asked, "name", "")),
        topic_id=getattr(row.asked, "topic_id", None) or _NOBODY,
        partitions=partitions,
    )


API = Handler(8, 2, _IDS_FROM, _handle)
