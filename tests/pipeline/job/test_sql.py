"""A route whose condition is Spark's own SQL, in a job on real Kafka: it chooses, counts, and never fails.

Nothing of it is lost or twice: jobs that are killed are in test_exactly_once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from penstock.errors import PipelineError
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Mode
from penstock.pipeline.counters import COUNTERS
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


MANY = 3000


def mixed() -> Iterator[KafkaRecord]:
    """Events in both modes and with keys of all kinds, tombstones, and what is no event."""
    for number in range(MANY):
        kind, key = number % 50, None if number % 7 == 0 else b"k%d" % (number % 11)
        if kind == 1:
            made = KafkaRecord(value=b"plain %d" % number, key=key)
        elif kind == 2:
            made = KafkaRecord(value=None, key=key)
        else:
            attributes = {"id": str(number), "source": "/shop", "type": "placed"}
            event = CloudEvent(attributes | {"datacontenttype": "application/json"}, total(number % 200))
            made = KafkaBinding(mode=Mode.STRUCTURED if kind % 2 else Mode.BINARY).encode(event, key=key)
        yield replace(made, partition=crc32(key or b"") % 3)


def total(number: int) -> bytes:
    return b'{"total":%d}' % number


def by_key(rows: Iterable[tuple[bytes | None, Any]]) -> dict[bytes | None, list[Any]]:
    """Give the rows of each key in their order; those without a key may be on any partition."""
    found: dict[bytes | None, list[Any]] = {}
    for key, row in rows:
        found.setdefault(key, []).append(row)
    return {**found, None: sorted(found.get(None, []), key=repr)}


def letters(made: Any) -> Iterator[tuple[bytes | None, Any]]:
    for record in made.read("dead"):
        letter = read_dead_letter(KafkaBinding().decode(record))
        yield letter.record.key, (letter.code, letter.record.value, letter.route)


def test_a_condition_of_spark_gives_what_the_same_condition_of_a_route_gives(
    project: Callable[..., Any], spark: SparkSession, tmp_path: Path
) -> None:
    found = {}
    for name, condition in (("where", "data.total >= 100"), ("sql", "data:total::int >= 100")):
        folder = tmp_path / name
        folder.mkdir()
        made = project(folder=folder).create(partitions=3).write({name: condition, "set": {"subject": "id"}})
        made.produce(mixed())
        totals = made.run(spark, max_offsets=700)
        counts = {key: totals.counts[key] for key in COUNTERS}
        out = by_key((each.key, (each.value, each.headers)) for each in made.read("out"))
        found[name] = counts, out, by_key(letters(made)), totals.batches
    assert found["sql"] == found["where"]
    counts, out, dead, batches = found["sql"]
    assert (counts["n_in"], len(out), len(dead) > 5, batches >= 4) == (MANY, 12, True, True)
    assert 0 < counts["n_unmatched"] < counts["n_out"] < MANY


def aborted(made: Any, records: Iterable[KafkaRecord]) -> None:
    """Write records in a transaction that is aborted."""
    from confluent_kafka import Producer

    producer = Producer({**made.server("in").client_options(), "transactional.id": made.prefix})
    producer.init_transactions(60)
    producer.begin_transaction()
    for record in records:
        producer.produce(made.topic("in"), record.value, record.key, headers=list(record.headers))
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


def test_a_batch_whose_end_spark_did_not_note_is_not_written_again(
    project: Callable[..., Any], spark: SparkSession
) -> None:
    """Its output is committed, and the driver ended before the checkpoint was: Spark runs the batch again."""
    made = project().create(partitions=2).write({"sql": "data:total::int >= 0 OR rand() < 0.5"})
    made.produce(order(number, total(number)) for number in range(100))
    aborted(made, [order(1000, total(1000))])
    assert made.run(spark, max_offsets=60).counts["n_in"] == 100
    (checkpoint,) = (made.folder / ".penstock" / "checkpoints").glob("*/commits")
    newest = max(checkpoint.glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    checkpoint.joinpath(f".{newest.name}.crc").unlink()
    made.produce(order(number, total(number)) for number in range(100, 200))
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        again = made.run(spark, max_offsets=1000)
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert again.batches == 2
    # The batch that is run again counts what it has counted, and writes nothing.
    assert 100 < again.counts["n_in"] == again.counts["n_out"] < 200
    ids = [KafkaBinding().decode(record).id for record in made.read("out")]
    assert ids == [str(number) for number in range(200)]


DOUBLE = """
from penstock.events import Emit

def double(batch):
    return [Emit(event, event) for event in batch]
"""


def test_functions_and_receipts_of_a_route_with_a_condition_of_spark(
    project: Callable[..., Any], spark: SparkSession
) -> None:
    made = project(places={"receipts": "kafka"}).create()
    made.write({"sql": "data:total::int > 1", "apply": "mine:double"})
    (made.folder / "mine.py").write_text(DOUBLE, encoding="utf-8")
    asking = {"source": "/s", "type": "t", "datacontenttype": "application/json", "receiptqueue": "receipts"}
    events = [CloudEvent({"id": str(number), **asking}, total(number)) for number in range(4)]
    made.produce(KafkaBinding().encode(event, key=b"k") for event in events)
    totals = made.run(spark)
    assert (totals.counts["n_in"], totals.counts["n_out"], totals.counts["n_unmatched"]) == (4, 4, 2)
    out = [KafkaBinding().decode(each) for each in made.read("out")]
    assert [event.get("causationid") or event.id for event in out] == ["2", "2", "3", "3"]
    told = [KafkaBinding().decode(each).json() for each in made.read("receipts")]
    assert [(each["id"], each["outcome"], len(each["events"])) for each in told] == [
        ("2", "emitted", 2),
        ("3", "emitted", 2),
    ]


def test_a_condition_that_spark_cannot_take_stops_before_anything_is_read(
    project: Callable[..., Any], spark: SparkSession
) -> None:
    made = project().create().write({"sql": "no_such_column > 1"})
    with pytest.raises(PipelineError, match="route r has a condition that Spark cannot take"):
        made.run(spark)
