"""Metadata answers, versions 0 to 13.

1 adds racks, the controller and internal topics, 2 the cluster id, 3 the throttle time, 5 offline
replicas, 7 the leader epoch, 8 authorized operations (of the cluster only until 10), 9 is flexible,
10 adds topic ids, 12 allows a topic without name, 13 adds an error for the whole answer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from penstock.wire.kafka.apis import is_flexible
from penstock.wire.kafka.primitives import Encoding, encoding

__all__ = ["Broker", "MetadataAnswer", "PartitionMetadata", "TopicMetadata", "encode_metadata"]

_KEY = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">hii")
_CONTROLLER_FROM = 1
_CLUSTER_FROM = 2
_THROTTLE_FROM = 3
_OFFLINE_FROM = 5
_EPOCH_FROM = 7
_OPERATIONS = range(8, 11)
_TOPIC_IDS_FROM = 10
_ERROR_FROM = 13
UNKNOWN_OPERATIONS = -(1 << 31)
"""Nobody asked for the authorized operations."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One node of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition of a topic."""

    index: int
    leader_id: int
    error_code: int = 0
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic; its name may be None from version 12 on, when it was asked by an unknown id."""

    name: str | None
    topic_id: UUID = UUID(int=0)
    error_code: int = 0
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    authorized_operations: int = UNKNOWN_OPERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """The whole answer."""

    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = UNKNOWN_OPERATIONS
    error_code: int = 0


def encode_metadata(answer: MetadataAnswer, version: int) -> bytes:
    """Write the body of an answer."""
    form = encoding(is_flexible(_KEY, version))
    parts = [_INT32.pack(answer.throttle_time_ms)] if version >= _THROTTLE_FROM else []
    parts.append(form.length(len(answer.brokers)))
    parts += [_broker(broker, version, form) for broker in answer.brokers]
    if version >= _CLUSTER_FROM:
        parts.append(form.string(answer.cluster_id))
    if version >= _CONTROLLER_FROM:
        parts.append(_INT32.pack(answer.controller_id))
    parts.append(form.length(len(answer.topics)))
    for topic in answer.topics:
        parts += _topic(topic, version, form)
    if version in _OPERATIONS:
        parts.append(_INT32.pack(answer.cluster_authorized_operations))
    if version >= _ERROR_FROM:
        parts.append(_INT16.pack(answer.error_code))
    parts.append(form.tags)
    return b"".join(parts)


def _broker(broker: Broker, version: int, form: Encoding) -> bytes:
    rack = form.string(broker.rack) if version >= _CONTROLLER_FROM else b""
    address = form.string(broker.host) + _INT32.pack(broker.port)
    return b"".join((_INT32.pack(broker.node_id), address, rack, form.tags))


def _topic(topic: TopicMetadata, version: int, form: Encoding) -> list[bytes]:
    parts = [_INT16.pack(topic.error_code), form.string(topic.name)]
    if version >= _TOPIC_IDS_FROM:
        parts.append(topic.topic_id.bytes)
    if version >= _CONTROLLER_FROM:
        parts.append(b"\1" if topic.is_internal else b"\0")
    parts.append(form.length(len(topic.partitions)))
    parts += [_partition(partition, version, form) for partition in topic.partitions]
    if version >= _OPERATIONS.start:
        parts.append(_INT32.pack(topic.authorized_operations))
    parts.append(form.tags)
    return parts


def _partition(partition: PartitionMetadata, version: int, form: Encoding) -> bytes:
    parts = [_PARTITION.pack(partition.error_code, partition.index, partition.leader_id)]
    if version >= _EPOCH_FROM:
        parts.append(_INT32.pack(partition.leader_epoch))
    parts += [_nodes(partition.replicas, form), _nodes(partition.in_sync, form)]
    if version >= _OFFLINE_FROM:
        parts.append(_nodes(partition.offline, form))
    parts.append(form.tags)
    return b"".join(parts)


def _nodes(nodes: tuple[int, ...], form: Encoding) -> bytes:
    return form.length(len(nodes)) + struct.pack(f">{len(nodes)}i", *nodes)
