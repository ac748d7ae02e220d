"""The Fetch request and its answer, v10: partitions of one leader, records as bytes where they came in."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.refusal import check
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["Aborted", "FetchLimits", "FetchRow", "PartitionAnswer", "fetch_request", "read_fetch"]

Aborted = tuple[tuple[int, int], ...]
"""Aborted transactions: the producer's id and the first offset of each."""

_HEAD = struct.Struct(">iiiibii")
_ROW = struct.Struct(">iiqqi")
_ANSWER = struct.Struct(">ihqqq")
_NO_REPLICA = -1
_NO_LOG_START = -1
# KIP-227: no session, so that every request says all it wants.
_NO_SESSION, _FINAL_EPOCH = 0, -1


class FetchLimits(NamedTuple):
    """How long a broker may wait for how much, and how much it may send."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool


class FetchRow(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class PartitionAnswer(NamedTuple):
    """What came of one partition."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: Aborted
    records: memoryview


def fetch_request(limits: FetchLimits, topics: Mapping[str, Sequence[FetchRow]]) -> list[bytes]:
    """Write the body of a request."""
    head = _HEAD.pack(
        _NO_REPLICA,
        limits.max_wait_ms,
        limits.min_bytes,
        limits.max_bytes,
        limits.read_committed,
        _NO_SESSION,
        _FINAL_EPOCH,
    )
    rows = [part for topic, rows in topics.items() for part in _topic(topic, rows)]
    forgotten = CLASSIC.length(0)
    return [head, CLASSIC.length(len(topics)), *rows, forgotten]


def _topic(topic: str, rows: Sequence[FetchRow]) -> Iterable[bytes]:
    yield CLASSIC.string(topic) + CLASSIC.length(len(rows))
    for row in rows:
        yield _ROW.pack(row.partition, row.leader_epoch, row.offset, _NO_LOG_START, row.max_bytes)


def read_fetch(answer: Answer) -> list[PartitionAnswer]:
    """Read an answer behind its throttle time."""
    check(answer.int16(), "the broker refused to be read")
    answer.int32()  # session
    return [row for rows in answer.array(lambda: _answers(answer)) for row in rows]


def _answers(answer: Answer) -> tuple[PartitionAnswer, ...]:
    topic = answer.string()

    def partition() -> PartitionAnswer:
        number, code, high, stable, start = _ANSWER.unpack(answer.take(_ANSWER.size))
        aborted = answer.array(lambda: (answer.int64(), answer.int64()))
        return PartitionAnswer(topic, number, code, high, stable, start, aborted, answer.bytes())

    return answer.array(partition)
