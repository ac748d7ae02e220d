"""A record for more targets than a loop has patience: each of their batches may be full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.record import KafkaRecord

Trials = Callable[..., Any]


def event(number: int) -> KafkaRecord:
    attributes = {"specversion": "1.0", "id": str(number % 10), "source": "/s", "type": "a"}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in attributes.items())
    return KafkaRecord(key=b"k", value=b"x" * 50, headers=headers)


@pytest.mark.parametrize("routes", [3, 12])
def test_full_batches_of_many_targets_do_not_change_what_is_counted(trial_of: Trials, routes: int) -> None:
    trial = trial_of(*(RoutePlan(name=f"route-{n}", where=parse_sql("type = 'a'")) for n in range(routes)))
    records = [event(n) for n in range(60)] + [KafkaRecord(value=b"no event") for _ in range(5)]
    assert trial.routed(records, batch_bytes=2000) == trial.expected(records)
    assert trial.slow == 5, "a full batch makes no record uncertain"
