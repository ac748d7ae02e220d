"""Pulsar to Pulsar, nothing lost and nothing twice: who writes is killed at any moment, or taken over from.

Every event is read back by Pulsar's own client, once, and those of one key in their order.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulsar_to_pulsar import PulsarToPulsar
from to_pulsar import ask

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.events.bindings.kafka import KafkaBinding

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., PulsarToPulsar]
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "50"))


@pytest.fixture
def shop(tmp_path: Path, pulsar: Pulsar) -> Iterator[Make]:
    made: list[PulsarToPulsar] = []

    def make(**more: Any) -> PulsarToPulsar:
        made.append(PulsarToPulsar(**{"folder": tmp_path, "servers": {}, "pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


def kill(running: Any) -> None:
    running.process.send_signal(signal.SIGKILL)
    assert running.ended() == -signal.SIGKILL


def kill_family(running: Any) -> None:
    """Java and the workers as well: they would write on for a moment."""
    driver = psutil.Process(running.process.pid)
    for process in (driver, *driver.children(recursive=True)):
        process.kill()
    assert running.ended() == -signal.SIGKILL


def finished(project: PulsarToPulsar, engine: str, *words: str) -> None:
    last = project.spawn("run", "--engine", engine, "--once", "-o", "json", *words)
    assert last.ended() == 0, last.told()


def kill_loops(project: PulsarToPulsar, rounds: int, each: int = 3000) -> int:
    """Kill a loop while it works on what has just come, several times; return how many events there were."""
    moments, sent = random.Random(rounds), 0
    for _ in range(rounds):
        project.send(range(sent, sent + each))
        running = project.spawn("run", "--engine", "loop")
        running.until(r"batch \d+ ")
        project.send(range(sent + each, sent + each + 1000))
        sent += each + 1000
        threading.Event().wait(moments.random() * 0.2)
        kill(running)
    finished(project, "loop")
    project.assert_every_event_is_there_once(sent, dead="pdead")
    return sent


def test_loops_that_are_killed_write_nothing_twice(shop: Make) -> None:
    kill_loops(shop().create(2).write(**{"exactly-once": "required"}), 2)


@pytest.mark.soak
def test_loops_that_are_killed_write_nothing_twice_to_kafka_and_pulsar(shop: Make, kafka: Kafka) -> None:
    project = shop(servers={"kafka": kafka}).create(2)
    project.write({"send": ["send-pout", "send"]}, **{"exactly-once": "required"})
    events = kill_loops(project, max(2, ROUNDS // 10))
    found = Counter(KafkaBinding().decode(each).id for each in project.read("out"))
    assert found == Counter(f"e-{number}" for number in range(events))


@pytest.mark.soak
def test_loops_that_are_killed_over_and_over(shop: Make) -> None:
    kill_loops(shop().create(3, targets=3).write(), ROUNDS, each=1000)


@pytest.mark.soak
def test_a_second_loop_takes_over_and_the_first_says_so(shop: Make) -> None:
    project, numbers = shop().create(0, targets=1).write(), count()

    def send_one() -> None:
        number = next(numbers)
        project.send(range(number, number + 1), poison=0)

    send_one()
    first = project.spawn("run", "--engine", "loop")
    first.until(r"batch 0 ")
    second = project.spawn("run", "--engine", "loop", "--until-idle", "--idle", "5")
    end = time.monotonic() + 180
    while first.process.poll() is None:
        assert time.monotonic() < end, first.told()
        send_one()
    assert first.ended() == 1
    assert "took over" in first.told()
    assert second.ended() == 0, second.told()
    found = [event.id for _, _, event in project.events("pout")]
    assert found == [f"e-{number}" for number in range(next(numbers))]


@pytest.mark.soak
def test_drivers_that_are_killed_write_nothing_twice(shop: Make) -> None:
    """The next one has larger batches than the first, and the target more partitions."""
    project = shop().create(2).write(**{"exactly-once": "required"})
    project.send(range(12_000))
    running = project.spawn("run", "--engine", "spark", "--max-offsets", "700")
    running.until(r"batch \d+ ", times=2)
    threading.Event().wait(0.3)
    kill(running)
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 5)
    finished(project, "spark", "--max-offsets", "5000")
    found = project.messages("pout")
    assert any(found[part] for part in (2, 3, 4)), "nothing went to a new partition"
    project.assert_every_event_is_there_once(12_000, dead="pdead", is_divided_anew=True)


@pytest.mark.soak
@pytest.mark.parametrize("ends", [kill, kill_family])
def test_drivers_that_are_killed_over_and_over(shop: Make, ends: Callable[[Any], None]) -> None:
    rounds = -(-ROUNDS // 6)
    events, moments = 2000 * rounds, random.Random(rounds)
    project = shop().create(3).write()
    project.send(range(events))
    for number in range(rounds):
        running = project.spawn("run", "--engine", "spark", "--max-offsets", str(300 + 90 * (number % 5)))
        running.until(r"batch \d+ ")
        threading.Event().wait(moments.random() * 0.5)
        ends(running)
    finished(project, "spark")
    project.assert_every_event_is_there_once(events, dead="pdead")
