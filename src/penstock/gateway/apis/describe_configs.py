"""DescribeConfigs (32), versions 1 to 4: the settings of topics that Pulsar has, and of this node none."""

from __future__ import annotations

from typing import Any

from penstock.errors import ApiError
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 32
_TOPIC, _BROKER = 2, 4
_DYNAMIC_TOPIC_CONFIG = 1
_STRING = 2


async def _handle(request: Request, services: Services) -> Body:
    results = [await _describe(resource, services) for resource in request.body.resources]
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "results": results}),)


async def _describe(asked: Any, services: Services) -> dict[str, Any]:
    result = {
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "configs": [],
    }
    if asked.resource_type == _BROKER:
        return result
    try:
        if asked.resource_type != _TOPIC:
            raise ApiError("only topics have settings here", error_code=ErrorCode.INVALID_REQUEST)
        configs = await services.topics.configs(asked.resource_name)
    except ApiError as exc:
        return result | {"error_code": ErrorCode(exc.error_code), "error_message": exc.what}
    names = asked.configuration_keys
    chosen = {name: value for name, value in configs.items() if names is None or name in names}
    return result | {"configs": [_config(name, value) for name, value in chosen.items()]}


def _config(name: str, value: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "config_source": _DYNAMIC_TOPIC_CONFIG,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": _STRING,
    }


API = Handler(_KEY, 1, 4, _handle)
