"""LeaveGroup (13), versions 0 to 5: 3 takes several members (KIP-345), 4 is flexible, 5 has a reason."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.requests import LeaveRequest
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 13
_SEVERAL_FROM = 3


async def _handle(request: Request, services: Services) -> Body:
    body, several = request.body, request.version >= _SEVERAL_FROM
    leavers = _leavers(body, several)
    try:
        if not body.group_id:
            raise ApiError("no group is named", error_code=ErrorCode.INVALID_GROUP_ID)
        errors = services.groups.shard(body.group_id).leave(body.group_id, leavers)
    except ApiError as exc:
        return (_encode(request, ErrorCode(exc.error_code), []),)
    rows = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": error}
        for each, error in zip(leavers, errors, strict=True)
    ]
    # A single member's error is that of the answer.
    return (_encode(request, ErrorCode.NONE if several else errors[0], rows),)


def _leavers(body: Any, several: bool) -> list[LeaveRequest]:
    if not several:
        return [LeaveRequest(member_id=body.member_id)]
    return [
        LeaveRequest(member_id=each.member_id, instance_id=each.group_instance_id) for each in body.members
    ]


def _encode(request: Request, error: ErrorCode, members: list[dict[str, Any]]) -> bytes:
    fields = {"throttle_time": 0, "error_code": error, "members": members}
    return encode_answer(_KEY, request.version, fields)


API = Handler(_KEY, 0, 5, _handle)
