"""The Produce request and its answer, v8: framed batches for partitions of one leader, not copied."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.brokers.kafka_raw.answer import Answer
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.primitives import CLASSIC

__all__ = ["BatchError", "ProduceAnswer", "produce_request", "read_produce"]

_ALL_IN_SYNC = -1
_HEAD = struct.Struct(">hi")
_PARTITION = struct.Struct(">ii")
_ROW = struct.Struct(">ihqqq")


class BatchError(NamedTuple):
    """What a broker says of a batch that it refused (KIP-467)."""

    records: tuple[tuple[int, str | None], ...] = ()
    """The records for whose sake it was refused, counted in the batch, and why; empty if it does not say."""
    message: str | None = None


class ProduceAnswer(NamedTuple):
    """The error code of each partition, what is said of those that are not 0, and how long to be silent."""

    codes: Mapping[tuple[str, int], int]
    errors: Mapping[tuple[str, int], BatchError]
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
    codes: dict[tuple[str, int], int] = {}
    errors: dict[tuple[str, int], BatchError] = {}

    def record() -> tuple[int, str | None]:
        return answer.int32(), answer.nullable_string()

    def topic() -> None:
        name = answer.string()
        answer.array(lambda: partition(name))

    def partition(name: str) -> None:
        number, code, *_ = _ROW.unpack(answer.take(_ROW.size))
        records, message = answer.array(record), answer.nullable_string()
        codes[name, number] = code
        if code:
            said = next((each for _, each in records if each), message)
            errors[name, number] = BatchError(records, said)

    answer.array(topic)
    return ProduceAnswer(codes, errors, answer.int32())
