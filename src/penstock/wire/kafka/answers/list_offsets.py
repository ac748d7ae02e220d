"""ListOffsets answers, versions 1 to 11: 2 adds the throttle time, 4 the leader epoch, 6 is flexible."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import encoding

__all__ = ["ListOffsetsAnswer", "PartitionOffset", "TopicOffsets", "encode_list_offsets"]

_KEY = 2
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqq")
_THROTTLE_FROM = 2
_EPOCH_FROM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffset:
    """The offset found in one partition, -1 if none."""

    index: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    """The offsets found in one topic."""

    name: str
    partitions: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsAnswer:
    """The whole answer."""

    topics: tuple[TopicOffsets, ...] = ()
    throttle_time_ms: int = 0


def encode_list_offsets(answer: ListOffsetsAnswer, version: int) -> bytes:
    """Write the body of an answer."""
    form = encoding(is_flexible(_KEY, version))
    parts = [_INT32.pack(answer.throttle_time_ms)] if version >= _THROTTLE_FROM else []
    parts.append(form.length(len(answer.topics)))
    for topic in answer.topics:
        parts += [form.string(topic.name), form.length(len(topic.partitions))]
        for found in topic.partitions:
            parts.append(_PARTITION.pack(found.index, found.error_code, found.timestamp, found.offset))
            parts.append(_INT32.pack(found.leader_epoch) if version >= _EPOCH_FROM else b"")
            parts.append(form.tags)
        parts.append(form.tags)
    parts.append(form.tags)
    return b"".join(parts)
