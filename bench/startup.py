"""How soon the embedded servers are ready, how much memory they take, and how fast the command line is.

Caches are warm: the jars are there and their files were read. Every figure is the median of its rounds,
in wall-clock seconds or resident megabytes; `make run` is `penstock demo` as a process of its own, and its
routing is what the demo says of that: from the first look at the clusters to the last of 100 000 orders.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import psutil

from penstock.embedded.artifacts import ensure
from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry
from penstock.embedded.server import Server
from penstock.embedded.stack import Stack
from table import Report

SERVERS: dict[str, Callable[[], Server]] = {"kafka": Kafka, "pulsar": Pulsar, "registry": Registry}
COMMAND = [sys.executable, "-c", "import sys; from penstock.cli.app import main; sys.exit(main())"]
IDLE_SECONDS = 3.0


def main() -> None:
    report = Report.from_arguments("Embedded servers, warm caches", ["what", "median", "lowest", "highest"])
    ensure(["kafka", "pulsar", "registry"])
    rounds = 1 if report.quick else 5
    memory = [servers(report, name, rounds) for name in SERVERS if name != "registry" or not report.quick]
    stack(report, rounds)
    note(report, "help", [seconds("--help") for _ in range(3 * rounds)], "s", goal=0.5)
    both = memory[0] + memory[1]
    report.row("RSS kafka and pulsar, idle", f"{both:.0f} MB", "", "")
    report.figure("rss_kafka_and_pulsar_mb", both)
    report.goal("rss_kafka_and_pulsar_mb", both, 700, at_least=False)
    if not report.quick:
        make_run(report, rounds=3)
    report.finish()


def make_run(report: Report, rounds: int) -> None:
    """Run the demo with everything cached."""
    whole, routing = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        said = subprocess.run([*COMMAND, "demo"], check=True, capture_output=True, text=True).stderr
        whole.append(time.perf_counter() - started)
        routing += [float(each) for each in re.findall(r"where the time went: .*; routing ([0-9.]+)", said)]
    note(report, "make_run", whole, "s", goal=40)
    note(report, "routing_100_000_orders", routing, "s", goal=17.5)


def servers(report: Report, name: str, rounds: int) -> float:
    """Start one kind of server alone, some times; give its idle memory."""
    ready, resident = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        with SERVERS[name]() as server:
            ready.append(time.perf_counter() - started)
            resident.append(idle_rss(server))
    note(report, f"{name}_ready", ready, "s")
    return note(report, f"rss_{name}", resident, "MB")


def stack(report: Report, rounds: int) -> None:
    """Start all of them side by side, with their data on disk and synced, as `dev up` does."""
    ready = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with Stack(list(SERVERS), data=folder):
                ready.append(time.perf_counter() - started)
    note(report, "stack_ready", ready, "s", goal=15)


def idle_rss(server: Server) -> float:
    time.sleep(IDLE_SECONDS)  # what starting took is given back or not: this is the time it has
    return psutil.Process(server.pid).memory_info().rss / 1e6


def seconds(*words: str) -> float:
    started = time.perf_counter()
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def note(report: Report, name: str, values: list[float], unit: str, goal: float | None = None) -> float:
    median = statistics.median(values)
    digits = 2 if unit == "s" else 0
    cells = (f"{value:.{digits}f} {unit}" for value in (median, min(values), max(values)))
    report.row(name.replace("_", " "), *cells)
    figure = f"{name}_{'seconds' if unit == 's' else 'mb'}"
    report.figure(figure, median)
    if goal is not None:
        report.goal(figure, median, goal, at_least=False)
    return median


if __name__ == "__main__":
    main()
