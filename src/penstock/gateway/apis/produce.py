"""Produce (0), versions 3 to 13.

One batch a partition, as every client since 0.11 sends it. Appends begin in the order of the requests.
acks 0 gets no answer. 13 names topics by id (KIP-516). Versions 0 to 2 are advertised and refused: older
librdkafka turns compression off when they are not advertised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from penstock.errors import ApiError, PenstockError, RecordsError
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Appended
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches
from penstock.wire.kafka.answers.produce import (
    PartitionProduced,
    ProduceAnswer,
    TopicProduced,
    encode_produce,
)

__all__ = ["API"]

_IDS_FROM = 13
_ACKS = (-1, 0, 1)


async def _handle(request: Request, services: Services) -> Body:
    body = request.body
    topics = await asyncio.gather(*[_topic(each, request, services) for each in body.topic_data])
    if body.acks == 0:
        return None
    return (encode_produce(ProduceAnswer(topics=tuple(topics)), request.version),)


async def _topic(asked: Any, request: Request, services: Services) -> TopicProduced:
    topic_id = getattr(asked, "topic_id", None) or UUID(int=0)
    name, error = getattr(asked, "name", ""), ErrorCode.NONE
    if request.version >= _IDS_FROM:
        found = await services.topics.by_id(topic_id)
        name, error = (found.name, error) if found else ("", ErrorCode.UNKNOWN_TOPIC_ID)
    if request.body.acks not in _ACKS:
        error = ErrorCode.INVALID_REQUIRED_ACKS
    begun = [_begin(name, each, error, services) for each in asked.partition_data]
    partitions = await asyncio.gather(*begun)
    return TopicProduced(name=name, topic_id=topic_id, partitions=tuple(partitions))


def _begin(topic: str, asked: Any, error: ErrorCode, services: Services) -> Awaitable[PartitionProduced]:
    """Begin to append now; the order of two requests is the order of these calls."""
    if error:
        return _refuse(asked.index, ApiError(error.name, error_code=error))
    try:
        return _finish(asked.index, services.log.append(topic, asked.index, _batch(asked, services)))
    except (ApiError, RecordsError) as exc:
        return _refuse(asked.index, exc)


def _batch(asked: Any, services: Services) -> RecordBatch:
    batches = list(read_batches(asked.records or b""))
    if len(batches) != 1:
        # KIP-98: since message format 2 a request holds exactly one batch a partition.
        raise RecordsError(f"{len(batches)} batches for one partition", error_code=ErrorCode.INVALID_RECORD)
    if len(batches[0].data) > services.settings.max_batch_bytes:
        raise RecordsError("the batch is too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)
    return batches[0]


async def _finish(index: int, result: Awaitable[Appended]) -> PartitionProduced:
    try:
        appended = await result
    except (ApiError, RecordsError) as exc:
        return await _refuse(index, exc)
    return PartitionProduced(
        index=index,
        base_offset=appended.base_offset,
        log_append_time=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


async def _refuse(index: int, exc: PenstockError) -> PartitionProduced:
    code = getattr(exc, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR)
    return PartitionProduced(index=index, error_code=code, error_message=exc.what)


API = Handler(0, 3, 13, _handle)
