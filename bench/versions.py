"""The gateway of another checkout beside the one of this checkout, on one Pulsar, in turns.

    git clone . ../before && git -C ../before checkout REVISION && make -C ../before setup
    .venv/bin/python bench/versions.py --before ../before

Each side is a process of its own, by the Python of its own virtual environment. In every round a side makes a
topic, produces to it and fetches it three times: first from the bookie, then from the broker's cache. Where a
process happens to lie in memory moves its CPU by some percent, so processes are started anew several times.
The figures are CPU of the gateway and rate, as ratios of one round; the table has their medians.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway import BOUNDED, CACHED, DIRECT_MB, SIZES, Round, Side, fetch, produce, side_of, started, timed
from penstock.embedded.gateway import Gateway
from penstock.embedded.pulsar import Pulsar
from quiet import settled
from table import Report

CASES = ("produce", "fetch, first", "fetch, again", "fetch, a third time")
MOST_CPU, LEAST_RATE = 1.03, 0.95
WARM_UP = 2
RECORDS = {100: 2_500_000, 1024: 300_000}


class OfCheckout(Gateway):
    """The gateway of a folder with a virtual environment, by flags that every version has."""

    def __init__(self, folder: Path, pulsar: Pulsar, *, groups: str) -> None:
        super().__init__(pulsar, options=("--groups-namespace", groups))
        self._checkout = folder

    def _command_line(self) -> list[str]:
        listen = ["--listen", self.bootstrap, "--metrics-listen", self.metrics_url.removeprefix("http://")]
        python = str(self._checkout / ".venv" / "bin" / "python")
        return [python, "-m", "penstock.cli", "gateway", *self._where(), *listen, *self._options]


@dataclass
class Bench:
    """Rounds of both sides, by case and size."""

    folders: dict[str, Path]
    found: dict[tuple[str, str], dict[str, list[Round]]]

    def run(self, label: str, rounds: int) -> None:
        """Start both sides on a new Pulsar and let them take turns."""
        with ExitStack() as held:
            settings = BOUNDED | CACHED
            broker = Pulsar(durable=False, heap_mb=512, direct_mb=DIRECT_MB, full_jit=True, settings=settings)
            started(held, broker)
            sides = []
            for name, folder in self.folders.items():
                gateway = OfCheckout(folder, broker, groups=f"public/{name}")
                started(held, gateway)
                side = side_of(gateway, broker)
                side.name = name
                sides.append(side)
            for number in range(WARM_UP + rounds):
                for side in sides if number % 2 else sides[::-1]:
                    for case, one in self._round(side, SIZES[label]).items():
                        if number >= WARM_UP:
                            self.found.setdefault((case, label), {}).setdefault(side.name, []).append(one)

    def _round(self, side: Side, size: int) -> dict[str, Round]:
        count, found = RECORDS[size], {}
        settled([side.processes["broker"]])
        with side.topic() as topic:
            found[CASES[0]] = timed(side, lambda: produce(side, topic, count, b"x" * size))
            for case in CASES[1:]:
                found[case] = timed(side, lambda: fetch(side, topic, count))
        return found

    def tell(self, report: Report) -> None:
        for (case, label), sides in self.found.items():
            pairs = list(zip(sides["before"], sides["now"], strict=True))
            cpu = statistics.median(now.cpu["gateway"] / then.cpu["gateway"] for then, now in pairs)
            rate = statistics.median(then.wall / now.wall for then, now in pairs)
            count = RECORDS[SIZES[label]]
            micros = [
                1e6 * statistics.median(one.cpu["gateway"] for one in rounds) / count
                for rounds in (sides["before"], sides["now"])
            ]
            report.row(
                f"{case} {label}",
                *(f"{each:.3f}" for each in micros),
                f"{cpu:.3f}",
                f"{rate:.3f}",
                len(pairs),
            )
            report.goal(f"{case} {label}: CPU beside before", cpu, MOST_CPU, at_least=False)
            report.goal(f"{case} {label}: rate beside before", rate, LEAST_RATE)


def main() -> None:
    before = before_checkout()
    columns = ["what", "CPU us before", "CPU us now", "CPU ratio", "rate ratio", "rounds"]
    report = Report.from_arguments("The gateway of two versions", columns)
    bench = Bench({"before": before, "now": Path(__file__).parent.parent}, {})
    starts, rounds = (1, 2) if report.quick else (3, 7)
    for _ in range(starts):
        for label in list(SIZES)[: 1 if report.quick else None]:
            bench.run(label, rounds)
    bench.tell(report)
    report.finish()


def before_checkout() -> Path:
    """Take `--before FOLDER` from the command line, and leave the rest to the report."""
    at = sys.argv.index("--before") if "--before" in sys.argv else len(sys.argv)
    if at + 1 >= len(sys.argv):
        raise SystemExit(f"usage: {sys.argv[0]} --before FOLDER [--quick] [--json]")
    folder = Path(sys.argv[at + 1]).resolve()
    del sys.argv[at : at + 2]
    if not (folder / ".venv" / "bin" / "python").exists():
        raise SystemExit(f"{folder} has no .venv: run make setup there")
    return folder


if __name__ == "__main__":
    main()
