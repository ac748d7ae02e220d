"""OffsetForLeaderEpoch (23), versions 2 to 4 (KIP-320): one epoch, 0, ends where the log ends."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import LATEST
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 23


async def _handle(request: Request, services: Services) -> Body:
    topics = [
        {
            "topic": topic.topic,
            "partitions": [await _end(topic.topic, each, services) for each in topic.partitions],
        }
        for topic in request.body.topics
    ]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "topics": topics}),)


async def _end(topic: str, asked: Any, services: Services) -> dict[str, Any]:
    try:
        found = await services.log.find(topic, asked.partition, LATEST)
    except ApiError as exc:
        return {"partition": asked.partition, "error_code": ErrorCode(exc.error_code)}
    if asked.leader_epoch != 0:
        return {
            "partition": asked.partition,
            "error_code": ErrorCode.NONE,
            "leader_epoch": -1,
            "end_offset": -1,
        }
    return {
        "partition": asked.partition,
        "error_code": ErrorCode.NONE,
        "leader_epoch": 0,
        "end_offset": found.offset,
    }


API = Handler(_KEY, 2, 4, _handle)
