"""Kafka to Pulsar, nothing lost and nothing twice: who writes is killed, and brokers restart, at any moment.

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
from itertools import count, islice
from pathlib import Path
from typing import Any

import psutil
import pytest
from to_pulsar import ToPulsar, ask, event_record, events_with_poison

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.events.bindings.kafka import KafkaBinding

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., ToPulsar]
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "50"))


@pytest.fixture
def shop(tmp_path: Path, kafka: Kafka, pulsar: Pulsar) -> Iterator[Make]:
    made: list[ToPulsar] = []

    def make(**more: Any) -> ToPulsar:
        made.append(ToPulsar(folder=tmp_path, servers={"kafka": kafka}, **{"pulsar": pulsar, **more}))
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


def finished(project: ToPulsar, engine: str, *words: str) -> None:
    last = project.spawn("run", "--engine", engine, "--once", "-o", "json", *words)
    assert last.ended() == 0, last.told()


def kill_loops(project: ToPulsar, rounds: int, *, dead: str, each: int = 4000) -> int:
    """Kill a loop while it works on what has just come, several times; return how many events there were."""
    more = each // 4
    total = rounds * (each + more) + each
    moments, events = random.Random(rounds), iter(events_with_poison(total))
    for _ in range(rounds):
        project.produce(islice(events, each))
        running = project.spawn("run", "--engine", "loop")
        running.until(r"batch \d+ ")
        project.produce(islice(events, more))
        threading.Event().wait(moments.random() * 0.2)
        kill(running)
    project.produce(events)
    finished(project, "loop")
    project.assert_every_event_is_there_once(total, dead=dead)
    return total


def assert_kafka_has_each_once(project: ToPulsar, events: int) -> None:
    found = Counter(KafkaBinding().decode(each).id for each in project.read("out"))
    assert found == Counter(f"e-{number}" for number in range(events))


def test_loops_that_are_killed_write_nothing_twice_to_pulsar_and_kafka(shop: Make) -> None:
    project = shop().create(partitions=2).write({"send": ["send-pout", "send"]}, dead="pdead")
    assert_kafka_has_each_once(project, kill_loops(project, 2, dead="pdead"))


@pytest.mark.soak
def test_a_second_loop_takes_over_and_the_first_says_so(shop: Make) -> None:
    """Names of producers are held by one of them: the second waits until the first has noticed."""
    project, numbers = shop().create(partitions=1, targets=1).write(), count()
    project.produce([event_record(next(numbers))])
    first = project.spawn("run", "--engine", "loop")
    first.until(r"batch 0 ")
    second = project.spawn("run", "--engine", "loop", "--until-idle", "--idle", "5")
    end = time.monotonic() + 120
    while first.process.poll() is None:
        assert time.monotonic() < end, first.told()
        project.produce([event_record(next(numbers))])
    assert first.ended() == 1
    assert "took over" in first.told()
    assert second.ended() == 0, second.told()
    found = [event.id for _, _, event in project.events("pout")]
    assert found == [f"e-{number}" for number in range(next(numbers))]


def test_drivers_that_are_killed_write_nothing_twice(shop: Make) -> None:
    """The next one has larger batches than the first, and the target more partitions."""
    events = 12_000
    project = shop().create(partitions=2).write()
    project.produce(events_with_poison(events))
    running = project.spawn("run", "--engine", "spark", "--max-offsets", "700")
    running.until(r"batch \d+ ", times=2)
    threading.Event().wait(0.3)
    kill(running)
    ask(project.pulsar, "POST", f"{project.path('pout')}/partitions", 5)
    finished(project, "spark", "--max-offsets", "5000")
    found = project.messages("pout")
    assert len(found) == 5
    assert found[4], "nothing went to a new partition"
    project.assert_every_event_is_there_once(events, is_divided_anew=True)


@pytest.mark.soak
@pytest.mark.parametrize("dead", ["dead", "pdead"])
def test_loops_that_are_killed_over_and_over(shop: Make, dead: str) -> None:
    kill_loops(shop().create(partitions=3, targets=3).write(dead=dead), ROUNDS, dead=dead)


@pytest.mark.soak
@pytest.mark.parametrize("ends", [kill, kill_family])
def test_drivers_that_are_killed_over_and_over(shop: Make, ends: Callable[[Any], None]) -> None:
    rounds = -(-ROUNDS // 3)
    events, moments = 2000 * rounds, random.Random(rounds)
    project = shop().create(partitions=4).write(dead="pdead")
    project.produce(events_with_poison(events))
    for number in range(rounds):
        running = project.spawn("run", "--engine", "spark", "--max-offsets", str(300 + 90 * (number % 5)))
        running.until(r"batch \d+ ")
        threading.Event().wait(moments.random() * 0.5)
        ends(running)
    finished(project, "spark")
    project.assert_every_event_is_there_once(events, dead="pdead")


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["loop", "spark"])
def test_a_pulsar_that_restarts_is_waited_for(shop: Make, engine: str) -> None:
    with Pulsar(durable=True) as own:
        project = shop(pulsar=own).create(partitions=2).write(dead="pdead")
        total = 30_000
        events = iter(events_with_poison(total))
        project.produce(islice(events, 5000))
        words = ("--max-offsets", "500") if engine == "spark" else ()
        running = project.spawn("run", "--engine", engine, *words)
        running.until(r"batch \d+ ")
        own.kill()
        project.produce(islice(events, 5000))
        threading.Event().wait(5)
        own.start()
        project.produce(events)
        deadline = time.monotonic() + 240
        while sum(map(len, project.messages("pout").values())) < total:
            assert time.monotonic() < deadline, running.told()
            assert running.process.poll() is None, running.told()
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0, running.told()
        project.assert_every_event_is_there_once(total, dead="pdead")
