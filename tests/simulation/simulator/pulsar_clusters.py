"""Histories of the delivery with output on Pulsar, alone or beside Kafka, and their laws.

Exactly once: each record is in the topic once and in order, no mark of any cluster is ahead of what Pulsar
has stored, and who cannot go on says why. The broker deduplicates, forgets names that nobody used for long,
and may tell ids whose entries it failed to store; the topic moves, rolls ledgers over and gets partitions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Final
from unittest.mock import patch

from penstock.errors import JobFailed
from penstock.events.bindings.pulsar import Profile
from penstock.mapping import DEFAULT_HEADROOM
from penstock.pipeline.delivery.pulsar import producer_tail
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.program import Program as Compiled
from penstock.pipeline.evaluators.kernel.program import program_of
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from simulator import world_loop
from simulator.history import Broken
from simulator.kafka_clusters import ClustersHistory, Layout
from simulator.kafka_transactions import Place
from simulator.kafka_world import LETTER, OUT, VALUE, KafkaHistory, Name
from simulator.network import Network
from simulator.pulsar import Pulsar
from simulator.pulsar_topic import Stored, Topic
from simulator.threads import Program
from simulator.world_loop import WorldLoop

__all__ = [
    "FAN_OUT",
    "PULSAR",
    "TO_PULSAR",
    "WITHIN_PULSAR",
    "PulsarFanOutHistory",
    "PulsarFanOutTasksHistory",
    "PulsarHistory",
    "PulsarTasksHistory",
]

PULSAR: Final = 3
"""The number of the Pulsar cluster among the sinks."""
_TOPICS: Final = {name: f"persistent://public/default/{name}" for name in (OUT, "dead")}
_WINDOWS: Final = (300, 1200)
"""Bytes of the end of a topic that are looked through, instead of mebibytes; an entry counts as 100."""
_ROOM: Final = 700
"""Bytes of a message that the brokers take in some histories, beside its head."""
_SILENT_FOR: Final = 60.0
"""Seconds after which a name is forgotten: the shortest that a broker can be set to."""


def _target(layout: Layout, topic: str, sink: int) -> Target:
    if sink == layout.pulsar:
        return Target(topic=_TOPICS[topic], sink=sink, profile=Profile.V1_0)
    return Target(topic=topic, sink=sink)


def _program(layout: Layout, copies: int) -> tuple[Stage, Compiled]:
    """Make a program of a route to all outputs, and of some more to Pulsar alone."""
    dead = _target(layout, "dead", layout.dead)
    plans = [RoutePlan(name=f"r{number}", where=parse_sql("type = 'a'")) for number in range(copies)]
    routes = tuple(
        StageRoute(
            plan=plan,
            targets=tuple(
                _target(layout, OUT, sink) for sink in layout.outputs if not number or sink == layout.pulsar
            ),
            dead=dead,
        )
        for number, plan in enumerate(plans)
    )
    stage = Stage(pipeline="p", routes=routes, dead=dead, unknown=(dead,))
    return stage, program_of(stage)


TO_PULSAR: Final = (Layout((PULSAR,), 0, PULSAR), Layout((PULSAR,), PULSAR, PULSAR))
FAN_OUT: Final = (
    Layout((0, PULSAR), 0, PULSAR),
    Layout((0, PULSAR), PULSAR, PULSAR),
    Layout((1, PULSAR), 0, PULSAR),
    Layout((1, PULSAR), 1, PULSAR),
    Layout((1, PULSAR), PULSAR, PULSAR),
)
_COPIES: Final = (1, 2)
_EVERY: Final = {(each, n): _program(each, n) for each in (*TO_PULSAR, *FAN_OUT) for n in _COPIES}
WITHIN_PULSAR: Final = {TO_PULSAR[1]: _EVERY[TO_PULSAR[1], 1]}
"""The program of the layout that has everything on Pulsar."""


class PulsarHistory(ClustersHistory):
    """One seed with all output on Pulsar."""

    programs: ClassVar = {layout: _EVERY[layout, 1] for layout in TO_PULSAR}
    quiet = 180.0
    """Who comes back from a slow function waits for its name, and is shut out when it commits."""
    patience = 900.0
    """An entry is given up after two minutes, a name after half of one."""
    has_copies = True
    """Whether some of the programs write each record twice."""
    run = ""
    """The id that a checkpoint keeps; a loop keeps one with its marks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"pulsar of {seed}")
        self.loop = WorldLoop(self.world, seed)
        self.loop.network = self.network = Network(self.loop)
        self.pulsar = Pulsar(self.network, ("pulsar1", "pulsar2")[: chance.choice((1, 2, 2))])
        self.pulsar.liveness_seconds = 5.0
        self.pulsar.lingering = chance.choice((0.0, 10.0, 14.0))
        self.pulsar.slow_writes = chance.choice((0.0, 0.5))
        self.exactly_once = self.exactly_once or chance.random() < 0.6
        if self.refusing == PULSAR and chance.random() < 0.3:
            self.refused_share = 0.3
        self.copies = chance.choice((1, 1, 2)) if self.has_copies else 1
        if self.copies > 1:
            self.refused_share = 0.0
            self.stage, self.program = _EVERY[self.layout, self.copies]
        self._is_narrow = chance.random() < 0.5 or self.refusing == PULSAR
        if self._is_narrow:
            self.pulsar.max_message = _ROOM + DEFAULT_HEADROOM
        self.pulsar.create(_TOPICS[OUT], chance.choice((0, 1, 2, 3)))
        self.pulsar.create(_TOPICS["dead"], chance.choice((0, 1)))
        self.pulsar.on_stored = self._note_stored
        self._faults = chance
        self._has_grown = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let programs reach Kafka and Pulsar."""
        with (
            super().installed(),
            world_loop.installed(self.loop, self.world, self.pulsar),
            patch.object(producer_tail, "_WINDOWS", _WINDOWS),
        ):
            try:
                yield
            finally:
                self.loop.end()
        if self.loop.unforeseen:
            raise Broken(f"the loop heard of {self.loop.unforeseen}")

    def work(self, name: str) -> WorkerSpec:
        """Give what a program is told."""
        settings = PulsarSettings(service_url=self.pulsar.url)
        return replace(super().work(name), pulsar_outputs={PULSAR: settings}, run=self.run)

    def padding(self, name: Name) -> bytes:
        """Make records large that Pulsar shall refuse."""
        return b" " * (2 * _ROOM) if name in self.refused and self.refusing == PULSAR else b""

    def _note_stored(self, topic: Topic, entry: Stored) -> None:
        names = self._named_in("dead" if "dead" in topic.name else OUT, entry.data)
        where, who = topic.name.rpartition("/")[2], entry.producer[-24:]
        self.note(
            "pulsar", f"{where} stores {names} of {who}, up to id {entry.last >> 16}.{entry.last & 65535}"
        )

    # What goes wrong

    @property
    def troubles(self) -> tuple[Callable[[], None], ...]:
        """What may go wrong with Pulsar."""
        return (
            self._move,
            self._cut_pulsar,
            self._silence_pulsar,
            self._kill_broker,
            self._fail_writes,
            self._fail_writes,
            self._slow,
            self._write_foreign,
            self._grow,
            self._forget,
            self._fail_admin,
        )

    def _topic(self) -> Topic:
        kind = OUT if self._faults.random() < 0.8 else "dead"
        return self._faults.choice([topic for topic, _ in self._entries(kind)])

    def _served_topic(self) -> Topic:
        """Choose among all topics that we write to."""
        return self._topic()

    def _move(self) -> None:
        topic = self._served_topic()
        self.note("pulsar", f"{topic.name} moves")
        self.pulsar.move(topic)

    def _cut_pulsar(self) -> None:
        for link in list(self.network.links):
            if self._faults.random() < 0.5:
                self.note("pulsar", f"a connection of {link.node} to {link.address} is cut")
                link.cut()

    def _silence_pulsar(self) -> None:
        links = list(self.network.links)
        if links:
            link = self._faults.choice(links)
            self.note("pulsar", f"a connection of {link.node} to {link.address} is silent")
            link.fall_silent()

    def _kill_broker(self) -> None:
        broker, seconds = (
            self._faults.choice(self.pulsar.brokers),
            self._faults.choice((0.5, 5.0, 30.0, 90.0)),
        )
        self.note("pulsar", f"{broker} dies for {seconds:g} s")
        self.pulsar.kill(broker, seconds)

    def _fail_writes(self) -> None:
        topic = self._served_topic()
        topic.on_pushed = lambda: self._fail_now(topic)

    def _fail_now(self, topic: Topic) -> None:
        if topic.owner is None:
            return
        self.note("pulsar", f"storing in {topic.name} fails")
        topic.fail_writes()
        running = [each for each in self.world.programs if not each.ended and not each.killed]
        if running and self._faults.random() < 0.7:
            program = self._faults.choice(running)
            self.note(program.name, "is killed")
            program.kill()

    def _slow(self) -> None:
        self.pulsar.slow_writes = self._faults.choice((0.0, 0.5, 4.0))
        self.note("pulsar", f"storing takes up to {self.pulsar.slow_writes:g} s more")

    def _write_foreign(self) -> None:
        # Clocks differ by less than the ten minutes that are allowed for.
        now = self.world.time_ns() // 1_000_000 - self._faults.randint(-300_000, 300_000)
        self._topic().write_foreign(self._faults.randint(1, 8), publish_time=now)
        self.note("pulsar", "another client writes")

    def _grow(self) -> None:
        if self.pulsar.partitions[_TOPICS[OUT]] in range(1, 5):
            self._has_grown = True
            self.note("pulsar", f"the topic has {self.pulsar.grow(_TOPICS[OUT])} partitions")

    def _forget(self) -> None:
        def is_over(left: float, nodes: set[str]) -> bool:
            # Who is dead sends nothing again, and what he had sent has arrived.
            seconds = 5.0 if all(self.loop.is_stopped(node) for node in nodes) else _SILENT_FOR
            return self.world.now - left > seconds

        gone = sum(topic.forget_names(is_over) for topic in self.pulsar.topics.values())
        self.note("pulsar", f"{gone} names are forgotten")

    def _fail_admin(self) -> None:
        self.pulsar.admin_failures = self._faults.choice((0.0, 0.1, 0.5))
        self.note("pulsar", f"{self.pulsar.admin_failures:.0%} of admin calls fail")

    def mend(self) -> None:
        """Let everything work again; brokers that died come back by themselves."""
        self.pulsar.slow_writes = self.pulsar.admin_failures = 0.0
        for topic in self.pulsar.topics.values():
            topic.on_pushed = None

    def excuses(self, program: Program) -> bool:
        """Who finds another one at work under its name may end and say so."""
        text = repr(program.failure)
        others = [each for each in self.world.programs if each is not program]
        return bool(others) and isinstance(program.failure, JobFailed) and "another job writes" in text

    # Laws

    def _entries(self, topic: str) -> Iterator[tuple[Topic, list[Stored]]]:
        for name, found in sorted(self.pulsar.topics.items()):
            if name == _TOPICS[topic] or name.startswith(f"{_TOPICS[topic]}-"):
                yield found, found.everything

    def _stored(self, topic: str) -> Iterator[tuple[Topic, list[Name]]]:
        """Name the records of each partition, in their order."""
        for found, entries in self._entries(topic):
            yield found, [name for entry in entries for name in self._named_in(topic, entry.data)]

    def _named_in(self, topic: str, data: bytes) -> list[Name]:
        if topic == "dead":
            places = LETTER.findall(data)
            return [self.expected[int(part)].get(int(offset), (-1, -1)) for part, offset in places]
        return [(int(part), int(number)) for part, number in VALUE.findall(data)]

    def _has(self, sink: int, topic: str, name: Name) -> bool:
        if sink != PULSAR:
            return super()._has(sink, topic, name)
        return any(name in found for _, found in self._stored(topic))

    def _check_mark(self, sink: int, marks: dict[int, int]) -> None:
        super()._check_mark(sink, marks)
        self._check_pulsar(marks)

    def _check_pulsar(self, marks: dict[int, int]) -> None:
        """What is before a mark, whichever it is, is stored on Pulsar."""
        there = {name for _, found in self._stored(OUT) for name in found}
        for part, offset in marks.items():
            names = [name for at, name in self.expected[part].items() if at < offset]
            missing = [name for name in names if name not in there and not self._is_there(PULSAR, name)]
            self.check(not missing, f"a mark of {part} is {offset}, and {missing} are not on Pulsar")

    def _on_commit(self, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        super()._on_commit(group, offsets)
        self._check_pulsar({part: offset for (_, part), (offset, _) in offsets.items()})

    def check_output(self) -> None:
        """Look at everything, when nothing is under way any more."""
        super().check_output()
        wanted = [name for part in sorted(self.expected) for _, name in sorted(self.expected[part].items())]
        for topic in (OUT, "dead") if self.layout.dead == PULSAR else (OUT,):
            self._check_pulsar_topic(topic, wanted)

    def _check_pulsar_topic(self, topic: str, wanted: list[Name]) -> None:
        seen: Counter[Name] = Counter()
        may_repeat = not self.exactly_once or (topic == "dead" and self._is_foreign)
        for log, found in self._stored(topic):
            seen.update(found)
            # At least once, two attempts may divide records among partitions of two numbers.
            if topic == OUT and (self.exactly_once or not self._has_grown):
                self.check_order(log.name, found, wanted)
        refused = self.refused if topic == "dead" or self.refusing == PULSAR else set()
        inside = [name for name in wanted if (name in refused) == (topic == "dead")]
        copies = self.copies if topic == OUT else 1
        missing = [name for name in inside if seen[name] < copies]
        self.check(not missing, f"{missing} are not in {topic} of Pulsar")
        foreign = sorted(set(seen) - set(inside))
        self.check(not foreign, f"{foreign} are in {topic} of Pulsar")
        twice = sorted(name for name, count in seen.items() if count > copies)
        self.check(may_repeat or not twice, f"{twice} are too often in {topic} of Pulsar")

    def check_marks_at_the_end(self) -> None:
        """Look whether all that was read is marked."""
        if not self.written:
            KafkaHistory.check_marks_at_the_end(self)
        super().check_marks_at_the_end()


class PulsarTasksHistory(PulsarHistory):
    """The same for tasks, whose names are those of a checkpoint."""

    run = "checkpoint"


class PulsarFanOutHistory(PulsarHistory):
    """One seed with output on Kafka and on Pulsar."""

    programs: ClassVar = {layout: _EVERY[layout, 1] for layout in FAN_OUT}


class PulsarFanOutTasksHistory(PulsarFanOutHistory):
    """The same for tasks."""

    run = "checkpoint"
