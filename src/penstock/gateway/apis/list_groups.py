"""ListGroups (16), versions 0 to 5: 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848).

Each node lists what it coordinates; a client asks all of them.
"""

from __future__ import annotations

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.groups.listing import TYPE
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 16


async def _handle(request: Request, services: Services) -> Body:
    states = getattr(request.body, "states_filter", ())
    types = getattr(request.body, "types_filter", ())
    error = ErrorCode.NONE
    try:
        found = [group for shard in services.groups.shards() for group in shard.list(states, types)]
    except ApiError as exc:
        error, found = ErrorCode(exc.error_code), []
    rows = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type,
            "group_state": group.state.value,
            "group_type": TYPE,
        }
        for group in found
    ]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "error_code": error, "groups": rows}),)


API = Handler(_KEY, 0, 5, _handle)
