"""What the benchmarks share: alternating rounds, the best and the median, a table, and goals.

A benchmark makes a `Report`, measures with `alternate`, notes figures and goals, and calls
`report.finish()`. With `--json` stdout is one object {"figures": {...}, "goals": [...]}; with
`--quick` it takes less than a minute. The exit code is 0 whether goals are met or not: a number
is an answer, not a failure.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time

_WARM_UP = 2


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one side, one number per round."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def alternate(
    sides: Mapping[str, Callable[[], Callable[[], object]]],
    rounds: int,
    clock: Callable[[], float] = process_time,
) -> dict[str, Timing]:
    """Run each side once per round, in turn, so that a busy machine is unfair to none.

    A side is a function that prepares one round, untimed, and gives the function to be timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(_WARM_UP + rounds):
        for name, prepare in sides.items():
            work = prepare()
            gc.collect()
            gc.disable()
            started = clock()
            work()
            spent = clock() - started
            gc.enable()
            if number >= _WARM_UP:
                taken[name].append(spent)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


@dataclass
class Report:
    """The rows of a table, and figures and goals for machines."""

    title: str
    columns: Sequence[str]
    quick: bool = False
    as_json: bool = False
    rows: list[Sequence[object]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    goals: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def from_arguments(cls, title: str, columns: Sequence[str]) -> Report:
        """Read `--quick` and `--json` from the command line."""
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--quick", action="store_true", help="a rough answer in under a minute")
        parser.add_argument("--json", action="store_true", help="one object for machines")
        options = parser.parse_args()
        return cls(title, columns, quick=options.quick, as_json=options.json)

    def row(self, *cells: object) -> None:
        self.rows.append(cells)

    def figure(self, name: str, value: float) -> None:
        self.figures[name] = round(value, 4)

    def goal(self, name: str, value: float, goal: float, *, at_least: bool = True) -> bool:
        """Note a goal; a value may be at least or at most the goal."""
        met = value >= goal if at_least else value <= goal
        self.goals.append({"name": name, "value": round(value, 4), "goal": goal, "met": met})
        return met

    def finish(self) -> None:
        """Print the object, or the table and the goals."""
        if self.as_json:
            print(json.dumps({"figures": self.figures, "goals": self.goals}))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(title=self.title, box=None, pad_edge=False, title_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for cells in self.rows:
            table.add_row(*map(str, cells))
        console = Console(width=None if Console().is_terminal else 120, highlight=False)
        console.print(table)
        for goal in self.goals:
            mark = "met" if goal["met"] else "NOT MET"
            console.print(f"goal {goal['name']}: {goal['value']:.2f} of {goal['goal']}: {mark}")
