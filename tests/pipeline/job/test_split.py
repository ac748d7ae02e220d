"""A large partition that several tasks share, and sources whose promises do not allow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.delivery import offset_ranges
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.range_planner import Planner
from penstock.pipeline.job import Job, JobOptions, Watcher, fused
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

Make = Callable[..., Any]


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def record(number: int) -> KafkaRecord:
    return KafkaBinding().encode(CloudEvent({"id": f"e-{number}", "source": "/s", "type": "t"}, b"x"))


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[OffsetRange]]:
    """What the tasks were given: on three slots, where a hundred records are enough for a task."""
    monkeypatch.setattr(offset_ranges, "ENOUGH", 100)
    monkeypatch.setattr(fused, "_slots", lambda spark: lambda: 3)
    given: list[Sequence[OffsetRange]] = []
    divide = Planner.shares

    def seen(self: Planner, *batch: Any) -> Any:
        found = divide(self, *batch)
        given.extend(found)
        return found

    monkeypatch.setattr(Planner, "shares", seen)
    return given


def run(shop: Any, spark: SparkSession, **options: Any) -> list[str]:
    seen = Notes()
    with Job(shop.pipeline(), JobOptions(engine="spark", once=True, split=True, **options)) as job:
        job.watch(seen)
        job.prepare()
        job.run(spark)
    return [note for note in seen.notes if "--split" in note]


def numbers(shop: Any) -> Counter[str]:
    return Counter(KafkaBinding().decode(each).id for each in shop.read("out"))


def test_a_large_partition_is_shared_by_all_slots(
    project: Make, spark: SparkSession, shares: list[Sequence[OffsetRange]]
) -> None:
    shop = project().create(partitions=1).write({"ordering": "none"})
    shop.produce(map(record, range(1000)))
    assert run(shop, spark, exactly_once=False) == []
    assert sorted((span.start, span.end) for (span,) in shares) == [(0, 333), (333, 666), (666, 1000)]
    # The next batch goes on behind them, also without cuts and with marks.
    shop.produce(map(record, range(1000, 1010)))
    assert shop.run(spark, engine="spark").counts["n_in"] == 10
    assert numbers(shop) == Counter(f"e-{number}" for number in range(1010))


@pytest.mark.parametrize(
    ("ordering", "exactly_once", "why"),
    [
        ("none", True, "exactly once, a partition has one transaction at a time"),
        ("key", False, "route r keeps the order of its records"),
    ],
)
def test_a_partition_is_not_cut_against_a_promise(
    project: Make,
    spark: SparkSession,
    shares: list[Sequence[OffsetRange]],
    ordering: str,
    exactly_once: bool,
    why: str,
) -> None:
    shop = project().create(partitions=1).write({"ordering": ordering})
    shop.produce(map(record, range(1000)))
    (note,) = run(shop, spark, exactly_once=exactly_once)
    assert f"--split cuts no partition: {why}" in note
    assert [(span.start, span.end) for share in shares for span in share] == [(0, 1000)]
    assert [KafkaBinding().decode(each).id for each in shop.read("out")] == [f"e-{n}" for n in range(1000)]
