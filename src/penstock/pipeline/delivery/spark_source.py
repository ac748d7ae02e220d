"""A topic on Pulsar as rows of Spark, for what only Spark evaluates: conditions in its own SQL.

The driver plans ranges (`pulsar_planner`). A task reads its ranges with the reader of the delivery, one after
the other, and hands on batches of Arrow with the columns of `stage.INPUT`: the offset is the broker's index,
the timestamp is in milliseconds. Rows of a partition are in the order of their offsets, and a range is never
cut, which is what `task_sink` asks for. Entries that cannot be read are rows with a header by which every
reader rejects them (`pulsar.REJECTED`), so they become dead letters. What was removed before it was read ends
the task or is passed by, as the data-loss policy says.

Spark itself is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from time import monotonic
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.errors import RecordsError, Unreachable
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.partition_reader import PartitionReader
from penstock.pipeline.delivery.source_cluster import source_cluster
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.record_body import INFLATED, Body, bodies_of, corrupt
from penstock.pipeline.stage import INPUT
from penstock.wire.buffer import Buffer
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kernels import ByteArray, IntArray
from penstock.wire.kernels.json_values import gather
from penstock.wire.kernels.records import (
    F_HEADERS,
    F_KEY,
    F_KEY_SIZE,
    F_OFFSET,
    F_TIMESTAMP,
    F_VALUE,
    F_VALUE_SIZE,
    FIELDS,
    HEADER_FIELDS,
    locate_headers,
    locate_records,
)

__all__ = ["arrow_rows", "read_ranges"]

_POLL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 120.0
"""So long may nothing at all come of a range that the broker said is there."""


def read_ranges(packed: bytes, spans: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Read ranges one after the other; `packed` is a `Work` whose source is on Pulsar.

    Raises JobFailed if records were removed and the policy says stop, or if the topic is another one; and
    Unreachable if nothing comes.
    """
    work = _unpacked(packed)
    with source_cluster(work) as cluster:
        for span in spans:
            yield from _range_rows(work, span, cluster)


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> WorkerSpec:
    return WorkerSpec.unpacked(packed)


def _range_rows(work: WorkerSpec, span: OffsetRange, cluster: Cluster) -> Iterator[pa.RecordBatch]:
    part, rows, moved = span.partition, _Collector(), monotonic()
    with closing(PartitionReader(work, cluster, rows, {part: span.start}, {part: span.end})) as feed:
        while feed.waiting:
            if feed.poll(_POLL_SECONDS):
                moved = monotonic()
            elif monotonic() - moved > _SILENT_SECONDS:
                raise Unreachable(
                    f"nothing came for {_SILENT_SECONDS:.0f} s",
                    where=f"{work.topic}, partition {part}, offset {feed.positions[part]}",
                    why=f"The range ends at {span.end}.",
                    next="look at the broker that has the topic; the next run does the range again",
                )
            yield from rows.taken(work.topic, part)


class _Collector:
    """A `Router` that keeps what one fetch has given."""

    collects = holds = is_full = False
    held: Mapping[int, int] = MappingProxyType({})

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._bodies: list[Body] = []

    def feed(self, data: Buffer, *, topic: str, partition: int, first: int, end: int, now: int) -> None:
        """Take the records with offsets from `first` up to `end`."""
        self._bodies += bodies_of(data, first, end, None, INFLATED)

    def flush(self, *, now: int) -> None:
        """Nothing waits."""

    def taken(self, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        """Give what has come, in its order, and forget it."""
        # A fetch has the entries that could not be read behind all others.
        bodies, self._bodies = sorted(self._bodies, key=lambda body: body.base_offset), []
        batch = arrow_rows(bodies, topic, partition)
        if batch.num_rows:
            yield batch


def arrow_rows(bodies: Sequence[Body], topic: str, partition: int) -> pa.RecordBatch:
    """Return the records of the ranges of some bodies as rows with the columns of `stage.INPUT`.

    Raises RecordsError if the bytes are no records.
    """
    if unread := next((body for body in bodies if body.unread is not None), None):
        where = f"{topic}, partition {partition}, offset {unread.base_offset}"
        raise RecordsError(str(unread.unread), error_code=ErrorCode.MESSAGE_TOO_LARGE, where=where)
    starts = [body.starts() for body in bodies]
    found = [(body, each) for body, each in zip(bodies, starts, strict=True) if len(each)]
    counts = [len(each) for _, each in found]
    # One buffer, so that entries of one message each cost no more calls than those of many.
    ends = np.cumsum([0, *(len(body.records) for body, _ in found)])
    data: ByteArray = np.concatenate([body.records for body, _ in found] or [np.empty(0, np.uint8)])
    shifted = [each + end for (_, each), end in zip(found, ends, strict=False)]
    places: IntArray = np.concatenate(shifted or [np.empty(0, np.int64)])
    fields = np.empty(len(places) * FIELDS, np.int64)
    n_headers = locate_records(data, places, fields)
    headers = np.empty(max(n_headers, 0) * HEADER_FIELDS, np.int64)
    if n_headers < 0 or locate_headers(data, places, fields, headers) < 0:
        raise corrupt(partition, found[0][0].base_offset)
    rows = fields.reshape(-1, FIELDS)

    def repeated(values: Sequence[int]) -> IntArray:
        return np.repeat(np.array(values, np.int64), counts)

    is_appended = repeated([body.append_timestamp is not None for body, _ in found]).astype(bool)
    written = repeated([body.base_timestamp for body, _ in found]) + rows[:, F_TIMESTAMP]
    appended = repeated([body.append_timestamp or 0 for body, _ in found])
    columns = {
        "key": _binary(data, rows[:, F_KEY], rows[:, F_KEY_SIZE]),
        "value": _binary(data, rows[:, F_VALUE], rows[:, F_VALUE_SIZE]),
        "headers": _headers(data, rows[:, F_HEADERS], headers.reshape(-1, HEADER_FIELDS)),
        "topic": pa.repeat(pa.scalar(topic, pa.utf8()), len(rows)),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(rows)),
        "offset": pa.array(repeated([body.base_offset for body, _ in found]) + rows[:, F_OFFSET]),
        "timestamp": pa.array(np.where(is_appended, appended, written)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in INPUT], list(INPUT))


def _headers(data: ByteArray, counts: IntArray, places: IntArray) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    names = _binary(data, places[:, 0], places[:, 1])
    try:
        texts = names.cast(pa.utf8())
    except pa.ArrowInvalid:
        # A header's name is text by protocol; Kafka's own client replaces other bytes, too.
        texts = pa.array([raw.decode("utf-8", "replace") for raw in names.to_pylist()], pa.utf8())
    pairs = pa.StructArray.from_arrays([texts, _binary(data, places[:, 2], places[:, 3])], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def _binary(data: ByteArray, starts: IntArray, sizes: IntArray) -> pa.BinaryArray:
    """Copy ranges of bytes into a column; a negative size is null."""
    there = sizes >= 0
    kept = np.where(there, sizes, 0)
    offsets = np.zeros(len(kept) + 1, np.int32)
    np.cumsum(kept, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(data, np.where(there, starts, 0), kept, out)
    nulls = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(kept), [nulls, pa.py_buffer(offsets), pa.py_buffer(out)])
