"""The ends of the partitions of a topic, and where they were at a time (ListOffsets v5)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import LIST_OFFSETS
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.metadata import Leader
from penstock.brokers.kafka_raw.refusal import check
from penstock.errors import KafkaRefused, Unreachable, WireError
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["EARLIEST", "LATEST", "at_time", "earliest", "latest", "latest_of_topics", "list_offsets"]

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


def latest_of_topics(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[int, int]]:
    """Return where each partition of many topics ends for readers of committed records; asked once.

    One request goes to each leader. A topic is left out if any of its partitions has no leader, an error, or
    a leader that does not answer; nothing is refreshed here.
    """
    nodes: dict[int, dict[str, dict[int, Leader]]] = {}
    for topic in topics:
        for partition in range(cluster.known_partitions(topic)):
            try:
                leader = cluster.leader(topic, partition)
            except KafkaRefused:
                continue
            nodes.setdefault(leader.node, {}).setdefault(topic, {})[partition] = leader
    found: dict[str, dict[int, int]] = {}
    for node, leaders in nodes.items():
        try:
            answers = cluster.ask(node, LIST_OFFSETS, _many(leaders, LATEST, True), _read_rows)
        except Unreachable:
            continue
        for topic, rows in answers.items():
            good = {number: offset for number, code, offset in rows if code == ErrorCode.NONE}
            found.setdefault(topic, {}).update(good)
    return {topic: ends for topic, ends in found.items() if len(ends) == cluster.known_partitions(topic)}


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
    return _many({topic: leaders}, timestamp, committed)


def _many(topics: Mapping[str, Mapping[int, Leader]], timestamp: int, committed: bool) -> list[bytes]:
    body = [struct.pack(">ib", _NO_REPLICA, committed) + CLASSIC.length(len(topics))]
    for topic, leaders in topics.items():
        body.append(CLASSIC.string(topic) + CLASSIC.length(len(leaders)))
        body += (struct.pack(">iiq", number, leader.epoch, timestamp) for number, leader in leaders.items())
    return body


_PARTITION = struct.Struct(">ihqqi")


def _read(answer: Answer) -> dict[int, int]:
    found: dict[int, int] = {}
    for topic, rows in _read_rows(answer).items():
        for number, code, offset in rows:
            check(code, "the offsets of a partition are not told", where=f"{topic}-{number}")
            found[number] = offset
    return found


def _read_rows(answer: Answer) -> dict[str, list[tuple[int, int, int]]]:
    """Read partition, error code and offset of all partitions, by topic."""

    def topic() -> tuple[str, list[tuple[int, int, int]]]:
        name = answer.string()
        rows = answer.array(lambda: _PARTITION.unpack(answer.take(_PARTITION.size)))
        return name, [(number, code, offset) for number, code, _, offset, _ in rows]

    return dict(answer.array(topic))
