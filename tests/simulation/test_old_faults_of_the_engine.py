"""The simulator can fail: faults of the delivery and its client are noticed within so many histories."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from penstock.brokers.kafka_raw.transaction import TransactionalProducer
from penstock.errors import ProducerFenced
from penstock.pipeline.delivery import (
    kafka_sink,
    loop,
    loop_run,
    partition_reader,
    range_delivery,
    refused_records,
    task_sink,
)
from penstock.pipeline.delivery import sink as sink_module
from penstock.pipeline.delivery.range_clock import RangeClock
from simulator.fusing_loops import run_edited_loops, run_loops, run_loops_by_the_clock, run_loops_on_clusters
from simulator.fusing_ranges import (
    run_range_tasks,
    run_range_tasks_by_the_clock,
    run_range_tasks_on_clusters,
    run_row_tasks,
    run_row_tasks_on_clusters,
)
from simulator.history import failing_seed

Patch = pytest.MonkeyPatch
MOST = 300


def a_commit_without_a_flush(patch: Patch) -> None:
    """A loop committed the marks of records that its machine still held."""
    real = loop_run.LoopRun._commit

    def commit(self: Any, **how: Any) -> None:
        if self._feed.collects:
            # Of what was only collected nothing is committed, flushed or not.
            real(self, **how)
            return
        self._feed.flush = lambda: None
        try:
            real(self, **how)
        finally:
            del self._feed.flush

    patch.setattr(loop_run.LoopRun, "_commit", commit)


def marks_before_the_flush(patch: Patch) -> None:
    """Marks were committed before the output was acknowledged."""

    def commit(self: Any, marks: Any) -> None:
        self._marks.commit(sink_module.offsets_of(self._topic, marks))
        for producer in self._producers.values():
            producer.flush()

    patch.setattr(sink_module.IdempotentSink, "commit", commit)


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

    patch.setattr(sink_module, "TransactionalProducer", made)


def aborted_records_that_are_read(patch: Patch) -> None:
    """Records of aborted transactions were read as if they counted."""
    patch.setattr(partition_reader, "visible", lambda data, aborted: [data] if data else [])


def refused_records_that_are_passed_over(patch: Patch) -> None:
    """Behind a refused batch the loop went on, and what was not committed was lost."""

    def skip(*args: Any) -> dict[int, int]:
        *_, end, commit = args
        commit(end, {})
        return {}

    patch.setattr(loop_run, "redo", skip)
    patch.setattr(range_delivery, "redo", skip)


def a_transaction_that_goes_on_behind_a_refusal(patch: Patch) -> None:
    """What was written beside a refused batch was committed, and written again."""
    patch.setattr(sink_module.TransactionalSink, "restart", lambda self: None)


def a_machine_that_is_kept_after_a_refusal(patch: Patch) -> None:
    """Records that a machine held when its transaction was aborted were written by the next one."""
    real = partition_reader.PartitionReader.rewind

    def rewind(self: Any, positions: Any, limits: Any = None) -> None:
        held = self._machine
        real(self, positions, limits)
        self._machine = held

    patch.setattr(partition_reader.PartitionReader, "rewind", rewind)


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
    patch.setattr(partition_reader.PartitionReader, "flush", lambda self: None)


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


def a_cluster_that_is_ahead_is_written_again(patch: Patch) -> None:
    """After a crash between two commits a cluster got what it had."""
    patch.setattr(kafka_sink.FanOut, "skip", lambda self, sinks: None)


def marks_that_were_read_before_the_fence(patch: Patch) -> None:
    """A mark that a predecessor committed while it was being shut out was not seen."""
    real, seen = kafka_sink.FanOut.__init__, kafka_sink.committed_marks

    def early(self: Any, work: Any, cluster: Any, name: str) -> None:
        cluster.early = seen(work, cluster)
        real(self, work, cluster, name)

    patch.setattr(kafka_sink.FanOut, "__init__", early)
    for module in (kafka_sink, loop):
        patch.setattr(module, "committed_marks", lambda work, cluster, **_: cluster.early)


def letters_in_the_transaction_of_their_cluster(patch: Patch) -> None:
    """The mark of a cluster that refused a record was committed before its letter on another one."""
    patch.setattr(refused_records.RowNarrowing, "_late", lambda *_: {})


def commits_one_by_one(patch: Patch) -> None:
    """A cluster was committed before the others had everything: what they refused had no letter."""

    def commit(self: Any, marks: Any) -> None:
        for sink, each in self._sinks.items():
            if sink not in self._skipped:
                self._on(sink, lambda each=each, sink=sink: each.commit(self._not_below(sink, marks)))

    patch.setattr(kafka_sink.FanOut, "commit", commit)


def a_moment_for_each_fetch(patch: Patch) -> None:
    """`now()` was the time of the fetch: a second evaluation sent a record to another cluster."""
    patch.setattr(RangeClock, "read", lambda self: time.time_ns() // 1000)


def marks_without_their_moment(patch: Patch) -> None:
    """What a cluster lacked was evaluated with a new moment after a crash."""
    for module in (kafka_sink, loop):
        patch.setattr(module, "moment_of", lambda marks: None)


def a_claim_that_forgets_the_moment(patch: Patch) -> None:
    """A loop that was killed between its claim and what it had to catch up with left marks without it."""
    real = loop_run.LoopRun.claim
    patch.setattr(loop_run.LoopRun, "claim", lambda self, moments, begun: real(self, {}, begun))


@pytest.mark.parametrize("fault", [a_moment_for_each_fetch, marks_without_their_moment])
def test_a_fault_of_moments_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_range_tasks_by_the_clock, MOST) is not None


def an_edit_that_forgets_what_was_begun(patch: Patch) -> None:
    """What lay between the marks of two clusters was routed by the new plan, and written twice."""
    patch.setattr(loop.Loop, "_begun", lambda self, cluster: None)


def test_a_fault_of_edits_is_noticed(monkeypatch: Patch) -> None:
    an_edit_that_forgets_what_was_begun(monkeypatch)
    assert failing_seed(run_edited_loops, MOST) is not None


@pytest.mark.soak
@pytest.mark.parametrize("fault", [marks_without_their_moment, a_claim_that_forgets_the_moment])
def test_a_fault_of_moments_in_loops_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_loops_by_the_clock, 20 * MOST) is not None


OF_CLUSTERS = (a_cluster_that_is_ahead_is_written_again, marks_that_were_read_before_the_fence)


@pytest.mark.parametrize(
    "fault", [*OF_CLUSTERS, letters_in_the_transaction_of_their_cluster, commits_one_by_one]
)
def test_a_fault_of_ranges_on_clusters_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_range_tasks_on_clusters, MOST) is not None


@pytest.mark.parametrize(
    "fault",
    [pytest.param(OF_CLUSTERS[0], marks=pytest.mark.soak), *OF_CLUSTERS[1:]],  # after some hundred histories
)
def test_a_fault_of_loops_on_clusters_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_loops_on_clusters, MOST) is not None


def rows_before_the_mark_that_are_written(patch: Patch) -> None:
    """A task that was run again wrote all its rows."""
    patch.setattr(task_sink, "_pieces", lambda offsets, marks: [(0, len(offsets), frozenset())])


def a_mark_before_the_rows_are_written(patch: Patch) -> None:
    """The mark was committed while rows were in no batch yet."""
    patch.setattr(task_sink.BatchBuilder, "flush", lambda self: None)


def refused_rows_that_are_left_out(patch: Patch) -> None:
    """What a topic refused was marked and had no letter."""

    def deliver(self: Any, rows: Any, place: Any) -> None:
        self._commit(rows.offsets[-1] + 1, {"n_in": len(rows.records)}, rows)

    patch.setattr(task_sink._PartitionSink, "_deliver_refused", deliver)


@pytest.mark.parametrize(
    "fault",
    [
        rows_before_the_mark_that_are_written,
        a_mark_before_the_rows_are_written,
        refused_rows_that_are_left_out,
    ],
)
def test_a_fault_of_rows_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_row_tasks, MOST) is not None


@pytest.mark.parametrize(
    "fault", [*OF_CLUSTERS, letters_in_the_transaction_of_their_cluster, commits_one_by_one]
)
def test_a_fault_of_rows_on_clusters_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_row_tasks_on_clusters, MOST) is not None
