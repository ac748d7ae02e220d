"""DeleteGroups (42), versions 0 to 2: groups without members, with their offsets (KIP-229); 2 is flexible."""

from __future__ import annotations

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 42


async def _handle(request: Request, services: Services) -> Body:
    results = [
        {"group_id": group_id, "error_code": await _delete(group_id, services)}
        for group_id in request.body.groups_names
    ]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "results": results}),)


async def _delete(group_id: str, services: Services) -> ErrorCode:
    try:
        return await services.groups.shard(group_id).delete(group_id)
    except ApiError as exc:
        return ErrorCode(exc.error_code)


API = Handler(_KEY, 0, 2, _handle)
