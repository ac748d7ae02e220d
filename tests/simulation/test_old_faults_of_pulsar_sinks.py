"""The simulator can fail: faults of the delivery to Pulsar are noticed within so many histories."""

from __future__ import annotations

import secrets
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar import AccessMode
from penstock.pipeline.delivery import kafka_sink, loop, loop_run
from penstock.pipeline.delivery.pulsar import progress as pulsar_progress
from penstock.pipeline.delivery.pulsar import sink as pulsar_sink
from penstock.pipeline.delivery.pulsar.output import PulsarOutput
from penstock.pipeline.delivery.pulsar.placement import Placement
from penstock.pipeline.delivery.pulsar.producer_names import producer_name
from penstock.pipeline.delivery.pulsar.sink import PulsarSink
from penstock.pipeline.evaluators.kernel.batch_builder import GrowingIds
from simulator.fusing_loops import (
    run_edited_loops_to_pulsar,
    run_loops_to_pulsar,
    run_loops_within_pulsar,
)
from simulator.fusing_ranges import (
    run_range_tasks_to_both,
    run_range_tasks_to_pulsar,
    run_range_tasks_within_pulsar,
    run_row_tasks_within_pulsar,
)
from simulator.history import failing_seed

Patch = pytest.MonkeyPatch
MOST = 300


def ids_that_are_believed(patch: Patch) -> None:
    """Records up to the id that a broker told were left out, though it had failed to store them."""
    real = PulsarSink._stored

    async def stored(self: Any, source: Any, topic: str, producer: Any) -> int | None:
        last = producer.last_sequence_id
        return last if last >= 0 else await real(self, source, topic, producer)

    patch.setattr(PulsarSink, "_stored", stored)


def a_forgotten_name_that_counts_as_new(patch: Patch) -> None:
    """What was stored under a name that the broker had forgotten was written again."""
    real = PulsarSink._stored

    async def stored(self: Any, source: Any, topic: str, producer: Any) -> int | None:
        last = producer.last_sequence_id
        return last if last < 0 else await real(self, source, topic, producer)

    patch.setattr(PulsarSink, "_stored", stored)


def deduplication_that_is_left_to_the_broker(patch: Patch) -> None:
    """A broker drops a whole entry if its first record is stored: the others were lost."""
    real = PulsarSink._open

    async def opened(self: Any, *where: int) -> Any:
        lane = await real(self, *where)
        lane.stored = lane.put = -1
        return lane

    patch.setattr(PulsarSink, "_open", opened)
    patch.setattr(pulsar_sink.Receipt, "is_duplicate", False)


def a_name_of_its_own(patch: Patch) -> None:
    """Each attempt had producers of its own, so that no broker knew its records."""

    def named(source: Any, target: Any, partition: int) -> str:
        return f"{producer_name(source, target, partition)}-{secrets.token_hex(4)}"

    patch.setattr(pulsar_sink, "producer_name", named)


def a_placement_that_is_not_kept(patch: Patch) -> None:
    """A second run divided records among the partitions that the topic had by then."""
    real = kafka_sink.read_placement

    def read(text: str) -> Placement | None:
        found = real(text)
        return None if found is None else replace(found, partitions={})

    patch.setattr(kafka_sink, "read_placement", read)


def partitions_that_are_adopted_without_a_mark(patch: Patch) -> None:
    """What was done again after a refusal was divided among more partitions than before."""
    never = property(lambda self: None, lambda self, value: None)
    patch.setattr(kafka_sink.FanOut, "_former_partitions", never, raising=False)


def a_mark_before_the_receipts(patch: Patch) -> None:
    """Marks were committed while entries were under way."""
    patch.setattr(PulsarOutput, "flush", lambda self: None)


def refused_records_that_count_as_stored(patch: Patch) -> None:
    """A record that the topic does not take was left out by a second run, which knew no letter of it."""
    patch.setattr(PulsarSink, "_refuse_left_out", lambda *_: None)


def ids_of_offsets(patch: Patch) -> None:
    """Records that share an offset had one id, so all but the first were left out."""
    patch.setattr(GrowingIds, "of", lambda self, target, partition, source, ids: ids)


def marks_with_several_owners(patch: Patch) -> None:
    """Who opened the topic with the marks shut nobody out."""
    shared = SimpleNamespace(EXCLUSIVE_WITH_FENCING=AccessMode.SHARED)
    patch.setattr(pulsar_progress, "AccessMode", shared)


def an_edit_that_forgets_what_was_begun(patch: Patch) -> None:
    """What Pulsar had behind the mark was routed by the new plan, under other producers."""
    patch.setattr(loop.Loop, "_begun", lambda self, cluster: None)


def an_edit_that_finishes_nothing(patch: Patch) -> None:
    """The plan that began a range was asked, and not told how far the range had come."""
    patch.setattr(kafka_sink.FanOut, "stored_ends", lambda self: {})


def an_end_that_leaves_something_open(patch: Patch) -> None:
    """A loop that ended behind a refusal said that nothing was open, and Pulsar had a part of it."""
    patch.setattr(loop_run.LoopRun, "begun_until", lambda self, ends: None)


NAMES = (ids_that_are_believed, a_forgotten_name_that_counts_as_new)


@pytest.mark.parametrize(
    "fault",
    [
        *NAMES,
        deduplication_that_is_left_to_the_broker,
        a_name_of_its_own,
        a_placement_that_is_not_kept,
        a_mark_before_the_receipts,
        refused_records_that_count_as_stored,
    ],
)
def test_a_fault_of_ranges_to_pulsar_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_range_tasks_to_pulsar, MOST) is not None


@pytest.mark.parametrize(
    "fault",
    [
        ids_of_offsets,
        marks_with_several_owners,
        a_name_of_its_own,
        a_placement_that_is_not_kept,
        a_mark_before_the_receipts,
    ],
)
def test_a_fault_of_rows_within_pulsar_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_row_tasks_within_pulsar, MOST) is not None


def test_a_fault_of_ranges_to_both_is_noticed(monkeypatch: Patch) -> None:
    partitions_that_are_adopted_without_a_mark(monkeypatch)
    assert failing_seed(run_range_tasks_to_both, MOST) is not None


@pytest.mark.parametrize(
    "fault",
    [
        *(pytest.param(fault, marks=pytest.mark.soak) for fault in NAMES),  # after a minute
        a_name_of_its_own,
        a_mark_before_the_receipts,
    ],
)
def test_a_fault_of_loops_to_pulsar_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_loops_to_pulsar, MOST) is not None


@pytest.mark.parametrize(
    "fault",
    [
        an_edit_that_forgets_what_was_begun,
        an_edit_that_finishes_nothing,
        an_end_that_leaves_something_open,
    ],
)
def test_a_fault_of_edits_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run_edited_loops_to_pulsar, MOST) is not None


@pytest.mark.parametrize("run", [run_loops_within_pulsar, run_range_tasks_within_pulsar])
@pytest.mark.parametrize("fault", [marks_with_several_owners, a_name_of_its_own, a_mark_before_the_receipts])
def test_a_fault_within_pulsar_is_noticed(fault: Any, run: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(run, MOST) is not None
