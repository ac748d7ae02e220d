"""Tasks that do ranges, as Spark gives them out: batch by batch, again after a failure, twice at a time.

Some read their ranges themselves; others are given the rows of them, as where Spark answers conditions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from penstock.errors import PenstockError
from penstock.pipeline.delivery.offset_ranges import OffsetRange, assigned, offset_ranges_of
from penstock.pipeline.delivery.range_delivery import run_ranges
from penstock.pipeline.delivery.task_sink import PartitionRows, write_rows
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from simulator.edits import PulsarEditsTasksHistory
from simulator.kafka_clusters import ClustersHistory, MomentsHistory
from simulator.kafka_world import KafkaHistory, Script, record_of, run_kafka_history
from simulator.pulsar_clusters import PulsarFanOutTasksHistory, PulsarTasksHistory
from simulator.pulsar_to_pulsar import PulsarToPulsarHistory
from simulator.threads import Program
from simulator.troubles import Troubles
from simulator.within_pulsar import WithinPulsarTasksHistory

__all__ = [
    "run_edited_range_tasks_to_pulsar",
    "run_range_tasks",
    "run_range_tasks_by_the_clock",
    "run_range_tasks_on_clusters",
    "run_range_tasks_to_both",
    "run_range_tasks_to_pulsar",
    "run_range_tasks_within_pulsar",
    "run_row_tasks",
    "run_row_tasks_on_clusters",
    "run_row_tasks_to_pulsar",
    "run_row_tasks_within_pulsar",
]

Run = Callable[[KafkaHistory, WorkerSpec, Sequence[OffsetRange]], Counter[str]]

_MOST: Final = 900.0
"""Seconds within which a batch has to be done, faults and all."""


def _by_ranges(history: KafkaHistory, work: WorkerSpec, spans: Sequence[OffsetRange]) -> Counter[str]:
    return run_ranges(work, spans)


def _by_rows(history: KafkaHistory, work: WorkerSpec, spans: Sequence[OffsetRange]) -> Counter[str]:
    return write_rows(work, _rows(history, spans, len(work.stage.routes)))


def _rows(history: KafkaHistory, spans: Sequence[OffsetRange], routes: int) -> Iterator[PartitionRows]:
    """Give the records of ranges that a reader of committed ones sees, cut anew for each attempt."""
    for span in spans:
        found = sorted(history.expected[span.partition].items())
        waiting = [
            record_of(span.partition, history.offset_of(at, span.start), name, history.padding(name))
            for at, name in found
            if span.start <= at < span.end
        ]
        while waiting:
            count = min(history.random.choice((1, 2, 5, 20)), len(waiting))
            while count < len(waiting) and waiting[count].offset == waiting[count - 1].offset:
                count += 1
            records = waiting[:count]
            yield PartitionRows.of(records, [(True,) * routes] * len(records))
            del waiting[:count]
            if history.random.random() < 0.1:
                time.sleep(history.random.choice((0.1, 20.0, 90.0)))  # Spark waits for its broker


class _Task:
    """Ranges, and who works on them."""

    def __init__(self, history: KafkaHistory, name: str, spans: Sequence[OffsetRange], run: Run) -> None:
        self._run = run
        self.spans = spans
        self.attempts: list[Program] = []
        self._told: set[str] = set()
        self._history = history
        self._name = name

    def attempt(self) -> None:
        """Give it out once more."""
        name = f"{self._name}.{len(self.attempts)}"
        work, spans = self._history.work(name), self.spans
        self._history.note(name, f"does {spans}")
        run = partial(self._run, self._history, work, spans)
        self.attempts.append(self._history.world.start(name, run))

    @property
    def running(self) -> list[Program]:
        return [each for each in self.attempts if not each.ended]

    @property
    def is_done(self) -> bool:
        """Whether one of them came to the end."""
        return any(each.ended and not each.killed and each.failure is None for each in self.attempts)

    def look(self) -> None:
        """Give it out again if nobody works on it, and sometimes though somebody does."""
        self.check()
        if not self.is_done and (not self.running or self._history.random.random() < 0.03):
            self.attempt()

    def check(self) -> None:
        """A task fails with a sentence, and one that is done has counted each record once."""
        for each in self.attempts:
            if each.failure is not None:
                if each.name not in self._told:
                    self._told.add(each.name)
                    self._history.note(each.name, f"fails: {each.failure}")
                known = isinstance(each.failure, PenstockError)
                self._history.check(known, f"{each.name} failed with {each.failure!r}")
            elif each.ended and not each.killed and self._history.exactly_once:
                assert isinstance(each.result, Counter)
                found, wanted = each.result["n_in"], self._records()
                self._history.check(found == wanted, f"{each.name} counted {found} records of {wanted}")
                found, wanted = each.result["n_dead"], self._refused()
                self._history.check(found == wanted, f"{each.name} counted {found} letters of {wanted}")

    def _refused(self) -> int:
        expected, refused = self._history.expected, self._history.refused
        return sum(
            span.start <= at < span.end and name in refused
            for span in self.spans
            for at, name in expected[span.partition].items()
        )

    def _records(self) -> int:
        expected = self._history.expected
        return sum(span.start <= at < span.end for span in self.spans for at in expected[span.partition])


def _ranges(run: Run, history: KafkaHistory) -> Script:
    yield from history.fill(history.random.choice((5, 20, 40)))
    troubles = Troubles(history)
    ends = history.source_ends
    halves = {part: history.random.randint(0, end) for part, end in enumerate(ends)}
    begin = dict.fromkeys(halves, 0)
    for number, (start, end) in enumerate(((begin, halves), (halves, dict(enumerate(ends))))):
        shares = assigned(offset_ranges_of(start, end), history.random.choice((1, 2)))
        tasks = [_Task(history, f"task{number}{n}", share, run) for n, share in enumerate(shares)]
        yield from _batch(history, troubles, tasks)
    yield 30.0  # markers are under way
    yield from _settled(history)


def _batch(history: KafkaHistory, troubles: Troubles, tasks: list[_Task]) -> Script:
    for task in tasks:
        task.attempt()
    began, worst = history.world.now, history.random.choice((5.0, 60.0, 200.0))
    while not all(task.is_done for task in tasks):
        yield history.random.choice((0.01, 0.1, 1.0, 5.0))
        history.check(history.world.now < began + _MOST, "a batch is not done")
        if history.world.now < began + worst:
            _trouble(history, troubles, tasks)
        else:
            troubles.end()
        for task in tasks:
            task.look()
    left = [each for task in tasks for each in task.running]
    if history.random.random() < 0.5:
        yield from history.ended(left, 600.0)
    for task in tasks:
        task.check()


def _trouble(history: KafkaHistory, troubles: Troubles, tasks: list[_Task]) -> None:
    """Let something go wrong sometimes, or a task be killed or suspended."""
    programs = [each for task in tasks for each in task.running]
    dice = history.random.random()
    if dice < 0.15:
        history.random.choice(troubles.all)()
    elif dice < 0.25 and programs:
        program = history.random.choice(programs)
        history.note(program.name, "is killed")
        program.kill()
    elif dice < 0.3 and programs:
        program, seconds = history.random.choice(programs), history.random.choice((1.0, 20.0, 90.0))
        history.note(program.name, f"is suspended for {seconds:g} s")
        program.suspend(seconds)


def _settled(history: KafkaHistory) -> Script:
    yield from history.ended(list(history.world.programs), 600.0)
    yield 90.0  # what a killed task left open has timed out
    history.check_output()
    if history.exactly_once:
        # At least once, a task that nobody waits for any more may mark what it has done again.
        history.check_marks_at_the_end()


def run_range_tasks(seed: int) -> KafkaHistory:
    """Run the history of a seed."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed)


def run_range_tasks_on_clusters(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on other clusters."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, ClustersHistory)


def run_range_tasks_by_the_clock(seed: int) -> KafkaHistory:
    """Run the history of a seed with routes that read `now()`, to several clusters."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, MomentsHistory)


def run_row_tasks(seed: int) -> KafkaHistory:
    """Run the history of a seed with tasks that are given rows."""
    return run_kafka_history(partial(_ranges, _by_rows), seed)


def run_row_tasks_on_clusters(seed: int) -> KafkaHistory:
    """Run the history of a seed with tasks that are given rows, and output on other clusters."""
    return run_kafka_history(partial(_ranges, _by_rows), seed, ClustersHistory)


def run_range_tasks_to_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on Pulsar."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, PulsarTasksHistory)


def run_edited_range_tasks_to_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed whose routes are edited between two batches, with output on Pulsar."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, PulsarEditsTasksHistory)


def run_range_tasks_within_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with tasks that read Pulsar, and everything on Pulsar."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, WithinPulsarTasksHistory)


def run_range_tasks_to_both(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on Kafka and Pulsar."""
    return run_kafka_history(partial(_ranges, _by_ranges), seed, PulsarFanOutTasksHistory)


def run_row_tasks_to_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with tasks that are given rows, and output on Pulsar."""
    return run_kafka_history(partial(_ranges, _by_rows), seed, PulsarTasksHistory)


def run_row_tasks_within_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with tasks that are given rows of Pulsar, and everything on Pulsar."""
    return run_kafka_history(partial(_ranges, _by_rows), seed, PulsarToPulsarHistory)
