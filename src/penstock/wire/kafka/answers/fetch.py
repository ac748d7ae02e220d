"""Fetch answers, versions 4 to 18, as pieces: records are passed on, not copied.

5 adds the log start offset, 7 sessions (KIP-227), 11 the preferred replica (KIP-392), 12 is
flexible and tells the leader, 13 names topics by id (KIP-516), 16 adds endpoints (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from penstock.wire.buffer import Buffer
from penstock.wire.kafka.answers.leaders import NodeEndpoint, current_leader, node_endpoints
from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import Encoding, encoding

__all__ = ["FetchAnswer", "PartitionFetched", "TopicFetched", "encode_fetch"]

_KEY = 1
_PARTITION = struct.Struct(">ihqq")
_INT16_32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT64_64 = struct.Struct(">qq")
_LOG_START_FROM = 5
_SESSIONS_FROM = 7
_REPLICA_FROM = 11
_TOPIC_IDS_FROM = 13
_ENDPOINTS_FROM = 16
_CURRENT_LEADER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetched:
    """What one partition gives: whole record batches, in pieces."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: tuple[tuple[int, int], ...] | None = None
    """Producer id and first offset of each."""
    preferred_read_replica: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    records: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFetched:
    """What one topic gives, named as it was asked: by name or by id."""

    name: str = ""
    topic_id: UUID = UUID(int=0)
    partitions: tuple[PartitionFetched, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The whole answer."""

    topics: tuple[TopicFetched, ...] = ()
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def encode_fetch(answer: FetchAnswer, version: int) -> Iterator[Buffer]:
    """Write the body of an answer, piece by piece."""
    form = encoding(is_flexible(_KEY, version))
    yield _INT32.pack(answer.throttle_time_ms)
    if version >= _SESSIONS_FROM:
        yield _INT16_32.pack(answer.error_code, answer.session_id)
    yield form.length(len(answer.topics))
    for topic in answer.topics:
        yield topic.topic_id.bytes if version >= _TOPIC_IDS_FROM else form.string(topic.name)
        yield form.length(len(topic.partitions))
        for partition in topic.partitions:
            yield _head(partition, version, form)
            yield from partition.records
            yield form.tagged(current_leader(_CURRENT_LEADER, partition.leader_id, partition.leader_epoch))
        yield form.tags
    endpoints = answer.node_endpoints if version >= _ENDPOINTS_FROM else ()
    yield form.tagged(node_endpoints(endpoints, form))


def _head(partition: PartitionFetched, version: int, form: Encoding) -> bytes:
    """Write what stands before the records, their size included."""
    parts = [
        _PARTITION.pack(
            partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
    ]
    if version >= _LOG_START_FROM:
        parts.append(_INT64.pack(partition.log_start_offset))
    aborted = partition.aborted_transactions
    parts.append(form.length(-1 if aborted is None else len(aborted)))
    parts += [_INT64_64.pack(*transaction) + form.tags for transaction in aborted or ()]
    if version >= _REPLICA_FROM:
        parts.append(_INT32.pack(partition.preferred_read_replica))
    parts.append(form.length(sum(map(len, partition.records))))
    return b"".join(parts)
