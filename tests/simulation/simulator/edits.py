"""Histories with a pipeline that is edited between two starts of its loops, and their laws.

Editions differ in what they write (`subject`), in where it goes (`key`, another topic of Pulsar), and so in
the producers that write it. What one of them has begun is finished by it: each record is there once, and by
one edition on all clusters.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Final

from penstock.events.bindings.pulsar import Profile
from penstock.pipeline.delivery.progress import TOPIC
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.program import Program, plan_digest, program_of
from penstock.pipeline.plan.nodes import Text
from penstock.pipeline.plan.route import Assignment, RoutePlan, SimpleKey
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from simulator.kafka_clusters import LAYOUTS, ClustersHistory, Layout
from simulator.kafka_world import OUT, VALUE, Name
from simulator.pulsar_clusters import FAN_OUT, TO_PULSAR, PulsarHistory
from simulator.within_pulsar import WithinPulsarHistory

__all__ = [
    "EditsHistory",
    "PulsarEditsHistory",
    "PulsarEditsTasksHistory",
    "WithinPulsarEditsHistory",
]

_EDITIONS: Final = 3
_SECOND: Final = f"persistent://public/default/{OUT}-second"
"""The topic of Pulsar that the last edition writes to instead of the first one."""
_VALUE_OR_EDITION: Final = re.compile(rb"%b|edition (\d)" % VALUE.pattern)
_KEYS: Final = (SimpleKey.KEEP, SimpleKey.NONE, SimpleKey.PARTITIONKEY)


def _target(layout: Layout, topic: str, sink: int, edition: int) -> Target:
    if sink != layout.pulsar:
        return Target(topic=topic, sink=sink)
    name = f"persistent://public/default/{topic}"
    is_second = topic == OUT and edition == _EDITIONS - 1
    return Target(topic=_SECOND if is_second else name, sink=sink, profile=Profile.V1_0)


def _edition(layout: Layout, number: int) -> tuple[Stage, Program]:
    """Make a program that is another one with each number, and sends everything to all outputs."""
    dead = _target(layout, "dead", layout.dead, number)
    values = {"subject": f"edition {number}", "partitionkey": "p"}
    plan = RoutePlan(
        name="all",
        where=parse_sql("type = 'a'"),
        set=tuple(Assignment(name, Text(value)) for name, value in values.items()),
        key=_KEYS[number],
    )
    targets = tuple(_target(layout, OUT, sink, number) for sink in layout.outputs)
    stage = Stage(
        pipeline="p",
        routes=(StageRoute(plan=plan, targets=targets, dead=dead),),
        dead=dead,
        unknown=(dead,),
    )
    return stage, program_of(stage)


class _Edited(ClustersHistory):
    """What is the same whatever is written."""

    editions: ClassVar[dict[Layout, tuple[tuple[Stage, Program], ...]]]
    waits_for_end = False
    """Whether a pipeline is edited only when its job has ended, or was killed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._edits = random.Random(f"edits of {seed}")
        self._edition = 0
        """Of the last program that was started."""

    def work(self, name: str) -> WorkerSpec:
        """Give what a program is told, by the edition of now."""
        edition = self._edits.randrange(_EDITIONS)
        if self.waits_for_end and any(not each.ended and not each.killed for each in self.world.programs):
            edition = self._edition
        self._edition = edition
        self.note(name, f"has edition {edition}")
        return self._edited(super().work(name), edition)

    def _edited(self, work: WorkerSpec, edition: int) -> WorkerSpec:
        stage, program = self.editions[self.layout][edition]
        kept = json.dumps({"edition": edition}).encode()
        return replace(work, stage=stage, program=program, plan=plan_digest(program), kept_plan=kept)

    def restore(self, digest: str, kept: Iterable[bytes]) -> WorkerSpec | None:
        """Give the work of an edition, which is always to be had."""
        for each in kept:
            found = self._edited(super().work("restored"), json.loads(each)["edition"])
            if found.plan == digest:
                self.note("restored", f"is {each.decode()}")
                return found
        raise AssertionError(f"plan {digest} is not kept")

    def check_order(self, log: object, found: list[Name], wanted: list[Name]) -> None:
        """At least once, another edition may repeat in one partition what is in several."""
        if self.exactly_once:
            super().check_order(log, found, wanted)

    def check_output(self) -> None:
        """Look at everything, when nothing is under way any more."""
        super().check_output()
        found: dict[Name, set[int]] = defaultdict(set)
        for data in self._written_data():
            for name, edition in _editions_in(data):
                found[name].add(edition)
        several = sorted(name for name, editions in found.items() if len(editions) != 1)
        self.check(not self.exactly_once or not several, f"{several} were routed by several editions")

    def _written_data(self) -> Iterator[bytes]:
        """Give batches of output, each with records that have a value and an edition."""
        for sink in self.written:
            for log in self._logs(sink):
                if log is not self.letters:
                    yield from (bytes(batch.data) for batch in log.committed())


class EditsHistory(_Edited):
    """One seed with output on several Kafka clusters."""

    programs: ClassVar = {layout: _edition(layout, 0) for layout in LAYOUTS if len(layout.outputs) > 1}
    editions: ClassVar = {
        layout: tuple(_edition(layout, number) for number in range(_EDITIONS)) for layout in programs
    }


class PulsarEditsHistory(_Edited, PulsarHistory):
    """One seed with output on Pulsar, alone or beside Kafka."""

    programs: ClassVar = {layout: _edition(layout, 0) for layout in (*TO_PULSAR, *FAN_OUT)}
    editions: ClassVar = {
        layout: tuple(_edition(layout, number) for number in range(_EDITIONS)) for layout in programs
    }
    has_copies = False
    waits_for_end = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kafka.create(TOPIC, 1)
        self.pulsar.create(_SECOND, self._edits.choice((0, 1, 3)))

    def _written_data(self) -> Iterator[bytes]:
        yield from super()._written_data()
        for _, entries in self._entries(OUT):
            yield from (entry.data for entry in entries)


class WithinPulsarEditsHistory(PulsarEditsHistory, WithinPulsarHistory):
    """One seed with everything on Pulsar."""

    programs: ClassVar = {TO_PULSAR[1]: _edition(TO_PULSAR[1], 0)}
    keeps_plans = True


class PulsarEditsTasksHistory(PulsarEditsHistory):
    """The same for tasks of Spark: an open batch keeps its edition, and the next one has another.

    Attempts of the former batch may still be at work when the next one is done.
    """

    run = "checkpoint"

    def work(self, name: str) -> WorkerSpec:
        """Give what a task is told, by the edition of its batch: names are `taskBATCH...`."""
        work = PulsarHistory.work(self, name)
        edition = (self.seed + int(name[len("task")])) % _EDITIONS
        return replace(self._edited(work, edition), kept_plan=None)


def _editions_in(data: bytes) -> Iterator[tuple[Name, int]]:
    """Give the records of a batch with the editions that wrote them: headers are before values or behind."""
    names = [(int(part), int(number)) for part, number, _ in _VALUE_OR_EDITION.findall(data) if part]
    editions = [int(edition) for *_, edition in _VALUE_OR_EDITION.findall(data) if edition]
    yield from zip(names, editions, strict=True)
