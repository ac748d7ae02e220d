"""The filter in front of a child's standard error: noise goes, everything else stays, in its order."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import os
os.write(2, b'Setting default log level to "WARN".\\nan error\\nTo adjust logging level use\\n')
"""
PARENT = f"""
import subprocess, sys
from penstock.pipeline.spark.stderr_filter import filtered_stderr
with filtered_stderr() as stderr:
    # As a bar on a terminal draws: no line ends. It is seen at once, and not when the child has ended.
    print("mine", end="|", file=sys.stderr, flush=True)
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE, stderr=stderr)
    child.wait()
import threading
[each.join(10) for each in threading.enumerate() if each.name == "penstock-spark-stderr"]
"""


def test_only_the_noise_is_left_out() -> None:
    result = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines() == ["mine|an error"]
