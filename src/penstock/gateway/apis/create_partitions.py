"""CreatePartitions (37), versions 0 to 3: partitions only grow."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 37


async def _handle(request: Request, services: Services) -> Body:
    results = [await _grow(topic, request, services) for topic in request.body.topics]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "results": results}),)


async def _grow(asked: Any, request: Request, services: Services) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        await services.topics.grow(asked.name, asked.count, validate_only=request.body.validate_only)
    except ApiError as exc:
        error, message = ErrorCode(exc.error_code), exc.what
    return {"name": asked.name, "error_code": error, "error_message": message}


API = Handler(_KEY, 0, 3, _handle)
