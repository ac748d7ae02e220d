"""The Produce request and its answer, v7: framed batches for partitions of one leader, not copied."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.brokers.kafka_raw.answer import Answer
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["ProduceAnswer", "produce_request", "read_produce"]

_ALL_IN_SYNC = -1
_HEAD = struct.Struct(">hi")
_PARTITION = struct.Struct(">ii")
_ROW = struct.Struct(">ihqqq")


class ProduceAnswer(NamedTuple):
    """The error code of each partition, and how long to be silent."""

    codes: Mapping[tuple[str, int], int]
    throttle_ms: int


def produce_request(
    transactional_id: str | None, timeout_ms: int, batches: Iterable[tuple[str, int, Buffer]]
) -> list[Buffer]:
    """Write the body of a request, one batch for each partition; all replicas in sync must have it."""
    topics: dict[str, list[Buffer]] = {}
    for topic, partition, data in batches:
        topics.setdefault(topic, []).extend((_PARTITION.pack(partition, len(data)), data))
    head = CLASSIC.string(transactional_id) + _HEAD.pack(_ALL_IN_SYNC, timeout_ms)
    body: list[Buffer] = [head + CLASSIC.length(len(topics))]
    for topic, pieces in topics.items():
        body += [CLASSIC.string(topic) + CLASSIC.length(len(pieces) // 2), *pieces]
    return body


def read_produce(answer: Answer) -> ProduceAnswer:
    """Read an answer."""

    def topic() -> list[tuple[tuple[str, int], int]]:
        name = answer.string()
        rows = answer.array(lambda: _ROW.unpack(answer.take(_ROW.size)))
        return [((name, number), code) for number, code, *_ in rows]

    codes = dict(row for rows in answer.array(topic) for row in rows)
    return ProduceAnswer(codes, answer.int32())
