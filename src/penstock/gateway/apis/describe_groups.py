"""DescribeGroups (15), versions 0 to 6: 4 tells instance ids, 5 is flexible, 6 says that there is no group.

Before 6 a group that does not exist is Dead, without an error (KIP-1043).
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.listing import DescribedMember, Description
from penstock.gateway.groups.states import State
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 15
_NOT_FOUND_FROM = 6


async def _handle(request: Request, services: Services) -> Body:
    groups = [_describe(group_id, request.version, services) for group_id in request.body.groups]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "groups": groups}),)


def _describe(group_id: str, version: int, services: Services) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        found = services.groups.shard(group_id).describe(group_id)
        if found is None and version >= _NOT_FOUND_FROM:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        group = found or Description(group_id=group_id, state=State.DEAD)
    except ApiError as exc:
        error, message = ErrorCode(exc.error_code), exc.what
        return _row(Description(group_id=group_id, state=State.DEAD)) | {
            "group_state": "",
            "error_code": error,
            "error_message": message,
        }
    return _row(group) | {"error_code": error, "error_message": message}


def _row(group: Description) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [_member(each) for each in group.members],
    }


def _member(member: DescribedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


API = Handler(_KEY, 0, 6, _handle)
