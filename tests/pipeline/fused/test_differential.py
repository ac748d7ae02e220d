"""The kernel against the stage: the same records byte by byte, order, partition and counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.record import KafkaRecord

Records = Callable[[random.Random, int], list[KafkaRecord]]
Trials = Callable[[random.Random], Any]


def check(seed: int, plans: int, trial_by: Trials, records_by: Records) -> None:
    dice = random.Random(seed)
    records = records_by(dice, 2000)
    seen = slow = 0
    for _ in range(plans):
        trial = trial_by(dice)
        trial.check(records)
        seen, slow = seen + trial.seen, slow + trial.slow
    # The kernel has to do something: of the nasty records, too, many are plain enough.
    assert slow < 0.8 * seen


@pytest.mark.parametrize("seed", range(4))
def test_generated_plans_on_generated_events(seed: int, trial_by: Trials, records_by: Records) -> None:
    check(seed, 25, trial_by, records_by)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_generated_plans(seed: int, trial_by: Trials, records_by: Records) -> None:
    check(seed, 100, trial_by, records_by)


def test_slots_that_hold_few_records(trial_by: Trials, records_by: Records) -> None:
    dice = random.Random(7)
    records = records_by(dice, 300)
    for _ in range(5):
        trial_by(dice).check(records, batch_bytes=dice.choice([300, 700, 2000]))


def test_more_partitions_than_slots(trial_by: Trials, records_by: Records) -> None:
    dice = random.Random(8)
    trial = trial_by(dice)
    trial.partitions = 100
    records = [
        KafkaRecord(key=str(number).encode(), value=record.value, headers=record.headers)
        for number, record in enumerate(records_by(dice, 500))
    ]
    trial.check(records, batch_bytes=4000)


def test_records_with_the_headers_of_the_one_before(trial_by: Trials, records_by: Records) -> None:
    dice = random.Random(9)
    # Runs of records whose headers have the same names in the same order, with all sorts of values.
    records = sorted(records_by(dice, 1500), key=lambda record: [name for name, _ in record.headers])
    for _ in range(4):
        trial_by(dice).check(records)
