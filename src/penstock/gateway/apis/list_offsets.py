"""ListOffsets (2), versions 1 to 11.

By time, or by place: -1 latest, -2 earliest, from 7 on -3 the largest timestamp (KIP-734). Without tiers,
-4 earliest local is earliest and -5 latest tiered is none (KIP-405, KIP-1005).
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from penstock.errors import ApiError
from penstock.gateway.concurrency import gather_limited
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import EARLIEST, Found
from penstock.gateway.told import tell
from penstock.wire.kafka.answers.list_offsets import (
    ListOffsetsAnswer,
    PartitionOffset,
    TopicOffsets,
    encode_list_offsets,
)

__all__ = ["API"]

_EARLIEST_LOCAL, _LATEST_TIERED = -4, -5
_AT_ONCE: Final = 32
"""Partitions of one request that the broker is asked about at the same time."""


async def _handle(request: Request, services: Services) -> Body:
    asked = request.body.topics
    searches = (_find(topic.name, each, services) for topic in asked for each in topic.partitions)
    found = iter(await gather_limited(searches, _AT_ONCE))
    topics = tuple(
        TopicOffsets(name=topic.name, partitions=tuple(islice(found, len(topic.partitions))))
        for topic in asked
    )
    return (encode_list_offsets(ListOffsetsAnswer(topics=topics), request.version),)


async def _find(topic: str, asked: Any, services: Services) -> PartitionOffset:
    index, timestamp = asked.partition_index, asked.timestamp
    if timestamp == _LATEST_TIERED:
        return PartitionOffset(index=index)
    try:
        place = EARLIEST if timestamp == _EARLIEST_LOCAL else timestamp
        found: Found = await services.log.find(topic, index, place)
    except ApiError as exc:
        return PartitionOffset(index=index, error_code=tell(exc.error_code))
    return PartitionOffset(index=index, offset=found.offset, timestamp=found.timestamp, leader_epoch=0)


API = Handler(2, 1, 11, _handle)
