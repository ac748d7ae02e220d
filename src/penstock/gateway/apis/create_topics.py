"""CreateTopics (19), versions 2 to 7.

The replication factor is Pulsar's business and is taken as it is asked; a manual assignment only counts the
partitions. -1 partitions means the default (KIP-464). 7 gives the topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.entities import encode_answer
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import NewTopic
from penstock.wire.kafka import ErrorCode

__all__ = ["API"]

_KEY = 19
_AT_ONCE: Final = 8


async def _handle(request: Request, services: Services) -> Body:
    named = Counter(topic.name for topic in request.body.topics)
    rows = (_create(topic, named[topic.name] > 1, request, services) for topic in request.body.topics)
    topics = await gather_limited(rows, _AT_ONCE)
    return (encode_answer(_KEY, request.version, {"throttle_time": 0, "topics": topics}),)


async def _create(asked: Any, repeated: bool, request: Request, services: Services) -> dict[str, Any]:
    try:
        if repeated:
            raise ApiError("the topic is named twice", error_code=ErrorCode.INVALID_REQUEST)
        wanted = NewTopic(
            name=asked.name,
            partitions=_partitions(asked, services),
            configs={config.name: config.value for config in asked.configs},
        )
        topic = await services.topics.create(wanted, validate_only=request.body.validate_only)
    except ApiError as exc:
        return {"name": asked.name, "error_code": ErrorCode(exc.error_code), "error_message": exc.what}
    return {
        "name": asked.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.NONE,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": (),
    }


def _partitions(asked: Any, services: Services) -> int:
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == -1:
        return services.settings.default_partitions
    if asked.num_partitions < 1:
        raise ApiError("a topic has at least one partition", error_code=ErrorCode.INVALID_PARTITIONS)
    return int(asked.num_partitions)


API = Handler(_KEY, 2, 7, _handle)
