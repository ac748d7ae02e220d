"""Nothing lost, nothing twice: drivers, workers and loops are killed at random moments.

Readers that see only what is committed find every event once, however often a range was begun. Brokers
that restart are in test_faults.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any

import psutil
import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
Make = Callable[..., Any]
Kill = Callable[[Any], None]
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "50"))


def record(number: int) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    return KafkaBinding().encode(CloudEvent(attributes, b'{"n": %d}' % number), key=b"k%d" % number)


def events_with_poison(events: int) -> Iterator[KafkaRecord]:
    for number in range(events):
        yield record(number)
        if number % 100 == 0:
            yield KafkaRecord(value=b"poison-%d" % number)


def assert_every_event_is_there_once(shop: Any, events: int) -> None:
    found = Counter(KafkaBinding().decode(each).id for each in shop.read("out"))
    assert found == Counter(f"e-{number}" for number in range(events))
    letters = (read_dead_letter(KafkaBinding().decode(each)) for each in shop.read("dead"))
    dead = Counter(letter.record.value for letter in letters)
    assert dead == Counter(b"poison-%d" % number for number in range(0, events, 100))


# Who is killed


def the_driver(running: Any) -> None:
    """Its Java and the workers live on for a moment, and write."""
    running.process.send_signal(signal.SIGKILL)
    assert running.ended() == -signal.SIGKILL


def everybody(running: Any) -> None:
    driver = psutil.Process(running.process.pid)
    end([driver, *driver.children(recursive=True)])
    assert running.ended() == -signal.SIGKILL


def a_worker(running: Any) -> None:
    """Spark gives its ranges to somebody else; the job goes on."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    workers = [child for child in family if "pyspark.worker" in command_of(child)]
    parents = {parent_of(worker) for worker in workers}
    leaves = [worker for worker in workers if worker.pid not in parents]
    assert end(leaves or workers)


def command_of(process: psutil.Process) -> str:
    """The command line; a process that has ended meanwhile has none."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def parent_of(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def end(processes: Iterable[psutil.Process]) -> int:
    """Kill those that still live, say how many they were."""
    killed = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed


def killed(shop: Any, kill: Kill, engine: str, moments: random.Random, *, batch: int) -> Any:
    running = shop.spawn("run", "--engine", engine, "--max-offsets", str(batch))
    running.until(r"batch \d+ ")
    threading.Event().wait(moments.random() * 0.5)
    kill(running)
    return running


BY_FUNCTION = {"apply": {"function": "passing:on", "batch": 50}}
FUNCTION = "def on(batch):\n    yield from batch\n"


def with_function(project: Make, partitions: int = 2) -> Any:
    """A shop whose route calls a function, so that the reference decides about every record."""
    shop = project().create(partitions=partitions)
    (shop.folder / "passing.py").write_text(FUNCTION, encoding="utf-8")
    return shop.write(BY_FUNCTION)


def finished(shop: Any, engine: str) -> None:
    last = shop.spawn("run", "--engine", engine, "--once", "-o", "json")
    assert last.ended() == 0, last.told()


@pytest.mark.parametrize("calls", [False, True], ids=["kernel", "function"])
def test_drivers_and_workers_that_are_killed_write_nothing_twice(project: Make, calls: bool) -> None:
    events, moments = 20_000, random.Random(7)
    shop = with_function(project) if calls else project().create(partitions=2).write()
    shop.produce(events_with_poison(events))
    first = killed(shop, a_worker, "spark", moments, batch=500)
    first.until(r"batch \d+ ", times=3)
    the_driver(first)
    finished(shop, "spark")
    assert_every_event_is_there_once(shop, events)


@pytest.mark.soak  # in CI: test_sql_pulsar
def test_a_condition_of_spark_that_is_killed_writes_nothing_twice(project: Make) -> None:
    events, moments = 4_000, random.Random(8)
    shop = project().create(partitions=2).write({"sql": "data:n::int >= 0"})
    shop.produce(events_with_poison(events))
    first = killed(shop, a_worker, "spark", moments, batch=500)
    assert "exactly once on kafka" in first.told()
    first.until(r"batch \d+ ", times=3)
    everybody(first)
    finished(shop, "spark")
    assert_every_event_is_there_once(shop, events)


@pytest.mark.parametrize(("calls", "rounds"), [(False, 4), (True, 3)], ids=["kernel", "function"])
def test_loops_that_are_killed_write_nothing_twice(project: Make, calls: bool, rounds: int) -> None:
    kill_loops(project, rounds, calls=calls)


def kill_loops(project: Make, rounds: int, each: int = 4000, *, calls: bool = False) -> None:
    """Kill a loop while it works on what has just come, several times."""
    more = each // 4
    total = rounds * (each + more) + each
    moments, events = random.Random(rounds), events_with_poison(total)
    shop = with_function(project) if calls else project().create(partitions=2).write()
    for _ in range(rounds):
        shop.produce(islice(events, each))
        running = shop.spawn("run", "--engine", "loop")
        running.until(r"batch \d+ ")
        shop.produce(islice(events, more))
        threading.Event().wait(moments.random() * 0.2)
        the_driver(running)
    shop.produce(events)
    finished(shop, "loop")
    assert_every_event_is_there_once(shop, total)


def test_a_second_loop_takes_over_and_the_first_says_so(project: Make) -> None:
    shop, numbers = project().create().write(), count()
    shop.produce([record(next(numbers))])
    first = shop.spawn("run", "--engine", "loop")
    first.until(r"batch 0 ")
    second = shop.spawn("run", "--engine", "loop", "--until-idle", "--idle", "5")
    end = time.monotonic() + 120
    while first.process.poll() is None:
        assert time.monotonic() < end, first.told()
        shop.produce([record(next(numbers))])
    assert first.ended() == 1
    assert "took over" in first.told()
    assert second.ended() == 0, second.told()
    found = Counter(KafkaBinding().decode(each).id for each in shop.read("out"))
    assert found == Counter(f"e-{number}" for number in range(next(numbers)))


@pytest.mark.soak
@pytest.mark.parametrize("form", ["kernel", "function", "sql"])
@pytest.mark.parametrize("kill", [the_driver, everybody, a_worker])
def test_kills_over_and_over_write_nothing_twice(project: Make, kill: Kill, form: str) -> None:
    rounds = -(-ROUNDS // 3)
    events, moments = 2000 * rounds, random.Random(rounds)
    if form == "function":
        shop = with_function(project, partitions=4)
    else:
        condition = {"sql": "data:n::int >= 0"} if form == "sql" else {}
        shop = project().create(partitions=4).write(condition)
    shop.produce(events_with_poison(events))
    for _ in range(rounds):
        # A batch that was open is cut as it was planned, whatever the size of the next ones.
        running = killed(shop, kill, "spark", moments, batch=moments.choice((100, 500, 1500)))
        if kill is a_worker:
            running.until(r"batch \d+ ", times=3)
            everybody(running)
    finished(shop, "spark")
    assert_every_event_is_there_once(shop, events)


@pytest.mark.soak
@pytest.mark.parametrize("calls", [False, True], ids=["kernel", "function"])
def test_loops_that_are_killed_over_and_over_write_nothing_twice(project: Make, calls: bool) -> None:
    kill_loops(project, ROUNDS, calls=calls)
