"""Changes of settings: what AlterConfigs and IncrementalAlterConfigs have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["Changes", "alter_resources"]

_TOPIC, _BROKER = 2, 4
_AT_ONCE: Final = 8
Changes = Mapping[str, str | None]


async def alter_resources(
    key: int, request: Request, services: Services, changes_of: Callable[[Any, Services], Awaitable[Changes]]
) -> Body:
    """Change the settings of each resource of a request, and answer."""
    named = Counter((each.resource_type, each.resource_name) for each in request.body.resources)
    rows = (
        _alter(each, named[each.resource_type, each.resource_name] > 1, request, services, changes_of)
        for each in request.body.resources
    )
    responses = await gather_limited(rows, _AT_ONCE)
    return (encode_answer(key, request.version, {"throttle_time": 0, "responses": responses}),)


async def _alter(
    asked: Any,
    repeated: bool,
    request: Request,
    services: Services,
    changes_of: Callable[[Any, Services], Awaitable[Changes]],
) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        _check(asked, repeated)
        changes = await changes_of(asked, services)
        validate_only = request.body.validate_only
        await services.topics.configure(asked.resource_name, changes, validate_only=validate_only)
    except ApiError as exc:
        error, message = ErrorCode(exc.error_code), exc.what
    return {
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "error_code": error,
        "error_message": message,
    }


def _check(asked: Any, repeated: bool) -> None:
    problem = None
    if asked.resource_type == _BROKER:
        problem = "the settings of a broker are those with which the gateway was started"
    elif asked.resource_type != _TOPIC:
        problem = "only topics have settings that can be changed here"
    elif repeated:
        problem = "the topic is named twice"
    elif len({config.name for config in asked.configs}) < len(asked.configs):
        problem = "a setting is named twice"
    if problem is not None:
        raise ApiError(problem, error_code=ErrorCode.INVALID_REQUEST)
