"""A route whose condition is Spark's own SQL, in a job on real Kafka: it chooses, counts, and never fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PipelineError
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import read_dead_letter
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server


def order(id: int, raw: bytes) -> KafkaRecord:
    attributes = {"id": str(id), "source": "/shop", "type": "placed", "datacontenttype": "application/json"}
    return KafkaBinding().encode(CloudEvent(attributes, raw), key=b"k")


def test_events_are_chosen_and_everything_is_accounted_for(
    project: Callable[..., Any], spark: SparkSession
) -> None:
    made = project().create().write({"sql": "data:total::int >= 100", "set": {"subject": "id"}})
    raws = [b'{"total":150}', b'{"total":50}', b'{"total":"many"}', b"{", b'{"total":100}']
    made.produce([*(order(number, raw) for number, raw in enumerate(raws)), KafkaRecord(value=b"plain")])
    totals = made.run(spark)
    assert {name: count for name, count in totals.counts.items() if count} == {
        "n_in": 6,
        "n_out": 2,
        "n_unmatched": 3,
        "n_dead": 1,
    }
    events = [KafkaBinding().decode(record) for record in made.read("out")]
    assert [(event.subject, event.get("causationid")) for event in events] == [("0", "0"), ("4", "4")]
    (letter,) = (read_dead_letter(KafkaBinding().decode(record)) for record in made.read("dead"))
    assert (letter.code, letter.record.value) == ("not-a-cloudevent", b"plain")


def test_a_condition_that_spark_cannot_take_stops_before_anything_is_read(
    project: Callable[..., Any], spark: SparkSession
) -> None:
    made = project().create().write({"sql": "no_such_column > 1"})
    with pytest.raises(PipelineError, match="route r has a condition that Spark cannot take"):
        made.run(spark)
