"""The committed offsets of a group that has no members: read and written as a bookmark.

OffsetFetch v7 waits until offsets of an open transaction are decided (KIP-447); OffsetCommit v6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import OFFSET_COMMIT, OFFSET_FETCH
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.coordinator import Coordinator, CoordinatorKind
from penstock.brokers.kafka_raw.refusal import check
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.primitives import CLASSIC, COMPACT

__all__ = ["GroupOffset", "GroupOffsets", "TopicPartition", "by_topic", "check_partitions", "offset_rows"]

TopicPartition = tuple[str, int]
"""A topic and the number of a partition."""

_NO_GENERATION = -1
_NO_EPOCH = -1
_STABLE = b"\1"
_UNSTABLE = b"\0"


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where a reader of a partition shall go on, and a text that is kept beside it."""

    offset: int
    metadata: str = ""


class GroupOffsets:
    """The bookmark of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator = Coordinator(cluster, CoordinatorKind.GROUP, group)

    def committed(self, topic: str, *, stable: bool = True) -> dict[int, GroupOffset]:
        """Give the committed offset of each partition that has one.

        With `stable` the answer waits for offsets of an open transaction. One that a killed process left open
        ends when it is fenced or times out: before that, ask for what is committed so far.
        """
        numbers = range(self._cluster.partitions(topic))
        rows = b"".join(struct.pack(">i", number) for number in numbers)
        asked = (COMPACT.string(topic), COMPACT.length(len(numbers)), rows, COMPACT.tags)
        body = (
            COMPACT.string(self._group),
            COMPACT.length(1),
            *asked,
            _STABLE if stable else _UNSTABLE,
            COMPACT.tags,
        )
        return self._coordinator.ask(OFFSET_FETCH, body, self._read_committed)

    def commit(self, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commit where a reader shall go on."""
        if not offsets:
            return
        who = CLASSIC.string(self._group) + struct.pack(">i", _NO_GENERATION) + CLASSIC.string("")
        self._coordinator.ask(OFFSET_COMMIT, (who, *offset_rows(offsets)), self._read_commit)

    def _read_committed(self, answer: Answer) -> dict[int, GroupOffset]:
        def partition() -> tuple[int, GroupOffset, int]:
            number, offset, _ = struct.unpack(">iqi", answer.take(16))
            found, code = GroupOffset(offset, answer.string()), answer.int16()
            answer.skip_tags()
            return number, found, code

        def topic() -> tuple[tuple[int, GroupOffset, int], ...]:
            answer.string()
            rows = answer.array(partition)
            answer.skip_tags()
            return rows

        rows = [row for rows in answer.array(topic) for row in rows]
        what = f"the offsets of group {self._group} are not told"
        check(answer.int16(), what)
        for number, _, code in rows:
            check(code, what, where=f"partition {number}")
        return {number: found for number, found, _ in rows if found.offset >= 0}

    def _read_commit(self, answer: Answer) -> None:
        check_partitions(answer, f"the offsets of group {self._group} cannot be committed")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Gather the partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def offset_rows(offsets: Mapping[TopicPartition, GroupOffset]) -> Iterable[bytes]:
    """Write offsets as OffsetCommit v6 and TxnOffsetCommit v2 both have them."""
    topics = by_topic(offsets)
    yield CLASSIC.length(len(topics))
    for topic, partitions in topics.items():
        yield CLASSIC.string(topic) + CLASSIC.length(len(partitions))
        for partition in partitions:
            mark = offsets[topic, partition]
            yield struct.pack(">iqi", partition, mark.offset, _NO_EPOCH) + CLASSIC.string(mark.metadata)


def check_partitions(answer: Answer, what: str) -> None:
    """Read an answer of topics with partitions with an error code each; raise the first error."""

    def topic() -> list[tuple[int, str]]:
        name = answer.string()
        rows = answer.array(lambda: (answer.int32(), answer.int16()))
        return [(code, f"{name}-{number}") for number, code in rows]

    found = [row for rows in answer.array(topic) for row in rows]
    # What was not attempted says nothing of why: another row does.
    for code, where in sorted(found, key=lambda row: row[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
        check(code, what, where=where)
