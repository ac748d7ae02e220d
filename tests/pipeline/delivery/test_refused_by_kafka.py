"""Records that a real Kafka refuses: dead letters, once, beside all else; by ranges, a loop and rows.

And batches that a real Kafka takes, although they inflate to more than is taken at once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.brokers.kafka_offsets import KafkaOffsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.producer import Producer
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_records import publish, scan
from penstock.errors import JobFailed
from penstock.pipeline.delivery import range_delivery, refused_records, sink
from penstock.pipeline.delivery.loop import Loop
from penstock.pipeline.delivery.loop_run import ProgressReport
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.range_delivery import run_ranges
from penstock.pipeline.delivery.task_sink import PartitionRows, write_rows
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel import batch_builder, batch_router
from penstock.pipeline.evaluators.kernel.program import program_of, reference_program_of
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord
from penstock.wire.kafka.batch_body import BatchBody

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka

pytestmark = pytest.mark.server
PARTITIONS = 3
EVENTS = 600
BAD = frozenset(range(0, EVENTS, 97))
"""Those that are refused: the first one, some between good ones."""
LARGE = 30_000
Run = Callable[[WorkerSpec], Counter[str]]


def event(number: int, *, bad: str | None) -> KafkaRecord:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "a"}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in attributes.items())
    value = b'{"n":%d,"more":"%s"}' % (number, b"x" * (LARGE if bad == "too-large" else 10))
    key = None if bad == "no-key" else b"k%d" % (number % 7)
    headers = (*headers, ("content-type", b"application/json"))
    return KafkaRecord(key=key, value=value, headers=headers, partition=number % PARTITIONS)


class Topics:
    """The topics of one test: in, out, beside, dead."""

    def __init__(self, kafka: Kafka) -> None:
        self.options = kafka.client_options()
        self.prefix = uuid.uuid4().hex[:8]
        self.admin = KafkaOffsets(self.options)

    def create(self, **settings: dict[str, str]) -> Topics:
        for name in ("in", "out", "beside", "dead"):
            own = {"max.message.bytes": "5000000"} if name in ("in", "dead") else {}
            self.admin.create_topic(
                self.topic(name), partitions=PARTITIONS, replicas=1, settings=own | settings.get(name, {})
            )
        return self

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def fill(self, bad: str) -> None:
        def records() -> Iterator[KafkaRecord]:
            for number in range(EVENTS):
                found = event(number, bad=bad if number in BAD else None)
                yield replace(found, topic=self.topic("in"))

        assert publish(self.options, records()) == EVENTS

    def work(self, *, exactly_once: bool = True) -> WorkerSpec:
        """Give the work of somebody who may not see the settings of topics."""
        dead = Target(topic=self.topic("dead"))
        targets = (Target(topic=self.topic("out")), Target(topic=self.topic("beside")))
        plan = RoutePlan(name="all", where=parse_sql("type = 'a'"))
        stage = Stage(pipeline="p", routes=(StageRoute(plan=plan, targets=targets, dead=dead),), dead=dead)
        return WorkerSpec(
            program=program_of(stage),
            stage=stage,
            settings=Settings.of(self.options),
            topic=self.topic("in"),
            group=f"g.{self.prefix}",
            exactly_once=exactly_once,
        )

    def numbers(self, name: str) -> Counter[int]:
        """Count the events that a reader of committed records sees."""
        return Counter(json.loads(each.value or b"")["n"] for each in scan(self.options, self.topic(name)))

    def letters(self) -> list[tuple[int, str]]:
        found = [json.loads(each.value or b"") for each in scan(self.options, self.topic("dead"))]
        numbers = [each["origin"]["offset"] * PARTITIONS + each["origin"]["partition"] for each in found]
        return sorted(zip(numbers, (each["code"] for each in found), strict=True))


@pytest.fixture
def topics(kafka: Kafka) -> Topics:
    return Topics(kafka)


def by_ranges(work: WorkerSpec) -> Counter[str]:
    return run_ranges(work, [OffsetRange(part, 0, EVENTS // PARTITIONS) for part in range(PARTITIONS)])


def by_loop(work: WorkerSpec) -> Counter[str]:
    counts: Counter[str] = Counter()

    def tell(beat: ProgressReport) -> None:
        counts.update(beat.counts)

    Loop(work, tell, stop=Event(), once=True).run()
    return counts


def by_rows(work: WorkerSpec) -> Counter[str]:
    """Give each partition to a task of Spark that has read it."""
    counts: Counter[str] = Counter()
    found = sorted(scan(_options(work), work.topic), key=lambda each: each.offset or 0)
    for part in range(PARTITIONS):
        records = [each for each in found if each.partition == part]
        rows = PartitionRows.of(records, [(True,)] * len(records))
        counts.update(write_rows(work, (rows.part(at, at + 150) for at in range(0, len(records), 150))))
    return counts


def _options(work: WorkerSpec) -> dict[str, str]:
    servers = ",".join(f"{each.host}:{each.port}" for each in work.settings.bootstrap)
    return {"bootstrap.servers": servers, "fetch.message.max.bytes": "8000000"}


SETTINGS = {
    "no-key": {"cleanup.policy": "compact"},
    "too-large": {"max.message.bytes": str(LARGE)},
}


@pytest.mark.parametrize("run", [by_ranges, by_loop, by_rows])
@pytest.mark.parametrize("bad", ["no-key", "too-large"])
def test_refused_records_are_letters_and_nothing_else_is_lost_or_twice(
    topics: Topics, run: Run, bad: str
) -> None:
    topics.create(out=SETTINGS[bad])
    topics.fill(bad)
    counts = run(topics.work())
    good = set(range(EVENTS)) - BAD
    assert topics.letters() == [(number, bad) for number in sorted(BAD)]
    assert topics.numbers("out") == Counter(good)
    assert topics.numbers("beside") == Counter(range(EVENTS))
    wanted = {"n_in": EVENTS, "n_out": EVENTS + len(good), "n_dead": len(BAD)}
    assert {name: counts[name] for name in wanted} == wanted
    # It is done: who comes again does nothing.
    run(topics.work())
    assert topics.numbers("beside") == Counter(range(EVENTS))


@pytest.mark.parametrize("run", [by_ranges, by_loop])
def test_a_time_that_is_refused(topics: Topics, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of who writes is an hour behind that of the broker."""
    late = SimpleNamespace(time_ns=lambda: time.time_ns() - 3600 * 10**9, monotonic=time.monotonic)
    monkeypatch.setattr(batch_builder, "time", late)
    monkeypatch.setattr(refused_records, "time", late)
    topics.create(out={"message.timestamp.before.max.ms": "600000"})
    topics.fill("none")
    counts = run(topics.work())
    assert topics.letters() == [(number, "timestamp-out-of-bounds") for number in range(EVENTS)]
    assert topics.numbers("out") == Counter()
    assert topics.numbers("beside") == Counter(range(EVENTS))
    assert counts["n_dead"] == EVENTS


@pytest.mark.parametrize("run", [by_ranges, by_loop, by_rows])
def test_without_transactions_nothing_is_lost_either(topics: Topics, run: Run) -> None:
    topics.create(out=SETTINGS["no-key"])
    topics.fill("no-key")
    run(topics.work(exactly_once=False))
    assert set(topics.letters()) == {(number, "no-key") for number in BAD}
    assert set(topics.numbers("out")) == set(range(EVENTS)) - BAD
    assert set(topics.numbers("beside")) == set(range(EVENTS))


@pytest.mark.parametrize("run", [by_ranges, by_loop, by_rows])
def test_batches_are_cut_if_a_topic_takes_less_than_was_known(topics: Topics, run: Run) -> None:
    """No record is too large, only the batches that the machine makes."""
    topics.create(out={"max.message.bytes": "2000"})
    topics.fill("none")
    run(topics.work())
    assert topics.letters() == []
    assert topics.numbers("out") == Counter(range(EVENTS))


@pytest.mark.parametrize("run", [by_ranges, by_loop])
def test_a_dead_letter_topic_that_refuses_ends_the_job_with_a_sentence(topics: Topics, run: Run) -> None:
    topics.create(out=SETTINGS["no-key"], dead={"cleanup.policy": "compact"})
    topics.fill("no-key")
    with pytest.raises(JobFailed, match=r"dead refuses a dead letter"):
        run(topics.work())
    # What it did before counts, and is not done again.
    assert set(topics.numbers("out").values()) <= {1}


class Killed(BaseException):
    """Ends a run as a kill does: nothing is caught, nothing more is sent."""


@pytest.mark.parametrize("run", [by_ranges, by_loop, by_rows])
@pytest.mark.parametrize("moment", [0, 1, 2, 5])
def test_who_is_killed_while_it_narrows_leaves_nothing_twice(
    topics: Topics, run: Run, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(out=SETTINGS["no-key"])
    topics.fill("no-key")
    monkeypatch.setattr(refused_records, "_RECORDS", 50)
    deliver, calls = refused_records.RowNarrowing._deliver, Counter[str]()

    def dies(self: Any, rows: Any, outlet: Any) -> None:
        calls["n"] += 1
        deliver(self, rows, outlet)
        if calls["n"] == moment + 1:
            monkeypatch.setattr(type(outlet), "close", lambda self: self._producer.close())
            raise Killed  # the letters are written, and not committed

    monkeypatch.setattr(refused_records.RowNarrowing, "_deliver", dies)
    with pytest.raises(Killed):
        run(topics.work())
    monkeypatch.undo()
    run(topics.work())
    assert topics.letters() == [(number, "no-key") for number in sorted(BAD)]
    assert topics.numbers("out") == Counter(set(range(EVENTS)) - BAD)
    assert topics.numbers("beside") == Counter(range(EVENTS))


def test_counts_of_a_range_are_those_of_all_who_worked_on_it(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(out=SETTINGS["no-key"])
    topics.fill("no-key")
    redo = range_delivery.redo

    def dies(*args: Any) -> Any:
        redo(*args)
        raise Killed

    monkeypatch.setattr(range_delivery, "redo", dies)
    with pytest.raises(Killed):
        by_ranges(topics.work())
    monkeypatch.undo()
    counts = by_ranges(topics.work())
    assert (counts["n_in"], counts["n_dead"]) == (EVENTS, len(BAD))


def _batch_of(topics: Topics, value: bytes, count: int) -> None:
    """Write a batch that is small as it is sent."""
    rest, now = batch_builder.record_bytes(b"k", value, ()), time.time_ns() // 1_000_000
    rows = b"".join(batch_builder.numbered(rest, number) for number in range(count))
    with Cluster(Settings.of(topics.options)) as cluster:
        producer = Producer(cluster, compression="zstd")
        producer.send(topics.topic("in"), 0, BatchBody(rows, count, now, now))
        producer.flush()
        producer.close()


@pytest.mark.parametrize("has_kernel", [True, False])
@pytest.mark.parametrize("run", [by_ranges, by_loop])
def test_a_batch_that_inflates_to_too_much_does_not_stop_a_job(
    topics: Topics, run: Run, has_kernel: bool
) -> None:
    topics.create()
    _batch_of(topics, b"x" * (65 << 20), 1)
    good = [replace(event(n, bad=None), topic=topics.topic("in"), partition=0) for n in range(5)]
    assert publish(topics.options, iter(good)) == 5
    given = topics.work()
    work = given if has_kernel else replace(given, program=reference_program_of(given.stage))
    counts = run_ranges(work, [OffsetRange(0, 0, 6)]) if run is by_ranges else run(work)
    assert (counts["n_in"], counts["n_dead"]) == (6, 1)
    assert topics.letters() == [(0, "batch-too-large")]
    assert topics.numbers("out") == Counter(range(5))


@pytest.mark.parametrize("run", [by_ranges, by_loop])
def test_a_batch_of_many_uncertain_records_is_committed_in_parts(
    topics: Topics, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched at once may take longer than a transaction lasts."""
    topics.create()
    _batch_of(topics, b"no event", 500)
    monkeypatch.setattr(batch_router, "_AT_ONCE", 100)
    monkeypatch.setattr(batch_router, "_SLOW_SECONDS", 0.0)
    commits: list[int] = []
    commit = sink.TransactionalSink.commit

    def noted(self: Any, marks: Any) -> None:
        commits.extend(mark.offset for mark in marks.values() if mark.offset)
        commit(self, marks)

    monkeypatch.setattr(sink.TransactionalSink, "commit", noted)
    counts = run_ranges(topics.work(), [OffsetRange(0, 0, 500)]) if run is by_ranges else run(topics.work())
    assert (counts["n_in"], counts["n_dead"]) == (500, 500)
    assert commits == [100, 200, 300, 400, 500]
    assert len(topics.letters()) == 500
