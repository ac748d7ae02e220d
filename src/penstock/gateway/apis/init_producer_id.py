"""InitProducerId (22), versions 0 to 5: an identity for idempotent producers.

A transactional id is refused: transactions are not served, and the protocol has an error for that.
"""

from __future__ import annotations

from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 22


async def _handle(request: Request, services: Services) -> Body:
    if request.body.transactional_id is not None:
        fields = {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producer_id": -1}
        return (encode_answer(_KEY, request.version, fields | {"producer_epoch": -1}),)
    producer_id, epoch = await services.producers.new_producer()
    fields = {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}
    return (encode_answer(_KEY, request.version, fields),)


API = Handler(_KEY, 0, 5, _handle)
