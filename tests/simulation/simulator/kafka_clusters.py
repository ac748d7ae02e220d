"""Histories of the delivery with output on other clusters than the one that is read, and their laws.

Each cluster that is written has a mark of its own. No mark is ahead of what its cluster has; each record is
on each cluster once; a letter is durable before the mark of the cluster that refused the record.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from penstock.pipeline.delivery.progress import TOPIC
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.program import Program, plan_digest, program_of
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.wire.kafka.record_batch import RecordBatch
from simulator.kafka import Kafka
from simulator.kafka_log import PartitionLog
from simulator.kafka_transactions import Place, Transaction
from simulator.kafka_world import GROUP, IN, OUT, KafkaHistory, Name, settings_of, stage_of, written_by

__all__ = ["LAYOUTS", "ClustersHistory", "Layout", "MomentsHistory"]


@dataclass(frozen=True)
class Layout:
    """Where output and dead letters are, by the number of the cluster; 0 is the one that is read."""

    outputs: tuple[int, ...]
    dead: int
    pulsar: int | None = None
    """The one that is a Pulsar."""

    @property
    def kafkas(self) -> list[int]:
        """The Kafka clusters that are written."""
        return sorted({*self.outputs, self.dead} - {self.pulsar})


LAYOUTS: Final = (
    Layout((1,), 1),
    Layout((1,), 0),
    Layout((0, 1), 0),
    Layout((0, 1), 1),
    Layout((1, 2), 0),
    Layout((1, 2), 1),
)


def _program(layout: Layout) -> tuple[Stage, Program]:
    stage = stage_of(
        [Target(topic=OUT, sink=sink) for sink in layout.outputs], Target(topic="dead", sink=layout.dead)
    )
    return stage, program_of(stage)


_PROGRAMS: Final = {layout: _program(layout) for layout in LAYOUTS}


class ClustersHistory(KafkaHistory):
    """One seed."""

    programs = _PROGRAMS
    patience = 400.0
    """Where many records are refused, each few of them take three transactions on slow connections."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"clusters of {seed}")
        self.layout = chance.choice(tuple(self.programs))
        self.stage, self.program = self.programs[self.layout]
        self.written = self.layout.kafkas
        self.refusing = chance.choice(self.layout.outputs)
        """The cluster whose output refuses records."""
        for number in range(1, max(self.written, default=0) + 1):
            kafka = Kafka(
                self.world,
                lambda who, what, number=number: self.note(f"{who} {number}", what),
                nodes=chance.choice((1, 2)),
                verifies=chance.random() < 0.5,
                host=f"sim{number}",
            )
            kafka.fetch_bytes = chance.choice((200, 1 << 20))
            kafka.create(OUT, chance.choice((1, 2)))
            kafka.create("dead", 1)
            kafka.create(TOPIC, 1)
            self.kafkas.append(kafka)
        for sink, kafka in enumerate(self.kafkas):
            kafka.refuses = self._refuses if sink == self.refusing else lambda topic, data: None
            kafka.transactions.on_decided = partial(self._on_decided_at, sink)
        self._there: Counter[tuple[int, str, Name]] = Counter()
        """By sink and topic, the records that are committed."""

    @property
    def owners(self) -> list[str]:
        """Who took the id on the cluster that is committed first."""
        return self.kafkas[next((sink for sink in self.written if sink), 0)].owners

    def work(self, name: str) -> WorkerSpec:
        """Give what a program is told."""
        stage, program = self.evaluated(self.stage, self.program)
        outputs = {sink: settings_of(self.kafkas[sink], name) for sink in self.written if sink}
        return replace(
            super().work(name),
            stage=stage,
            program=program,
            outputs=outputs,
            source_id="sim",
            plan=plan_digest(program),
        )

    # Laws

    @property
    def letters(self) -> PartitionLog | None:
        """The partition of the dead letters; None if they are on Pulsar."""
        if self.layout.dead == self.layout.pulsar:
            return None
        return self.kafkas[self.layout.dead].partitions["dead", 0].log

    def _logs(self, sink: int) -> list[PartitionLog]:
        found = sorted(self.kafkas[sink].partitions.items())
        logs = [led.log for (topic, _), led in found if topic == OUT and sink in self.layout.outputs]
        letters = self.letters if sink == self.layout.dead else None
        return logs if letters is None else [*logs, letters]

    @property
    def _is_foreign(self) -> bool:
        """Whether letters are on another cluster than the output that refuses records."""
        return self.refusing != self.layout.dead

    def _on_decided_at(self, sink: int, which: Transaction, committed: bool) -> None:
        """Look at a transaction when it is decided: its output is complete, and new."""
        if not committed:
            return
        for log in self._logs(sink):
            for name in self.named(log, written_by(which, log)):
                self._there[sink, log.topic, name] += 1
                twice = self._there[sink, log.topic, name] > 1 and not self._may_repeat(log)
                self.check(not twice, f"{name} is committed twice in {log} of cluster {sink}")
        if sink == 0:
            for group in sorted(which.groups):
                found = self.kafka.groups.pending.get((which.producer_id, group), {})
                self._check_mark(sink, {part: offset for (_, part), (offset, _) in found.items()})
        else:
            batches = written_by(which, self.kafkas[sink].partitions[TOPIC, 0].log)
            self._check_mark(sink, _marks(batches))

    def _may_repeat(self, log: PartitionLog) -> bool:
        return log is self.letters and self._is_foreign

    def _check_mark(self, sink: int, marks: dict[int, int]) -> None:
        """What is before a mark is on its cluster, or a letter."""
        for part, offset in marks.items():
            self.note(f"kafka {sink}", f"the mark of {part} is {offset}")
            names = [name for at, name in self.expected[part].items() if at < offset]
            missing = [name for name in names if not self._is_there(sink, name)]
            self.check(not missing, f"the mark of {part} on {sink} is {offset}, and {missing} are not there")

    def _is_there(self, sink: int, name: Name) -> bool:
        if sink not in self.layout.outputs:
            return True
        if sink == self.refusing and name in self.refused:
            return self._has(self.layout.dead, "dead", name)
        return self._has(sink, OUT, name)

    def _has(self, sink: int, topic: str, name: Name) -> bool:
        return self._there[sink, topic, name] > 0

    def _on_commit(self, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        """Look at offsets that are committed behind everything else."""
        if self.exactly_once:
            for sink in self.written:
                self._check_mark(sink, {part: offset for (_, part), (offset, _) in offsets.items()})
            return
        for sink in self.written:
            for log in self._logs(sink):
                for name in self.named(log, log.stored()):
                    self._there[sink, log.topic, name] = 1
        for sink in self.written:
            self._check_mark(sink, {part: offset for (_, part), (offset, _) in offsets.items()})

    def check_output(self) -> None:
        """Look at everything, when nothing is under way any more."""
        wanted = [name for part in sorted(self.expected) for _, name in sorted(self.expected[part].items())]
        for sink in self.written:
            for topic, logs in self._by_topic(self._logs(sink)).items():
                self._check_topic(sink, topic, logs, wanted)

    def _check_topic(self, sink: int, topic: str, logs: list[PartitionLog], wanted: list[Name]) -> None:
        seen: Counter[Name] = Counter()
        for log in logs:
            stable = log.last_stable
            self.check(stable == log.end, f"{log} of {sink} ends at {log.end}, and can be read to {stable}")
            found = self.named(log, log.committed())
            seen.update(found)
            if log is not self.letters or not self._is_foreign:
                self.check_order(log, found, wanted)
        refused = self.refused if topic == "dead" or sink == self.refusing else set()
        inside = [name for name in wanted if (name in refused) == (topic == "dead")]
        missing = [name for name in inside if not seen[name]]
        self.check(not missing, f"{missing} are not in {topic} of {sink}")
        foreign = sorted(set(seen) - set(inside))
        self.check(not foreign, f"{foreign} are in {topic} of {sink}")
        twice = sorted(name for name, count in seen.items() if count > 1)
        may_repeat = not self.exactly_once or self._may_repeat(logs[0])
        self.check(may_repeat or not twice, f"{twice} are twice in {topic} of {sink}")

    @staticmethod
    def _by_topic(logs: Iterable[PartitionLog]) -> dict[str, list[PartitionLog]]:
        found: dict[str, list[PartitionLog]] = {}
        for log in logs:
            found.setdefault(log.topic, []).append(log)
        return found

    def check_marks_at_the_end(self) -> None:
        """Look whether all that was read is marked, on every cluster."""
        if not self.exactly_once or 0 in self.written:
            super().check_marks_at_the_end()
        for sink in self.written if self.exactly_once else ():
            marks: dict[int, int] = {}
            if sink:
                marks = _marks(self.kafkas[sink].partitions[TOPIC, 0].log.committed())
            else:
                continue
            for part, records in sorted(self.expected.items()):
                offset = marks.get(part, -1)
                behind = offset > max(records, default=-2)
                self.check(behind, f"the mark of {part} on {sink} is {offset} at the end")


def _by_the_clock(layout: Layout) -> tuple[Stage, Program]:
    """Make a program of two routes: the moment decides to which of two clusters a record goes."""
    dead = Target(topic="dead", sink=layout.dead)
    routes = tuple(
        StageRoute(
            plan=RoutePlan(name=f"r{number}", where=parse_sql(f"second(now()) % 2 = {number}")),
            targets=(Target(topic=OUT, sink=sink),),
            dead=dead,
        )
        for number, sink in enumerate(layout.outputs)
    )
    stage = Stage(pipeline="p", routes=routes, dead=dead, unknown=(dead,))
    return stage, program_of(stage)


class MomentsHistory(ClustersHistory):
    """One seed, with routes that read `now()`: exactly once, a record is on one cluster and on no other."""

    programs: ClassVar = {layout: _by_the_clock(layout) for layout in LAYOUTS if len(layout.outputs) > 1}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.refused_share = 0.0

    def _is_there(self, sink: int, name: Name) -> bool:
        """Tell whether it is where it may be: which one that is, the program alone knows."""
        return any(self._there[each, OUT, name] for each in self.layout.outputs)

    def _check_mark(self, sink: int, marks: dict[int, int]) -> None:
        """No more than the last mark of all says that a record is somewhere."""
        order = [*sorted({*self.written} - {0}), *({*self.written} & {0})]
        if sink == order[-1]:
            super()._check_mark(sink, marks)

    def _on_decided_at(self, sink: int, which: Transaction, committed: bool) -> None:
        super()._on_decided_at(sink, which, committed)
        if not committed or not self.exactly_once:
            return
        for log in self._logs(sink):
            for name in self.named(log, written_by(which, log)):
                on = [each for each in self.layout.outputs if self._there[each, OUT, name]]
                self.check(len(on) < 2, f"{name} is on the clusters {on}")

    def check_output(self) -> None:
        """Look at everything, when nothing is under way any more."""
        seen = Counter(
            name
            for sink in self.layout.outputs
            for log in self._logs(sink)
            if log is not self.letters
            for name in self.named(log, log.committed())
        )
        wanted = {name for part in self.expected.values() for name in part.values()}
        missing = sorted(wanted - set(seen))
        self.check(not missing, f"{missing} are on no cluster")
        twice = sorted(name for name, count in seen.items() if count > 1)
        self.check(not self.exactly_once or not twice, f"{twice} are there twice")


def _marks(batches: Iterable[RecordBatch]) -> dict[int, int]:
    """Read the marks of our group, the last one of each partition."""
    found: dict[int, int] = {}
    prefix = f'["{GROUP}","sim","{IN}","",'.encode()
    for batch in batches:
        data = bytes(batch.data)
        while (at := data.find(prefix)) >= 0:
            data = data[at + len(prefix) :]
            part, _, data = data.partition(b"]")
            if not part.isdigit():
                continue  # what the program was made of
            value, _ = json.JSONDecoder().raw_decode(data[data.index(b"{") :].decode(errors="replace"))
            found[int(part)] = value["offset"]
    return found
