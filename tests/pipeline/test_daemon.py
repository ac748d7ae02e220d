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
names = ("pipeline.stage", "pipeline.delivery.task", "wire.kernels.routing.run")
print(seen, "numba" in sys.modules, *(f"penstock.{name}" in sys.modules for name in names))
"""
BY_REFERENCE, BY_KERNEL = "penstock.pipeline.daemon", "penstock.pipeline.delivery.worker_daemon"


def after_preloading(module: str, worker: str) -> str:
    command = [sys.executable, "-c", CODE, module, worker]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_workers_find_the_routing_kernel_loaded() -> None:
    assert after_preloading(BY_KERNEL, "pyspark.worker") == "[1] True True True True"


def test_workers_of_the_reference_find_their_task_without_the_routing_kernel() -> None:
    assert after_preloading(BY_REFERENCE, "pyspark.worker") == "[1] True True True False"


@pytest.mark.parametrize("module", [BY_REFERENCE, BY_KERNEL])
def test_planners_are_not_made_heavy(module: str) -> None:
    assert (
        after_preloading(module, "pyspark.sql.worker.plan_data_source_read") == "[1] False False False False"
    )
