"""Produce answers, versions 3 to 13.

5 adds the log start offset, 8 record errors (KIP-467), 9 is flexible, 10 adds the leader and its
endpoint (KIP-951), 13 names topics by id (KIP-516).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from penstock.wire.kafka.answers.leaders import NodeEndpoint, current_leader, node_endpoints
from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import Encoding, encoding

__all__ = [
    "PartitionProduced",
    "ProduceAnswer",
    "RecordError",
    "TopicProduced",
    "encode_produce",
    "encode_produced_one",
]

_KEY = 0
_PARTITION = struct.Struct(">ihqq")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT64_64 = struct.Struct(">qq")
_INT64_64_64 = struct.Struct(">qqq")
_INDEX_AND_ERROR = 6
_LOG_START_FROM = 5
_ERRORS_FROM = 8
_LEADERS_FROM = 10
_TOPIC_IDS_FROM = 13
_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record, counted in its batch, was the reason to refuse the batch."""

    batch_index: int
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduced:
    """What became of the records for one partition."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProduced:
    """What became of the records for one topic, named as it was asked: by name or by id."""

    name: str = ""
    topic_id: UUID = UUID(int=0)
    partitions: tuple[PartitionProduced, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceAnswer:
    """The whole answer."""

    topics: tuple[TopicProduced, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def encode_produce(answer: ProduceAnswer, version: int) -> bytes:
    """Write the body of an answer."""
    form = encoding(is_flexible(_KEY, version))
    parts = [form.length(len(answer.topics))]
    for topic in answer.topics:
        parts.append(topic.topic_id.bytes if version >= _TOPIC_IDS_FROM else form.string(topic.name))
        parts.append(form.length(len(topic.partitions)))
        parts += [_partition(partition, version, form) for partition in topic.partitions]
        parts.append(form.tags)
    parts.append(_INT32.pack(answer.throttle_time_ms))
    endpoints = answer.node_endpoints if version >= _LEADERS_FROM else ()
    parts.append(form.tagged(node_endpoints(endpoints, form)))
    return b"".join(parts)


def encode_produced_one(
    name: str, topic_id: UUID | None, index: int, version: int, *, base_offset: int, log_start_offset: int
) -> bytes:
    """Write the answer that most requests get: the records for one partition are stored."""
    before, after = _around(name, topic_id, index, version)
    if version < _LOG_START_FROM:
        return before + _INT64_64.pack(base_offset, -1) + after
    return before + _INT64_64_64.pack(base_offset, -1, log_start_offset) + after


@lru_cache(maxsize=1024)
def _around(name: str, topic_id: UUID | None, index: int, version: int) -> tuple[bytes, bytes]:
    """Give what stands before and behind the numbers that differ from answer to answer."""
    topic_id = topic_id or _NOBODY
    one = TopicProduced(name=name, topic_id=topic_id, partitions=(PartitionProduced(index=index),))
    data = encode_produce(ProduceAnswer(topics=(one,)), version)
    form = encoding(is_flexible(_KEY, version))
    named = topic_id.bytes if version >= _TOPIC_IDS_FROM else form.string(name)
    begin = 2 * len(form.length(1)) + len(named) + _INDEX_AND_ERROR
    return data[:begin], data[begin + (16 if version < _LOG_START_FROM else 24) :]


def _partition(partition: PartitionProduced, version: int, form: Encoding) -> bytes:
    head = _PARTITION.pack(
        partition.index, partition.error_code, partition.base_offset, partition.log_append_time
    )
    if version < _LOG_START_FROM:
        return head
    head += _INT64.pack(partition.log_start_offset)
    if version < _ERRORS_FROM:
        return head
    errors = b"".join(
        _INT32.pack(error.batch_index) + form.string(error.message) + form.tags
        for error in partition.record_errors
    )
    message = form.string(partition.error_message)
    leader = partition.leader_id if version >= _LEADERS_FROM else -1
    tags = form.tagged(current_leader(0, leader, partition.leader_epoch))
    return b"".join((head, form.length(len(partition.record_errors)), errors, message, tags))
