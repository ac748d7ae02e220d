"""DeleteTopics (20), versions 1 to 6: by name, and from 6 on by id."""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 20
_AT_ONCE: Final = 8
_IDS_FROM = 6


async def _handle(request: Request, services: Services) -> Body:
    if request.version >= _IDS_FROM:
        asked = [(topic.name, topic.topic_id) for topic in request.body.topics]
    else:
        asked = [(name, None) for name in request.body.topic_names]
    rows = (_delete(name, topic_id, services) for name, topic_id in asked)
    responses = await gather_limited(rows, _AT_ONCE)
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "responses": responses}),)


async def _delete(name: str | None, topic_id: Any, services: Services) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        if name is None:
            topic = await services.topics.by_id(topic_id)
            if topic is None:
                raise ApiError("no topic has this id", error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        await services.topics.delete(name)
    except ApiError as exc:
        error, message = ErrorCode(exc.error_code), exc.what
    return {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}


API = Handler(_KEY, 1, 6, _handle)
