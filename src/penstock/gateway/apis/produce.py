"""Produce (0), versions 3 to 13.

One batch a partition, as every client since 0.11 sends it. Appends begin in the order of the requests, and at
once if every topic is known: no task is made for a request. acks 0 gets no answer. 13 names topics by id
(KIP-516). Versions 0 to 2 are advertised and refused: older librdkafka turns compression off when they are
not advertised.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ApiError, RecordsError
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Appended
from penstock.gateway.told import tell
from penstock.wire.kafka import ErrorCode, ProduceRequest, RecordBatch, read_batches
from penstock.wire.kafka.answers.produce import (
    PartitionProduced,
    ProduceAnswer,
    TopicProduced,
    encode_produce,
    encode_produced_one,
)
from penstock.wire.kafka.produce_request import PartitionToProduce, TopicToProduce
from penstock.wire.kafka.record_batch import read_batch

__all__ = ["API", "Production", "is_ready", "prepare"]

_IDS_FROM = 13
_ACKS = (-1, 0, 1)
_NOBODY = UUID(int=0)

_Begun = asyncio.Future[Appended] | ApiError | RecordsError
"""An append on its way, or why there is none."""


class _Topic(NamedTuple):
    """The partitions of one topic, begun in their order."""

    name: str
    partitions: list[_Begun]


def is_ready(request: Request, services: Services) -> bool:
    """Say whether a request can begin without asking anybody for a topic."""
    topics = request.body.topics
    return request.version < _IDS_FROM or all(
        services.topics.known(each.topic_id) is not None for each in topics
    )


async def prepare(request: Request, services: Services) -> None:
    """Ask for the topics that are not known; one that does not exist is refused later."""
    for each in request.body.topics if request.version >= _IDS_FROM else ():
        if services.topics.known(each.topic_id) is None:
            with contextlib.suppress(ApiError):
                await services.topics.by_id(each.topic_id)


class Production:
    """A Produce request whose appends have begun: `done` is called once all have ended, maybe at once."""

    __slots__ = ("_begun", "_body", "_done", "_left", "_version")

    def __init__(self, request: Request, services: Services, done: Callable[[Production], None]) -> None:
        self._body: ProduceRequest = request.body
        self._version = request.version
        self._done = done
        # Begun now: the order of two requests is the order of these calls; the result comes later.
        self._begun = [_begin_topic(each, request, services) for each in self._body.topics]
        waiting = self._waiting()
        self._left = len(waiting) or 1
        for one in waiting:
            one.add_done_callback(self._settled)
        if not waiting:
            self._settled()

    @property
    def is_done(self) -> bool:
        """Say whether everything has ended."""
        return self._left == 0

    @property
    def seconds(self) -> float:
        """How long the client wants to wait."""
        return self._body.timeout_ms / 1000

    def expire(self) -> None:
        """Stop waiting: what is not stored is answered so, and given up if it was not sent."""
        for one in self._waiting():
            one.cancel()

    def answer(self) -> Body:
        """Make the answer; raise if the client wants none and something was not stored."""
        pairs = zip(self._body.topics, self._begun, strict=True)
        topics = tuple(_produced(asked, topic) for asked, topic in pairs)
        if self._body.acks == 0:
            _check_silent(topics)
            return None
        return (encode_produce(ProduceAnswer(topics=topics), self._version),)

    def stored(self) -> Body:
        """Make the answer of the common case, one batch that is stored; None if it is another."""
        if len(self._begun) != 1 or len(self._begun[0].partitions) != 1 or self._body.acks == 0:
            return None
        begun = self._begun[0].partitions[0]
        if not isinstance(begun, asyncio.Future) or begun.cancelled() or begun.exception() is not None:
            return None
        stored, asked = begun.result(), self._body.topics[0]
        if stored.log_append_time >= 0:
            return None
        name, topic_id, index = self._begun[0].name, asked.topic_id, asked.partitions[0].partition
        offsets = {"base_offset": stored.base_offset, "log_start_offset": stored.log_start_offset}
        return (encode_produced_one(name, topic_id, index, self._version, **offsets),)

    def _settled(self, _: object = None) -> None:
        self._left -= 1
        if not self._left:
            self._done(self)

    def _waiting(self) -> list[asyncio.Future[Appended]]:
        return [one for topic in self._begun for one in topic.partitions if isinstance(one, asyncio.Future)]


def _check_silent(topics: tuple[TopicProduced, ...]) -> None:
    """Close the connection after an error: so Kafka tells it to a client that wants no answer."""
    failed = [each for topic in topics for each in topic.partitions if each.error_code]
    if failed:
        raise ApiError(failed[0].error_message or "not stored", error_code=failed[0].error_code)


def _begin_topic(asked: TopicToProduce, request: Request, services: Services) -> _Topic:
    name, error = asked.name, ErrorCode.NONE
    if request.version >= _IDS_FROM:
        found = services.topics.known(asked.topic_id or _NOBODY)
        name, error = (found.name, error) if found else ("", ErrorCode.UNKNOWN_TOPIC_ID)
    if request.body.acks not in _ACKS:
        error = ErrorCode.INVALID_REQUIRED_ACKS
    if request.body.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _Topic(name, [_begin(name, each, error, services) for each in asked.partitions])


def _begin(topic: str, asked: PartitionToProduce, error: ErrorCode, services: Services) -> _Begun:
    if error:
        return ApiError(error.name, error_code=error)
    try:
        batch = _batch(asked.records)
    except RecordsError as exc:
        return exc
    try:
        if len(batch.data) > services.settings.max_batch_bytes:
            raise RecordsError("the batch is too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)
        began = services.log.append(topic, asked.partition, batch)
    except (ApiError, RecordsError) as exc:
        services.log.refused(topic, asked.partition, batch)
        return exc
    return began if isinstance(began, asyncio.Future) else asyncio.ensure_future(began)


def _batch(records: memoryview | None) -> RecordBatch:
    batch = read_batch(records) if records else None
    if batch is None or len(batch.data) != len(records or b""):
        # KIP-98: since message format 2 a request holds exactly one batch a partition.
        count = sum(1 for _ in read_batches(records or b""))
        raise RecordsError(f"{count} batches for one partition", error_code=ErrorCode.INVALID_RECORD)
    return batch


def _produced(asked: TopicToProduce, topic: _Topic) -> TopicProduced:
    pairs = zip(asked.partitions, topic.partitions, strict=True)
    results = tuple(_result(each.partition, one) for each, one in pairs)
    return TopicProduced(name=topic.name, topic_id=asked.topic_id or _NOBODY, partitions=results)


def _result(index: int, begun: _Begun) -> PartitionProduced:
    if isinstance(begun, asyncio.Future) and (not begun.done() or begun.cancelled()):
        begun = ApiError("Pulsar is slow", error_code=ErrorCode.REQUEST_TIMED_OUT)
    error = begun.exception() if isinstance(begun, asyncio.Future) else begun
    if isinstance(error, ApiError | RecordsError):
        return PartitionProduced(
            index=index, error_code=tell(error.error_code, error.what), error_message=error.what
        )
    assert isinstance(begun, asyncio.Future)
    appended = begun.result()
    return PartitionProduced(
        index=index,
        base_offset=appended.base_offset,
        log_append_time=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


API = Handler(0, 3, 13, None)
