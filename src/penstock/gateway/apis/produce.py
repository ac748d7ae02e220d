"""Produce (0), versions 3 to 13.

One batch a partition, as every client since 0.11 sends it. Appends begin in the order of the requests.
acks 0 gets no answer. 13 names topics by id (KIP-516). Versions 0 to 2 are advertised and refused: older
librdkafka turns compression off when they are not advertised.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ApiError, RecordsError
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

_Begun = asyncio.Future[Appended] | ApiError | RecordsError
"""An append on its way, or why there is none."""


class _Topic(NamedTuple):
    """The partitions of one topic, begun in their order."""

    name: str
    partitions: list[_Begun]


async def _handle(request: Request, services: Services) -> Body:
    body: ProduceRequest = request.body
    async with request.turn:
        begun = [await _begin_topic(each, request, services) for each in body.topics]
    await _settle([one for topic in begun for one in topic.partitions], body.timeout_ms / 1000)
    topics = tuple(_produced(asked, topic) for asked, topic in zip(body.topics, begun, strict=True))
    if body.acks == 0:
        _check_silent(topics)
        return None
    return (encode_produce(ProduceAnswer(topics=topics), request.version),)


def _check_silent(topics: tuple[TopicProduced, ...]) -> None:
    """Close the connection after an error: so Kafka tells it to a client that wants no answer."""
    failed = [each for topic in topics for each in topic.partitions if each.error_code]
    if failed:
        raise ApiError(failed[0].error_message or "not stored", error_code=failed[0].error_code)


async def _begin_topic(asked: TopicToProduce, request: Request, services: Services) -> _Topic:
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
    return _Topic(name, [_begin(name, each, error, services) for each in asked.partitions])


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


async def _settle(begun: list[_Begun], seconds: float) -> None:
    """Wait for all of them, at most so long; what is not stored by then may still be given up."""
    waiting = [one for one in begun if isinstance(one, asyncio.Future)]
    if not waiting:
        return
    try:
        await asyncio.wait(waiting, timeout=seconds)
    finally:
        for one in waiting:
            one.cancel()


def _produced(asked: TopicToProduce, topic: _Topic) -> TopicProduced:
    pairs = zip(asked.partitions, topic.partitions, strict=True)
    results = tuple(_result(each.partition, one) for each, one in pairs)
    return TopicProduced(name=topic.name, topic_id=asked.topic_id or _NOBODY, partitions=results)


def _result(index: int, begun: _Begun) -> PartitionProduced:
    if isinstance(begun, asyncio.Future) and (not begun.done() or begun.cancelled()):
        begun = ApiError("Pulsar is slow", error_code=ErrorCode.REQUEST_TIMED_OUT)
    error = begun.exception() if isinstance(begun, asyncio.Future) else begun
    if isinstance(error, ApiError | RecordsError):
        return PartitionProduced(index=index, error_code=error.error_code, error_message=error.what)
    assert isinstance(begun, asyncio.Future)
    appended = begun.result()
    return PartitionProduced(
        index=index,
        base_offset=appended.base_offset,
        log_append_time=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


API = Handler(0, 3, 13, _handle)
