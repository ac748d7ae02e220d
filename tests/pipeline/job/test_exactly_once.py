"""Nothing lost, nothing twice: drivers, workers and loops are killed at random moments, in each direction.

Readers that see only what is committed find every event once, however often a range was begun, and those of
one key in their order. Brokers that are killed are in test_broker_killed, workers of a cluster in
test_cluster_to_pulsar.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from directed import (
    BATCH,
    DIRECTIONS,
    ROUNDS,
    THIRD,
    Directed,
    Kill,
    a_worker,
    everybody,
    finished,
    kill_jobs,
    kill_loops,
    the_driver,
)

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(7200)]
Make = Callable[..., Directed]


def kill_a_worker_and(
    kill: Kill, made: Directed, events: int, seed: int, words: tuple[str, ...] = ("--max-offsets", "500")
) -> str:
    """Kill a worker, and some batches later more; return what the job told."""
    made.send(events)
    running = made.spawn("--engine", "spark", *words)
    running.until(BATCH)
    threading.Event().wait(random.Random(seed).random() * 0.5)
    a_worker(running)
    running.until(BATCH, times=3)
    kill(running)
    finished(made.project, "spark")
    made.assert_law()
    return running.told()


@pytest.mark.parametrize(
    ("direction", "form"),
    [
        ("K->K", "plain"),
        ("K->K", "function"),
        ("P->P", "plain"),
        pytest.param("P->K", "plain", marks=pytest.mark.soak),
        pytest.param("K->P", "filter", marks=pytest.mark.soak),
        pytest.param("P->K+P", "function", marks=pytest.mark.soak),
    ],
)
def test_drivers_and_workers_that_are_killed_write_nothing_twice(
    directed: Make, direction: str, form: str
) -> None:
    kill_a_worker_and(the_driver, directed(direction).create().write(form), 10_000, seed=7)


@pytest.mark.soak  # in CI: test_sql_pulsar
def test_a_condition_of_spark_that_is_killed_writes_nothing_twice(directed: Make) -> None:
    told = kill_a_worker_and(everybody, directed("K->K").create().write("sql"), 4_000, seed=8)
    assert "exactly once on kafka" in told


@pytest.mark.parametrize(
    ("direction", "form"),
    [
        ("K->K", "plain"),
        ("K->K", "function"),
        ("K->K", "filter"),
        ("P->K", "plain"),
        ("P->P", "plain"),
        ("K->K+P", "plain"),
    ],
)
def test_loops_that_are_killed_write_nothing_twice(directed: Make, direction: str, form: str) -> None:
    kill_loops(directed(direction).create().write(form), 3)


@pytest.mark.parametrize(
    "direction", [pytest.param(each, marks=() if each == "K->K" else pytest.mark.soak) for each in DIRECTIONS]
)
def test_a_second_loop_takes_over_and_the_first_says_so(directed: Make, direction: str) -> None:
    """Names of producers on Pulsar are held by one of them: the second waits until the first has noticed."""
    made = directed(direction).create(1, targets=1).write()
    made.send(1)
    first = made.spawn("--engine", "loop")
    first.until(BATCH)
    second = made.spawn("--engine", "loop", "--until-idle", "--idle", "5")
    end = time.monotonic() + 180
    while first.process.poll() is None:
        assert time.monotonic() < end, first.told()
        made.send(1)
    assert first.ended() == 1
    assert "took over" in first.told()
    assert second.ended() == 0, second.told()
    made.assert_law()


# Over and over


@pytest.mark.soak
@pytest.mark.parametrize("kill", [the_driver, everybody, a_worker])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_jobs_that_are_killed_over_and_over(directed: Make, direction: str, kill: Kill) -> None:
    kill_jobs(directed(direction).create(4, targets=3).write(), kill, THIRD)


@pytest.mark.soak
@pytest.mark.parametrize("kill", [the_driver, everybody, a_worker])
@pytest.mark.parametrize("form", ["function", "sql"])
def test_other_forms_that_are_killed_over_and_over(directed: Make, form: str, kill: Kill) -> None:
    kill_jobs(directed("K->K").create(4).write(form), kill, THIRD)


@pytest.mark.soak
@pytest.mark.parametrize("form", ["plain", "filter", "function"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_loops_that_are_killed_over_and_over(directed: Make, direction: str, form: str) -> None:
    kill_loops(directed(direction).create(3, targets=3).write(form), ROUNDS, each=2000)


@pytest.mark.soak
def test_loops_that_are_killed_over_and_over_with_dead_letters_on_the_source(directed: Make) -> None:
    kill_loops(directed("K->P").create(3, targets=3).write(dead="dead"), ROUNDS, each=2000, dead="dead")
