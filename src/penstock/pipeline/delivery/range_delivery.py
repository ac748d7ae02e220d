"""One range of one partition, from Kafka's bytes to Kafka's bytes; no Spark is known here.

Done with transactions (reference: KIP-98 and KIP-447): InitProducerId under the name of (group, topic,
partition) fences who worked on it before, the committed offset of the group says what is done, the loop goes
on from there, and the output and the new mark are one transaction. So a range may be given out any number of
times and is done once. A partition must not be cut between two: each would fence the other. At least once it
may be; then nothing inside of a part is marked, and a part that is interrupted is done again as a whole.

Where other Kafka clusters are written, each has a transaction and a mark of its own (`delivery.kafka_sink`).
Pulsar clusters have neither: they acknowledge everything before a mark is committed, and what they have of a
range that is done again is left out by its id. From Pulsar to Pulsar the mark is in a topic of Pulsar, whose
exclusive producer fences (`delivery.pulsar_progress`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from time import monotonic
from typing import Final

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffsets
from penstock.errors import JobFailed, KafkaRefused, ProducerFenced, RecordRefused, Refused, Unreachable
from penstock.pipeline.delivery.cluster_marks import lowest_marks, steps
from penstock.pipeline.delivery.kafka_sink import FanOut, committed_marks, opened, resume
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.partition_reader import PartitionReader
from penstock.pipeline.delivery.progress import Snapshot
from penstock.pipeline.delivery.range_clock import RangeClock
from penstock.pipeline.delivery.range_progress import RangeProgress, read_mark
from penstock.pipeline.delivery.refused_records import redo
from penstock.pipeline.delivery.sink import Sink
from penstock.pipeline.delivery.source_cluster import SourceCluster, source_cluster
from penstock.pipeline.delivery.worker_spec import TRANSACTION_SECONDS, WorkerSpec

__all__ = ["committed_mark", "expiry_told", "finish", "run_range", "run_ranges"]

_LONGEST: Final = TRANSACTION_SECONDS / 4
"""A transaction is committed after so many seconds, and the range goes on in the next one."""
_PATIENCE: Final = 120.0
"""So long may nothing at all come of a range that the broker said is there."""
_TURN: Final = 1.0


def run_ranges(
    work: WorkerSpec, spans: Iterable[OffsetRange], seen: dict[int, Snapshot] | None = None
) -> Counter[str]:
    """Do several ranges one after the other; give what was counted.

    `seen` is what this process has read of the progress topics, by sink, and is kept up to date.
    """
    spans = tuple(spans)
    parts = [span.partition for span in spans if not span.is_cut]
    is_cut = len(parts) < len(spans)
    if len(set(parts)) < len(parts) or (is_cut and work.exactly_once):
        raise Refused(
            "a partition was cut into several ranges",
            where=work.topic,
            why="Exactly once, a partition has one mark and one transaction at a time.",
            next="--at-least-once allows it",
        )
    counts: Counter[str] = Counter()
    with source_cluster(work, seen=seen) as cluster:
        for span in spans:
            counts.update(run_range(work, span, cluster))
    return counts


def run_range(work: WorkerSpec, span: OffsetRange, cluster: Cluster) -> Counter[str]:
    """Do a range, or what is left of it; give what was counted by all who ever worked on it."""
    outlets = list[Sink]()
    with (
        expiry_told(work, outlets),
        opened(work, cluster, str(span.partition), marks=not span.is_cut) as outlet,
    ):
        outlets.append(outlet)
        return _finished(work, span, cluster, outlet)


@contextmanager
def expiry_told(work: WorkerSpec, outlets: Collection[Sink]) -> Iterator[None]:
    """Raise Unreachable where one of the outlets was shut out because of time, and not by a newer owner."""
    try:
        yield
    except ProducerFenced:
        if not any(outlet.expired for outlet in outlets):
            raise
        # Without its cause: Spark has only the text of both, in which a newer owner would be found.
        raise Unreachable(
            f"a transaction took longer than {TRANSACTION_SECONDS:.0f} s, and was aborted",
            where=f"group {work.group}, topic {work.topic}",
            next="look at the brokers; nothing of it is lost, and the next run does it again",
        ) from None


def _finished(work: WorkerSpec, span: OffsetRange, cluster: Cluster, outlet: Sink) -> Counter[str]:
    if isinstance(outlet, FanOut):
        return Counter(_fanned_out(work, span, cluster, outlet).counts)
    mark = RangeProgress(span.start, span.start) if span.is_cut else committed_mark(work, span, cluster)
    if mark.offset < span.end:
        mark = finish(work, span, cluster, outlet, mark)
    return Counter(mark.counts)


def committed_mark(work: WorkerSpec, span: OffsetRange, cluster: Cluster) -> RangeProgress:
    """Return where a range goes on that is written without a fan-out: at its start, or at its mark."""
    if work.pulsar is not None:
        assert isinstance(cluster, SourceCluster)
        marks = committed_marks(work, cluster, decided=(span.partition,))
        found = lowest_marks(marks, work.marked).get(span.partition)
    else:
        found = GroupOffsets(cluster, work.group).committed(work.topic).get(span.partition)
    return read_mark(span.start, *((None, "") if found is None else (found.offset, found.metadata)))


def _fanned_out(work: WorkerSpec, span: OffsetRange, cluster: Cluster, outlet: FanOut) -> RangeProgress:
    """Do a range on several clusters: from the lowest of their marks, each from its own."""
    assert isinstance(cluster, SourceCluster)
    resumed = resume(work, span.partition, span.start, cluster, outlet)
    mark, first = resumed.mark, outlet.sinks[0]
    outlet.stored_before({span.partition: span.end})
    for end, skipped in steps(resumed.offsets, span.end):
        outlet.skip(skipped)
        # What some clusters have is evaluated for the others with the moment that they have it by.
        moment = resumed.moment if skipped else None
        clock = RangeClock(work.now if moment is None else moment)
        # What is behind this step may be stored on Pulsar, among as many partitions as before.
        adopts = end == span.end
        mark = finish(work, replace(span, end=end), cluster, outlet, mark, clock, adopts=adopts)
        if first in skipped and resumed.first.offset == end:
            # What another cluster refuses is not offered again, and so not counted again.
            mark = replace(mark, counts=resumed.first.counts)
    return mark


def finish(
    work: WorkerSpec,
    span: OffsetRange,
    cluster: Cluster,
    outlet: Sink,
    mark: RangeProgress,
    clock: RangeClock | None = None,
    *,
    adopts: bool = False,
) -> RangeProgress:
    """Do what is left of a range from a mark on, in as many transactions as it takes, with one moment.

    With `adopts`, its last mark takes over partitions that targets on Pulsar have got: then the range has
    the outlet for itself.
    """
    part, quiet = span.partition, monotonic()
    clock = clock or RangeClock(work.now)
    if isinstance(outlet, FanOut):
        mark = replace(mark, now=clock.read())
    short_until = -1  # what a topic refused is looked for in short transactions up to this offset
    positions, ends = {part: mark.offset}, {part: span.end}
    with closing(PartitionReader(work, cluster, outlet.put, positions, ends, clock=clock)) as feed:
        while feed.waiting:
            is_short = mark.offset < short_until
            try:
                seconds = 0.0 if is_short else _LONGEST
                advanced = _advanced(feed, outlet, part, mark, seconds, adopts=adopts)
            except (KafkaRefused, RecordRefused):
                if not outlet.was_refused:
                    raise
                outlet.restart()
                advanced, short_until = mark, feed.reached[part]
                limits: Mapping[int, int] = {}
                if is_short or feed.collects:
                    advanced, limits = _redone(work, cluster, outlet, part, mark, short_until, clock)
                feed.rewind({part: advanced.offset}, limits)
                quiet = monotonic()
            if advanced is not mark:
                mark, quiet = advanced, monotonic()
            elif monotonic() - quiet > _PATIENCE:
                raise JobFailed(
                    f"nothing came for {_PATIENCE:.0f} s",
                    where=f"{work.topic}, partition {part}, offset {mark.offset}",
                    why=f"The range ends at {span.end}.",
                    next="run again: the checkpoint knows where to go on",
                )
    return mark


def _advanced(
    feed: PartitionReader, outlet: Sink, part: int, mark: RangeProgress, seconds: float, *, adopts: bool
) -> RangeProgress:
    """Do one transaction of so many seconds, and give its mark; the same mark if nothing came."""
    if not _filled(feed, seconds):
        return mark
    feed.flush()
    advanced = mark.advanced(feed.done[part], feed.taken())
    if adopts and isinstance(outlet, FanOut) and not feed.waiting:
        outlet.adopt_partitions()
    outlet.commit({part: advanced})
    return advanced


def _redone(
    work: WorkerSpec,
    cluster: Cluster,
    outlet: Sink,
    part: int,
    mark: RangeProgress,
    end: int,
    clock: RangeClock,
) -> tuple[RangeProgress, Mapping[int, int]]:
    """Do a range in which records were refused again, so that they become dead letters."""

    def commit(offset: int, counts: Mapping[str, int]) -> None:
        nonlocal mark
        advanced = mark.advanced(offset, counts)
        outlet.commit({part: advanced})
        mark = advanced

    limits = redo(work, cluster, outlet, part, mark.offset, end, commit, clock)
    return mark, limits


def _filled(feed: PartitionReader, seconds: float) -> bool:
    """Feed until the range ends, there is enough to commit, or time is up; say whether there is any."""
    began, moved = monotonic(), feed.poll(_TURN)
    while feed.takes and monotonic() - began < seconds:
        moved |= feed.poll(_TURN)
    return moved or feed.holds
