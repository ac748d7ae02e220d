"""When a machine is quiet enough to measure: what a server still does for one side is no other's cost."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

__all__ = ["cpu_seconds", "settled"]

WATCHED, LIMIT, IDLE = 0.4, 12.0, 0.15
"""How long servers are watched before a measurement, how long at most, and what share of a core is idle."""


def cpu_seconds(pid: int) -> float:
    """Give the time that a process was on a core, in nanoseconds where the system has a clock for each.

    A tick of ten milliseconds, which is what is counted elsewhere, moves some megabytes.
    """
    try:
        # What clock_getcpuclockid(3) gives on Linux.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return sum(psutil.Process(pid).cpu_times()[:2])


def settled(pids: Iterable[int]) -> None:
    """Wait until servers have done what the last measurement left them: deleting, writing back, compiling."""
    pids, end = tuple(pids), time.monotonic() + LIMIT
    while time.monotonic() < end:
        before = sum(map(cpu_seconds, pids))
        time.sleep(WATCHED)
        if sum(map(cpu_seconds, pids)) - before < IDLE * WATCHED:
            return
