"""OffsetDelete (47), version 0 (KIP-496): offsets of topics that the group does not read."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 47


async def _handle(request: Request, services: Services) -> Body:
    body = request.body
    places = [(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    try:
        errors = await services.groups.shard(body.group_id).delete_offsets(body.group_id, places)
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


def _encode(version: int, error: ErrorCode, topics: list[dict[str, Any]]) -> bytes:
    return encode_answer(_KEY, version, {"error_code": error, "throttle_time": 0, "topics": topics})


API = Handler(_KEY, 0, 0, _handle)
