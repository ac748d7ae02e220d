"""Produce (0), versions 3 to 13.

One batch a partition, as every client since 0.11 sends it. Appends begin in the order of the requests.
acks 0 gets no answer. 13 names topics by id (KIP-516). Versions 0 to 2 are advertised and refused: older
librdkafka turns compression off when they are not advertised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from penstock.errors import ApiError, PenstockError, RecordsError
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Appended
from penstock.wire.kafka import ErrorCode, ProduceRequest, RecordBatch, read_batches
from penstock.wire.kafka.answers.produce import (
    PartitionProduced,
    ProduceAnswer,
    TopicProduced,
    encode_produce,
)
from penstock.wire.kafka.produce_request import PartitionToProduce, TopicToProduce

__all__ = ["API"]

_IDS_FROM = 13
_ACKS = (-1, 0, 1)
_NOBODY = UUID(int=0)


async def _handle(request: Request, services: Services) -> Body:
    body: ProduceRequest = request.body
    async with request.turn:
        begun = [await _topic(each, request, services) for each in body.topics]
    topics = await asyncio.gather(*begun)
    if body.acks == 0:
        _check_silent(topics)
        return None
    return (encode_produce(ProduceAnswer(topics=tuple(topics)), request.version),)


def _check_silent(topics: list[TopicProduced]) -> None:
    """Close the connection after an error: so Kafka tells it to a client that wants no answer."""
    failed = [each for topic in topics for each in topic.partitions if each.error_code]
    if failed:
        raise ApiError(failed[0].error_message or "not stored", error_code=failed[0].error_code)


async def _topic(
    asked: TopicToProduce, request: Request, services: Services
) -> Coroutine[Any, Any, TopicProduced]:
    """Begin to append now: the order of two requests is the order of these calls; the result comes later."""
    name, error = asked.name, ErrorCode.NONE
    try:
        if request.version >= _IDS_FROM:
            found = await services.topics.by_id(asked.topic_id or _NOBODY)
            name, error = (found.name, error) if found else ("", ErrorCode.UNKNOWN_TOPIC_ID)
    except ApiError as exc:
        error = ErrorCode(exc.error_code)
    if request.body.acks not in _ACKS:
        error = ErrorCode.INVALID_REQUIRED_ACKS
    if request.body.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    begun = [_begin(name, each, error, services) for each in asked.partitions]
    return _produced(name, asked, begun, request.body.timeout_ms / 1000)


async def _produced(name: str, asked: TopicToProduce, begun: list[_Begun], seconds: float) -> TopicProduced:
    pairs = zip(asked.partitions, begun, strict=True)
    results = await asyncio.gather(*[_finish(each.partition, one, seconds) for each, one in pairs])
    return TopicProduced(name=name, topic_id=asked.topic_id or _NOBODY, partitions=tuple(results))


def _begin(topic: str, asked: PartitionToProduce, error: ErrorCode, services: Services) -> _Begun:
    if error:
        return ApiError(error.name, error_code=error)
    try:
        return asyncio.ensure_future(
            services.log.append(topic, asked.partition, _batch(asked.records, services))
        )
    except (ApiError, RecordsError) as exc:
        return exc


def _batch(records: memoryview | None, services: Services) -> RecordBatch:
    batches = list(read_batches(records or b""))
    if len(batches) != 1:
        # KIP-98: since message format 2 a request holds exactly one batch a partition.
        raise RecordsError(f"{len(batches)} batches for one partition", error_code=ErrorCode.INVALID_RECORD)
    if len(batches[0].data) > services.settings.max_batch_bytes:
        raise RecordsError("the batch is too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)
    return batches[0]


async def _finish(index: int, begun: _Begun, seconds: float) -> PartitionProduced:
    try:
        if isinstance(begun, PenstockError):
            raise begun
        async with asyncio.timeout(seconds):
            appended = await begun
    except TimeoutError:
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        return PartitionProduced(index=index, error_code=timed_out, error_message="Pulsar is slow")
    except (ApiError, RecordsError) as exc:
        return PartitionProduced(index=index, error_code=exc.error_code, error_message=exc.what)
    return PartitionProduced(
        index=index,
        base_offset=appended.base_offset,
        log_append_time=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


_Begun = asyncio.Future[Appended] | PenstockError

API = Handler(0, 3, 13, _handle)
