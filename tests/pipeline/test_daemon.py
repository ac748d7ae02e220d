"""The parent of the workers has everything they need before it forks them, and no thread of Python."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, threading
import penstock.pipeline.daemon as daemon
seen = []
daemon.manager = lambda: seen.append(threading.active_count())
sys.argv = ["daemon", sys.argv[1]]
daemon.main()
print(seen, "numba" in sys.modules, "penstock.wire.kernels" in sys.modules)
"""


def after_preloading(worker: str) -> str:
    done = subprocess.run([sys.executable, "-c", CODE, worker], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_workers_find_the_kernels_loaded() -> None:
    assert after_preloading("pyspark.worker") == "[1] True True"


def test_planners_are_not_made_heavy() -> None:
    assert after_preloading("pyspark.sql.worker.plan_data_source_read") == "[1] False False"
