"""The public DataFrame API on real Kafka: a batch over a range, a stream, rejects, and credentials' way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import penstock.spark
from penstock.embedded.kafka import Kafka
from penstock.errors import UsageError
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.spark import read_events, read_records, rejects_from, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = """
asyncapi: 3.0.0
info: {title: notebook, version: 1.0.0}
servers: {kafka: {host: 'BOOTSTRAP', protocol: kafka}}
channels:
  in: {address: PREFIX.in, messages: {m: {$ref: '#/components/messages/m'}}}
  out: {address: PREFIX.out, messages: {m: {$ref: '#/components/messages/m'}}}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  onOut: {action: receive, channel: {$ref: '#/channels/out'}}
  toOut: {action: send, channel: {$ref: '#/channels/out'}}
  onOrderPlaced: {action: receive, channel: {$ref: '#/channels/in'}}
  publishLargeOrder: {action: send, channel: {$ref: '#/channels/out'}}
components:
  messages:
    m: {contentType: application/cloudevents+json}
"""


def test_what_is_public_is_said() -> None:
    names = {name for name in vars(penstock.spark) if name in penstock.spark.__all__}
    assert sorted(names) == penstock.spark.__all__


def test_an_operation_of_the_wrong_action_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "asyncapi.yaml"
    path.write_text(CONTRACT.replace("BOOTSTRAP", "localhost:9092"))
    session: object = None
    with pytest.raises(UsageError, match="action send, here receive"):
        read_events(session, path, "toOut")  # type: ignore[arg-type]


def test_a_moment_needs_an_offset_and_a_stream_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "asyncapi.yaml"
    path.write_text(CONTRACT.replace("BOOTSTRAP", "localhost:9092"))
    session: object = None
    with pytest.raises(UsageError, match="no moment"):
        read_events(session, path, "onIn", stream=False, starting=datetime(2026, 1, 1))  # type: ignore[arg-type] # noqa: DTZ001
    with pytest.raises(UsageError, match="no end"):
        read_events(session, path, "onIn", ending="latest")  # type: ignore[arg-type]


@pytest.fixture
def contract(kafka: Kafka, tmp_path: Path) -> Iterator[Path]:
    """A contract whose topics hold ten orders and one record that is none."""
    path = tmp_path / "asyncapi.yaml"
    path.write_text(CONTRACT.replace("BOOTSTRAP", kafka.bootstrap).replace("PREFIX", tmp_path.name))
    admin = AdminClient(kafka.client_options())
    names = [f"{tmp_path.name}.in", f"{tmp_path.name}.out"]
    for done in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        done.result(30)
    producer = Producer(kafka.client_options())
    for number in range(10):
        attributes = {
            "id": str(number),
            "source": "/shop",
            "type": "t",
            "datacontenttype": "application/json",
        }
        record = KafkaBinding().encode(CloudEvent(attributes, b'{"total":%d}' % number), key=b"k")
        producer.produce(names[0], record.value, record.key, headers=list(record.headers))
    producer.produce(names[0], b"plain")
    assert producer.flush(30) == 0
    yield path
    admin.delete_topics(names)


@pytest.mark.server
def test_a_batch_over_a_range_of_offsets_or_of_time(spark: SparkSession, contract: Path) -> None:
    batch = read_events(spark, contract, "onIn", stream=False, starting={0: 2}, ending={0: 6}, data="variant")
    assert [row[0] for row in batch.selectExpr("data:total::int").collect()] == [2, 3, 4, 5]
    later = datetime.now(UTC) + timedelta(days=1)
    records = read_records(
        spark, contract, "onIn", stream=False, starting=later - timedelta(days=2), ending=later
    )
    rejects = rejects_from(records).collect()
    assert [(row["code"], bytes(row["value"]), row["origin"]["offset"]) for row in rejects] == [
        ("not-a-cloudevent", b"plain", 10)
    ]


@pytest.mark.server
def test_a_stream_is_read_and_written(spark: SparkSession, contract: Path, tmp_path: Path) -> None:
    events = read_events(spark, contract, "onIn", data="string")
    large = events.where("get_json_object(data, '$.total') >= 5").withColumn("subject", events["id"])
    query = write_events(
        large,
        contract,
        "toOut",
        mode="structured",
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    assert query is not None
    query.awaitTermination(200)
    assert query.exception() is None
    written = read_events(spark, contract, "onOut", stream=False).orderBy("id").collect()
    assert [(row["id"], row["subject"], row["mode"], bytes(row["key"])) for row in written] == [
        (str(number), str(number), "structured", b"k") for number in range(5, 10)
    ]


@pytest.mark.server
def test_the_example_of_the_docs_runs(
    spark: SparkSession, contract: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "pipeline" / "dataframes.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(contract.parent)
    exec(compile(example, "dataframes.md", "exec"), {})
    assert "not-a-cloudevent" in capsys.readouterr().out
    written = read_events(spark, contract, "onOut", stream=False).orderBy("id").collect()
    assert [(row["id"], bytes(row["key"])) for row in written] == [
        (str(number), str(number).encode()) for number in range(5, 10)
    ]


@pytest.mark.server
def test_a_stream_needs_a_checkpoint(spark: SparkSession, contract: Path) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        write_events(read_events(spark, contract, "onIn"), contract, "toOut")
