"""FindCoordinator (10), versions 0 to 6: the node that coordinates a group.

1 says what kind of key it is. Transactions (1) are refused with an error that ends a client at once, instead
of one upon which it asks again until its own time-out; any other kind is no legal request. 3 is flexible, 4
asks for several keys (KIP-699).
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 10
_KEYS_FROM = 4
_GROUP, _TRANSACTION = 0, 1


async def _handle(request: Request, services: Services) -> Body:
    body = request.body
    kind = getattr(body, "key_type", _GROUP)
    if request.version < _KEYS_FROM:
        return (encode_answer(_KEY, request.version, await _find(body.key, kind, request, services)),)
    rows = [await _find(key, kind, request, services) | {"key": key} for key in body.coordinator_keys]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "coordinators": rows}),)


async def _find(key: str, kind: int, request: Request, services: Services) -> dict[str, Any]:
    if kind == _TRANSACTION:
        return _nobody("transactions are not served", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if kind != _GROUP:
        return _nobody("only consumer groups have coordinators here", ErrorCode.INVALID_REQUEST)
    try:
        node_id = await services.groups.coordinator(key)
    except ApiError as exc:
        return _nobody(exc.what, ErrorCode(exc.error_code))
    for node in services.cluster.nodes(request.listener):
        if node.id == node_id:
            found = {"node_id": node.id, "host": node.host, "port": node.port}
            return found | {"error_code": ErrorCode.NONE, "error_message": ""}
    return _nobody("no node coordinates the group now")


def _nobody(why: str, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": error,
        "error_message": why,
    }


API = Handler(_KEY, 0, 6, _handle)
