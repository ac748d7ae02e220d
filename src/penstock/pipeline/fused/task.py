"""What a Spark task does with its ranges: the whole loop runs inside of it, and only counts come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.pipeline.fused.engine import run_ranges
from penstock.pipeline.fused.spans import Span
from penstock.pipeline.fused.work import COUNTERS, Work
from penstock.pipeline.outgoing import COUNTERS as COMMON
from penstock.wire.kernels.jit import cache_misses

__all__ = ["COUNTED", "COUNTED_DDL", "Task"]

COUNTED: Final = (*COMMON, *COUNTERS, "n_compiled")
"""The columns of the one row of a task; the last counts kernels that no cache had."""
COUNTED_DDL: Final = ", ".join(f"{name} bigint" for name in COUNTED)


@dataclass(frozen=True, slots=True)
class Task:
    """Does what `mapInArrow` asks for: batches of ranges in, counts out."""

    work: Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the ranges."""
        spans = [
            Span(row["partition"], row["start"], row["end"]) for batch in batches for row in batch.to_pylist()
        ]
        if spans:
            yield _counted(run_ranges(self.work, spans))


_told: Counter[str] = Counter()
"""What this worker, which does many tasks, has told of itself."""


def _counted(counts: Counter[str]) -> pa.RecordBatch:
    misses = cache_misses()
    counts["n_compiled"] = misses - _told["n_compiled"]
    _told["n_compiled"] = misses
    return pa.RecordBatch.from_pydict({name: pa.array([counts[name]], pa.int64()) for name in COUNTED})
