"""Jobs that are killed before their target gets more partitions, or with a hundred of them on Pulsar."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from directed import BATCH, Directed, everybody, finished, the_driver
from to_pulsar import ToPulsar, ask

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., Directed]


@pytest.mark.parametrize("direction", ["K->P", pytest.param("P->P", marks=pytest.mark.soak)])
def test_drivers_that_are_killed_write_nothing_twice(directed: Make, direction: str) -> None:
    """The next one has larger batches than the first, and the target more partitions."""
    made = directed(direction).create().write(dead={"K->P": "dead"}.get(direction))
    project = made.project
    assert isinstance(project, ToPulsar)
    made.send(12_000)
    running = made.spawn("--engine", "spark", "--max-offsets", "700")
    running.until(BATCH, times=2)
    threading.Event().wait(0.3)
    the_driver(running)
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 5)
    finished(project, "spark", "--max-offsets", "5000")
    found = project.messages("pout")
    assert len(found) == 5
    assert any(found[part] for part in (2, 3, 4)), "nothing went to a new partition"
    made.assert_law(dead={"K->P": "dead"}.get(direction), is_divided_anew=True)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["loop", "spark"])
@pytest.mark.parametrize(
    ("direction", "partitions", "targets"), [("K->P", 4, 100), ("P->P", 4, 100), ("P->K", 100, 2)]
)
def test_a_hundred_partitions(
    directed: Make, direction: str, partitions: int, targets: int, engine: str
) -> None:
    """To Pulsar there is a producer for each partition of the source and of the target."""
    made = directed(direction).create(partitions, targets=targets).write()
    made.keys = 2000
    made.send(20_000)
    running = made.spawn("--engine", engine, *(("--max-offsets", "3000") if engine == "spark" else ()))
    running.until(BATCH)
    everybody(running)
    made.send(5000)
    finished(made.project, engine)
    made.assert_law()
    if "P" in made.targets:
        assert isinstance(made.project, ToPulsar)
        assert all(made.project.messages("pout").values()), "a partition got nothing"
