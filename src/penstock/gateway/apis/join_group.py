"""JoinGroup (11), versions 0 to 9.

1 adds the rebalance time-out, 4 makes a new member come back with its id (KIP-394), 5 has instance ids
(KIP-345), 6 is flexible, 7 tells the protocol type, 8 has a reason (KIP-800), 9 lets a static leader keep the
assignment (KIP-814). The answer comes when all members have joined.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.groups.requests import JoinAnswer, JoinRequest
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.groups import JoinGroupAnswer, MemberJoined, encode_join_group

__all__ = ["API"]

_KNOWN_ID_FROM, _SKIP_FROM = 4, 9


async def _handle(request: Request, services: Services) -> Body:
    answer = await _join(request, services)
    told = JoinGroupAnswer(
        error_code=tell(answer.error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            MemberJoined(member_id=each.member_id, instance_id=each.instance_id, metadata=each.metadata)
            for each in answer.members
        ),
    )
    return (encode_join_group(told, request.version),)


async def _join(request: Request, services: Services) -> JoinAnswer:
    body = request.body
    if not body.group_id:
        return JoinAnswer(member_id=body.member_id, error=ErrorCode.INVALID_GROUP_ID)
    try:
        return await services.groups.shard(body.group_id).join(body.group_id, _asked(request, body))
    except ApiError as exc:
        return JoinAnswer(member_id=body.member_id, error=ErrorCode(exc.error_code))


def _asked(request: Request, body: Any) -> JoinRequest:
    session = body.session_timeout.total_seconds()
    rebalance = getattr(body, "rebalance_timeout", body.session_timeout).total_seconds()
    return JoinRequest(
        token=0,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=request.client_host,
        session=session,
        rebalance=rebalance if rebalance >= 0 else session,
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        new_member_id="",
        needs_known_id=request.version >= _KNOWN_ID_FROM,
        skips_assignment=request.version >= _SKIP_FROM,
    )


API = Handler(11, 0, 9, _handle)
