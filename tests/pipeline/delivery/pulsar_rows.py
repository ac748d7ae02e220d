"""Records into a Pulsar sink and out of a Pulsar reader, as plain rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster
from penstock.pipeline.delivery.pulsar.log import PulsarLog
from penstock.pipeline.delivery.pulsar.producer_names import SinkBatch, sequence_ids
from penstock.pipeline.delivery.pulsar.reader import FetchedEntries, PulsarPartitionReader
from penstock.wire.buffer import as_array
from penstock.wire.kafka import read_batches
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels.records import (
    F_KEY,
    F_KEY_SIZE,
    F_OFFSET,
    F_VALUE,
    F_VALUE_SIZE,
    FIELDS,
    locate_records,
    record_starts,
)

__all__ = ["Row", "batch_of", "body_of", "read_all", "record_at", "rows_of", "values_in"]


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def blob(raw: bytes | None) -> bytes:
    return varint(-1) if raw is None else varint(len(raw)) + raw


def record_at(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Write a record of format v2."""
    named = b"".join(blob(name.encode()) + blob(text) for name, text in headers)
    body = b"\0\0" + varint(offset) + blob(key) + blob(value) + varint(len(headers)) + named
    return varint(len(body)) + body


Row = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""


def body_of(values: Sequence[bytes | None], key: bytes | None = None) -> BatchBody:
    records = b"".join(record_at(at, key, value) for at, value in enumerate(values))
    return BatchBody(records, len(values), 1_700_000_000_000, 1_700_000_000_000)


def batch_of(values: Sequence[bytes | None], first: int, partition: int = 0) -> SinkBatch:
    """Values whose inputs have indexes from `first` on, one output each."""
    indexes = np.arange(first, first + len(values), dtype=np.int64)
    return SinkBatch(0, partition, body_of(values), sequence_ids(indexes, np.zeros_like(indexes)))


def rows_of(fetched: FetchedEntries, end: int | None = None) -> list[Row]:
    """The records of a fetch from its first offset on, as a router takes them."""
    found: list[Row] = []
    for batch in read_batches(fetched.data):
        batch.check()
        data = as_array(batch.records(1 << 26))
        starts = np.empty(batch.record_count, np.int64)
        count = record_starts(data, batch.record_count, 0, 1 << 40, starts)
        assert count == batch.record_count
        fields = np.empty(count * FIELDS, np.int64)
        assert locate_records(data, starts, fields) >= 0
        for row in fields.reshape(count, FIELDS).tolist():
            key = None if row[F_KEY_SIZE] < 0 else bytes(data[row[F_KEY] : row[F_KEY] + row[F_KEY_SIZE]])
            size = row[F_VALUE_SIZE]
            value = None if size < 0 else bytes(data[row[F_VALUE] : row[F_VALUE] + size])
            found.append((batch.base_offset + row[F_OFFSET], key, value))
    last = fetched.next_offset if end is None else end
    return [row for row in found if fetched.first <= row[0] < last]


def read_all(reader: PulsarPartitionReader, *, polls: int = 200) -> tuple[list[Row], list[FetchedEntries]]:
    """Poll up to the end of the range."""
    rows: list[Row] = []
    fetches: list[FetchedEntries] = []
    for _ in range(polls):
        if reader.done:
            break
        fetched = reader.poll(5.0)
        if fetched is not None:
            rows += rows_of(fetched)
            fetches.append(fetched)
    assert reader.done, f"it stands at {reader.position} after {len(rows)} records"
    reader.close()
    return rows, fetches


def values_in(
    cluster: PulsarCluster, topic: str, partition: int = 0, partitions: int = 0
) -> list[bytes | None]:
    """Everything that readers are given of a partition."""
    log = PulsarLog(cluster, topic, partition, partitions)
    first, end = log.earliest(), log.latest()
    return [row[2] for row in read_all(PulsarPartitionReader(log, first, end.index))[0]]
