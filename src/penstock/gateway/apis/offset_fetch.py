"""OffsetFetch (9), versions 1 to 10.

2 asks for all topics by null, 5 has the leader epoch, 6 is flexible, 8 asks for several groups (KIP-709), 10
names topics by id (KIP-848). There are no transactions, so every committed offset is stable (KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Topic
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 9
_GROUPS_FROM, _IDS_FROM = 8, 10
_NOBODY = UUID(int=0)


async def _handle(request: Request, services: Services) -> Body:
    several = request.version >= _GROUPS_FROM
    groups = request.body.groups if several else [request.body]
    found = [await _fetch(group, request.version, services) for group in groups]
    fields = {"throttle_time": 0, "groups": found} if several else {"throttle_time": 0} | found[0]
    return (encode_answer(_KEY, request.version, fields),)


async def _fetch(asked: Any, version: int, services: Services) -> dict[str, Any]:
    error, known = ErrorCode.NONE, None
    try:
        known = services.groups.shard(asked.group_id).committed(asked.group_id)
    except ApiError as exc:
        error = ErrorCode(exc.error_code)
    rows = _all_of(known or {}) if asked.topics is None else asked.topics
    if version >= _IDS_FROM:
        topics = [await _by_id(row, known, error, services) for row in rows]
    else:
        topics = [_topic(row, known, error) for row in rows]
    return {
        "group_id": asked.group_id,
        "error_code": error,
        # An error of the group is told once, and per partition to those who cannot hear it else.
        "topics": topics if error == ErrorCode.NONE or version < _GROUPS_FROM else [],
    }


class _Asked(NamedTuple):
    """A topic and its partitions, by name."""

    name: str
    partition_indexes: Sequence[int]
    topic_id: UUID | None = None


def _all_of(known: Mapping[Place, Commit]) -> list[_Asked]:
    topics: dict[str, list[int]] = {}
    for topic, partition in known:
        topics.setdefault(topic, []).append(partition)
    return [_Asked(topic, partitions) for topic, partitions in topics.items()]


def _topic(asked: Any, known: Mapping[Place, Commit] | None, error: ErrorCode) -> dict[str, Any]:
    partitions = [
        _partition(index, (known or {}).get((asked.name, index)), error) for index in asked.partition_indexes
    ]
    return {"name": asked.name, "partitions": partitions}


async def _by_id(
    asked: Any, known: Mapping[Place, Commit] | None, error: ErrorCode, services: Services
) -> dict[str, Any]:
    topic, missing = None, ErrorCode.UNKNOWN_TOPIC_ID
    try:
        topic = await _find(asked, services)
    except ApiError as exc:
        missing = ErrorCode(exc.error_code)
    if topic is None:
        rows = [_partition(index, None, missing) for index in asked.partition_indexes]
        return {"topic_id": asked.topic_id, "partitions": rows}
    found = _topic(_Asked(topic.name, asked.partition_indexes), known, error)
    return found | {"topic_id": topic.topic_id}


async def _find(asked: Any, services: Services) -> Topic | None:
    """Find a topic by the id that was asked for, or by the name under which offsets are stored."""
    name = getattr(asked, "name", None)
    if name is None:
        return await services.topics.by_id(asked.topic_id or _NOBODY)
    return await services.topics.get(name)


def _partition(index: int, commit: Commit | None, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": commit.offset if commit else -1,
        "committed_leader_epoch": commit.leader_epoch if commit else -1,
        "metadata": commit.metadata if commit else "",
        "error_code": error,
    }


API = Handler(_KEY, 1, _IDS_FROM, _handle)
