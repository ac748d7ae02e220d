"""What a gateway's process does with memory."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from penstock.gateway.memory import keep_what_is_freed

if sys.argv[1] == "kept":
    assert keep_what_is_freed()

def come_and_go():
    # As batches do: some are held at a time, the oldest goes first.
    held = []
    for _ in range(200):
        batch = np.empty(1 << 20, np.uint8)
        batch[::4096] = 1
        held.append(batch)
        del held[:-8]

come_and_go()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
come_and_go()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_the_memory_of_one_batch_serves_the_next() -> None:
    # Each of the 200 batches has 256 pages; what the first eight had is enough for all.
    assert faults("kept") < 256
