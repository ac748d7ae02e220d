"""The records of some partitions on their way through a machine: fetched as bytes, fed as bytes.

It knows how far each partition has come and where it ends, and what became of records that were deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.visible import visible
from penstock.errors import JobFailed, OffsetOutOfRange
from penstock.pipeline.fused.machine import Machine
from penstock.pipeline.fused.outbox import Put
from penstock.pipeline.fused.work import Work

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.wire.buffer import Buffer

__all__ = ["Feed", "Router"]

_NEVER: Final = 2**63 - 1


class Router(Protocol):
    """What fetched records are fed into, such as a machine."""

    counts: Counter[str]

    def feed(self, data: Buffer, *, topic: str, partition: int, first: int, end: int) -> None:
        """Take the records with offsets from `first` up to `end` of whole batches."""

    def flush(self) -> None:
        """Put what is waiting."""


class Feed:
    """A fetcher and a machine, or another router; `positions` is where each partition goes on."""

    def __init__(
        self,
        work: Work,
        cluster: Cluster,
        to: Put | Router,
        positions: Offsets,
        ends: Offsets | None = None,
        *,
        max_wait: float = 0.5,
    ) -> None:
        """`to` is where a machine puts its batches, or what takes the records instead of a machine."""
        self.positions = dict(positions)
        self.reached = dict(positions)
        """How far records were fed, also those of a fetch in the middle of which something was raised."""
        self.stable: dict[int, int] = {}
        """Where each partition ends for who reads only what is committed, as far as it was told."""
        self._work = work
        self._ends = dict(ends or {})
        self._lost = 0
        self._cluster = cluster
        self._put = to
        self._limits: dict[int, int] = {}
        self._machine = self._new_machine(to) if callable(to) else to
        wanted = [Wanted(work.topic, part, at, self._ends.get(part)) for part, at in positions.items()]
        self._fetcher = Fetcher(cluster, wanted, max_wait=max_wait)

    def close(self) -> None:
        """Let go of the connections."""
        self._fetcher.close()

    @property
    def waiting(self) -> bool:
        """Whether there is something left to fetch before the ends."""
        return any(at < self._ends.get(part, _NEVER) for part, at in self.positions.items())

    @property
    def caught_up(self) -> bool:
        """Whether every partition is where its topic ended when it was last asked."""
        return all(at >= self.stable.get(part, at) for part, at in self.positions.items())

    @property
    def lag(self) -> int:
        """Count the offsets between here and the end."""
        return sum(max(0, last - self.positions[part]) for part, last in self.stable.items())

    def poll(self, timeout: float) -> bool:
        """Feed what has come within a time; say whether anything moved."""
        before = dict(self.positions)
        try:
            for fetched in self._fetcher.poll(timeout):
                self._feed(fetched)
        except OffsetOutOfRange as exc:
            self._skip(exc)
        return before != self.positions

    def add(self, partition: int) -> None:
        """Take a partition that the topic has got meanwhile, from its beginning."""
        self.positions[partition] = self.reached[partition] = 0
        self._fetcher.seek(self._work.topic, partition, 0)

    def rewind(self, positions: Offsets, limits: Mapping[int, int] | None = None) -> None:
        """Go on at other positions, and forget what the machine holds and has counted.

        `limits` are the bytes of a batch that targets were found to take; they hold from now on.
        """
        assert callable(self._put), "a feed of another router is not rewound"
        self.positions = dict(positions)
        self.reached = dict(positions)
        self._lost = 0
        self._limits |= limits or {}
        self._machine = self._new_machine(self._put)
        for part, offset in positions.items():
            self._fetcher.seek(self._work.topic, part, offset)

    def flush(self) -> None:
        """Let the machine put what it still holds."""
        self._machine.flush()

    def taken(self) -> Mapping[str, int]:
        """Give what was counted since the last time."""
        counts = Counter(self._machine.counts)
        counts["n_lost"] += self._lost
        self._machine.counts.clear()
        self._lost = 0
        return counts

    def _new_machine(self, put: Put) -> Machine:
        work = self._work
        counted = [self._cluster.partitions(target.topic) for target in work.program.targets]
        return Machine(work.program, work.stage, counted, put, shadow=work.shadow, limits=self._limits)

    def _feed(self, fetched: Fetched) -> None:
        part, end = fetched.partition, self._ends.get(fetched.partition, _NEVER)
        self.reached[part] = min(max(fetched.next_offset, self.positions[part]), end)
        for batches in visible(fetched.data, fetched.aborted):
            self._machine.feed(batches, topic=fetched.topic, partition=part, first=fetched.first, end=end)
        # Batches that nobody may see, and offsets that compaction took, are behind us too.
        self.positions[part] = min(max(fetched.next_offset, self.positions[part]), end)
        self.stable[part] = fetched.last_stable_offset

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
