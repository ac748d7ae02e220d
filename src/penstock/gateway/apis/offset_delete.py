"""OffsetDelete (47), version 0 (KIP-496): offsets of topics that the group does not read.

What the group has committed can be deleted, whether its topic is still there or not. For anything else the
topic must have the partition, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.offsets import Place
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 47


async def _handle(request: Request, services: Services) -> Body:
    body = request.body
    places = [(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    try:
        shard = services.groups.shard(body.group_id)
        known = shard.committed(body.group_id)
        missing = await _missing([place for place in places if place not in known], services)
        wanted = [place for place in places if place not in missing]
        unknown = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        errors = unknown | dict(await shard.delete_offsets(body.group_id, wanted))
    except ApiError as exc:
        return (_encode(request.version, ErrorCode(exc.error_code), []),)
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": each.partition_index,
                    "error_code": errors[topic.name, each.partition_index],
                }
                for each in topic.partitions
            ],
        }
        for topic in body.topics
    ]
    return (_encode(request.version, ErrorCode.NONE, topics),)


async def _missing(places: list[Place], services: Services) -> set[Place]:
    """Give those that no topic has; one look-up for each topic."""
    counts: dict[str, int] = {}
    for name in {name for name, _ in places}:
        try:
            topic = await services.topics.get(name)
        except ApiError:
            topic = None
        counts[name] = 0 if topic is None else topic.partitions
    return {(name, index) for name, index in places if not 0 <= index < counts[name]}


def _encode(version: int, error: ErrorCode, topics: list[dict[str, Any]]) -> bytes:
    return encode_answer(_KEY, version, {"error_code": error, "throttle_time": 0, "topics": topics})


API = Handler(_KEY, 0, 0, _handle)
