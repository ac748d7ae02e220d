"""The last sequence that a partition has of a producer (DescribeProducers v0, KIP-664)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.brokers.kafka_raw.answer import Answer
from penstock.brokers.kafka_raw.calls import DESCRIBE_PRODUCERS
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.identity import Identity
from penstock.brokers.kafka_raw.refusal import check
from penstock.wire.kafka.primitives import COMPACT

__all__ = ["last_sequence", "read_producers"]

_ROW = struct.Struct(">qiiqiq")


class ActiveProducer(NamedTuple):
    """What a partition remembers of a producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


def last_sequence(cluster: Cluster, topic: str, partition: int, identity: Identity) -> int | None:
    """Ask the leader once; None if it does not know the producer in this epoch."""
    node = cluster.leader(topic, partition).node
    rows = COMPACT.string(topic) + COMPACT.length(1) + struct.pack(">i", partition) + COMPACT.tags
    body = (COMPACT.length(1), rows, COMPACT.tags)
    for row in cluster.ask(node, DESCRIBE_PRODUCERS, body, read_producers):
        if (row.producer_id, row.epoch) == (identity.producer_id, identity.epoch):
            return row.last_sequence
    return None


def read_producers(answer: Answer) -> list[ActiveProducer]:
    """Read the producers of the partitions that were asked for."""

    def producer() -> ActiveProducer:
        row = ActiveProducer(*_ROW.unpack(answer.take(_ROW.size)))
        answer.skip_tags()
        return row

    def partition() -> tuple[ActiveProducer, ...]:
        number, code, message = answer.int32(), answer.int16(), answer.nullable_string()
        check(code, f"the producers of partition {number} are not told", why=message)
        rows = answer.array(producer)
        answer.skip_tags()
        return rows

    def topic() -> tuple[tuple[ActiveProducer, ...], ...]:
        answer.string()
        partitions = answer.array(partition)
        answer.skip_tags()
        return partitions

    return [row for partitions in answer.array(topic) for rows in partitions for row in rows]
