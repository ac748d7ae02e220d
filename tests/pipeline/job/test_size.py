"""Records that a topic is too small for: never written, never lost, never a reason to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from routed import rows_of

from penstock.errors import InvalidEvent
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter, restore
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.ports import Target
from penstock.pipeline.size import batch_bytes
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord

EVENT = CloudEvent({"id": "1", "source": "/s", "type": "t"}, b"x" * 1000)


def outputs(record: KafkaRecord, limit: int, dead_limit: int | None) -> list[dict[str, object]]:
    target, dead = Target(topic="out", limit=limit), Target(topic="dead", limit=dead_limit)
    route = StageRoute(plan=RoutePlan(name="r"), targets=(target,), dead=dead)
    origin: dict[str, Any] = {"topic": "in", "partition": 3, "offset": 7, "timestamp": 1000}
    stage = Stage(pipeline="p", routes=(route,), dead=dead)
    rows, counts = rows_of(stage, [replace(record, **origin)])
    assert counts["n_out"] + counts["n_dead"] == len(rows) == 1
    return rows


def event_of(row: dict[str, object]) -> CloudEvent:
    headers = tuple((pair["key"], pair["value"]) for pair in row["headers"])  # type: ignore[attr-defined]
    return KafkaBinding().decode(KafkaRecord(value=row["value"], headers=headers))  # type: ignore[arg-type]


def test_a_record_is_written_up_to_the_limit_of_its_topic() -> None:
    record = KafkaBinding().encode(EVENT, key=b"k")
    (row,) = outputs(record, batch_bytes(record), None)
    assert row["topic"] == "out"


def test_a_larger_one_is_a_dead_letter_that_says_how_large() -> None:
    record = KafkaBinding().encode(EVENT, key=b"k")
    size = batch_bytes(record)
    (row,) = outputs(record, size - 1, None)
    letter = read_dead_letter(event_of(row))
    assert row["topic"] == "dead"
    assert (letter.code, letter.reason) == ("too-large", f"{size} bytes; out takes {size - 1}")
    assert (restore(event_of(row)).value, row["key"]) == (record.value, b"k")


def test_a_dead_letter_that_is_too_large_itself_says_where_the_record_is() -> None:
    (row,) = outputs(KafkaBinding().encode(EVENT, key=b"k" * 2000), 500, 1500)
    event = event_of(row)
    letter = read_dead_letter(event)
    assert not letter.kept
    assert (letter.record.topic, letter.record.partition, letter.record.offset) == ("in", 3, 7)
    with pytest.raises(InvalidEvent, match="too large"):
        restore(event)
