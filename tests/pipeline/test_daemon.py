"""The parent of the workers has everything they need before it forks them, and no thread of Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import runpy, sys, threading
import penstock.pipeline.daemon as daemon
seen = []
daemon.manager = lambda: seen.append(threading.active_count())
module, sys.argv = sys.argv[1], ["daemon", sys.argv[2]]
if module == "penstock.pipeline.daemon":
    daemon.main()
else:
    runpy.run_module(module, run_name="__main__")
names = ("numba", "penstock.pipeline.stage", "penstock.wire.kernels.routing.run")
print(seen, *(name in sys.modules for name in names))
"""
COLUMNS, FUSED = "penstock.pipeline.daemon", "penstock.pipeline.fused.daemon"


def after_preloading(module: str, worker: str) -> str:
    command = [sys.executable, "-c", CODE, module, worker]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_fused_workers_find_the_kernels_loaded() -> None:
    assert after_preloading(FUSED, "pyspark.worker") == "[1] True True True"


def test_workers_on_columns_load_no_kernel_that_they_do_not_call() -> None:
    assert after_preloading(COLUMNS, "pyspark.worker") == "[1] True True False"


@pytest.mark.parametrize("module", [COLUMNS, FUSED])
def test_planners_are_not_made_heavy(module: str) -> None:
    assert after_preloading(module, "pyspark.sql.worker.plan_data_source_read") == "[1] False False False"
