"""Loops without Spark on a Kafka that fails: they are killed, suspended, stopped, shut out, begun again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import cast

from penstock.errors import JobFailed
from penstock.pipeline.delivery.loop import Loop
from simulator.edits import EditsHistory, PulsarEditsHistory, WithinPulsarEditsHistory
from simulator.kafka_clusters import ClustersHistory, MomentsHistory
from simulator.kafka_world import KafkaHistory, Script, run_kafka_history
from simulator.pulsar_clusters import PulsarFanOutHistory, PulsarHistory
from simulator.threads import Flag, Program
from simulator.troubles import Troubles
from simulator.within_pulsar import WithinPulsarHistory

__all__ = [
    "run_edited_loops",
    "run_edited_loops_to_pulsar",
    "run_edited_loops_within_pulsar",
    "run_loops",
    "run_loops_by_the_clock",
    "run_loops_on_clusters",
    "run_loops_to_both",
    "run_loops_to_pulsar",
    "run_loops_within_pulsar",
]


@dataclass(slots=True)
class _Running:
    program: Program
    stop: Flag
    once: bool


class _Loops:
    """The loops of a history; they are named in the order of their starts."""

    def __init__(self, history: KafkaHistory) -> None:
        self._history = history
        self.all: list[_Running] = []

    def start(self, *, once: bool = False) -> _Running:
        """Start one."""
        history = self._history
        name = f"loop{len(self.all)}"
        stop = Flag(history.world)
        loop = Loop(
            history.work(name), lambda beat: None, stop=cast(Event, stop), once=once, restore=history.restore
        )
        history.note(name, "starts")
        running = _Running(history.world.start(name, loop.run), stop, once)
        self.all.append(running)
        return running

    @property
    def running(self) -> list[_Running]:
        """Those that have not ended."""
        return [each for each in self.all if not each.program.ended and not each.program.killed]

    # What people and machines do to them

    def kill(self) -> None:
        for each in self._some():
            self._history.note(each.program.name, "is killed")
            each.program.kill()

    def stop(self) -> None:
        for each in self._some():
            self._history.note(each.program.name, "is asked to stop")
            each.stop.set()

    def suspend(self) -> None:
        for each in self._some():
            seconds = self._history.random.choice((1.0, 20.0, 90.0))
            self._history.note(each.program.name, f"is suspended for {seconds:g} s")
            each.program.suspend(seconds)

    def begin(self) -> None:
        if len(self.running) < 3:
            self.start()

    def _some(self) -> list[_Running]:
        return self._history.random.sample(self.running, min(1, len(self.running)))

    # Laws

    def check_ends(self) -> None:
        """A loop ends if it is killed, was asked to, or with the sentence that another one took over."""
        owners = self._history.owners
        for each in self.all:
            program = each.program
            if program.failure is None:
                may_end = program.killed or each.stop.is_set() or each.once
                self._history.check(may_end or not program.ended, f"{program.name} ended by itself")
                continue
            if self._history.excuses(program):
                continue
            text = repr(program.failure)
            shut_out = isinstance(program.failure, JobFailed) and "another loop took over" in text
            self._history.check(shut_out, f"{program.name} ended with {text}")
            begun = max((n for n, name in enumerate(owners) if name == program.name), default=-1)
            others = [name for name in owners[begun + 1 :] if name != program.name]
            self._history.check(bool(others), f"{program.name} says it was shut out, and nobody took over")

    def check_shut_out(self) -> None:
        """Who is not the last to have begun has ended."""
        owners = self._history.owners
        for each in self.running if self._history.exactly_once else ():
            name = each.program.name
            self._history.check(name == owners[-1], f"{name} goes on, though {owners[-1]} took over")


def _loops(history: KafkaHistory) -> Script:
    loops = _Loops(history)
    troubles = Troubles(history)
    loops.start()
    actions: list[Callable[[], None]] = [loops.kill, loops.stop, loops.suspend, loops.begin, *troubles.all]
    filling = history.beside(history.fill(history.random.choice((5, 30, 60))))
    for _ in range(history.random.choice((2, 5, 10))):
        yield history.random.choice((0.05, 0.5, 3.0, 15.0, 75.0))
        history.random.choice(actions)()
        loops.check_ends()
        if not loops.running and history.random.random() < 0.7:
            loops.start()
    troubles.end()
    yield from history.until(lambda: filling.over, 600.0, "the topic is not filled")
    if not loops.running:
        loops.start()
    yield history.quiet
    yield from history.fill(6 * history.partitions)
    yield history.quiet
    loops.check_ends()
    loops.check_shut_out()
    for each in loops.running:
        each.stop.set()
    yield from history.ended([each.program for each in loops.all], history.patience)
    yield from _drained(history, loops)


def _drained(history: KafkaHistory, loops: _Loops) -> Script:
    last = loops.start(once=True)
    yield from history.ended([last.program], history.patience)
    yield 30.0  # markers are under way
    loops.check_ends()
    history.check(last.program.failure is None, f"the last loop ended with {last.program.failure!r}")
    history.check_output()
    history.check_marks_at_the_end()


def run_loops(seed: int) -> KafkaHistory:
    """Run the history of a seed."""
    return run_kafka_history(_loops, seed)


def run_loops_on_clusters(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on other clusters."""
    return run_kafka_history(_loops, seed, ClustersHistory)


def run_loops_by_the_clock(seed: int) -> KafkaHistory:
    """Run the history of a seed with routes that read `now()`, to several clusters."""
    return run_kafka_history(_loops, seed, MomentsHistory)


def run_edited_loops(seed: int) -> KafkaHistory:
    """Run the history of a seed whose routes are edited between two starts, to several clusters."""
    return run_kafka_history(_loops, seed, EditsHistory)


def run_edited_loops_to_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed whose routes are edited between two starts, with output on Pulsar."""
    return run_kafka_history(_loops, seed, PulsarEditsHistory)


def run_edited_loops_within_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed whose routes are edited between two starts, with everything on Pulsar."""
    return run_kafka_history(_loops, seed, WithinPulsarEditsHistory)


def run_loops_to_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on Pulsar."""
    return run_kafka_history(_loops, seed, PulsarHistory)


def run_loops_within_pulsar(seed: int) -> KafkaHistory:
    """Run the history of a seed with loops that read Pulsar, and everything on Pulsar."""
    return run_kafka_history(_loops, seed, WithinPulsarHistory)


def run_loops_to_both(seed: int) -> KafkaHistory:
    """Run the history of a seed with output on Kafka and Pulsar."""
    return run_kafka_history(_loops, seed, PulsarFanOutHistory)
