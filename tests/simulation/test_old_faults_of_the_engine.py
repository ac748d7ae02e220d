"""The simulator can fail: faults of the fused engine and its client are noticed within so many histories."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.errors import ProducerFenced
from penstock.pipeline.fused import engine, feed, loop, outlet
from simulator.fusing_loops import run_loops
from simulator.fusing_ranges import run_range_tasks
from simulator.history import failing_seed

Patch = pytest.MonkeyPatch
MOST = 300


def a_commit_without_a_flush(patch: Patch) -> None:
    """A loop committed the marks of records that its machine still held."""
    real = loop._Run._commit

    def commit(self: Any, *moved: Any) -> None:
        self._feed.flush = lambda: None
        try:
            real(self, *moved)
        finally:
            del self._feed.flush

    patch.setattr(loop._Run, "_commit", commit)


def marks_before_the_flush(patch: Patch) -> None:
    """Marks were committed before the output was acknowledged."""

    def commit(self: Any, marks: Any) -> None:
        self._marks.commit(outlet._offsets(self._topic, marks))
        self._producer.flush()

    patch.setattr(outlet.Repeatable, "commit", commit)


def an_end_before_the_last_acknowledgment(patch: Patch) -> None:
    """A transaction was committed while batches of it were under way."""

    def commit(self: Any, *, group: str, offsets: Any) -> None:
        with self._inside():
            self._add_new()
            self._producer.drain()
            self._add_offsets(group, offsets)
            self._end(committed=True)

    patch.setattr(TransactionalProducer, "commit", commit)


def a_fenced_loop_that_goes_on(patch: Patch) -> None:
    """Who was shut out took the transactional id back."""
    away = loop._is_away
    patch.setattr(loop, "ProducerFenced", type("Never", (Exception,), {}))
    patch.setattr(loop, "_is_away", lambda exc: isinstance(exc, ProducerFenced) or away(exc))


def a_name_of_its_own(patch: Patch) -> None:
    """Each start had another transactional id, so that nobody was fenced."""
    numbers = count()

    def made(cluster: Any, name: str, **options: Any) -> TransactionalProducer:
        return TransactionalProducer(cluster, f"{name}.{next(numbers)}", **options)

    patch.setattr(outlet, "TransactionalProducer", made)


def aborted_records_that_are_read(patch: Patch) -> None:
    """Records of aborted transactions were read as if they counted."""
    patch.setattr(feed, "visible", lambda data, aborted: [data] if data else [])


def refused_records_that_are_passed_over(patch: Patch) -> None:
    """Behind a refused batch the loop went on, and what was not committed was lost."""

    def skip(*args: Any) -> dict[int, int]:
        *_, end, commit = args
        commit(end, {})
        return {}

    patch.setattr(loop, "redo", skip)
    patch.setattr(engine, "redo", skip)


def a_transaction_that_goes_on_behind_a_refusal(patch: Patch) -> None:
    """What was written beside a refused batch was committed, and written again."""
    patch.setattr(outlet.Exact, "restart", lambda self: None)


def a_machine_that_is_kept_after_a_refusal(patch: Patch) -> None:
    """Records that a machine held when its transaction was aborted were written by the next one."""
    real = feed.Feed.rewind

    def rewind(self: Any, positions: Any, limits: Any = None) -> None:
        held = self._machine
        real(self, positions, limits)
        self._machine = held

    patch.setattr(feed.Feed, "rewind", rewind)


REFUSALS = (
    refused_records_that_are_passed_over,
    a_transaction_that_goes_on_behind_a_refusal,
    a_machine_that_is_kept_after_a_refusal,
)


@pytest.mark.parametrize(
    "fault",
    [
        *REFUSALS[:-1],
        pytest.param(REFUSALS[-1], marks=pytest.mark.soak),  # after some hundred histories
        a_commit_without_a_flush,
        marks_before_the_flush,
        an_end_before_the_last_acknowledgment,
        a_fenced_loop_that_goes_on,
        a_name_of_its_own,
        aborted_records_that_are_read,
    ],
)
def test_a_fault_of_loops_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_loops, MOST) is not None


def a_range_without_a_flush(patch: Patch) -> None:
    """A range was marked as done while its machine still held records."""
    patch.setattr(feed.Feed, "flush", lambda self: None)


@pytest.mark.parametrize(
    "fault",
    [
        *REFUSALS,
        a_range_without_a_flush,
        an_end_before_the_last_acknowledgment,
        a_name_of_its_own,
        marks_before_the_flush,
    ],
)
def test_a_fault_of_ranges_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_range_tasks, MOST) is not None
