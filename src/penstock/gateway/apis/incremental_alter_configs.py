"""IncrementalAlterConfigs (44), versions 0 to 1 (KIP-339): set, delete, and add to and take from a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.config_changes import Changes, alter_resources
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.topic_settings import appended, check_setting, subtracted
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 44
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LIST_OPERATIONS: Final[Mapping[int, Callable[[str, str, str | None], str]]] = {
    _APPEND: appended,
    _SUBTRACT: subtracted,
}


async def _handle(request: Request, services: Services) -> Body:
    return await alter_resources(_KEY, request, services, _changes)


async def _changes(asked: Any, services: Services) -> Changes:
    changes: dict[str, str | None] = {}
    for config in asked.configs:
        operation = config.config_operation
        if operation in _LIST_OPERATIONS:
            check_setting(config.name, None)
            present = (await services.topics.configs(asked.resource_name)).get(config.name)
            value = "" if present is None else present.value
            changes[config.name] = _LIST_OPERATIONS[operation](config.name, value, config.value)
        elif operation == _SET:
            if config.value is None:
                raise ApiError(f"{config.name} has no value", error_code=ErrorCode.INVALID_REQUEST)
            changes[config.name] = config.value
        elif operation == _DELETE:
            changes[config.name] = None
        else:
            raise ApiError(f"there is no operation {operation}", error_code=ErrorCode.INVALID_REQUEST)
    return changes


API = Handler(_KEY, 0, 1, _handle)
