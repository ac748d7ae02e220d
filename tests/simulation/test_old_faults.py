"""The simulator can fail: faults that the product once had are noticed within so many histories."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.gateway.pulsar import writer
from penstock.gateway.pulsar.sequences import Sequences, Standing
from simulator.history import failing_seed
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
    seen = failing_seed(producing, most)
    assert seen is not None
