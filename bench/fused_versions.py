"""The sides of `bench/fused.py` of another checkout beside those of this one, on one Kafka, in turns.

    git clone . ../before && git -C ../before checkout REVISION && make -C ../before setup
    .venv/bin/python bench/fused_versions.py --before ../before

Each version is a process of its own with a warm Spark session and its own `bench/fused.py`; only sides that
both have are compared. The figures are CPU and rate as ratios of one round; the table has their medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from penstock.embedded.kafka import Kafka
from pipeline import Broker, fill
from quiet import settled
from table import Report
from versions import LEAST_RATE, MOST_CPU, before_checkout

SIDE: Final = Path(__file__).parent / "peers" / "fused" / "side.py"
FORMER: Final = ("spark, ", "fused, ")
"""How the names of sides in Spark begin, and how they began in earlier versions."""


class Version:
    """The process of one checkout."""

    def __init__(self, folder: Path, bootstrap: str, source: str, count: int, kafka_pid: int) -> None:
        python = folder / ".venv" / "bin" / "python"
        arguments = [str(folder), bootstrap, source, str(count), str(kafka_pid)]
        # A package beside the checkout must not stand before the checkout's own.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [str(python), str(SIDE), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.sides: list[str] = self._answer()["sides"]

    def name_of(self, side: str) -> str | None:
        """Return what this version calls a side; None if it has none like it."""
        return next((each for each in (side, side.replace(*FORMER)) if each in self.sides), None)

    def measure(self, side: str) -> dict[str, float]:
        """Return the records a second and the CPU seconds per million of one run."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.name_of(side)}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    before = before_checkout()
    columns = ["side", "rate before", "rate now", "CPU s per M before", "now", "CPU ratio", "rate ratio"]
    report = Report.from_arguments("The route of bench/fused.py of two versions", columns)
    count, rounds = (800_000, 1) if report.quick else (2_000_000, 7)
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(heap_mb=512, full_jit=True))
        broker = Broker(kafka.bootstrap)
        source = stack.enter_context(broker.topic())
        fill(broker.bootstrap, source, count)
        versions = {
            name: Version(folder, kafka.bootstrap, source, count, kafka.pid or 0)
            for name, folder in {"before": before, "now": Path(__file__).parent.parent}.items()
        }
        for version in versions.values():
            stack.callback(version.close)
        for side in versions["now"].sides:
            if versions["before"].name_of(side) is not None:
                _compare(report, versions, side, rounds, kafka.pid or 0)
    report.finish()


def _compare(report: Report, versions: dict[str, Version], side: str, rounds: int, kafka_pid: int) -> None:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    for number in range(rounds + 1):
        for name in list(versions)[:: 1 if number % 2 else -1]:
            settled([kafka_pid])
            one = versions[name].measure(side)
            sys.stderr.write(f"{side}, round {number} of {rounds}, {name}: {one}\n")
            if number:
                found[name].append(one)
    pairs = list(zip(found["before"], found["now"], strict=True))
    cpu = statistics.median(now["cpu"] / then["cpu"] for then, now in pairs)
    rate = statistics.median(now["rate"] / then["rate"] for then, now in pairs)
    rates = [statistics.median(one["rate"] for one in found[name]) for name in ("before", "now")]
    costs = [statistics.median(one["cpu"] for one in found[name]) for name in ("before", "now")]
    report.row(
        side,
        *(f"{each:,.0f}" for each in rates),
        *(f"{each:.2f}" for each in costs),
        f"{cpu:.3f}",
        f"{rate:.3f}",
    )
    report.goal(f"{side}: CPU beside before", cpu, MOST_CPU, at_least=False)
    report.goal(f"{side}: rate beside before", rate, LEAST_RATE)


if __name__ == "__main__":
    main()
