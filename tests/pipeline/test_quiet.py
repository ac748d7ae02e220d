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
from penstock.pipeline.quiet import quiet_start
with quiet_start():
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE)
    child.wait()
print("mine", file=sys.stderr)
import threading
[each.join(10) for each in threading.enumerate() if each.name == "penstock-spark-stderr"]
"""


def test_only_the_noise_is_left_out() -> None:
    result = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True)
    assert sorted(result.stderr.splitlines()) == ["an error", "mine"]
