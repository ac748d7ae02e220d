"""What decides each route, and the share of the newest records of its topic that the kernel decides.

The newest records of a source are read once, as bytes, and nothing is written (`newest_records`). They are
routed by the program that a job would run, whose output is dropped.
Targets are not asked for, so a record that only its target would refuse counts as the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.brokers.kafka_raw.fetched import Fetched
from penstock.brokers.kafka_raw.visible import visible
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.dry_run.newest_records import (
    Bounds,
    NewestRecords,
    newest_on_kafka,
    newest_on_pulsar,
)
from penstock.pipeline.engines import Explanation, explanations
from penstock.pipeline.evaluators.kernel.program import program_of
from penstock.pipeline.job.choice import KERNEL
from penstock.pipeline.job.fused import settings_of
from penstock.pipeline.job.options import JobOptions

if TYPE_CHECKING:
    from penstock.pipeline.stage import Stage

__all__ = ["KernelShare", "SourceSample", "sample_sources"]

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


def sample_sources(
    pipeline: Pipeline, count: int, *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS
) -> tuple[SourceSample, ...]:
    """Read the newest `count` records of each topic that the kernel may decide on, and count what it decides.

    A source whose routes the kernel does not see is not read, and says so. Raises ClusterError if a topic is
    not there, may not be read, or its cluster does not answer.
    """
    explained = explanations(pipeline)
    bounds = Bounds(count, max_bytes, max_seconds)
    return tuple(_sampled(source, pipeline, explained, bounds) for source in sources_of(pipeline))


def _sampled(
    source: Source,
    pipeline: Pipeline,
    explained: Mapping[str, Explanation],
    bounds: Bounds,
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
    read = _newest(source, bounds)
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


def _newest(source: Source, bounds: Bounds) -> NewestRecords:
    connection, topic = source.receive.connection, source.topic
    if source.is_on_pulsar:
        return newest_on_pulsar(connection, topic, bounds)
    options = JobOptions(broker_timeout=bounds.seconds)
    return newest_on_kafka(settings_of(source, options, source.receive.server), topic, bounds)


def _decided(stage: Stage, read: NewestRecords, topic: str) -> tuple[int, int]:
    """Return how many records were routed, and of how many of them the kernel was certain."""
    # Only this needs kernels: without records nothing is compiled or loaded.
    from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter

    # Records for Pulsar need no ids: none leaves, and a log without the broker's index makes none.
    program = replace(program_of(stage), has_ids=False)
    machine = BatchRouter(program, stage, [1] * len(program.targets), lambda output: None)
    for fetched, batches in _batches(read.fetched):
        left: int | None = fetched.first
        while left is not None:
            machine.flush()
            left = machine.feed(
                batches,
                topic=topic,
                partition=fetched.partition,
                first=left,
                end=read.ends[fetched.partition],
            )
    counts = machine.counts
    return counts["n_in"], counts["n_in"] - counts["n_slow"]


def _batches(fetched: Sequence[Fetched]) -> Iterator[tuple[Fetched, memoryview]]:
    for each in fetched:
        for batches in visible(each.data, each.aborted):
            yield each, batches
