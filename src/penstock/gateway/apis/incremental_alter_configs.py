"""IncrementalAlterConfigs (44), versions 0 to 1 (KIP-339): set and delete; lists are not appended to."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 44
_TOPIC = 2
_SET, _DELETE = 0, 1


async def _handle(request: Request, services: Services) -> Body:
    responses = [await _alter(resource, request, services) for resource in request.body.resources]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "responses": responses}),)


async def _alter(asked: Any, request: Request, services: Services) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        changes = _changes(asked)
        if not request.body.validate_only:
            await services.topics.configure(asked.resource_name, changes)
    except ApiError as exc:
        error, message = ErrorCode(exc.error_code), exc.what
    return {
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "error_code": error,
        "error_message": message,
    }


def _changes(asked: Any) -> dict[str, str | None]:
    if asked.resource_type != _TOPIC:
        raise ApiError("only topics have settings here", error_code=ErrorCode.INVALID_REQUEST)
    operations = {config.config_operation for config in asked.configs}
    if not operations <= {_SET, _DELETE}:
        raise ApiError("only set and delete are served", error_code=ErrorCode.INVALID_CONFIG)
    return {
        config.name: config.value if config.config_operation == _SET else None for config in asked.configs
    }


API = Handler(_KEY, 0, 1, _handle)
