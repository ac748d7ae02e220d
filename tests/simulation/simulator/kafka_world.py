"""What histories of the delivery share: a Kafka in memory, a topic that fills, programs, and the laws."""

from __future__ import annotations

import logging
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from unittest.mock import patch

from penstock.brokers.kafka_raw.address import Address
from penstock.brokers.kafka_raw.settings import Settings
from penstock.pipeline.delivery import partition_reader, refused_records
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel import batch_builder as outbox_module
from penstock.pipeline.evaluators.kernel import batch_router as machine_module
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.pipeline.evaluators.kernel.batch_router import BatchRouter
from penstock.pipeline.evaluators.kernel.program import Program as Compiled
from penstock.pipeline.evaluators.kernel.program import program_of, reference_program_of
from penstock.pipeline.evaluators.reference.batch_router import Bounds, ReferenceBatchRouter
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Routed, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord
from penstock.wire.kafka.batch_body import BatchBody, framed
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kafka.record_batch import RecordBatch
from simulator.history import Broken, told
from simulator.kafka import Kafka
from simulator.kafka_log import PartitionLog
from simulator.kafka_transactions import Place, Transaction
from simulator.threads import Program, World

__all__ = [
    "KafkaHistory",
    "Script",
    "record_of",
    "run_kafka_history",
    "settings_of",
    "stage_of",
    "written_by",
]

Script = Generator[float, None, None]
IN: Final = "in"
OUT: Final = "out"
GROUP: Final = "g"
_LIMIT: Final = 7200.0
"""Virtual seconds within which a history has to end."""
_HELD: Final = 500
"""Bytes of a batch of output: two or three records."""
_SOURCE: Final = 7
"""The producer id of who fills the topic."""
_HEADERS: Final = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/s"),
    ("ce_type", b"a"),
    ("content-type", b"application/json"),
)
VALUE: Final = re.compile(rb'\{"n":"(\d+)-(\d+)"\}')
LETTER: Final = re.compile(rb"in/(\d+)/(\d+)")
"""The subject of a dead letter: partition and offset."""
_CODES: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE)
Name = tuple[int, int]
"""A record: its partition and its number there."""


def stage_of(targets: Sequence[Target], dead: Target) -> Stage:
    """Give a stage of one route that passes everything on."""
    plan = RoutePlan(name="all", where=parse_sql("type = 'a'"))
    route = StageRoute(plan=plan, targets=tuple(targets), dead=dead)
    return Stage(pipeline="p", routes=(route,), dead=dead, unknown=(dead,))


_STAGE: Final = stage_of([Target(topic=OUT)], Target(topic="dead"))
_PROGRAM: Final = program_of(_STAGE)
_BOUNDS: Final = Bounds(held_records=6, flush_records=4, flush_seconds=20.0, step_records=2)


@dataclass
class Function:
    """Passes events on; some of its first calls take longer than a transaction may last."""

    delays: list[float]

    def __call__(self, events: Sequence[Routed]) -> list[Invoked]:
        time.sleep(self.delays.pop() if self.delays else 0.01)
        return [Invoked(events=(each.event,)) for each in events]


def settings_of(kafka: Kafka, name: str) -> Settings:
    """Give how a program reaches a cluster."""
    return Settings(bootstrap=tuple(Address(kafka.host, 9000 + node) for node in kafka.nodes), client_id=name)


class Beside:
    """A script that runs."""

    over = False


class KafkaHistory:
    """One seed."""

    quiet = 45.0
    """Seconds without faults after which everything has settled: a connection is silent for 30 at most."""
    patience = 360.0
    """Seconds within which a loop ends that is asked to, or has come to the end, slow calls included."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lines: list[str] = []
        self.world = World(seed)
        self.random = self.world.random
        self.exactly_once = self.random.random() < 0.6
        self.kafka = Kafka(
            self.world, self.note, nodes=self.random.choice((1, 2, 3)), verifies=self.random.random() < 0.5
        )
        self.kafkas = [self.kafka]
        """All clusters, the one that is read first."""
        self.kafka.fetch_bytes = self.random.choice((200, 1 << 20))
        self.partitions = self.random.choice((1, 2))
        self.kafka.create(IN, self.partitions)
        self.kafka.create(OUT, self.random.choice((1, 2, 3)))
        self.kafka.create("dead", 1)
        # Of its own, so that a seed without refused records is the history that it was.
        self._chance = random.Random(f"refused records of {seed}")
        self.refused_share = self._chance.choice((0.0, 0.0, 0.02, 0.3))
        self._code = self._chance.choice(_CODES)
        self._are_named = self._chance.random() < 0.5
        # Of its own, too.
        chance = random.Random(f"evaluator of {seed}")
        self.has_kernel = chance.random() < 0.6
        self.function = Function([70.0, 1.0, 70.0, 70.0]) if chance.random() < 0.5 else None
        self.kafka.refuses = self._refuses
        self.refused: set[Name] = set()
        """The records that the output refuses."""
        self.kafka.transactions.on_decided = self._on_decided
        self.kafka.on_commit = self._on_commit
        self.expected: dict[int, dict[int, Name]] = defaultdict(dict)
        """By partition and offset, the records that a reader of committed records sees."""
        self._delivered: Counter[Name] = Counter()
        self._numbers: Counter[int] = Counter()
        self._sequences: Counter[int] = Counter()
        self._undecided: set[int] = set()

    @property
    def owners(self) -> list[str]:
        """Who took the transactional id that decides, in their order."""
        return self.kafka.owners

    def note(self, who: str, what: str) -> None:
        """Write down what happens."""
        self.lines.append(f"{self.world.now:10.4f}  {who:<10} {what}")

    def check(self, holds: bool, law: str) -> None:
        """Fail the history if a law is broken."""
        if not holds:
            raise Broken(law)

    # Programs

    def work(self, name: str) -> WorkerSpec:
        """Give what a program is told; brokers hear its name."""
        stage, program = self.evaluated(_STAGE, _PROGRAM)
        return WorkerSpec(
            program=program,
            stage=stage,
            settings=settings_of(self.kafka, name),
            topic=IN,
            group=GROUP,
            exactly_once=self.exactly_once,
        )

    def evaluated(self, stage: Stage, program: Compiled) -> tuple[Stage, Compiled]:
        """Give a stage and its program for the evaluator of this history."""
        if self.has_kernel:
            return stage, program
        routes = tuple(replace(each, invoker=self.function) for each in stage.routes)
        stage = replace(stage, routes=routes)
        return stage, reference_program_of(stage)

    def excuses(self, program: Program) -> bool:
        """Say whether a loop may end with an error of its own."""
        return False

    @property
    def troubles(self) -> tuple[Callable[[], None], ...]:
        """What else may go wrong than what does with Kafka."""
        return ()

    def mend(self) -> None:
        """Let everything work again."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let programs reach what is simulated."""
        with self.kafka.links.installed(*(each.links for each in self.kafkas[1:])):
            yield

    def restore(self, digest: str, kept: Iterable[bytes]) -> WorkerSpec | None:
        """Give the work of an earlier plan to a loop that asks for it."""
        return None

    def play(self, script: Script) -> None:
        """Run a script: what it yields is how long it waits."""
        main = self.beside(script)
        self.world.run(lambda: main.over, limit=_LIMIT)

    def beside(self, script: Script) -> Beside:
        """Run a script beside this one."""
        found = Beside()

        def step() -> None:
            pause = next(script, None)
            if pause is None:
                found.over = True
            else:
                self.world.after(pause, step)

        self.world.after(0.0, step)
        return found

    def until(self, is_over: Callable[[], bool], seconds: float, law: str) -> Script:
        """Wait for something that has to happen within a time."""
        end = self.world.now + seconds
        while not is_over():
            self.check(self.world.now < end, law)
            yield 0.25

    def ended(self, programs: list[Program], seconds: float) -> Script:
        """Wait for programs that have to end."""
        names = ", ".join(each.name for each in programs)
        done = lambda: all(each.ended for each in programs)  # noqa: E731
        yield from self.until(done, seconds, f"of {names} not all ended within {seconds:g} s")

    # The topic that is read

    def fill(self, records: int) -> Script:
        """Write records, some of them in transactions that are committed or aborted a while later."""
        while records > 0:
            count = min(self.random.choice((1, 1, 2, 5)), records)
            part = self.random.randrange(self.partitions)
            if part not in self._undecided and self.kafka.partitions[IN, part].node is not None:
                records -= count
                self._write(part, count, transactional=self.random.random() < 0.3)
            yield self.random.choice((0.01, 0.3, 2.0))
        yield from self.until(lambda: not self._undecided, 300.0, "the source is not done")

    def _write(self, part: int, count: int, *, transactional: bool) -> None:
        log = self.kafka.partitions[IN, part].log
        base = log.end
        names = [(part, self._numbers[part] + n) for n in range(count)]
        self._numbers[part] += count
        self.refused |= {name for name in names if self._chance.random() < self.refused_share}
        rows = [
            numbered(record_bytes(_key(name), _value(name) + self.padding(name), _HEADERS), n)
            for n, name in enumerate(names)
        ]
        body = BatchBody(b"".join(rows), count, 1000, 1000)
        placed = {base + n: name for n, name in enumerate(names)}
        if not transactional:
            self.kafka.append((IN, part), bytes(framed(body)))
            self.expected[part] |= placed
            return
        sequence, self._sequences[part] = self._sequences[part], self._sequences[part] + count
        data = framed(body, producer_id=_SOURCE, epoch=0, sequence=sequence, transactional=True)
        self.kafka.append((IN, part), bytes(data))
        self._undecided.add(part)
        committed = self.random.random() < 0.5
        if committed:
            self.expected[part] |= placed
        done = lambda: self._undecided.discard(part)  # noqa: E731
        mark = partial(self.kafka.send_marker, (IN, part), _SOURCE, 0, committed, done)
        self.world.after(self.random.choice((0.01, 1.0, 5.0)), mark)

    @property
    def source_ends(self) -> list[int]:
        """Where the partitions end that are read."""
        return [led.log.end for (topic, _), led in sorted(self.kafka.partitions.items()) if topic == IN]

    def offset_of(self, at: int, first: int) -> int:
        """Give the offset of the record at a place in the log, as a task with rows from `first` on has it."""
        return at

    def padding(self, name: Name) -> bytes:
        """Give what stands behind the value of a record."""
        return b""

    def _refuses(self, topic: str, data: bytes) -> tuple[int, tuple[int, ...]] | None:
        """Refuse a batch of the output for the sake of records; which ones is told or not."""
        names = [(int(part), int(number)) for part, number in VALUE.findall(data)] if topic == OUT else []
        found = tuple(at for at, name in enumerate(names) if name in self.refused)
        return (self._code, found if self._are_named else ()) if found else None

    # Laws

    @property
    def letters(self) -> PartitionLog | None:
        """The partition of the dead letters."""
        return self.kafka.partitions["dead", 0].log

    def named(self, log: PartitionLog, batches: Iterable[RecordBatch]) -> list[Name]:
        """Name the records that batches are made of."""
        if log is not self.letters:
            return list(_names(batches))
        places = [found for batch in batches for found in LETTER.findall(batch.data)]
        return [self.expected[int(part)].get(int(offset), (-1, -1)) for part, offset in places]

    @property
    def outputs(self) -> list[PartitionLog]:
        """The partitions of the output."""
        return [led.log for (topic, _), led in sorted(self.kafka.partitions.items()) if topic == OUT]

    @property
    def _written(self) -> list[PartitionLog]:
        letters = self.letters
        return self.outputs if letters is None else [*self.outputs, letters]

    def _on_decided(self, which: Transaction, committed: bool) -> None:
        """Look at a transaction when it is decided: its output is complete, and new."""
        if not committed:
            return
        found: list[Name] = []
        for log in self._written:
            found += self.named(log, written_by(which, log))
        self._delivered.update(found)
        twice = [name for name in found if self._delivered[name] > 1]
        self.check(not twice, f"{twice} are committed twice")
        for group in sorted(which.groups):
            offsets = self.kafka.groups.pending.get((which.producer_id, group), {})
            self._check_marks(offsets, set(self._delivered))

    def _on_commit(self, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        """Look at offsets that are committed outside of a transaction."""
        self._check_marks(offsets, {name for log in self._written for name in self.named(log, log.stored())})

    def _check_marks(self, offsets: dict[Place, tuple[int, str]], there: set[Name]) -> None:
        for (_, part), (offset, _) in offsets.items():
            self.note("kafka", f"the mark of {part} is {offset}")
            names = (name for at, name in self.expected[part].items() if at < offset)
            missing = [name for name in names if name not in there]
            self.check(not missing, f"the mark of {part} is {offset}, and {missing} are not written")

    def check_output(self) -> None:
        """Look at everything, when nothing is under way any more."""
        wanted = [name for part in sorted(self.expected) for _, name in sorted(self.expected[part].items())]
        seen: Counter[Name] = Counter()
        for log in self._written:
            stable = log.last_stable
            self.check(stable == log.end, f"{log} ends at {log.end}, and can be read to {stable}")
            found = self.named(log, log.committed())
            seen.update(found)
            wrong = sorted({name for name in found if (name in self.refused) != (log is self.letters)})
            self.check(not wrong, f"{wrong} are in {log}")
            self.check_order(log, found, wanted)
        missing = [name for name in wanted if not seen[name]]
        self.check(not missing, f"{missing} are not there")
        foreign = sorted(set(seen) - set(wanted))
        self.check(not foreign, f"{foreign} are there, and were aborted")
        twice = sorted(name for name, count in seen.items() if count > 1)
        self.check(not self.exactly_once or not twice, f"{twice} are there twice")

    def check_order(self, log: object, found: list[Name], wanted: list[Name]) -> None:
        """Each record comes behind the one that was before it; repeats begin anew somewhere before."""
        inside = set(found)
        for part in range(self.partitions):
            order = [name for name in wanted if name[0] == part and name in inside]
            place = {name: n for n, name in enumerate(order)}
            last = -1
            for name in found:
                if name[0] == part and name in place:
                    self.check(place[name] <= last + 1, f"in {log} {name} does not follow {order[last]}")
                    last = max(last, place[name])

    def check_marks_at_the_end(self) -> None:
        """Look whether all that was read is marked."""
        for part, records in sorted(self.expected.items()):
            offset, _ = self.kafka.groups.committed.get((GROUP, IN, part), (-1, ""))
            self.check(offset > max(records, default=-2), f"the mark of {part} is {offset} at the end")


def written_by(which: Transaction, log: PartitionLog) -> list[RecordBatch]:
    """Give what an open transaction has written to a partition."""
    known = log.producers.get(which.producer_id)
    if known is None or known.open_at is None:
        return []
    own = (batch for batch in log.stored() if batch.producer_id == which.producer_id)
    return [each for each in own if each.base_offset >= known.open_at]


def record_of(partition: int, offset: int, name: Name, padding: bytes = b"") -> KafkaRecord:
    """Give a record as who has read it knows it."""
    return KafkaRecord(
        key=_key(name),
        value=_value(name) + padding,
        headers=_HEADERS,
        timestamp=1000,
        topic=IN,
        partition=partition,
        offset=offset,
    )


def _key(name: Name) -> bytes:
    return b"k%d" % (name[1] % 5)


def _value(name: Name) -> bytes:
    return b'{"n":"%d-%d"}' % name


def _names(batches: Iterable[RecordBatch]) -> Iterator[Name]:
    for batch in batches:
        for part, number in VALUE.findall(batch.data):
            yield int(part), int(number)


def run_kafka_history(
    main: Callable[[KafkaHistory], Script],
    seed: int,
    kind: Callable[[int], KafkaHistory] = KafkaHistory,
) -> KafkaHistory:
    """Run one history; Broken with its lines if it breaks a law."""
    logging.getLogger("penstock").setLevel(logging.CRITICAL + 1)
    random.seed(seed)
    history = kind(seed)
    machine = partial(BatchRouter, batch_bytes=_HELD)
    router = partial(ReferenceBatchRouter, batch_bytes=_HELD, bounds=_BOUNDS)
    try:
        with (
            history.installed(),
            patch.object(machine_module, "BatchRouter", machine),
            patch.object(partition_reader, "ReferenceBatchRouter", router),
            patch.object(outbox_module, "BATCH_BYTES", _HELD),
            patch.object(refused_records, "_RECORDS", 4),
            patch.object(refused_records, "BATCH_BYTES", _HELD),
        ):
            try:
                history.play(main(history))
            finally:
                history.world.close()
    except Exception as exc:  # noqa: BLE001  whatever it is, it is shown with the history
        raise Broken(told(seed, history.lines, exc)) from None
    return history
