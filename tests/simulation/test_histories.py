"""Histories: programs of Penstock in a simulated world, and the laws that hold in each of them.

SEED=n runs one alone and prints it if it fails; HISTORIES=n runs so many of each kind.
"""

from __future__ import annotations

from typing import Final

import pytest

from simulator.committing import committing
from simulator.cursors import moving_cursors
from simulator.history import Main, run_histories
from simulator.producing import producing

KINDS: Final[dict[str, tuple[Main, int]]] = {
    "producing": (producing, 1200),
    "committing": (committing, 500),
    "cursors": (moving_cursors, 300),
}
"""Each kind of history, and how many of it run in CI."""


def _run(kind: str, most: int, begin: int) -> None:
    run_histories(KINDS[kind][0], most, base=begin)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold(kind: str) -> None:
    _run(kind, KINDS[kind][1] // 12, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_in_many_histories(kind: str) -> None:
    _run(kind, KINDS[kind][1], 0)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_in_very_many_histories(kind: str) -> None:
    _run(kind, 50 * KINDS[kind][1], 1_000_000)
