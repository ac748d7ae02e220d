"""DeleteRecords (21), versions 0 to 2 (KIP-107): up to an offset, -1 for all."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 21


async def _handle(request: Request, services: Services) -> Body:
    topics = [
        {"name": topic.name, "partitions": [await _trim(topic.name, p, services) for p in topic.partitions]}
        for topic in request.body.topics
    ]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "topics": topics}),)


async def _trim(topic: str, asked: Any, services: Services) -> dict[str, Any]:
    index, low, error = asked.partition_index, -1, ErrorCode.NONE
    try:
        low = await services.log.trim(topic, index, asked.offset)
    except ApiError as exc:
        error = ErrorCode(exc.error_code)
    return {"partition_index": index, "low_watermark": low, "error_code": error}


API = Handler(_KEY, 0, 2, _handle)
