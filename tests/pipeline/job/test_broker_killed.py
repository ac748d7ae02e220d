"""A broker that is killed while records come: the job waits for it and goes on, and nothing is lost or twice.

Events come all the time, also while a broker is away. It is killed again when the job has got on since it
came back.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from directed import BATCH, DIRECTIONS, ROUNDS, Directed
from job_project import Running
from pulsar_project import wait_until

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(7200)]
Make = Callable[..., Directed]
WORDS = {"loop": ("--engine", "loop"), "spark": ("--engine", "spark", "--max-offsets", "500")}


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A Kafka and a Pulsar that nobody else uses."""
    with Kafka(data=tmp_path_factory.mktemp("kafka")) as kafka, Pulsar(durable=True) as pulsar:
        yield {"kafka": kafka, "pulsar": pulsar}


def kill_brokers(routes: list[Directed], brokers: list[Any], rounds: int, engine: str) -> None:
    """Kill each of the brokers so many times while a job for each route runs; then the law holds for all."""
    moments = random.Random(rounds)
    for each in routes:
        each.send(500)
    jobs = [each.spawn(*WORDS[engine]) for each in routes]
    with ExitStack() as coming:
        for each in routes:
            coming.enter_context(each.coming())
        for _ in range(rounds):
            for broker in brokers:
                get_on(jobs)
                threading.Event().wait(moments.random() * 0.5)
                broker.kill()
                threading.Event().wait(moments.random() * 0.5)
                broker.start()
        get_on(jobs)
    for each, job in zip(routes, jobs, strict=True):
        ended_with_all(each, job)
        each.assert_law()


def get_on(jobs: list[Running]) -> None:
    """Wait until each job has finished some more of its work."""
    done = [batches(job) for job in jobs]
    for job, before in zip(jobs, done, strict=True):
        job.until(BATCH, times=before + 2)


def batches(job: Running) -> int:
    return job.told().count("batch ")


def ended_with_all(directed: Directed, job: Running) -> None:
    def has_all() -> bool:
        assert job.process.poll() is None, job.told()
        return directed.stored() >= directed.sent

    wait_until(has_all, seconds=300)
    job.process.send_signal(signal.SIGTERM)
    assert job.ended() == 0, job.told()


def test_loops_whose_brokers_are_killed_lose_and_repeat_nothing(
    directed: Make, mortal: dict[str, Any]
) -> None:
    """All directions at once: a broker takes longer to come back than all else."""
    at_once = ("K->K", "K->P", "P->K", "P->P", "K->K+P")
    routes = [directed(each, **mortal).create().write() for each in at_once]
    kill_brokers(routes, [mortal["kafka"], mortal["pulsar"]], min(3, ROUNDS), "loop")


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["loop", "spark"])
@pytest.mark.parametrize(
    ("direction", "broker"),
    [
        (direction, broker)
        for direction in DIRECTIONS
        for broker in ("kafka", "pulsar")
        if broker[0].upper() in direction
    ],
)
def test_a_broker_that_is_killed_over_and_over(
    directed: Make, mortal: dict[str, Any], direction: str, broker: str, engine: str
) -> None:
    route = directed(direction, **mortal).create(partitions=3, targets=3).write()
    kill_brokers([route], [mortal[broker]], ROUNDS, engine)
