"""What is fixed with a batch of Spark, so that a second run of it gives the same output.

Spark notes what a batch covers before a task begins, and repeats exactly that batch after a crash. Beside the
offsets it notes the time of the batch, which `now()` stands for. A batch that an edited pipeline finds open
is done by the work that began it (`kept_plan`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.brokers.kafka_offsets import Offsets
from penstock.pipeline.delivery.offset_ranges import OffsetRange, Share
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.job.checkpoint import Checkpoint
from penstock.pipeline.job.offsets import offsets_of
from penstock.pipeline.spark.stream import Offset, OffsetPlanner

if TYPE_CHECKING:
    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.job.preparation import Checked

__all__ = ["KeptBatches", "OpenBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch that was begun by another plan: where it ends, and the work that finishes it."""

    end: Offsets
    work: WorkerSpec
    made_of: tuple[Checked, Pipeline] | None = None
    """What the work is made of anew when schemas were learnt that its records name; None: it knows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBatches:
    """A planner whose shares carry what was fixed with their batch; everything else is the planner's own."""

    planner: OffsetPlanner
    checkpoint: Checkpoint
    topic: str
    reads_now: bool = False
    """Whether the moment of a batch matters: it costs a look into the checkpoint."""
    open_batch: OpenBatch | None = None
    """The batch that is done first, by the work that began it."""

    @property
    def limit(self) -> int:
        """Rows of a batch at most."""
        return self.planner.limit

    def start(self) -> Offset:
        """Give where a new query begins."""
        return self.planner.start()

    def plan(self, start: Offset) -> Offset:
        """Give where the next batch ends."""
        return self.planner.plan(start)

    def end(self) -> Offset | None:
        """Give the end of what there is."""
        return self.planner.end()

    def freeze(self) -> None:
        """Take what there is now for all there will be."""
        self.planner.freeze()

    def shares(self, start: Offset, end: Offset) -> Sequence[Share]:
        """Divide a batch into tasks."""
        until = offsets_of(end, self.topic)
        begun = self.open_batch if self.open_batch and self.open_batch.end == until else None
        routes = () if begun is None else begun.work.stage.routes
        reads_now = self.reads_now if begun is None else any(route.plan.reads_now for route in routes)
        now = 1000 * self.checkpoint.batch_time(self.topic, until) if reads_now else None
        packed = None if begun is None else begun.work.packed()
        return [Share(_spans(each), now, packed) for each in self.planner.shares(start, end)]

    def close(self) -> None:
        """Release what the planner holds."""
        self.planner.close()


def _spans(share: object) -> tuple[OffsetRange, ...]:
    assert isinstance(share, Sequence)
    return tuple(share)
