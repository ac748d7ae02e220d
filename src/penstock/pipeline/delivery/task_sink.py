"""The sink of a task of Spark whose rows are records: routes with conditions in Spark's own SQL.

Spark's Kafka source or `spark_source` reads the records, Spark answers the conditions as columns, and hands
its tasks rows with both. What is done with them happens here: the reference evaluator routes them, and
output, dead letters and the mark of each partition are one transaction for each Kafka cluster; Pulsar has
everything before the first of them is committed (`kafka_sink`). From Pulsar to Pulsar the mark is in a topic
of Pulsar, written when everything is stored; its exclusive producer is what shuts out an older attempt
(`pulsar_progress`). Spark is not known here.

What a mark says
----------------
A mark is the offset of the partition that is read before which everything is written: the group's offset on
the cluster that is read, a record in the progress topic of any other. It is the mark of a range, so
a source may change between the two. It is not the number of a task and of a batch, because offsets need less:

- A row carries its offset, so rows before the mark are left out one by one. How Spark cuts the topic into
  batches, how many tasks a batch has, which worker runs them and what the checkpoint remembers do not matter;
  a batch may be cut otherwise when it is run again.
- It must hold that rows of one partition come in the order of their offsets, and all of a batch to one task:
  a row that came late would be behind the mark, and lost. Spark's Kafka source gives each partition to one
  task unless it is told `minPartitions` or `maxRecordsPerPartition`, which `job.sql` never does; the ranges
  of `spark_source` are whole partitions. Nothing between the source and this sink shuffles. The order is
  checked; rows out of order end the task.
- Rows of Pulsar may share an offset (the messages of a batch in a transaction). They are in one transaction
  of ours, whatever it is cut by, so that no mark lies between them.

A task does this for each partition that it has rows of:

1. InitProducerId under the name of (query, topic, partition): an older attempt that still runs can no longer
   commit, and what it left open is aborted.
2. The mark is read.
3. For some thousand rows at a time: leave out what is before the mark, count events that no route takes,
   route the others, call functions. No transaction is open meanwhile, so a function may take longer than a
   transaction may.
4. In one transaction: the output, the dead letters, the mark behind the last of these rows.

A task that fails anywhere is run again and goes on behind the last transaction that was committed. What was
counted is kept in the mark, so that the counts of a batch are exact, too.

Which rows are written twice
----------------------------
| output on | condition | promise |
|---|---|---|
| one cluster | any, also `rand() < 0.5` | exactly once |
| several clusters | gives the same answer when it is asked again | exactly once on each |
| several clusters | any other | what was not committed on all of them is written again after a crash |
| Pulsar, alone or beside Kafka | gives the same answer when it is asked again | exactly once |
| Pulsar, alone or beside Kafka | any other | at least once on Pulsar |

On one cluster it does not matter that a second run of a row may decide otherwise: output and mark are one
step, so the decision of the run that was committed is the only one that counts, and no row is decided again
behind it. On several clusters a crash between two commits leaves one of them with a decision and the others
without: the second run decides anew for those, and for all of them if the decision may differ (`Work.plan` is
None then). On Pulsar a record has its name and id from the offset of its row, and what is stored is left out
(`pulsar_sink`): another answer would be left out, too, so there are no names and ids then. Which functions of
Spark may differ is in `frames.conditions.why_unrepeatable`; those of the time are among them, though Spark
keeps `current_timestamp()` of a batch with its offsets. Functions of Python may differ unless they say
`deterministic: true`.

At least once (a cluster without transactions, or if that is asked for) marks are committed behind the output.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.errors import InternalError, KafkaRefused, RecordRefused
from penstock.pipeline.delivery.kafka_sink import FanOut, opened, resume
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.progress import Snapshot
from penstock.pipeline.delivery.range_delivery import committed_mark, expiry_told
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.delivery.refused_records import RowNarrowing, warn_refused
from penstock.pipeline.delivery.same_topic import refuse_other_topic
from penstock.pipeline.delivery.sink import Sink
from penstock.pipeline.delivery.source_cluster import SourceCluster, source_cluster, target_partitions
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel import batch_builder as outbox_module
from penstock.pipeline.evaluators.kernel.batch_builder import BatchBuilder
from penstock.pipeline.evaluators.kernel.fallback import Place, Written
from penstock.pipeline.evaluators.reference.outcome import Refused
from penstock.pipeline.evaluators.reference.router import Answers, Known, ReferenceRouter
from penstock.pipeline.plan.route import Expiry
from penstock.pipeline.stage import IS_EVENT, Stage, condition_column
from penstock.record import Headers, KafkaRecord

__all__ = ["PartitionRows", "partition_rows", "write_arrow", "write_rows"]

_RECORDS: Final = 10_000
"""Rows of one transaction at most; it is open for the time that writing them takes."""
_BYTES: Final = 32 << 20
"""Bytes of the rows of one transaction, about."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one partition, in the order of their offsets; there is at least one.

    Rows that have an offset together are all here, or none of them is.
    """

    partition: int
    offsets: Sequence[int]
    """Those of all rows."""
    records: Sequence[KafkaRecord]
    """The rows that are to be routed; all others are events that no route takes."""
    answers: Sequence[Answers]

    @classmethod
    def of(cls, records: Sequence[KafkaRecord], answers: Sequence[Answers]) -> PartitionRows:
        """Give rows that are all to be routed."""
        return cls(int(records[0].partition or 0), [_offset(each) for each in records], records, answers)

    def part(self, start: int, end: int) -> PartitionRows:
        """Give the rows with these numbers."""
        offsets = self.offsets[start:end]
        first = bisect_left(self.records, offsets[0], key=_offset)
        behind = bisect_right(self.records, offsets[-1], key=_offset)
        return PartitionRows(self.partition, offsets, self.records[first:behind], self.answers[first:behind])

    def unmatched_before(self, offset: int) -> int:
        """Count the events before an offset that no route takes."""
        return bisect_left(self.offsets, offset) - bisect_left(self.records, offset, key=_offset)


def _offset(record: KafkaRecord) -> int:
    return int(record.offset or 0)


# Rows as Spark gives them


def partition_rows(batches: Iterable[pa.RecordBatch], stage: Stage) -> Iterator[PartitionRows]:
    """Cut batches of `stage.INPUT` and what `frames.conditions` adds into what one transaction takes."""
    for batch in _with_whole_offsets(batches):
        parts, offsets = batch.column("partition").to_numpy(), batch.column("offset").to_numpy()
        borders = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), batch.num_rows]
        most = min(_RECORDS, max(1, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start, end in zip(borders, borders[1:], strict=False):
            at = start
            while at < end:
                behind = min(at + most, end)
                while behind < end and offsets[behind] == offsets[behind - 1]:
                    behind += 1
                yield _rows(batch.slice(at, behind - at), stage)
                at = behind


def _with_whole_offsets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches anew, so that rows of one partition and offset are in one of them; none is empty.

    Nothing is copied unless such rows lie in two batches: the last rows of a batch are given when it is known
    what the next one begins with.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None and _place_of(held, -1) == _place_of(batch, 0):
            held = pa.concat_batches([held, batch])
            continue
        if held is not None:
            yield held
        held = batch
    if held is not None:
        yield held


def _place_of(batch: pa.RecordBatch, row: int) -> tuple[int, int]:
    at = row % batch.num_rows
    return batch.column("partition")[at].as_py(), batch.column("offset")[at].as_py()


def _rows(batch: pa.RecordBatch, stage: Stage) -> PartitionRows:
    holds = [
        pa.repeat(True, batch.num_rows)
        if route.sql is None
        else batch.column(condition_column(number)).fill_null(False)
        for number, route in enumerate(stage.routes)
    ]
    partition, offsets = batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()
    if not any(route.plan.expiry is Expiry.DISCARD for route in stage.routes):
        # Spark has read these events already, and nothing is left to do but to count them.
        routed = pc.or_(pc.invert(batch.column(IS_EVENT)), reduce(pc.or_, holds))
        batch, holds = batch.filter(routed), [each.filter(routed) for each in holds]
    answers = list(zip(*(each.to_pylist() for each in holds), strict=True))
    return PartitionRows(partition, offsets, _records(batch), answers)


def _records(batch: pa.RecordBatch) -> list[KafkaRecord]:
    names = ("key", "value", "topic", "partition", "offset", "timestamp")
    columns = (batch.column(name).to_pylist() for name in names)
    return [
        KafkaRecord(
            key=key,
            value=value,
            headers=headers,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp=timestamp,
        )
        for key, value, topic, partition, offset, timestamp, headers in zip(
            *columns, _headers(batch.column("headers")), strict=True
        )
    ]


def _headers(column: pa.ListArray) -> Iterator[Headers]:
    """Give the headers of each record; null stands for none."""
    flat = column.flatten()
    pairs = list(zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True))
    at = 0
    for count in column.value_lengths().fill_null(0).to_pylist():
        yield tuple(pairs[at : at + count])
        at += count


# Tasks


def write_arrow(packed: bytes, batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Do what a task of Spark does with its rows; `packed` is a `Work`."""
    work = _unpacked(packed)
    return write_rows(work, partition_rows(batches, work.stage), _seen(packed))


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> WorkerSpec:
    return WorkerSpec.unpacked(packed)


@lru_cache(maxsize=8)
def _seen(packed: bytes) -> dict[int, Snapshot]:
    """Give what this worker knows of the progress topics: its next task reads only what came since."""
    return dict(_unpacked(packed).seen)


def write_rows(
    work: WorkerSpec, found: Iterable[PartitionRows], seen: dict[int, Snapshot] | None = None
) -> Counter[str]:
    """Write rows with their marks; give what was counted by all who ever wrote rows of this batch.

    `seen` is what this process has read of the progress topics, by sink, and is kept up to date.
    """
    counts: Counter[str] = Counter()
    outlets = list[Sink]()
    with ExitStack() as opened_so_far:
        opened_so_far.enter_context(expiry_told(work, outlets))
        cluster: Cluster | None = None
        sinks: dict[int, _PartitionSink] = {}
        for rows in found:
            if cluster is None:
                cluster = opened_so_far.enter_context(source_cluster(work, seen=seen))
                if work.pulsar is None:
                    # The rows that came are of the topic that is there now; later ones of another would come
                    # out of their order. Marks of the one say nothing about the other. On Pulsar who plans
                    # and who reads look at that.
                    refuse_other_topic(cluster, work.topic, work.belonging.topic_id)
            sink = sinks.get(rows.partition)
            if sink is None:
                outlet = opened_so_far.enter_context(opened(work, cluster, str(rows.partition)))
                outlets.append(outlet)
                sink = sinks[rows.partition] = _PartitionSink(work, cluster, outlet, rows)
            sink.write(rows)
        for sink in sinks.values():
            sink.finish()
            counts.update(sink.counts)
    return counts


class _PartitionSink:
    """Writes the rows of one partition, whose transactional ids it has taken over."""

    def __init__(self, work: WorkerSpec, cluster: Cluster, outlet: Sink, first: PartitionRows) -> None:
        self._work = work
        self._cluster = cluster
        self._outlet = outlet
        self._partition = first.partition
        self._router = _Router(work)
        self._limits: Mapping[int, int] = {}
        self._next = start = first.offsets[0]
        """No row may be before this offset."""
        self._first_ahead: RangeProgress | None = None
        """The mark of the cluster that is committed first, while it is ahead of the rows that are written."""
        self._fixed: Mapping[str, int] = {}
        """How many partitions targets on Pulsar have for the rows of this partition."""
        if isinstance(outlet, FanOut):
            assert isinstance(cluster, SourceCluster)
            resumed = resume(work, self._partition, start, cluster, outlet)
            self._mark, self._offsets = resumed.mark, resumed.offsets
            if resumed.offsets[outlet.sinks[0]] > resumed.mark.offset:
                self._first_ahead = resumed.first
            self._fixed = cluster.fixed_partitions
        else:
            self._mark = committed_mark(work, OffsetRange(self._partition, start, start), cluster)
            self._offsets = {0: self._mark.offset}
        self._partitions = [target_partitions(cluster, target) for target in work.program.targets]
        self._outbox = self._new_outbox()

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted of all rows so far, by whoever wrote them."""
        return self._mark.counts if self._first_ahead is None else self._first_ahead.counts

    def write(self, rows: PartitionRows) -> None:
        """Write rows that come behind those before; those that a mark covers are left out."""
        offsets = rows.offsets
        if offsets[0] < self._next or any(b < a for a, b in zip(offsets, offsets[1:], strict=False)):
            # To go on would lose them: the mark may be behind them.
            raise InternalError(
                f"Spark gave records of {self._work.topic}, partition {self._partition}, out of their order, "
                f"between {min(offsets)} and {max(offsets)} behind {self._next - 1}"
            )
        self._next = offsets[-1] + 1
        self._restore_partitions()
        for start, end, skipped in _pieces(offsets, self._offsets):
            if isinstance(self._outlet, FanOut):
                self._outlet.skip(skipped)
                if self._first_ahead is not None and self._outlet.sinks[0] not in skipped:
                    # What another cluster refuses is not offered again, and so not counted again.
                    self._mark = replace(self._mark, counts=self._first_ahead.counts)
                    self._first_ahead = None
            self._deliver(rows.part(start, end))

    def finish(self) -> None:
        """End the rows of a batch: partitions that targets on Pulsar have got are taken over from here on."""
        outlet = self._outlet
        if not isinstance(outlet, FanOut) or max(self._offsets.values()) > self._mark.offset:
            return  # a cluster that is ahead keeps its mark
        self._restore_partitions()
        outlet.stored_before({self._partition: self._next})
        if outlet.adopt_partitions() or outlet.has_old_time(self._partition):
            outlet.commit({self._partition: self._mark})

    def _restore_partitions(self) -> None:
        """Let the cluster, which all partitions of a task share, divide records as this one's mark says."""
        if isinstance(self._outlet, FanOut):
            assert isinstance(self._cluster, SourceCluster)
            self._cluster.fixed_partitions = self._fixed

    def _deliver(self, rows: PartitionRows) -> None:
        place = Place(self._work.topic, self._partition, time.time_ns() // 1000)
        known: Known = {}
        # Functions are called here, before the transaction begins.
        written, counts = self._router.route(rows, place, {}, known)
        try:
            for given, found in zip(rows.records, written, strict=True):
                ordinals = Counter[int]()
                for target, record in found:
                    self._outbox.add(target, record, _offset(given), ordinals[target])
                    ordinals[target] += 1
            self._outbox.flush()
            self._commit(rows.offsets[-1] + 1, counts, rows)
        except (KafkaRefused, RecordRefused):
            if not self._outlet.was_refused:
                raise
            self._outlet.restart()
            self._deliver_refused(rows, place, known)

    def _deliver_refused(self, rows: PartitionRows, place: Place, known: Known) -> None:
        """Write rows of which a topic refused some, a few at a time; those become dead letters."""
        end = rows.offsets[-1] + 1
        warn_refused(self._work.topic, self._partition, rows.offsets[0], end)
        narrowing = _RefusedRows(self._work, self._cluster, self._router, known)
        narrowing.take(
            _Row(record, answers, _offset(record), place)
            for record, answers in zip(rows.records, rows.answers, strict=True)
        )
        for following in narrowing.delivered(self._outlet):
            self._commit(end if following is None else following, narrowing.counts, rows)
            narrowing.counts.clear()
        self._limits = {**self._limits, **narrowing.limits}
        self._outbox = self._new_outbox()

    def _commit(self, offset: int, counts: Mapping[str, int], rows: PartitionRows) -> None:
        """Commit what was put, and the rows before an offset as done."""
        unmatched = rows.unmatched_before(offset) - rows.unmatched_before(self._mark.offset)
        counted = Counter(counts)
        counted.update(n_in=unmatched, n_unmatched=unmatched)
        advanced = self._mark.advanced(offset, counted)
        self._outlet.commit({self._partition: advanced})
        self._mark = advanced

    def _new_outbox(self) -> BatchBuilder:
        limits = outbox_module.batch_limits(self._work.program, self._limits)
        outbox = BatchBuilder(
            self._partitions,
            limits,
            self._outlet.put,
            batch_bytes=outbox_module.BATCH_BYTES,
            by_position=self._work.program.by_position,
            has_ids=self._work.program.has_ids,
        )
        outbox.begin(self._partition)
        return outbox


def _pieces(offsets: Sequence[int], marks: Mapping[int, int]) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Cut rows at the marks of the sinks; give each part that is left, and the sinks that have it already.

    >>> [(start, end, sorted(skipped)) for start, end, skipped in _pieces([3, 5, 8, 9], {0: 5, 1: 9})]
    [(1, 3, [1]), (3, 4, [])]
    >>> list(_pieces([3, 4], {0: 5}))
    []
    """
    bounds = sorted(set(marks.values()))
    places = [int(at) for at in np.searchsorted(offsets, bounds)]
    for start, end in zip(places, [*places[1:], len(offsets)], strict=True):
        if start < end:
            yield start, end, frozenset(sink for sink, mark in marks.items() if mark > offsets[start])


# Routing


class _Router:
    """The reference on rows of one partition; records have the number of their target."""

    def __init__(self, work: WorkerSpec) -> None:
        self._router = ReferenceRouter(work.stage, has_answers=True)
        self._numbers = {(each.sink, each.topic): number for number, each in enumerate(work.program.targets)}

    def route(
        self, rows: PartitionRows, place: Place, refused: Refused, known: Known
    ) -> tuple[list[list[Written]], Mapping[str, int]]:
        """Return what each record becomes, and what was counted; what a topic has `refused` is a letter.

        `known` keeps what functions have answered: rows that are refused are routed again.
        """
        routing = self._router.route(
            rows.records, now=place.now, refused=refused, known=known, answers=rows.answers
        )
        numbers = self._numbers
        return [
            [(numbers[target.sink, target.topic], record) for target, record in written]
            for written in routing.written
        ], routing.counts


@dataclass(frozen=True, slots=True)
class _Row:
    record: KafkaRecord
    answers: Answers
    offset: int
    place: Place


class _RefusedRows(RowNarrowing[_Row]):
    """Rows of which a topic refuses some."""

    def __init__(self, work: WorkerSpec, cluster: Cluster, router: _Router, known: Known) -> None:
        super().__init__(work, cluster, known)
        self._router = router

    def _written(
        self, rows: Sequence[_Row], refused: Refused, known: Known
    ) -> tuple[list[list[Written]], Mapping[str, int]]:
        given = PartitionRows.of([row.record for row in rows], [row.answers for row in rows])
        return self._router.route(given, rows[0].place, refused, known)
