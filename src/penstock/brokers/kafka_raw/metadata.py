"""What a cluster says of itself: its brokers, and who leads each partition (Metadata v7)."""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.brokers.kafka_raw.address import Address
from penstock.brokers.kafka_raw.answer import Answer
from penstock.errors import WireError
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC, COMPACT

__all__ = [
    "Leader",
    "Metadata",
    "TopicLayout",
    "metadata_request",
    "read_address",
    "read_metadata",
    "read_topic_ids",
    "topic_ids_request",
]

_NO_AUTO_CREATION = b"\0"
_NO_OPERATIONS = b"\0"
_NO_ID = bytes(16)
_MOST_PORT = 65_535


class Leader(NamedTuple):
    """Who leads a partition, and since which election."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic: its error code, and the leaders of those partitions that have one."""

    error_code: int
    partitions: int
    leaders: Mapping[int, Leader]


@dataclass(frozen=True, slots=True)
class Metadata:
    """One answer."""

    brokers: Mapping[int, Address]
    cluster_id: str | None
    topics: Mapping[str, TopicLayout]


def metadata_request(topics: Collection[str]) -> tuple[bytes, ...]:
    """Ask for these topics; asking creates none."""
    return CLASSIC.length(len(topics)), *map(CLASSIC.string, topics), _NO_AUTO_CREATION


def read_metadata(answer: Answer) -> Metadata:
    """Read the answer behind its throttle time."""

    def broker() -> tuple[int, Address]:
        node, address = answer.int32(), read_address(answer)
        answer.nullable_string()  # rack
        return node, address

    brokers = dict(answer.array(broker))
    cluster_id = answer.nullable_string()
    answer.int32()  # controller
    return Metadata(brokers, cluster_id, dict(answer.array(lambda: _topic(answer))))


def topic_ids_request(topics: Collection[str]) -> tuple[bytes, ...]:
    """Ask for the ids of these topics (Metadata v12); asking creates none."""
    rows = (_NO_ID + COMPACT.string(topic) + COMPACT.tags for topic in topics)
    return COMPACT.length(len(topics)), *rows, _NO_AUTO_CREATION, _NO_OPERATIONS, COMPACT.tags


def read_topic_ids(answer: Answer) -> dict[str, str | None]:
    """Give the id of each topic that is there, as Kafka's tools write it; None if it has none.

    The topics stand behind the brokers and the ids of cluster and controller.
    """

    def broker() -> None:
        answer.int32()
        read_address(answer)
        answer.nullable_string()
        answer.skip_tags()

    def partition() -> None:
        answer.take(_PARTITION.size)
        for _ in ("replicas", "in sync", "offline"):
            answer.array(answer.int32)
        answer.skip_tags()

    def topic() -> tuple[str, str | None, int]:
        code, name, raw = answer.int16(), answer.string(), bytes(answer.take(len(_NO_ID)))
        answer.int8()  # is internal
        answer.array(partition)
        answer.int32()  # authorized operations
        answer.skip_tags()
        return name, None if raw == _NO_ID else _text(raw), code

    answer.array(broker)
    answer.nullable_string()
    answer.int32()
    return {name: found for name, found, code in answer.array(topic) if code == ErrorCode.NONE}


def _text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def read_address(answer: Answer) -> Address:
    """Read where a broker is."""
    address = Address(answer.string(), answer.int32())
    if not address.host or not 0 < address.port <= _MOST_PORT:
        raise WireError(f"an answer of the broker has '{address}' as the address of a broker")
    return address


def _topic(answer: Answer) -> tuple[str, TopicLayout]:
    code, name = answer.int16(), answer.string()
    answer.int8()  # is internal
    partitions = answer.array(lambda: _partition(answer))
    leaders = {number: leader for number, leader in partitions if leader is not None}
    return name, TopicLayout(code, len(partitions), leaders)


_PARTITION = struct.Struct(">hiii")


def _partition(answer: Answer) -> tuple[int, Leader | None]:
    code, number, node, epoch = _PARTITION.unpack(answer.take(_PARTITION.size))
    for _ in ("replicas", "in sync", "offline"):
        answer.array(answer.int32)
    # REPLICA_NOT_AVAILABLE is said of replicas that are down; the partition has its leader.
    led = node >= 0 and code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
    return number, Leader(node, epoch) if led else None
