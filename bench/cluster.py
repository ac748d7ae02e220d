"""What a pipeline costs as a Spark application: one function per case, each with its goals.

| case | measures |
|---|---|
| start | CPU seconds of `penstock run --once` with one record, by process: driver, Java, Python workers |

`--case NAME` runs one of them. CPU is user and system time of the processes, the broker's left out.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from penstock.embedded.artifacts import ensure
from penstock.embedded.kafka import Kafka
from penstock.pipeline.kernel_cache import compile_kernels
from penstock.pipeline.spark import class_archive
from pipeline import Broker, fill, write_pipeline
from quiet import cpu_seconds, settled
from table import Report

PENSTOCK = [sys.executable, "-c", "import sys; from penstock.cli.app import main; sys.exit(main())"]
SAMPLE_SECONDS = 0.02
"""A process that ends is counted up to the last look at it."""
LIMIT_SECONDS = 600.0
PARTS = ("driver", "java", "workers", "other")
START_BEFORE = 14.6
"""CPU seconds of a start at c9b69ab: driver 2.0, Java 7.1, workers 3.9, planner 1.6."""


class ProcessTree:
    """The CPU seconds of a process and all that it starts, by part."""

    def __init__(self, root: subprocess.Popen[bytes]) -> None:
        self._root = root
        self._parts: dict[int, str] = {root.pid: "driver"}
        self._seconds: dict[int, float] = {}

    def wait(self) -> int:
        """Look at the processes until the first of them has ended; return its exit code.

        It is looked at before it is waited for: Java outlives it by a moment.
        """
        end = time.monotonic() + LIMIT_SECONDS
        root = psutil.Process(self._root.pid)
        while self._root.poll() is None:
            if time.monotonic() > end:
                raise SystemExit(f"no end after {LIMIT_SECONDS} s")
            try:
                self._look([root, *root.children(recursive=True)])
            except psutil.NoSuchProcess:
                break
            time.sleep(SAMPLE_SECONDS)
        code = self._root.wait()
        while any(map(psutil.pid_exists, self._parts)) and time.monotonic() < end:
            self._look([psutil.Process(pid) for pid in self._parts if psutil.pid_exists(pid)])
            time.sleep(SAMPLE_SECONDS)
        return code

    def _look(self, processes: list[psutil.Process]) -> None:
        for each in processes:
            try:
                if self._parts.get(each.pid, "other") == "other":
                    self._parts[each.pid] = _part(each)
                self._seconds[each.pid] = cpu_seconds(each.pid)
            except psutil.NoSuchProcess:
                continue

    def seconds(self) -> Mapping[str, float]:
        """Return the CPU seconds of each part."""
        found = dict.fromkeys(PARTS, 0.0)
        for pid, seconds in self._seconds.items():
            found[self._parts[pid]] += seconds
        return found


def _part(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if "daemon" in words and "python" in process.name().lower():
        return "workers"
    if "org.apache.spark" in words or process.name() == "java":
        return "java"
    return "other"


def start(report: Report, broker: Broker, kafka_pid: int) -> None:
    """Run a job of one record to its end, with warm caches."""
    rounds = []
    for _ in range(2 if report.quick else 6):
        with (
            broker.topic(1) as source,
            broker.topic(1) as target,
            broker.topic(1) as dead,
            tempfile.TemporaryDirectory() as folder,
        ):
            fill(broker.bootstrap, source, 1)
            write_pipeline(Path(folder), broker.bootstrap, source, target, dead)
            settled([kafka_pid])
            rounds.append(_one_start(folder))
    rounds = rounds[1:]  # the first one reads files from the disk
    total = statistics.median(sum(each.values()) for each in rounds)
    for part in PARTS:
        values = [each[part] for each in rounds]
        _row(report, f"start, {part}", values)
        report.figure(f"start_{part}_cpu_seconds", statistics.median(values))
    _row(report, "start, all", [sum(each.values()) for each in rounds])
    report.figure("start_cpu_seconds", total)
    report.goal("start_cpu_seconds", total, round(0.8 * START_BEFORE, 1), at_least=False)


def _one_start(folder: str) -> Mapping[str, float]:
    child = subprocess.Popen(
        [*PENSTOCK, "run", "--once"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(),
    )
    tree = ProcessTree(child)
    if tree.wait():
        assert child.stderr is not None
        raise SystemExit(child.stderr.read().decode())
    return tree.seconds()


def _environment() -> dict[str, str]:
    """Return the environment of a user: Python keeps what it has compiled."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _row(report: Report, what: str, values: list[float]) -> None:
    report.row(what, *(f"{value:.2f} s" for value in (statistics.median(values), min(values), max(values))))


CASES: Mapping[str, Callable[[Report, Broker, int], None]] = {"start": start}
"""Each gets the report, the broker, and the process of the broker."""


def main() -> None:
    chosen = _chosen()
    title = "A pipeline as a Spark application, CPU seconds"
    report = Report.from_arguments(title, ["what", "median", "lowest", "highest"])
    ensure(["kafka", "spark"])
    compile_kernels()
    class_archive.prepare()
    with Kafka() as kafka:
        broker = Broker(kafka.bootstrap)
        for name in chosen:
            CASES[name](report, broker, kafka.pid)
    report.finish()


def _chosen() -> list[str]:
    """Take `--case NAME` from the command line, and leave the rest to the report."""
    if "--case" not in sys.argv:
        return list(CASES)
    at = sys.argv.index("--case")
    name = sys.argv[at + 1] if at + 1 < len(sys.argv) else ""
    if name not in CASES:
        raise SystemExit(f"--case is one of: {', '.join(CASES)}")
    del sys.argv[at : at + 2]
    return [name]


if __name__ == "__main__":
    main()
