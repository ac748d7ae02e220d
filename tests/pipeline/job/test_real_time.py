"""Real-Time Mode on real Kafka: records within milliseconds, dead letters beside, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.kafka import Kafka
from penstock.errors import PipelineError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.assembly import Source, sources_of
from penstock.pipeline.compile import Pipeline, check_pipeline, load_pipeline
from penstock.pipeline.deadletter import restore
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher
from penstock.pipeline.job.failure import failure
from penstock.pipeline.job.realtime import require_cores, require_real_time, start_real_time, stops
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = """
asyncapi: 3.0.0
info: {title: quick shop, version: 1.0.0}
servers: {kafka: {host: 'BOOTSTRAP', protocol: kafka}}
channels:
  in: {address: PREFIX.in, messages: {m: {$ref: '#/components/messages/m'}}}
  out: {address: PREFIX.out, messages: {m: {$ref: '#/components/messages/m'}}}
  dead: {address: PREFIX.dead, messages: {m: {$ref: '#/components/messages/m'}}}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  toOut: {action: send, channel: {$ref: '#/channels/out'}}
components:
  messages:
    m: {contentType: application/cloudevents+json}
"""
PIPELINE = """
contract: asyncapi.yaml
accept-differences: true
routes:
  large:
    receive: onIn
    send: toOut
    where: type = 'placed' AND data.total >= 100
    set: {subject: data.customer}
    mode: structured
    delivery: {deadLetterSink: dead}
"""


def write(folder: Path, prefix: str, bootstrap: str, pipeline: str = PIPELINE) -> Path:
    contract = CONTRACT.replace("BOOTSTRAP", bootstrap).replace("PREFIX", prefix)
    (folder / "asyncapi.yaml").write_text(contract)
    (folder / "pipeline.yaml").write_text(pipeline)
    return folder / "pipeline.yaml"


def source_of(pipeline: Pipeline) -> Source:
    (source,) = sources_of(pipeline)
    return source


def refusals(folder: Path, old: str = "", new: str = "") -> list[str]:
    (folder / "real_time_functions.py").write_text("def enrich(batch):\n    return batch\n")
    path = write(folder, "t", "localhost:9092", PIPELINE.replace(old, new))
    checked = check_pipeline(path)
    assert checked.pipeline is not None, checked.findings
    source = source_of(checked.pipeline)
    return list(stops(source))


def test_a_plain_route_fits(tmp_path: Path) -> None:
    assert refusals(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("mode: structured", "apply: real_time_functions:enrich", "a function of Python"),
        ("where: type = 'placed' AND data.total >= 100", "cesql: LOWER(type) = 'a'", "unicode_lower"),
        ("set: {subject: data.customer}", "set: {source: data.customer}", "is a URI"),
        ("mode: structured", "check: schema", "schemas"),
    ],
)
def test_what_columns_cannot_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = refusals(tmp_path, old, new)
    assert why in found


def test_differences_have_to_be_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, "t", "localhost:9092", PIPELINE.replace("accept-differences: true", ""))
    pipeline = load_pipeline(path)
    source = source_of(pipeline)
    with pytest.raises(PipelineError, match="differs from micro-batches") as caught:
        require_real_time(source, pipeline)
    assert "structured mode" in str(caught.value.why)
    assert "accept-differences: true" in str(caught.value.next)


def test_what_spark_refuses_later_is_told_in_our_words() -> None:
    refused = "[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] MapInArrowExec is not supported"
    found = failure(RuntimeError(refused), "kafka-orders", {})
    assert found.what == "Spark refused the query in Real-Time Mode"
    assert "MapInArrowExec" in str(found.why)


class OneCore:
    """A session that has one core."""

    class sparkContext:
        """As Spark has it."""

        defaultParallelism = 1


def test_each_partition_needs_a_core() -> None:
    session: Any = OneCore()
    require_cores(session, 1)
    with pytest.raises(PipelineError, match="a core for each of 3 partitions") as caught:
        require_cores(session, 3)
    assert "local[3,4]" in str(caught.value.next)


@contextmanager
def topics(kafka: Kafka, prefix: str) -> Iterator[list[str]]:
    names = [f"{prefix}.{name}" for name in ("in", "out", "dead")]
    admin = AdminClient(kafka.client_options())
    for done in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        done.result(30)
    try:
        yield names
    finally:
        admin.delete_topics(names)


def headers(id: str, **more: bytes | None) -> list[tuple[str, bytes | None]]:
    own = {"specversion": b"1.0", "id": id.encode(), "source": b"/shop", "type": b"placed"}
    return [(f"ce_{name}", text) for name, text in own.items()] + [("content-type", b"application/json")]


def await_records(consumer: Consumer, count: int, seconds: float) -> list[Any]:
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    return found


@pytest.mark.server
def test_a_job_counts_at_each_boundary_and_ends_after_one(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    with topics(kafka, "job") as (source_topic, _, _), ExitStack() as stack:
        producer = Producer(kafka.client_options())
        for number in range(30):
            producer.produce(source_topic, b'{"total":%d}' % (number * 10), headers=headers(f"e{number}"))
        producer.produce(source_topic, b"plain")
        assert producer.flush(30) == 0
        pipeline = load_pipeline(write(tmp_path, "job", kafka.bootstrap))
        pipeline = replace(pipeline, checkpoint=tmp_path / "checkpoints")
        job = stack.enter_context(Job(pipeline, JobOptions(real_time=True, interval=5)))

        class Stopper(Watcher):
            def batch(self, progress: Progress) -> None:
                if job.totals[progress.source].counts["n_in"] >= 31:
                    job.stop()

        job.watch(Stopper())
        job.prepare()
        job.run(spark)
    (totals,) = job.totals.values()
    assert {name: totals.counts[name] for name in ("n_in", "n_out", "n_dead", "n_unmatched")} == {
        "n_in": 31, "n_out": 20, "n_dead": 1, "n_unmatched": 10,
    }  # fmt: skip


@pytest.mark.server
def test_records_flow_and_malformed_ones_are_dead_letters(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    with topics(kafka, "quick") as (source_topic, out, dead):
        pipeline = load_pipeline(write(tmp_path, "quick", kafka.bootstrap))
        query = start_real_time(
            spark, source_of(pipeline), pipeline, checkpoint=tmp_path / "checkpoint", interval=5
        )
        consumer = Consumer({**kafka.client_options(), "group.id": "quick", "auto.offset.reset": "earliest"})
        consumer.subscribe([out, dead])
        producer = Producer({**kafka.client_options(), "linger.ms": 0})
        try:
            producer.produce(source_topic, b'{"total":100,"customer":"c"}', b"k", headers=headers("first"))
            producer.flush(30)
            (first,) = await_records(consumer, 1, 90)
            assert query.exception() is None
            sent = {}
            for number in range(20):
                producer.produce(
                    source_topic,
                    b'{"total":%d,"customer":"c"}' % (number * 10),
                    b"k",
                    headers=headers(f"e{number}"),
                )
                producer.flush(30)
            broken = KafkaRecord(value=b"{", key=b"\xff", headers=(("ce_id", b"\xff"), ("app", None)))
            producer.produce(source_topic, broken.value, broken.key, headers=list(broken.headers))
            producer.flush(30)
            found = await_records(consumer, 11, 60)
        finally:
            query.stop()
            consumer.close()
    assert first.topic() == out
    events = [message for message in found if message.topic() == out]
    for message in events:
        event = KafkaBinding().decode(KafkaRecord(value=message.value(), headers=tuple(message.headers())))
        sent[event.get("causationid")] = event.subject
    assert sent == {f"e{number}": "c" for number in range(10, 20)}
    (letter,) = (message for message in found if message.topic() == dead)
    record = restore(
        KafkaBinding().decode(KafkaRecord(value=letter.value(), headers=tuple(letter.headers())))
    )
    assert (record.key, record.value, record.headers) == (broken.key, broken.value, broken.headers)
    assert (record.topic, record.partition, record.offset) == (source_topic, 0, 21)
