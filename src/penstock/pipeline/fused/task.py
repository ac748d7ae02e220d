"""What a Spark task does with its ranges: the whole loop runs inside of it, and only counts come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from penstock.pipeline.fused.engine import run_ranges
from penstock.pipeline.fused.spans import Span
from penstock.pipeline.fused.work import COUNTED, Work
from penstock.wire.kernels.jit import cache_misses

__all__ = ["counted"]

_told: Counter[str] = Counter()
"""What this worker, which does many tasks, has told of itself."""


def counted(packed: bytes, spans: Iterable[Span]) -> tuple[int, ...]:
    """Do the ranges of a task; give its counters, in the order of COUNTED."""
    counts = run_ranges(_unpacked(packed), spans)
    misses = cache_misses()
    counts["n_compiled"] = misses - _told["n_compiled"]
    _told["n_compiled"] = misses
    return tuple(counts[name] for name in COUNTED)


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> Work:
    return Work.unpacked(packed)
