"""What the workers of one source are told: the program, the cluster, the group of the marks, the promises."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_raw.settings import Settings
from penstock.pipeline.counters import COUNTERS as COMMON
from penstock.pipeline.fused.mark import Belonging

if TYPE_CHECKING:
    from penstock.pipeline.fused.program import Program
    from penstock.pipeline.stage import Stage

__all__ = ["COUNTED", "COUNTED_DDL", "COUNTERS", "TRANSACTION_SECONDS", "Work"]

TRANSACTION_SECONDS: Final = 60.0
"""After so long a broker aborts a transaction of somebody who has gone; ours commit well before."""

COUNTERS: Final = ("n_slow", "n_lost", "n_shadow", "n_different")
"""What is counted here beside the counters of every engine."""
COUNTED: Final = (*COMMON, *COUNTERS, "n_compiled")
"""The columns of the one row of a task; the last counts kernels that no cache had."""
COUNTED_DDL: Final = ", ".join(f"{name} bigint" for name in COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
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

    def packed(self) -> bytes:
        """Give it as bytes: whoever only carries it, as a planner does, imports nothing of what is inside."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def unpacked(packed: bytes) -> Work:
        """Give it back; the bytes come from our own driver, by way of Spark."""
        found = pickle.loads(packed)
        assert isinstance(found, Work)
        return found
