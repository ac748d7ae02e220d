"""What the workers of one source are told: the program, the cluster, the group of the marks, the promises."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_raw.settings import Settings
from penstock.pipeline.counters import COUNTERS as COMMON
from penstock.pipeline.delivery.progress import ProgressKey, PulsarProgress, Snapshot
from penstock.pipeline.delivery.range_progress import Belonging

if TYPE_CHECKING:
    from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
    from penstock.pipeline.delivery.pulsar.source import PulsarSource
    from penstock.pipeline.evaluators.kernel.program import Program
    from penstock.pipeline.stage import Stage

__all__ = ["COUNTED", "COUNTED_DDL", "COUNTERS", "TRANSACTION_SECONDS", "WorkerSpec"]

TRANSACTION_SECONDS: Final = 60.0
"""After so long a broker aborts a transaction of somebody who has gone; ours commit well before."""

COUNTERS: Final = ("n_slow", "n_lost", "n_shadow", "n_different")
"""What is counted here beside the counters of every engine."""
COUNTED: Final = (*COMMON, *COUNTERS, "n_compiled")
"""The columns of the one row of a task; the last counts kernels that no cache had."""
COUNTED_DDL: Final = ", ".join(f"{name} bigint" for name in COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One source; it pickles, and its settings show no secret."""

    program: Program
    stage: Stage
    settings: Settings
    topic: str
    group: str
    """The group whose offsets say what is done; transactions are named after it."""
    on_data_loss: str = "stop"
    exactly_once: bool = True
    shadow: int = 0
    """One of so many records also goes through the stage, and differences are counted; 0: none."""
    belonging: Belonging = Belonging()
    """Whose the marks of a loop are, and the id of the topic that is read, if the cluster has ids."""
    outputs: Mapping[int, Settings] = field(default_factory=dict)
    """The other Kafka clusters that are written, by sink."""
    pulsar_outputs: Mapping[int, PulsarSettings] = field(default_factory=dict)
    """The Pulsar clusters that are written, by sink."""
    run: str = ""
    """Whose names records are written to Pulsar under: the id that a checkpoint keeps.

    Empty without a checkpoint: then the marks keep one. `--replay` has another one than what it repeats.
    """
    is_repeatable: bool = True
    """Whether a second run of a range gives the same records under the same ids.

    If not, Pulsar gets them at least once.
    """
    source_id: str = ""
    """The id of the cluster that is read, as the marks on other clusters name it."""
    seen: Mapping[int, Snapshot] = field(default_factory=dict)
    """What was read of the progress topics before the work began, by sink."""
    plan: str | None = None
    """A digest of the program, if it sends each record to the same clusters whenever it is asked."""
    pulsar: PulsarSource | None = None
    """What is read, if it is on Pulsar.

    `settings` is then the Kafka cluster that is written first; without addresses if none is.
    """
    progress: PulsarProgress | None = None
    """Where the marks are if no Kafka is read or written; None: on the clusters of Kafka."""

    @property
    def has_outputs(self) -> bool:
        """Whether another cluster is written than the one that is read."""
        return bool(self.outputs or self.pulsar_outputs)

    @property
    def marked(self) -> tuple[int, ...]:
        """The sinks that have marks of a source on Pulsar."""
        return tuple(self.outputs) if self.progress is None else (self.progress.sink,)

    @property
    def delivers_once(self) -> bool:
        """Whether every cluster gets each record once."""
        return self.exactly_once and (self.is_repeatable or not self.pulsar_outputs)

    kept_plan: bytes | None = None
    """What the program was made of, as a loop keeps it beside its marks; None: it is not kept."""
    now: int | None = None
    """What `now()` stands for, in microseconds, where it is fixed for the whole range; None: it is not."""

    @property
    def progress_key(self) -> ProgressKey:
        """Whose the marks are on other clusters.

        Those of a topic on Pulsar are found also when it was made again: they are the only ones that there
        are, and say of which incarnation they are.
        """
        topic_id = "" if self.pulsar is not None else self.belonging.topic_id or ""
        return ProgressKey(self.group, self.source_id, self.topic, topic_id)

    def packed(self) -> bytes:
        """Give it as bytes: whoever only carries it, as a planner does, imports nothing of what is inside."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def unpacked(packed: bytes) -> WorkerSpec:
        """Give it back; the bytes come from our own driver, by way of Spark."""
        found = pickle.loads(packed)
        assert isinstance(found, WorkerSpec)
        return found
