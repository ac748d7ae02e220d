"""What decides each route, and the share of the newest records of its topic that the kernel decides.

The newest records of a source are read once, as bytes, without a group and without a commit: Describe and
Read on the topic are enough. They are routed by the program that a job would run, whose output is dropped.
Targets are not asked for, so a record that only its target would refuse counts as the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.first_batches import bytes_per_offset
from penstock.brokers.kafka_raw.topic_offsets import earliest, latest
from penstock.brokers.kafka_raw.visible import visible
from penstock.errors import OffsetOutOfRange
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.offset_ranges import offset_ranges_of
from penstock.pipeline.engines import Explanation, explanations
from penstock.pipeline.evaluators.kernel.program import program_of
from penstock.pipeline.job.choice import KERNEL
from penstock.pipeline.job.fused import settings_of
from penstock.pipeline.job.options import JobOptions

if TYPE_CHECKING:
    from penstock.pipeline.stage import Stage

__all__ = ["KernelShare", "SourceSample", "newest", "sample_sources"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of record batches that are read of one topic, about: the last fetch may pass it."""
MAX_SECONDS: Final = 30.0
"""How long one topic is read, and how long a broker that is away is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """What decides one route; `by_kernel` is None where the topic was not read."""

    route: str
    evaluator: str
    """As `engines.Explanation.evaluator`."""
    stops: tuple[str, ...]
    """Why the kernel does not decide it, each naming the node."""
    by_kernel: int | None
    """Of the records that were read, those of which the kernel is certain for this route alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSample:
    """What was read of one topic, and what became of it."""

    server: str
    topic: str
    partitions: int = 0
    offsets: int = 0
    """How many offsets lie in what was asked for; markers and what compaction took have one and no record."""
    records: int = 0
    bytes: int = 0
    note: str = ""
    """Why less was read than asked for; empty if all of it was."""
    by_kernel: int | None = None
    """Records that the kernel decides for all routes of the topic: one that it leaves, it leaves whole."""
    shares: tuple[KernelShare, ...]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, without the routes."""
        names = ("server", "topic", "partitions", "offsets", "records", "bytes", "note")
        return {**{name: getattr(self, name) for name in names}, "byKernel": self.by_kernel}


@dataclass(frozen=True, slots=True)
class _Read:
    partitions: int
    offsets: int
    fetched: Sequence[Fetched]
    ends: Offsets
    note: str


def sample_sources(
    pipeline: Pipeline, count: int, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS
) -> tuple[SourceSample, ...]:
    """Read the newest `count` records of each topic that the kernel may decide on, and count what it decides.

    A source whose routes the kernel does not see is not read, and says so. Raises ClusterError if a topic is
    not there, may not be read, or its cluster does not answer.
    """
    explained = explanations(pipeline)
    return tuple(
        _sampled(source, pipeline, explained, count, max_bytes, max_seconds)
        for source in sources_of(pipeline)
    )


def _sampled(
    source: Source,
    pipeline: Pipeline,
    explained: Mapping[str, Explanation],
    count: int,
    max_bytes: int,
    max_seconds: float,
) -> SourceSample:
    routes = [explained[route.name] for route in source.routes]
    unread = SourceSample(
        server=source.receive.server,
        topic=source.topic,
        note="not read: the kernel decides none of its routes",
        shares=tuple(_share(each, None) for each in routes),
    )
    if not any(each.evaluator == KERNEL for each in routes):
        return unread
    options = JobOptions(broker_timeout=max_seconds)
    with Cluster(settings_of(source, options, source.receive.server)) as cluster:
        read = _newest_of(cluster, source.topic, count, max_bytes, max_seconds)
    records, certain, by_route = 0, None, dict[str, int]()
    for each, route in zip(routes, source.routes, strict=True):
        if each.evaluator == KERNEL:
            alone = stage_of(replace(source, routes=(route,)), pipeline)
            records, by_route[each.route] = _decided(alone, read, source.topic)
        else:
            by_route[each.route] = 0
    if len(by_route) == 1:
        certain = next(iter(by_route.values()))
    elif all(each.evaluator == KERNEL for each in routes):
        records, certain = _decided(stage_of(source, pipeline), read, source.topic)
    return replace(
        unread,
        partitions=read.partitions,
        offsets=read.offsets,
        records=records,
        bytes=sum(len(each.data) for each in read.fetched),
        note=read.note,
        by_kernel=certain,
        shares=tuple(_share(each, by_route[each.route]) for each in routes),
    )


def _share(explained: Explanation, by_kernel: int | None) -> KernelShare:
    return KernelShare(
        route=explained.route,
        evaluator=explained.evaluator,
        stops=explained.kernel_stops,
        by_kernel=by_kernel,
    )


def newest(begin: Offsets, end: Offsets, count: int) -> dict[int, int]:
    """Return where to begin so that about `count` offsets remain, as even a part of each partition as it has.

    >>> newest({0: 0, 1: 0}, {0: 100, 1: 10}, 40)
    {0: 70, 1: 0}
    >>> newest({0: 5}, {0: 9}, 100), newest({0: 0, 1: 0, 2: 0}, {0: 9, 1: 9, 2: 9}, 4)
    ({0: 5}, {0: 8, 1: 8, 2: 7})
    """
    start, left = dict(end), count
    waiting = sorted((last - begin.get(part, 0), part) for part, last in end.items())
    for number, (held, part) in enumerate(waiting):
        taken = max(0, min(held, left // (len(waiting) - number)))
        start[part], left = end[part] - taken, left - taken
    return start


def _newest_of(cluster: Cluster, topic: str, count: int, max_bytes: int, max_seconds: float) -> _Read:
    until = monotonic() + max_seconds
    begin, ends = earliest(cluster, topic), latest(cluster, topic, read_committed=True)
    start = newest(begin, ends, count)
    notes = []
    sizes = bytes_per_offset(
        cluster, topic, {span.partition: span.start for span in offset_ranges_of(start, ends)}
    )
    usual = sum(sizes.values()) / len(sizes) if sizes else 0.0
    expected = sum(len(span) * sizes.get(span.partition, usual) for span in offset_ranges_of(start, ends))
    if expected > max_bytes:
        # Fewer of the newest, rather than the oldest of what was asked for.
        asked = sum(map(len, offset_ranges_of(start, ends)))
        start = newest(begin, ends, max(len(ends), int(asked * max_bytes / expected)))
        notes.append(f"the newest {max_bytes} bytes, about")
    fetched: list[Fetched] = []
    size = 0
    wanted = [Wanted(topic, span.partition, span.start, span.end) for span in offset_ranges_of(start, ends)]
    with closing(Fetcher(cluster, wanted)) as fetcher:
        while fetcher.waiting and size <= 2 * max_bytes and monotonic() < until:
            try:
                found = [each for each in fetcher.poll(max(0.0, until - monotonic())) if each.data]
            except OffsetOutOfRange as exc:
                fetcher.seek(topic, exc.partition, exc.log_start)  # deleted since the beginning was asked for
                continue
            fetched += found
            size += sum(len(each.data) for each in found)
        if fetcher.waiting:
            notes.append(f"stopped after {size} bytes or {max_seconds:.0f} s")
    if not wanted:
        notes.append("the topic is empty")
    return _Read(len(ends), sum(map(len, offset_ranges_of(start, ends))), fetched, ends, "; ".join(notes))


def _decided(stage: Stage, read: _Read, topic: str) -> tuple[int, int]:
    """Return how many records were routed, and of how many of them the kernel was certain."""
    # Only this needs kernels: without records nothing is compiled or loaded.
    from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter

    program = program_of(stage)
    machine = BatchRouter(program, stage, [1] * len(program.targets), lambda output: None)
    for fetched, batches in _batches(read.fetched):
        machine.feed(
            batches,
            topic=topic,
            partition=fetched.partition,
            first=fetched.first,
            end=read.ends[fetched.partition],
        )
    counts = machine.counts
    return counts["n_in"], counts["n_in"] - counts["n_slow"]


def _batches(fetched: Sequence[Fetched]) -> Iterator[tuple[Fetched, memoryview]]:
    for each in fetched:
        for batches in visible(each.data, each.aborted):
            yield each, batches
