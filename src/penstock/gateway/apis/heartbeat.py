"""Heartbeat (12), versions 0 to 4: 3 has instance ids (KIP-345), 4 is flexible."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.groups.requests import Identity
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.groups import encode_heartbeat

__all__ = ["API"]


async def _handle(request: Request, services: Services) -> Body:
    return (encode_heartbeat(request.version, error_code=tell(_beat(request.body, services))),)


def _beat(body: Any, services: Services) -> int:
    if not body.group_id:
        return ErrorCode.INVALID_GROUP_ID
    who = Identity(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id,
    )
    try:
        return services.groups.shard(body.group_id).heartbeat(body.group_id, who)
    except ApiError as exc:
        return exc.error_code


API = Handler(12, 0, 4, _handle)
