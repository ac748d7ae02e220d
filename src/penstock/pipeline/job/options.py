"""How a job is run: what the command line says, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "BROKER_SECONDS",
    "IDLE_SECONDS",
    "MAX_BYTES_PER_TRIGGER",
    "MAX_FAILURES",
    "MAX_OFFSETS_PER_TRIGGER",
    "JobOptions",
]

MAX_OFFSETS_PER_TRIGGER: Final = 500_000
"""A micro-batch costs 0.2 s whatever its size: it pays from 200 000 records on."""

MAX_BYTES_PER_TRIGGER: Final = 1024**3
"""A batch of large records shall end within some ten seconds: a job that is asked to end waits for it."""

MAX_FAILURES: Final = 10
"""How often in a row a source may fail before the job ends; with the pauses between, some four minutes."""

IDLE_SECONDS: Final = 5.0
"""How long nothing must come before `--until-idle` ends."""


BROKER_SECONDS: Final = 60.0
"""How long a run that has an end waits for a broker that is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """One run of a pipeline."""

    once: bool = False
    """Process what is there now, and end."""
    until_idle: float | None = None
    """End when nothing has come for so many seconds."""
    group: str | None = None
    """The consumer group to commit progress to, where the contract allows several or says nothing."""
    on_data_loss: str | None = None
    """stop or continue; None is what the pipeline says."""
    max_offsets: int | None = None
    """Offsets of one batch at most; None: 500 000, and more on a cluster with more than two slots."""
    max_bytes: int = MAX_BYTES_PER_TRIGGER
    """Bytes of one batch of Spark, about, as they lie in Kafka."""
    max_tasks: int | None = None
    """Tasks of one batch of Spark at most; None: as many as there are slots."""
    split: bool = False
    """Cut large partitions between tasks of Spark, where neither order nor marks forbid it."""
    max_failures: int = MAX_FAILURES
    """How often in a row a source may fail before a job without an end ends; 0: as often as it likes."""
    trigger: float | None = None
    """Seconds between two batches of a source; None is what the pipeline says."""
    engine: str | None = None
    """spark or loop; None is what the pipeline says."""
    exactly_once: bool = True
    """Whether transactions are used where the clusters have them."""
    shadow: int = 0
    """One of so many records of the kernel is decided by the reference, too, and compared; 0: none."""
    take_over: bool = False
    """Go on from the offsets of a group that another pipeline has committed; only a loop has such."""
    broker_timeout: float = BROKER_SECONDS
    """Seconds for a broker that does not answer; a loop without an end begins anew after them, for ever."""
    replay: bool | None = None
    """For a checkpoint that is older than what was written: write it again, or (False) go on behind it."""
    fresh_checkpoint: bool = False
    """Begin anew where a checkpoint no longer fits; the old one is kept beside."""
