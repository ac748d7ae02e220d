"""FindCoordinator (10), versions 0 to 6: no groups are served yet, so no coordinator is available.

librdkafka asks even if partitions are assigned by hand; it goes on without an answer. 4 asks for several keys
(KIP-699).
"""

from __future__ import annotations

from typing import Any

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 10
_KEYS_FROM = 4


async def _handle(request: Request, services: Services) -> Body:
    nobody: dict[str, Any] = {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "error_message": "consumer groups are not served",
    }
    if request.version < _KEYS_FROM:
        return (encode_answer(_KEY, request.version, nobody),)
    rows = [nobody | {"key": key} for key in request.body.coordinator_keys]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "coordinators": rows}),)


API = Handler(_KEY, 0, 6, _handle)
