"""JoinGroup (11), versions 0 to 9.

1 adds the rebalance time-out, 4 makes a new member come back with its id (KIP-394), 5 has instance ids
(KIP-345), 6 is flexible, 7 tells the protocol type, 8 has a reason (KIP-800), 9 lets a static leader keep the
assignment (KIP-814). The answer comes when all members have joined.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.requests import JoinAnswer, JoinRequest
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 11
_KNOWN_ID_FROM, _NULL_PROTOCOL_FROM, _SKIP_FROM = 4, 7, 9


async def _handle(request: Request, services: Services) -> Body:
    answer = await _join(request, services)
    members = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
        for each in answer.members
    ]
    missing = None if request.version >= _NULL_PROTOCOL_FROM else ""
    fields = {
        "throttle_time": 0,
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": missing if answer.protocol is None else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": members,
    }
    return (encode_answer(_KEY, request.version, fields),)


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


API = Handler(_KEY, 0, 9, _handle)
