"""SaslAuthenticate (36), versions 0 to 2: who a client is (KIP-152); 2 is flexible.

1 tells how long that is believed: the client says it again on the same connection (KIP-368).
"""

from __future__ import annotations

import time

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.apis import SASL_AUTHENTICATE

__all__ = ["API"]

_MILLISECONDS = 1000


async def _handle(request: Request, services: Services) -> Body:
    if request.session is None:
        fields = {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": "no SASL here"}
        return (encode_answer(SASL_AUTHENTICATE, request.version, fields),)
    proof = await request.session.prove(bytes(request.body.auth_bytes), time.time)
    fields = {
        "error_code": proof.error,
        "error_message": proof.message,
        "session_lifetime": int(proof.lifetime * _MILLISECONDS),
    }
    return (encode_answer(SASL_AUTHENTICATE, request.version, fields),)


API = Handler(SASL_AUTHENTICATE, 0, 2, _handle)
