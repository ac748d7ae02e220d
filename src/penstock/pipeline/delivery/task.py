"""What a Spark task does with its ranges: the whole loop runs inside of it, and only counts come out."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from functools import lru_cache

from penstock.pipeline.delivery.offset_ranges import Share
from penstock.pipeline.delivery.partition_reader import load_kernels
from penstock.pipeline.delivery.progress import Snapshot
from penstock.pipeline.delivery.range_delivery import run_ranges
from penstock.pipeline.delivery.worker_spec import COUNTED, WorkerSpec
from penstock.wire.kernels.jit import cache_misses

__all__ = ["counted"]

_told: Counter[str] = Counter()
"""What this worker, which does many tasks, has told of itself."""


def counted(packed: bytes, share: Share) -> tuple[int, ...]:
    """Do the ranges of a task; give its counters, in the order of COUNTED."""
    packed = share.packed or packed
    counts = run_ranges(replace(_unpacked(packed), now=share.now), share.spans, _seen(packed))
    misses = cache_misses()
    counts["n_compiled"] = misses - _told["n_compiled"]
    _told["n_compiled"] = misses
    return tuple(counts[name] for name in COUNTED)


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> WorkerSpec:
    work = WorkerSpec.unpacked(packed)
    load_kernels(work)
    # What is imported lives as long as the worker: the collector need not look at it for every thousand
    # records that the reference decides about.
    gc.freeze()
    return work


@lru_cache(maxsize=8)
def _seen(packed: bytes) -> dict[int, Snapshot]:
    """Give what this worker knows of the progress topics: its next task reads only what came since."""
    return dict(_unpacked(packed).seen)
