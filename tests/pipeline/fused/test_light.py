"""What runs beside the driver is small: it plans offsets, and loads no kernel, no Arrow and no Spark."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numba", "pyarrow", "pandas", "pyspark")


def test_the_planner_loads_no_kernel() -> None:
    code = f"import sys, penstock.pipeline.fused.source; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_driver_loads_no_kernel() -> None:
    code = "import sys, penstock.pipeline.job, penstock.pipeline.job.fused; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
