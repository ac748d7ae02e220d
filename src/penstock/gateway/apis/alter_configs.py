"""AlterConfigs (33), versions 0 to 2: all settings of a topic at once.

What the request does not name goes back to its default; IncrementalAlterConfigs, which came later, leaves it.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.config_changes import Changes, alter_resources
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 33


async def _changes(asked: Any, services: Services) -> Changes:
    for config in asked.configs:
        if config.value is None:
            raise ApiError(f"{config.name} has no value", error_code=ErrorCode.INVALID_REQUEST)
    present = await services.topics.configs(asked.resource_name)
    taken_back: Changes = {name: None for name, config in present.items() if config.is_set}
    return {**taken_back, **{config.name: config.value for config in asked.configs}}


async def _handle(request: Request, services: Services) -> Body:
    return await alter_resources(_KEY, request, services, _changes)


API = Handler(_KEY, 0, 2, _handle)
