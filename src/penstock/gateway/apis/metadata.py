"""Metadata (3), versions 0 to 13.

Topics by name or, from 12 on, by id; all of them for null (from 1 on; version 0 asks with an empty list).
Version 4 lets the client forbid that a topic is made.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import NewTopic, Topic
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.metadata import (
    Broker,
    MetadataAnswer,
    PartitionMetadata,
    TopicMetadata,
    encode_metadata,
)

__all__ = ["API"]

_LISTENERS_FROM = 6
"""The version from which clients are told that the leader has no such listener, as by Kafka."""
_ELSEWHERE = ErrorCode.LISTENER_NOT_FOUND
_AT_ONCE: Final = 32
"""Topics that are looked up at the same time."""
_CODES: Final[Mapping[int, ErrorCode]] = {
    # Clients repeat the request for ever on the first, and give up at once on the second.
    ErrorCode.POLICY_VIOLATION: ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.LEADER_NOT_AVAILABLE,
}
"""What a topic that cannot be made is told as, where that is not the error of CreateTopics."""


async def _handle(request: Request, services: Services) -> Body:
    found = await _wanted(request, services)
    leaders = await services.cluster.leaders([topic for topic in found if isinstance(topic, Topic)])
    # In the same moment: every leader is one of the nodes, unless it has no such listener.
    nodes = services.cluster.nodes(request.listener)
    reachable = frozenset(node.id for node in nodes)
    elsewhere = _ELSEWHERE if request.version >= _LISTENERS_FROM else ErrorCode.LEADER_NOT_AVAILABLE
    answer = MetadataAnswer(
        brokers=tuple(Broker(node.id, node.host, node.port) for node in nodes),
        topics=tuple([_describe(topic, leaders, reachable, elsewhere) for topic in found]),
        cluster_id=services.cluster.cluster_id,
        controller_id=nodes[0].id,
    )
    return (encode_metadata(answer, request.version),)


async def _wanted(request: Request, services: Services) -> list[Topic | TopicMetadata]:
    asked = request.body.topics
    if asked is None or (request.version == 0 and not asked):
        return list(await services.topics.all())
    may_create = getattr(request.body, "allow_auto_topic_creation", True)
    return await gather_limited((_find(topic, may_create, services) for topic in asked), _AT_ONCE)


async def _find(asked: Any, may_create: bool, services: Services) -> Topic | TopicMetadata:
    topic_id = getattr(asked, "topic_id", None) or UUID(int=0)
    if asked.name is None:
        found = await services.topics.by_id(topic_id)
        unknown = TopicMetadata(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return found or unknown
    try:
        found = await services.topics.get(asked.name)
        if found is None and may_create and services.settings.auto_create_topics:
            found = await _create(asked.name, services)
    except ApiError as exc:
        return TopicMetadata(name=asked.name, error_code=_CODES.get(exc.error_code, exc.error_code))
    missing = TopicMetadata(name=asked.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found or missing


async def _create(name: str, services: Services) -> Topic | None:
    wanted = NewTopic(name=name, partitions=services.settings.default_partitions)
    try:
        return await services.topics.create(wanted)
    except ApiError as exc:
        if exc.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        # Two clients asked for it at the same time.
        return await services.topics.get(name)


def _describe(
    topic: Topic | TopicMetadata,
    leaders: Mapping[str, Sequence[int]],
    reachable: Container[int],
    elsewhere: ErrorCode,
) -> TopicMetadata:
    if isinstance(topic, TopicMetadata):
        tell(topic.error_code)
        return topic
    partitions = []
    for index, chosen in enumerate(leaders[topic.name]):
        leader, error = chosen, ErrorCode.NONE
        if leader not in reachable:
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else elsewhere
            leader = -1
        nodes = (leader,) if leader >= 0 else ()
        partitions.append(
            PartitionMetadata(
                index=index,
                leader_id=leader,
                error_code=tell(error),
                leader_epoch=0,
                replicas=nodes,
                in_sync=nodes,
            )
        )
    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(partitions),
    )


API = Handler(3, 0, 13, _handle)
