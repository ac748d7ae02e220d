"""SyncGroup (14), versions 0 to 5: 3 has instance ids (KIP-345), 4 is flexible.

5 names the protocol, which must be that of the group (KIP-559). The answer comes when the
leader has brought the assignment and it is stored.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.groups.requests import Identity, SyncAnswer, SyncRequest
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.groups import SyncGroupAnswer, encode_sync_group

__all__ = ["API"]

_PROTOCOL_FROM = 5


async def _handle(request: Request, services: Services) -> Body:
    answer = await _sync(request.body, request.version, services)
    told = SyncGroupAnswer(
        error_code=tell(answer.error),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
    return (encode_sync_group(told, request.version),)


async def _sync(body: Any, version: int, services: Services) -> SyncAnswer:
    if not body.group_id:
        return SyncAnswer(error=ErrorCode.INVALID_GROUP_ID)
    if version >= _PROTOCOL_FROM and (body.protocol_type is None or body.protocol_name is None):
        return SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    asked = SyncRequest(
        token=0,
        who=Identity(
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            generation=body.generation_id,
        ),
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in body.assignments),
    )
    try:
        return await services.groups.shard(body.group_id).sync(body.group_id, asked)
    except ApiError as exc:
        return SyncAnswer(error=ErrorCode(exc.error_code))


API = Handler(14, 0, 5, _handle)
