"""The ends of the partitions of a topic, and where they were at a time (ListOffsets v5)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import LIST_OFFSETS
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.metadata import Leader
from penstock.brokers.kafka_raw.refusal import check
from penstock.errors import WireError
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["EARLIEST", "LATEST", "at_time", "earliest", "latest", "list_offsets"]

LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets that stand for the ends."""

_NO_REPLICA = -1
_NO_OFFSET = -1


def earliest(cluster: Cluster, topic: str) -> dict[int, int]:
    """Give the first offset that each partition still has."""
    return list_offsets(cluster, topic, EARLIEST)


def latest(cluster: Cluster, topic: str, *, read_committed: bool = False) -> dict[int, int]:
    """Give where each partition ends: the high watermark, or where the first open transaction begins."""
    return list_offsets(cluster, topic, LATEST, read_committed=read_committed)


def at_time(cluster: Cluster, topic: str, time_ms: int) -> dict[int, int]:
    """Give the first offset of each partition with this timestamp or a later one, else its end."""
    found = list_offsets(cluster, topic, max(time_ms, 0))
    missing = [partition for partition, offset in found.items() if offset == _NO_OFFSET]
    ends = list_offsets(cluster, topic, LATEST, partitions=missing) if missing else {}
    return found | ends


def list_offsets(
    cluster: Cluster,
    topic: str,
    timestamp: int,
    *,
    partitions: Collection[int] | None = None,
    read_committed: bool = False,
) -> dict[int, int]:
    """Give the offset of each partition for a timestamp of ListOffsets; all partitions by default."""
    wanted = set(range(cluster.partitions(topic)) if partitions is None else partitions)
    found: dict[int, int] = {}

    def look() -> dict[int, int]:
        for node, leaders in _by_leader(cluster, topic, wanted - set(found)).items():
            body = _request(topic, leaders, timestamp, read_committed)
            found.update(cluster.ask(node, LIST_OFFSETS, body, _read))
        if wanted - set(found):
            raise WireError(f"the broker left out partitions of {topic} that it was asked for")
        return dict(sorted((partition, found[partition]) for partition in wanted))

    return cluster.retrying(look)


def _by_leader(cluster: Cluster, topic: str, partitions: set[int]) -> dict[int, dict[int, Leader]]:
    nodes: dict[int, dict[int, Leader]] = {}
    for partition in sorted(partitions):
        leader = cluster.leader(topic, partition)
        nodes.setdefault(leader.node, {})[partition] = leader
    return nodes


def _request(topic: str, leaders: Mapping[int, Leader], timestamp: int, committed: bool) -> list[bytes]:
    head = struct.pack(">ib", _NO_REPLICA, committed) + CLASSIC.length(1) + CLASSIC.string(topic)
    rows = [struct.pack(">iiq", number, leader.epoch, timestamp) for number, leader in leaders.items()]
    return [head, CLASSIC.length(len(rows)), *rows]


_PARTITION = struct.Struct(">ihqqi")


def _read(answer: Answer) -> dict[int, int]:
    def topic() -> list[tuple[int, int]]:
        name = answer.string()
        rows = answer.array(lambda: _PARTITION.unpack(answer.take(_PARTITION.size)))
        for number, code, *_ in rows:
            check(code, "the offsets of a partition are not told", where=f"{name}-{number}")
        return [(number, offset) for number, _, _, offset, _ in rows]

    return {number: offset for rows in answer.array(topic) for number, offset in rows}
