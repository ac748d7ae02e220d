"""Routes that the reference decides alone, whole jobs on one topic.

Four partitions of binary CloudEvents with about 200 B of JSON (plain: the same without headers; Avro: the
same as a record by the contract's schema), everything passes. All run in one warm JVM and write to topics of
their own; the first round is thrown away, figures are medians. CPU is that of Java and
its Python workers, without the broker's.
"""

from __future__ import annotations

import io
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer

from penstock.embedded.kafka import Kafka
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import Job, JobOptions
from pipeline import (
    CONTEXT,
    LIMIT,
    PARTITIONS,
    TYPE,
    Broker,
    Round,
    Spark,
    bench_context,
    body_of,
    headers_of,
)
from pipeline import require as require_that
from table import Report

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["order", "amount"],
    "properties": {"order": {"type": "string"}, "amount": {"type": "number", "minimum": 0}},
}
FUNCTION = "def on(batch):\n    yield from batch\n"


@dataclass(frozen=True)
class Case:
    """A route, and what its records are."""

    name: str
    route: Mapping[str, Any]
    message: Mapping[str, Any] = field(default_factory=dict)
    is_plain: bool = False
    value: Callable[[int], bytes] = body_of

    def headers(self, number: int) -> list[tuple[str, bytes]]:
        if self.is_plain:
            return []
        named = str(self.message.get("contentType", "application/json")).encode()
        return [(name, named if name == "content-type" else text) for name, text in headers_of(number)]


def avro_of(number: int) -> bytes:
    order = json.loads(body_of(number))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, {each["name"]: order[each["name"]] for each in AVRO["fields"]})
    return out.getvalue()


_PARSED = fastavro.parse_schema(AVRO)
_JSON_PAYLOAD = {"contentType": "application/json", "payload": SCHEMA}
_AVRO_PAYLOAD = {
    "contentType": "application/avro",
    "payload": {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": AVRO},
}
CASES = (
    Case("no kernel form", {"where": "data.order <> data.customer"}),
    Case("plain", {"events": "plain"}, {"contentType": "application/json"}, is_plain=True),
    Case("JSON, check: schema", {"check": "schema"}, _JSON_PAYLOAD),
    Case("Avro, check: schema", {"check": "schema"}, _AVRO_PAYLOAD, value=avro_of),
    Case("function", {"apply": {"function": "passing:on"}}),
)


def contract_of(case: Case, bootstrap: str, topics: Mapping[str, str]) -> dict[str, Any]:
    declared = {} if case.is_plain else {"x-penstock-type": TYPE}
    messages = {"in": {"order": {**declared, **case.message}}, "out": {}, "dead": {}}
    event = {"event": {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "bench", "version": "1.0.0"},
        "servers": {"kafka": {"host": bootstrap, "protocol": "kafka"}},
        "channels": {
            name: {"address": topic, "messages": messages[name] or event} for name, topic in topics.items()
        },
        "operations": {
            "receive": {"action": "receive", "channel": {"$ref": "#/channels/in"}},
            "send": {"action": "send", "channel": {"$ref": "#/channels/out"}},
        },
    }


def fill(bootstrap: str, topic: str, count: int, case: Case) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20, "batch.size": 262144}
    )
    for number in range(count):
        key, headers = b"customer-%05d" % (number % 1000), case.headers(number)
        while True:
            try:
                producer.produce(
                    topic, case.value(number), key, partition=number % PARTITIONS, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(LIMIT):
        raise SystemExit("the input was not stored")


def job_round(spark: Spark, case: Case) -> Round:
    broker = spark.broker
    with broker.topic() as out, broker.topic(1) as dead, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topics = {"in": spark.source, "out": out, "dead": dead}
        route = {"receive": "receive", "send": "send", "delivery": {"deadLetterSink": "dead"}, **case.route}
        (folder / "asyncapi.yaml").write_text(json.dumps(contract_of(case, broker.bootstrap, topics)))
        (folder / "pipeline.yaml").write_text(
            json.dumps({"checkpoint": f"{name}/cp", "routes": {"r": route}})
        )
        (folder / "penstock.yaml").write_text(CONTEXT.format(bootstrap=broker.bootstrap))
        (folder / "passing.py").write_text(FUNCTION)
        pipeline = load_pipeline(folder / "pipeline.yaml", context=bench_context(folder))
        with Job(pipeline, JobOptions(once=True)) as job:
            job.prepare()
            found = spark._timed(lambda: job.run(spark.session))
            (totals,) = job.totals.values()
            counted = totals.counts["n_in"], totals.counts["n_out"]
        require_that(counted == (spark.count, spark.count), f"{case.name} lost records: {counted}")
    return found


def main() -> None:
    columns = ("route", "records/s", "CPU s per M")
    report = Report.from_arguments("Routes for the reference alone, whole jobs", columns)
    count, rounds = (60_000, 2) if report.quick else (300_000, 4)
    with ExitStack() as stack:
        broker = Broker(stack.enter_context(Kafka()).bootstrap)
        spark = Spark(broker, "", count)
        spark.start()
        for case in CASES:
            with broker.topic() as source:
                fill(broker.bootstrap, source, count, case)
                spark.source = source
                taken = [job_round(spark, case) for _ in range(rounds)][1:]
            rate, cpu = (statistics.median(getattr(each, name) for each in taken) for name in ("rate", "cpu"))
            report.row(case.name, f"{rate:,.0f}", f"{cpu:.1f}")
            report.figure(f"{case.name}: records/s", rate)
            report.figure(f"{case.name}: CPU s per M", cpu)
        spark.session.stop()
    report.finish()


if __name__ == "__main__":
    main()
