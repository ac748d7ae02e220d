"""The parent of Spark's Python workers on this machine: it has imported what they need before it forks them.

Spark's own daemon forks first, and every worker then imports Arrow, Numba and the kernels for itself: a
second of CPU and 200 MB each. Here they share both. No thread of Python runs at the fork; the one thread
there is belongs to an allocator that Arrow carries and does not use, and that knows how to be forked.

`delivery/worker_daemon.py` imports the routing kernel, too. Here it is left out: where no cache has it, it
takes a minute to compile, and a job for the reference alone never calls it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

from pyspark.daemon import manager

__all__ = ["PRELOADED", "main"]

PRELOADED: Final = {
    "pyspark.worker": (
        "pyspark.worker",
        "pyarrow",
        "penstock.pipeline.stage",
        "penstock.pipeline.delivery.task",
        "penstock.wire.kernels.json",
        "penstock.wire.kernels.json_values",
    )
}
"""What the workers of a kind will import. Those that only plan import nothing that is heavy."""


def main(*more: str) -> None:
    """Import, `more` too if these are workers that run tasks, then do what Spark's daemon does."""
    # OpenBLAS would start threads of its own, and nothing here multiplies a matrix.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    preloaded = PRELOADED.get(sys.argv[1] if len(sys.argv) > 1 else "", ())
    for name in (*preloaded, *(more if preloaded else ())):
        importlib.import_module(name)
    manager()


if __name__ == "__main__":
    main()
