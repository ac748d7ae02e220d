"""Histories: programs of Penstock in a simulated world, and the laws that hold in each of them.

SEED=n runs one alone and prints it if it fails; HISTORIES=n runs so many of each kind.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from simulator.committing import committing
from simulator.cursors import moving_cursors
from simulator.fusing_loops import (
    run_edited_loops,
    run_edited_loops_to_pulsar,
    run_edited_loops_within_pulsar,
    run_loops,
    run_loops_by_the_clock,
    run_loops_on_clusters,
    run_loops_to_both,
    run_loops_to_pulsar,
    run_loops_within_pulsar,
)
from simulator.fusing_ranges import (
    run_edited_range_tasks_to_pulsar,
    run_range_tasks,
    run_range_tasks_by_the_clock,
    run_range_tasks_on_clusters,
    run_range_tasks_to_both,
    run_range_tasks_to_pulsar,
    run_range_tasks_within_pulsar,
    run_row_tasks,
    run_row_tasks_on_clusters,
    run_row_tasks_to_pulsar,
    run_row_tasks_within_pulsar,
)
from simulator.history import Run, run_histories, run_history
from simulator.producing import producing

KINDS: Final[dict[str, tuple[Run, int]]] = {
    "producing": (partial(run_history, producing), 840),
    "committing": (partial(run_history, committing), 390),
    "cursors": (partial(run_history, moving_cursors), 270),
    "loops": (run_loops, 80),
    "ranges": (run_range_tasks, 120),
    "loops-on-clusters": (run_loops_on_clusters, 60),
    "ranges-on-clusters": (run_range_tasks_on_clusters, 90),
    "rows": (run_row_tasks, 60),
    "rows-on-clusters": (run_row_tasks_on_clusters, 60),
    "rows-to-pulsar": (run_row_tasks_to_pulsar, 36),
    "rows-within-pulsar": (run_row_tasks_within_pulsar, 60),
    "edited-loops": (run_edited_loops, 108),
    "edited-loops-to-pulsar": (run_edited_loops_to_pulsar, 60),
    "edited-loops-within-pulsar": (run_edited_loops_within_pulsar, 24),
    "edited-ranges-to-pulsar": (run_edited_range_tasks_to_pulsar, 36),
    "loops-by-the-clock": (run_loops_by_the_clock, 36),
    "ranges-by-the-clock": (run_range_tasks_by_the_clock, 36),
    "loops-to-pulsar": (run_loops_to_pulsar, 24),
    "ranges-to-pulsar": (run_range_tasks_to_pulsar, 84),
    "loops-to-both": (run_loops_to_both, 24),
    "ranges-to-both": (run_range_tasks_to_both, 60),
    "loops-within-pulsar": (run_loops_within_pulsar, 24),
    "ranges-within-pulsar": (run_range_tasks_within_pulsar, 96),
}
"""Each kind of history, and how many of it run in CI."""
_FAST: Final = 12
"""One history in so many of CI is one of the fast tests."""


def _run(kind: str, most: int, begin: int) -> None:
    run_histories(KINDS[kind][0], most, base=begin)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold(kind: str) -> None:
    _run(kind, KINDS[kind][1] // _FAST, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_in_many_histories(kind: str) -> None:
    fast = KINDS[kind][1] // _FAST
    _run(kind, KINDS[kind][1] - fast, fast)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_in_very_many_histories(kind: str) -> None:
    _run(kind, 50 * KINDS[kind][1], 1_000_000)
