"""DescribeAcls (29), versions 1 to 3: there is no list, because rights are Pulsar's.

It is answered as by a Kafka without an authorizer, which tools know what to do with.
"""

from __future__ import annotations

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 29


async def _handle(request: Request, services: Services) -> Body:
    fields = {
        "throttle_time": 0,
        "error_code": ErrorCode.SECURITY_DISABLED,
        "error_message": "Pulsar's roles and permissions decide what a client may do",
        "resources": (),
    }
    return (encode_answer(_KEY, request.version, fields),)


API = Handler(_KEY, 1, 3, _handle)
