"""The simulator can fail: faults that the product once had are noticed within so many histories."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar import AccessMode
from penstock.gateway.groups.offset_table import OffsetTable
from penstock.gateway.pulsar import offsets_log, writer
from penstock.gateway.pulsar.cursor_sync import CursorSync
from penstock.gateway.pulsar.cursors import Spot
from penstock.gateway.pulsar.sequences import Sequences, Standing
from simulator.committing import committing
from simulator.cursors import moving_cursors
from simulator.history import failing_seed, run_history
from simulator.producing import producing

Patch = pytest.MonkeyPatch


def a_falsy_zero(patch: Patch) -> None:
    """Sequence 0 counted as none, so that it was not expected again after two batches had failed."""

    def expect_again(_: Any, producer: Any, first: int) -> None:
        producer.next_sequence = min(producer.next_sequence or first, first)

    patch.setattr(Sequences, "_expect_again", expect_again)


def a_duplicate_that_is_not_stored(patch: Patch) -> None:
    """What came behind the expected sequence was answered as a duplicate, whether it was found or not."""
    answers = dict.fromkeys((Standing.BEHIND, Standing.TAKEN, Standing.PENDING), writer._stored_somewhere)
    patch.setattr(writer, "_MISSING", {**writer._MISSING, **answers})


def no_memory_of_refusals(patch: Patch) -> None:
    """A batch that was refused left no trace: the next one was taken for the first of its producer."""
    patch.setattr(Sequences, "refused", lambda self, batch: None)


@pytest.mark.parametrize(
    ("faults", "most"),
    [([a_falsy_zero], 300), ([a_duplicate_that_is_not_stored, no_memory_of_refusals], 300)],
)
def test_a_fault_of_producing_is_noticed(faults: Any, most: int, monkeypatch: Patch) -> None:
    for fault in faults:
        fault(monkeypatch)
    seen = failing_seed(partial(run_history, producing), most)
    assert seen is not None


def a_sweep_that_does_not_see_commits_under_way(patch: Patch) -> None:
    """A group whose first commit was on its way to the log was removed as empty, and the commit with it."""
    patch.setattr(OffsetTable, "is_storing", lambda self, group_id, place=None: False)


def a_log_that_acknowledges_what_was_refused(patch: Patch) -> None:
    """Records whose entry Pulsar did not confirm were answered as stored."""

    def settle(sent: Any, batch: Any) -> None:
        sent.exception()
        for part in batch:
            if part.is_last and not part.done.done():
                part.done.set_result(None)

    patch.setattr(offsets_log, "_settle", settle)


def a_log_without_fencing(patch: Patch) -> None:
    """Who takes the log asks for it instead of taking it."""
    access = SimpleNamespace(EXCLUSIVE_WITH_FENCING=AccessMode.SHARED)
    patch.setattr(offsets_log, "AccessMode", access)


def a_replay_that_ends_too_early(patch: Patch) -> None:
    """The log was read to the first entry that holds nothing, which compaction leaves."""

    async def replay(client: Any, topic: str, until: Any) -> list[Any]:
        reader = await client.reader(topic, read_compacted=True, convert=offsets_log._converted)
        records: list[Any] = []
        try:
            while True:
                place, found = await reader.read()
                records += found
                if place[:2] >= until[:2] or len(found) < 2:
                    return records
        finally:
            await reader.close()

    patch.setattr(offsets_log, "_replay", replay)


@pytest.mark.parametrize(
    "fault",
    [
        a_sweep_that_does_not_see_commits_under_way,
        a_log_that_acknowledges_what_was_refused,
        a_log_without_fencing,
        a_replay_that_ends_too_early,
    ],
)
def test_a_fault_of_committing_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(partial(run_history, committing), 300) is not None


def cursors_that_no_new_coordinator_looks_at(patch: Patch) -> None:
    """Cursors that another gateway had placed were left where they were."""

    async def take_over(*_: Any) -> None:
        return None

    patch.setattr(CursorSync, "_take_over", take_over)


def subscriptions_that_stay(patch: Patch) -> None:
    """The subscription of a group that was deleted stayed."""

    async def remove_leftover(*_: Any) -> None:
        return None

    patch.setattr(CursorSync, "_remove_leftover", remove_leftover)


def cursors_at_whole_entries(patch: Patch) -> None:
    """A cursor stood at the first message of an entry of which a part was read."""
    patch.setattr(Spot, "is_inside", False)


@pytest.mark.parametrize(
    "fault", [cursors_that_no_new_coordinator_looks_at, subscriptions_that_stay, cursors_at_whole_entries]
)
def test_a_fault_of_cursors_is_noticed(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert failing_seed(partial(run_history, moving_cursors), 300) is not None
