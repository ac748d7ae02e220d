"""What runs beside the driver is small: it plans offsets, and loads no kernel, no Arrow and no Spark."""

from __future__ import annotations

import subprocess
import sys

from penstock.brokers.kafka_raw.settings import Settings
from penstock.pipeline.fused.source import Planner, source_class

HEAVY = ("numba", "pyarrow", "pandas", "pyspark")


def test_the_planner_loads_no_kernel() -> None:
    code = f"import sys, penstock.pipeline.fused.source; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_driver_loads_no_kernel() -> None:
    code = "import sys, penstock.pipeline.job, penstock.pipeline.job.fused; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


PLANNING = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
reader = source({}).streamReader(None)
print(source.name(), reader.initialOffset(), "numba" in sys.modules, "pyarrow" in sys.modules)
"""


def test_what_spark_carries_to_the_planner_loads_no_kernel_there() -> None:
    from pyspark import cloudpickle

    planner = Planner(
        settings=Settings.of({"bootstrap.servers": "127.0.0.1:1"}),
        topic="t",
        begin={0: 5},
        limit=1,
        workers=1,
    )
    carried = cloudpickle.dumps(source_class("ranges", planner, b"what only tasks unpack"))
    done = subprocess.run([sys.executable, "-c", PLANNING], input=carried, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "ranges {'t': {'0': 5}} False False"
