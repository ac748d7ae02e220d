"""DescribeTopicPartitions (75), version 0 (KIP-966): the partitions of topics, page by page.

Topics come in the order of their names. A page holds at most as many partitions as the client wants, and
2000; the cursor says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Topic
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 75
_MAX_PARTITIONS: Final = 2000
_AT_ONCE: Final = 32
_NO_OPERATIONS: Final = -(1 << 31)
_Found = tuple[str, Topic | ErrorCode]


async def _handle(request: Request, services: Services) -> Body:
    limit = max(1, min(request.body.response_partition_limit, _MAX_PARTITIONS))
    found = await _wanted(request, services)
    page, cursor = _page(found, _first_partition(found, request.body.cursor), limit)
    topics = [topic for (_, topic), _ in page if isinstance(topic, Topic)]
    leaders = await services.cluster.leaders(topics)
    reachable = frozenset(node.id for node in services.cluster.nodes(request.listener))
    fields = {
        "throttle_time": 0,
        "topics": [_describe(topic, rows, leaders, reachable) for topic, rows in page],
        "next_cursor": cursor,
    }
    return (encode_answer(_KEY, request.version, fields),)


async def _wanted(request: Request, services: Services) -> list[_Found]:
    """Find the topics of the request, or all, from the cursor on and in the order of their names."""
    begin = "" if request.body.cursor is None else request.body.cursor.topic_name
    if request.body.topics:
        names = sorted({topic.name for topic in request.body.topics if topic.name >= begin})
        return await gather_limited((_find(name, services) for name in names), _AT_ONCE)
    topics = {topic.name: topic for topic in await services.topics.all() if topic.name >= begin}
    return [(name, topics[name]) for name in sorted(topics)]


async def _find(name: str, services: Services) -> _Found:
    try:
        return name, await services.topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except ApiError as exc:
        return name, ErrorCode(exc.error_code)


def _first_partition(found: Sequence[_Found], cursor: Any) -> int:
    """Give where the first topic begins: at the cursor, if that is in it."""
    if cursor is None or not found or found[0][0] != cursor.topic_name:
        return 0
    return max(0, int(cursor.partition_index))


def _page(
    found: Sequence[_Found], first: int, limit: int
) -> tuple[list[tuple[_Found, range]], dict[str, Any] | None]:
    """Fill a page; give the cursor of the next one, None behind the last."""
    page: list[tuple[_Found, range]] = []
    for row in found:
        count = row[1].partitions if isinstance(row[1], Topic) else 0
        if count and not limit:
            return page, {"topic_name": row[0], "partition_index": first}
        shown = range(first, min(count, first + limit))
        page.append((row, shown))
        limit -= len(shown)
        if shown and shown.stop < count:
            return page, {"topic_name": row[0], "partition_index": shown.stop}
        first = 0
    return page, None


def _describe(
    found: _Found, shown: range, leaders: Mapping[str, Sequence[int]], reachable: Container[int]
) -> dict[str, Any]:
    name, topic = found
    if not isinstance(topic, Topic):
        return {"name": name, "error_code": topic, "topic_authorized_operations": _NO_OPERATIONS}
    return {
        "name": name,
        "error_code": ErrorCode.NONE,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [_partition(index, leaders[topic.name][index], reachable) for index in shown],
        "topic_authorized_operations": _NO_OPERATIONS,
    }


def _partition(index: int, leader: int, reachable: Container[int]) -> dict[str, Any]:
    nodes = (leader,) if leader in reachable else ()
    # A leader that has no such listener, as in Metadata.
    error = ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.LISTENER_NOT_FOUND
    return {
        "error_code": ErrorCode.NONE if nodes else error,
        "partition_index": index,
        "leader_id": leader if nodes else -1,
        "leader_epoch": 0,
        "replica_nodes": nodes,
        "isr_nodes": nodes,
        # Not null, which Java's admin client does not expect.
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "offline_replicas": (),
    }


API = Handler(_KEY, 0, 0, _handle)
