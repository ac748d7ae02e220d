"""SaslHandshake (17), versions 0 and 1: the mechanism by which a client says who it is (KIP-43).

After version 0 the message of the mechanism comes without a request around it, after 1 in SaslAuthenticate
(KIP-152). A listener without SASL says that it is not the time for it.
"""

from __future__ import annotations

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.security.mechanisms import MECHANISMS
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.apis import SASL_HANDSHAKE

__all__ = ["API"]


async def _handle(request: Request, services: Services) -> Body:
    error, session = ErrorCode.ILLEGAL_SASL_STATE, request.session
    if session is not None:
        error = await session.choose(request.body.mechanism, bare=request.version == 0)
    fields = {"error_code": error, "mechanisms": list(MECHANISMS)}
    return (encode_answer(SASL_HANDSHAKE, request.version, fields),)


API = Handler(SASL_HANDSHAKE, 0, 1, _handle)
