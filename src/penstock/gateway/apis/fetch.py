"""Fetch (1), versions 4 to 18.

Waits up to max_wait until min_bytes are there. At least one batch is given if there is any, however large
(KIP-74). Sessions (KIP-227, from 7 on) are answered with session id 0: every fetch is a full one, which the
protocol allows; a client that names a session is told that there is none. 13 names topics by id (KIP-516).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from penstock.errors import ApiError
from penstock.gateway.handler import Body, Handler, Request, Services
from penstock.gateway.ports import Slice
from penstock.gateway.told import tell
from penstock.wire.buffer import Buffer
from penstock.wire.kafka import ErrorCode
from penstock.wire.kafka.answers.fetch import FetchAnswer, PartitionFetched, TopicFetched, encode_fetch

__all__ = ["API"]

_IDS_FROM = 13
_NOBODY = UUID(int=0)
_GATHER_SECONDS = 0.001
_GATHER_BYTES = 512 * 1024
"""An answer of so many bytes is worth its while."""
_BEHIND = 1000
"""Records between an answer and the end of the log from which on a client is taken to read what is old."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One partition that the client asks for."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    max_bytes: int
    error: ErrorCode = ErrorCode.NONE


async def _handle(request: Request, services: Services) -> Body:
    if request.body.session_id:
        unknown = FetchAnswer(error_code=tell(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return list(encode_fetch(unknown, request.version))
    wanted = await _resolve(request, services)
    deadline = time.monotonic() + request.body.max_wait_ms / 1000
    found = await _read(wanted, request, services)
    if _is_catching_up(found, request):
        # A broker of Kafka would have it on disk, ours pushes it to us: an answer for each of the entries as
        # they come costs more than the entries do.
        await asyncio.sleep(min(_GATHER_SECONDS, request.body.max_wait_ms / 1000))
        found = await _read(wanted, request, services)
    while _too_little(found, request) and (left := deadline - time.monotonic()) > 0:
        if not await _more(wanted, found, left, services):
            break
        found = await _read(wanted, request, services)
    return list(encode_fetch(FetchAnswer(topics=_group(wanted, found)), request.version))


async def _resolve(request: Request, services: Services) -> list[_Wanted]:
    wanted = []
    for topic in request.body.topics:
        topic_id = topic.topic_id or _NOBODY
        name, error = topic.name, ErrorCode.NONE
        if request.version >= _IDS_FROM:
            known = await services.topics.by_id(topic_id)
            name, error = (known.name, error) if known else ("", ErrorCode.UNKNOWN_TOPIC_ID)
        for each in topic.partitions:
            wanted.append(
                _Wanted(name, topic_id, each.partition, each.fetch_offset, each.partition_max_bytes, error)
            )
    return wanted


async def _read(wanted: list[_Wanted], request: Request, services: Services) -> list[Slice | ErrorCode]:
    """Read the partitions, and leave out, in their order, what does not fit the answer any more."""
    left = max(0, min(request.body.max_bytes, services.settings.max_fetch_bytes))
    reads = [_read_one(each, max(0, min(left, each.max_bytes)), services) for each in wanted]
    found: list[Slice | ErrorCode] = []
    empty = True
    # A task for each partition is worth it only if there are several.
    for result in [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads):
        kept = result
        if isinstance(result, Slice) and result.batches:
            # KIP-74: the first batch is given however large it is.
            kept = _fitting(result, left, at_least_one=empty)
            empty, left = empty and not kept.batches, left - kept.size
        found.append(kept)
    return found


def _fitting(found: Slice, left: int, *, at_least_one: bool) -> Slice:
    if found.size <= left:
        return found
    batches: list[Buffer] = []
    for batch in found.batches:
        left -= len(batch)
        if left < 0 and (batches or not at_least_one):
            break
        batches.append(batch)
    return replace(found, batches=tuple(batches))


async def _read_one(each: _Wanted, max_bytes: int, services: Services) -> Slice | ErrorCode:
    if each.error:
        return each.error
    try:
        return await services.log.read(each.topic, each.partition, each.offset, max_bytes)
    except ApiError as exc:
        return ErrorCode(exc.error_code)


def _is_catching_up(found: list[Slice | ErrorCode], request: Request) -> bool:
    """Whether there is far more to read than has come, of which a part will be here in a moment."""
    slices = [each for each in found if isinstance(each, Slice)]
    if len(slices) < len(found) or any(each.is_limited or each.is_cut for each in slices):
        return False
    behind = sum(each.high_watermark - each.next_offset for each in slices)
    return behind > _BEHIND and sum(each.size for each in slices) < min(_GATHER_BYTES, request.body.max_bytes)


def _too_little(found: list[Slice | ErrorCode], request: Request) -> bool:
    if any(isinstance(each, ErrorCode) or each.is_limited for each in found):
        return False
    wanted: int = request.body.min_bytes
    return sum(each.size for each in found if isinstance(each, Slice)) < wanted


async def _more(
    wanted: list[_Wanted], found: list[Slice | ErrorCode], left: float, services: Services
) -> bool:
    """Wait until one of the partitions has grown; False if none did in time."""
    waits = [
        asyncio.ensure_future(services.log.arrival(each.topic, each.partition, result.next_offset))
        for each, result in zip(wanted, found, strict=True)
        if isinstance(result, Slice)
    ]
    if not waits:
        await asyncio.sleep(left)
        return False
    try:
        done, _ = await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return bool(done)


def _group(wanted: list[_Wanted], found: list[Slice | ErrorCode]) -> tuple[TopicFetched, ...]:
    topics: dict[tuple[str, UUID], list[PartitionFetched]] = {}
    for each, result in zip(wanted, found, strict=True):
        topics.setdefault((each.topic, each.topic_id), []).append(_partition(each.partition, result))
    return tuple(
        TopicFetched(name=name, topic_id=topic_id, partitions=tuple(partitions))
        for (name, topic_id), partitions in topics.items()
    )


def _partition(index: int, result: Any) -> PartitionFetched:
    if isinstance(result, ErrorCode):
        return PartitionFetched(index=index, error_code=tell(result))
    return PartitionFetched(
        index=index,
        high_watermark=result.high_watermark,
        last_stable_offset=result.high_watermark,
        log_start_offset=result.log_start_offset,
        records=result.batches,
    )


API = Handler(1, 4, 18, _handle)
