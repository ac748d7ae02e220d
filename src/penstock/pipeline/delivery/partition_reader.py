"""The records of some partitions on their way through a router: fetched as bytes, fed as bytes.

The router is a machine where the kernel decides, else one that asks the reference about every record. It
knows how far each partition has come and where it ends, and what became of records that were deleted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.fetched import Fetched
from penstock.brokers.kafka_raw.fetcher import Wanted
from penstock.brokers.kafka_raw.visible import visible
from penstock.errors import JobFailed, OffsetOutOfRange
from penstock.pipeline.delivery.range_clock import RangeClock
from penstock.pipeline.delivery.source_cluster import source_fetcher, target_partitions
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.batch_builder import Put
from penstock.pipeline.evaluators.reference.batch_router import ReferenceBatchRouter

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.wire.buffer import Buffer

__all__ = ["PartitionReader", "Router", "load_kernels"]

_NEVER: Final = 2**63 - 1
_ANSWER_SECONDS: Final = 5.0
"""So long an answer of a Kafka broker holds, which gives one twice a second where nothing is new."""


class Router(Protocol):
    """What fetched records are fed into, such as a machine."""

    counts: Counter[str]

    @property
    def collects(self) -> bool:
        """Whether `feed` only collects, and `flush` routes a part of it before it puts the first batch.

        Then nothing may be open when it is flushed, and each flush is committed before the next one.
        """

    @property
    def holds(self) -> bool:
        """Whether it has records that it has not routed yet."""

    @property
    def held(self) -> Mapping[int, int]:
        """By partition, the offset of the first record that it holds."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fed before it is flushed."""

    def feed(self, data: Buffer, *, topic: str, partition: int, first: int, end: int, now: int) -> int | None:
        """Take the records with offsets from `first` up to `end` of whole batches; `now` in microseconds.

        Returns the offset of the first record that it had no room for, None if it took all; with nothing in
        it there is room for one.
        """

    def flush(self, *, now: int) -> None:
        """Put what is waiting; one that collects routes it first, with `now` in microseconds."""


def load_kernels(work: WorkerSpec) -> None:
    """Load the routing kernel if this work calls it, before anything waits for its feed.

    Where no cache has it, it takes a minute to compile; work for the reference alone does without.
    """
    if work.program.has_kernel:
        import penstock.pipeline.evaluators.kernel.batch_router  # noqa: F401


class PartitionReader:
    """A fetcher and a router; `positions` is how far each partition was fed, `done` how far it was routed."""

    def __init__(
        self,
        work: WorkerSpec,
        cluster: Cluster,
        to: Put | Router,
        positions: Offsets,
        ends: Offsets | None = None,
        *,
        max_wait: float = 0.5,
        clock: RangeClock | None = None,
    ) -> None:
        """`to` is where the router puts its batches, or a router of one's own.

        `clock` says what `now()` is; without one each feed has a range of its own.
        """
        self.before: Callable[[int, int], None] | None = None
        """Called with a partition and the offset up to which its records are routed next."""
        self._clock = clock or RangeClock()
        self.positions = dict(positions)
        self._reached = dict(positions)
        self.stable: dict[int, int] = {}
        """Where each partition ends for who reads only what is committed, as far as it was told."""
        self._answered: dict[int, float] = {}
        """When something was heard of a partition last, if only that nothing is new."""
        self._work = work
        self._ends = dict(ends or {})
        self._lost = 0
        self._cluster = cluster
        self._put = to
        self._limits: dict[int, int] = {}
        self._router = self._new_router(to) if callable(to) else to
        wanted = [Wanted(work.topic, part, at, self._ends.get(part)) for part, at in positions.items()]
        self._fetcher = source_fetcher(work, cluster, wanted, max_wait=max_wait)

    def close(self) -> None:
        """Let go of the connections."""
        self._fetcher.close()

    @property
    def waiting(self) -> bool:
        """Whether there is something left to fetch before the ends, or to route."""
        return self._is_fetching or self._router.holds

    @property
    def takes(self) -> bool:
        """Whether there is something left to fetch, and room for it."""
        return self._is_fetching and not self._router.is_full

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing before the next flush."""
        return self._router.is_full

    @property
    def collects(self) -> bool:
        """Whether `flush` routes what was collected: see `Router.collects`."""
        return self._router.collects

    @property
    def holds(self) -> bool:
        """Whether records are collected that were not routed yet."""
        return self._router.holds

    @property
    def done(self) -> dict[int, int]:
        """How far each partition was routed."""
        return _not_behind(self.positions, self._router.held)

    @property
    def reached(self) -> dict[int, int]:
        """How far records were routed, also those of a fetch in the middle of which something was raised."""
        return _not_behind(self._reached, self._router.held)

    @property
    def _is_fetching(self) -> bool:
        return any(at < self._ends.get(part, _NEVER) for part, at in self.positions.items())

    @property
    def caught_up(self) -> bool:
        """Whether every partition is where its topic ended when it was last asked."""
        return all(at >= self.stable.get(part, at) for part, at in self.positions.items())

    @property
    def is_answered(self) -> bool:
        """Whether every partition was heard of a moment ago: who does not answer may have more.

        A broker of Pulsar says once where a partition ends, and then only what is new, while it is attached.
        """
        since = monotonic() - _ANSWER_SECONDS
        if (is_attached := getattr(self._fetcher, "is_attached", None)) is not None:
            return bool(is_attached) and self.positions.keys() <= self._answered.keys()
        return all(self._answered.get(part, -math.inf) >= since for part in self.positions)

    @property
    def is_bounded(self) -> bool:
        """Whether it was told where to end, so that partitions which the topic gets do not belong to it."""
        return bool(self._ends)

    @property
    def lag(self) -> int:
        """Count the offsets between here and the end."""
        done = self.done
        return sum(max(0, last - done[part]) for part, last in self.stable.items())

    def poll(self, timeout: float) -> bool:
        """Feed what has come within a time; say whether anything moved. What is full takes nothing."""
        if not self.takes:
            return False
        before = dict(self.positions)
        try:
            for fetched in self._fetcher.poll(timeout):
                self._feed(fetched)
        except OffsetOutOfRange as exc:
            self._skip(exc)
        return before != self.positions

    def add(self, partition: int) -> None:
        """Take a partition that the topic has got meanwhile, from its beginning."""
        self.positions[partition] = self._reached[partition] = 0
        self._fetcher.seek(self._work.topic, partition, 0)

    def rewind(self, positions: Offsets, limits: Mapping[int, int] | None = None) -> None:
        """Go on at other positions, and forget what the router holds and has counted.

        `limits` are the bytes of a batch that targets were found to take; they hold from now on.
        """
        assert callable(self._put), "a feed of another router is not rewound"
        self.positions = dict(positions)
        self._reached = dict(positions)
        self._lost = 0
        self._limits |= limits or {}
        self._router = self._new_router(self._put)
        for part, offset in positions.items():
            self._fetcher.seek(self._work.topic, part, offset)

    def flush(self) -> None:
        """Let the router put what it still holds; one that collects, a part of it."""
        self._router.flush(now=self._clock.read())

    def taken(self) -> Mapping[str, int]:
        """Give what was counted since the last time."""
        counts = Counter(self._router.counts)
        counts["n_lost"] += self._lost
        self._router.counts.clear()
        self._lost = 0
        return counts

    def _new_router(self, put: Put) -> Router:
        work = self._work
        counted = [target_partitions(self._cluster, each) for each in work.program.targets]
        if not work.program.has_kernel:
            return ReferenceBatchRouter(work.program, work.stage, counted, put, limits=self._limits)
        from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter

        return BatchRouter(work.program, work.stage, counted, put, shadow=work.shadow, limits=self._limits)

    def _feed(self, fetched: Fetched) -> None:
        part, end = fetched.partition, self._ends.get(fetched.partition, _NEVER)
        self._answered[part] = monotonic()
        reached = min(max(fetched.next_offset, self.positions[part]), end)
        if self.before is not None:
            self.before(part, reached)
        self._reached[part] = reached
        for batches in visible(fetched.data, fetched.aborted):
            left = self._router.feed(
                batches,
                topic=fetched.topic,
                partition=part,
                first=fetched.first,
                end=end,
                now=self._clock.read(),
            )
            if left is not None:
                self._leave(fetched, max(left, self.positions[part]))
                return
        # Batches that nobody may see, and offsets that compaction took, are behind us too.
        self.positions[part] = min(max(fetched.next_offset, self.positions[part]), end)
        self.stable[part] = fetched.last_stable_offset

    def _leave(self, fetched: Fetched, at: int) -> None:
        """Fetch anew from an offset on: what a fetch inflates to is more than is held at once."""
        part = fetched.partition
        self.positions[part] = self._reached[part] = at
        self.stable[part] = fetched.last_stable_offset
        self._fetcher.seek(fetched.topic, part, at)

    def _skip(self, gone: OffsetOutOfRange) -> None:
        """Go on behind records that were deleted, if that is allowed."""
        where = f"{gone.topic}, partition {gone.partition}, offset {gone.offset}"
        if gone.offset > gone.log_end:
            raise JobFailed(
                f"the topic ends at {gone.log_end}, before what was to be read",
                where=where,
                why="It lost its end, or is another one of the same name.",
                next="--fresh-checkpoint reads it from its beginning",
            ) from gone
        if self._work.on_data_loss == "stop":
            raise JobFailed(
                "records were deleted before they were read (OffsetOutOfRange)",
                where=where,
                why=f"The topic begins at {gone.log_start} now.",
                next="set onDataLoss: continue to go on with what is left; the gap is counted",
            ) from gone
        at = min(gone.log_start, self._ends.get(gone.partition, _NEVER))
        self._lost += at - gone.offset
        self.positions[gone.partition] = at
        self._fetcher.seek(gone.topic, gone.partition, at)


def _not_behind(positions: Offsets, held: Mapping[int, int]) -> dict[int, int]:
    return {part: min(at, held.get(part, at)) for part, at in positions.items()}
