"""Projects for each direction between Kafka and Pulsar, who is killed in them, and the law that holds.

A direction is written `K->P` (Kafka to Pulsar) or `K->K+P` (Kafka to both). The law: every event is there
once on each target, those of one key in their order, and what is no event is one dead letter.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from job_project import Project, Running
from pulsar_to_pulsar import PulsarToPulsar
from to_pulsar import ToPulsar, events_with_poison

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter

__all__ = [
    "BATCH",
    "DIRECTIONS",
    "FORMS",
    "ROUNDS",
    "THIRD",
    "Directed",
    "Kill",
    "a_worker",
    "assert_kafka_has_each_once",
    "assert_letters",
    "everybody",
    "finished",
    "kill_jobs",
    "kill_loops",
    "the_driver",
]

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "50"))
THIRD = -(-ROUNDS // 3)
"""For each of three tests that together have all rounds."""
BATCH = r"batch \d+ "
DIRECTIONS = ("K->K", "K->P", "P->K", "P->P", "K->K+P", "P->K+P")
_FUNCTION = "def on(batch):\n    yield from batch\n"
FORMS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "filter": {"filter": [{"exact": {"type": "t"}}]},
    "function": {"apply": {"function": "passing:on", "batch": 50}},
    "sql": {"sql": "data:n::int >= 0"},
}
Kill = Callable[[Running], None]


@dataclass
class Directed:
    """A project whose one route goes in one direction, exactly once."""

    project: Project
    direction: str
    sent: int = 0
    keys: int = 50

    @classmethod
    def of(
        cls, direction: str, folder: Path, *, kafka: Kafka | None = None, pulsar: Pulsar | None = None
    ) -> Directed:
        """Make one that knows only the brokers that it needs."""
        servers = {"kafka": kafka} if kafka else {}
        if pulsar is None:
            return cls(Project(folder=folder, servers=servers), direction)
        kind = PulsarToPulsar if direction.startswith("P") else ToPulsar
        return cls(kind(folder=folder, servers=servers, pulsar=pulsar), direction)

    @property
    def targets(self) -> list[str]:
        return self.direction.partition("->")[2].split("+")

    @property
    def dead(self) -> str:
        """The channel of dead letters: on Pulsar, if anything is written there."""
        return "pdead" if "P" in self.targets else "dead"

    def create(self, partitions: int = 2, *, targets: int = 2) -> Directed:
        if isinstance(self.project, ToPulsar):
            self.project.create(partitions, targets=targets)
        else:
            self.project.create(partitions)
        return self

    def write(self, form: str = "plain", *, dead: str | None = None, **pipeline: Any) -> Directed:
        """Write the files; a function for Pulsar says that it gives the same when it is asked again."""
        route = {"send": [{"K": "send", "P": "send-pout"}[each] for each in self.targets], **FORMS[form]}
        if form == "function":
            (self.project.folder / "passing.py").write_text(_FUNCTION, encoding="utf-8")
            route["apply"] = {**route["apply"], "deterministic": "P" in self.targets}
        more: dict[str, Any] = {"exactly-once": "required", **pipeline}
        if isinstance(self.project, ToPulsar):
            more["dead"] = dead or self.dead
        self.project.write(route, **more)
        return self

    def spawn(self, *words: str) -> Running:
        return self.project.spawn("run", *words)

    def send(self, events: int) -> None:
        """Write so many more events, and behind every hundredth what is none."""
        self._write(iter(range(self.sent, self.sent + events)))
        self.sent += events

    def _write(self, numbers: Iterator[int], **said: Any) -> None:
        if isinstance(self.project, PulsarToPulsar):
            self.project.send(numbers, keys=self.keys, **({"send_timeout_millis": 0} if said else {}))
        else:
            records = (each for number in numbers for each in events_with_poison(1, number, self.keys))
            self.project.produce(records, **said)

    @contextmanager
    def coming(self, pause: float = 0.05) -> Iterator[None]:
        """Write events all the time; one client does, which stores each once also if its broker is killed."""
        ended = threading.Event()

        def numbers() -> Iterator[int]:
            while not ended.is_set():
                yield from range(self.sent, self.sent + 5)
                self.sent += 5
                ended.wait(pause)

        idempotent = {"enable.idempotence": "true", "message.timeout.ms": "0"}
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self._write, numbers(), **idempotent)
            try:
                yield
            finally:
                ended.set()
                writing.result(240)

    def stored(self) -> int:
        """How many events the target has that has the fewest."""
        found = []
        if "K" in self.targets:
            found.append(len(self.project.read("out")))
        if isinstance(self.project, ToPulsar) and "P" in self.targets:
            found.append(sum(map(len, self.project.messages("pout").values())))
        return min(found)

    def assert_law(self, *, dead: str | None = None, is_divided_anew: bool = False) -> None:
        """Assert that the law holds for all that was sent."""
        if "K" in self.targets:
            assert_kafka_has_each_once(self.project, self.sent)
        if isinstance(self.project, ToPulsar) and "P" in self.targets:
            self.project.assert_every_event_is_there_once(
                self.sent, dead=dead or self.dead, is_divided_anew=is_divided_anew
            )
        else:
            assert_letters(self.project, self.sent)


# The law on Kafka


def assert_kafka_has_each_once(project: Project, events: int) -> None:
    """Read `out` by a plain client: every event is there once, those of one key in their order."""
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in project.read("out"):
        by_key[record.key].append(int(KafkaBinding().decode(record).id.removeprefix("e-")))
    found = Counter(number for numbers in by_key.values() for number in numbers)
    assert found == Counter(range(events))
    for key, numbers in by_key.items():
        assert key is None or numbers == sorted(numbers), f"key {key!r} lost its order"


def assert_letters(project: Project, events: int) -> None:
    letters = (read_dead_letter(KafkaBinding().decode(each)) for each in project.read("dead"))
    dead = Counter(letter.record.value for letter in letters)
    assert dead == Counter(b"poison-%d" % number for number in range(0, events, 100))


# Who is killed


def the_driver(running: Running) -> None:
    """The loop; or Spark's driver, whose Java and workers live on for a moment, and write."""
    running.process.send_signal(signal.SIGKILL)
    assert running.ended() == -signal.SIGKILL


def everybody(running: Running) -> None:
    driver = psutil.Process(running.process.pid)
    _end([driver, *driver.children(recursive=True)])
    assert running.ended() == -signal.SIGKILL


def a_worker(running: Running) -> None:
    """Spark gives its ranges to somebody else; the job goes on."""
    family = psutil.Process(running.process.pid).children(recursive=True)
    workers = [child for child in family if "pyspark.worker" in _command_of(child)]
    parents = {_parent_of(worker) for worker in workers}
    leaves = [worker for worker in workers if worker.pid not in parents]
    assert _end(leaves or workers)


def _command_of(process: psutil.Process) -> str:
    """The command line; a process that has ended meanwhile has none."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _parent_of(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def _end(processes: Iterable[psutil.Process]) -> int:
    """Kill those that still live, say how many they were."""
    killed = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed


def finished(project: Project, engine: str, *words: str) -> dict[str, int]:
    """Let a job do what there is; return what it counted."""
    last = project.spawn("run", "--engine", engine, "--once", "-o", "json", *words)
    assert last.ended() == 0, last.told()
    found: dict[str, int] = json.loads(last.stdout.read_text(encoding="utf-8"))["total"]
    return found


def kill_loops(directed: Directed, rounds: int, each: int = 3000, *, dead: str | None = None) -> None:
    """Kill a loop while it works on what has just come, several times; then the law holds."""
    moments = random.Random(rounds)
    for _ in range(rounds):
        directed.send(each)
        running = directed.spawn("--engine", "loop")
        running.until(BATCH)
        directed.send(each // 4)
        threading.Event().wait(moments.random() * 0.2)
        the_driver(running)
    directed.send(each)
    finished(directed.project, "loop")
    directed.assert_law(dead=dead)


def kill_jobs(directed: Directed, kill: Kill, rounds: int) -> None:
    """Kill Spark's driver, its family or a worker, several times, with batches of several sizes."""
    moments = random.Random(rounds)
    for _, batch in zip(range(rounds), _sizes(), strict=False):
        # More than one run gets done before it is killed; a batch that was open is cut as it was planned.
        directed.send(4000)
        running = directed.spawn("--engine", "spark", "--max-offsets", str(batch))
        running.until(BATCH)
        threading.Event().wait(moments.random() * 0.5)
        kill(running)
        if kill is a_worker:
            running.until(BATCH, times=3)
            everybody(running)
    finished(directed.project, "spark")
    directed.assert_law()


def _sizes() -> Iterator[int]:
    return (300 + 90 * (number % 5) for number in count())
