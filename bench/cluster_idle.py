"""What a Spark job costs when nothing comes, and what its smallest batch costs beside Spark's own.

| case | measures |
|---|---|
| idle | CPU of all processes of a job over 60 s with 20 empty topics, and with one; then a record's time |
| batch | CPU of 200 micro-batches in driver and Java, beside Spark's `rate-micro-batch` to `noop` |

`--case NAME` runs one of them. The broker's CPU is left out.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.embedded.kafka import Kafka
from penstock.pipeline.job import Job, JobOptions
from penstock.pipeline.kernel_cache import compile_kernels
from pipeline import Broker, headers_of, write_pipeline
from quiet import cpu_seconds
from table import Report

PENSTOCK = [sys.executable, "-c", "import sys; from penstock.cli.app import main; sys.exit(main())"]
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 20.0
"""Until class loading and compiling of the first batches are over."""
BATCHES = 200
WARM_UP_BATCHES = 60


CASES = ("idle", "batch")


def main() -> None:
    cases = CASES
    if "--case" in sys.argv:
        at = sys.argv.index("--case")
        cases = (sys.argv[at + 1],)
        del sys.argv[at : at + 2]
    report = Report.from_arguments(
        "A Spark job that has little to do", ["what", "median", "lowest", "highest"]
    )
    compile_kernels()
    with Kafka() as kafka:
        broker = Broker(kafka.bootstrap)
        if "idle" in cases:
            idle(report, broker, topics=20, most_share=0.05)
            idle(report, broker, topics=1, most_share=0.02)
        if "batch" in cases:
            batch(report, broker)
    report.finish()


def note(report: Report, name: str, values: list[float], unit: str, goal: float | None = None) -> None:
    middle = statistics.median(values)
    shown = [f"{value:.3f} {unit}" for value in (middle, min(values), max(values))]
    report.row(name, *shown)
    report.figure(name, middle)
    if goal is not None:
        report.goal(name, middle, goal, at_least=False)


# Nothing comes


def write_many(folder: Path, bootstrap: str, prefix: str, count: int) -> None:
    """Write a project with `count` topics, each with a route to one output."""
    message = {"event": {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}}
    servers = [{"$ref": "#/servers/kafka"}]
    names = [*(f"in{number}" for number in range(count)), "out", "dead"]
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "idle", "version": "1.0.0"},
        "servers": {"kafka": {"host": "unused:9092", "protocol": "kafka"}},
        "channels": {
            name: {"address": f"{prefix}-{name}", "servers": servers, "messages": message} for name in names
        },
        "operations": {
            **{
                f"receive{number}": {"action": "receive", "channel": {"$ref": f"#/channels/in{number}"}}
                for number in range(count)
            },
            "send": {"action": "send", "channel": {"$ref": "#/channels/out"}},
        },
    }
    routes = {
        f"r{number}": {
            "receive": f"receive{number}",
            "send": "send",
            "delivery": {"deadLetterSink": "dead"},
        }
        for number in range(count)
    }
    context = {"contexts": {"bench": {"servers": {"kafka": {"kind": "kafka", "address": bootstrap}}}}}
    for name, value in (("asyncapi", contract), ("pipeline", {"routes": routes}), ("penstock", context)):
        (folder / f"{name}.yaml").write_text(json.dumps(value), encoding="utf-8")


@contextmanager
def topics_of(broker: Broker, prefix: str, count: int) -> Iterator[None]:
    from confluent_kafka.admin import NewTopic

    names = [f"{prefix}-{name}" for name in (*(f"in{number}" for number in range(count)), "out", "dead")]
    for made in broker.admin.create_topics([NewTopic(name, 4, 1) for name in names]).values():
        made.result(30)
    try:
        yield
    finally:
        for gone in broker.admin.delete_topics(names).values():
            gone.result(30)


def idle(report: Report, broker: Broker, *, topics: int, most_share: float) -> None:
    """Let a job with empty topics wait for a minute, then send a record."""
    prefix = f"idle-{secrets.token_hex(4)}"
    seconds = 10.0 if report.quick else IDLE_SECONDS
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        held.enter_context(topics_of(broker, prefix, topics))
        write_many(folder, broker.bootstrap, prefix, topics)
        errors = held.enter_context((folder / "told").open("wb"))
        job = subprocess.Popen(
            [*PENSTOCK, "run", "--engine", "fused"], cwd=folder, stdout=errors, stderr=errors, env=os.environ
        )
        held.callback(job.wait, 60)
        held.callback(job.terminate)
        with arrivals(broker, f"{prefix}-out") as next_time:
            for number in range(topics):  # warm: each source has written a batch
                send(broker, f"{prefix}-in{number}")
            for _ in range(topics):
                next_time(240.0)
            time.sleep(SETTLE_SECONDS)
            before, began = cpu_of_tree(job.pid), time.monotonic()
            time.sleep(seconds)
            after, took = cpu_of_tree(job.pid), time.monotonic() - began
            waited = []
            for number in range(3):
                sent = time.time()
                send(broker, f"{prefix}-in{number % topics}")
                waited.append(next_time(30.0) - sent)
                time.sleep(5.0)
    name = f"idle_{topics}_topics"
    for part in sorted({*before, *after}):
        spent = (after.get(part, 0.0) - before.get(part, 0.0)) / took
        report.row(f"{name}, {part}", f"{100 * spent:.2f} % of a core", "", "")
    share = (sum(after.values()) - sum(before.values())) / took
    note(report, f"{name}_share_of_a_core", [share], "", goal=most_share)
    note(report, f"{name}_record_out", waited, "s", goal=1.0)
    report.row(f"{name}, planner processes", "0", "", "")


def cpu_of_tree(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a job's processes: driver, java, python."""
    root = psutil.Process(pid)
    found = {"driver": cpu_seconds(pid)}
    for each in root.children(recursive=True):
        part = "java" if "java" in each.name() else "workers"
        found[part] = found.get(part, 0.0) + cpu_seconds(each.pid)
    return found


def send(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"{}", b"k", headers=headers_of(1))
    if producer.flush(30):
        raise SystemExit("the record was not stored")


@contextmanager
def arrivals(broker: Broker, topic: str) -> Iterator[Any]:
    """Give a function that waits for the next record of a topic and returns when it came, in Unix time."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "idle",
            "log_level": 0,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])

    def next_time(seconds: float) -> float:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = consumer.poll(0.1)
            if found is not None and found.error() is None:
                return time.time()
        raise SystemExit(f"no record came within {seconds} s")

    try:
        yield next_time
    finally:
        consumer.close()


# The smallest batch


def batch(report: Report, broker: Broker) -> None:
    """Run batches of one record, and batches of Spark's own source with one row."""
    from penstock.pipeline.spark.session import spark_session

    batches = 30 if report.quick else BATCHES
    spark = spark_session("batch", master="local[1]", light=True)
    from pyspark import SparkContext

    java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    spent: dict[str, list[float]] = {"fused": [], "rate": []}
    try:
        for warm in (True, False, False, False):
            count = WARM_UP_BATCHES if warm else batches
            for name, run in (("rate", rate), ("fused", fused)):
                before = cpu_seconds(java) + cpu_seconds(os.getpid())
                run(spark, broker, count)
                each = (cpu_seconds(java) + cpu_seconds(os.getpid()) - before) / count
                if not warm:
                    spent[name].append(1000 * each)
    finally:
        spark.stop()
    for name, found in spent.items():
        note(report, f"batch_{name}", found, "ms CPU")
    ratios = [ours / theirs for ours, theirs in zip(spent["fused"], spent["rate"], strict=True)]
    note(report, "batch_ratio", ratios, "", goal=2.0)


def rate(spark: Any, broker: Broker, count: int) -> None:
    """Run Spark's own query for so many batches."""
    with tempfile.TemporaryDirectory() as folder:
        rows = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        )
        query = rows.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        while (query.lastProgress or {"batchId": -1})["batchId"] < count - 1:
            query.awaitTermination(1)
        query.stop()


def fused(spark: Any, broker: Broker, count: int) -> None:
    """Run the fused engine over a topic of so many records, one a batch."""
    with ExitStack() as held:
        source, target, dead = (held.enter_context(broker.topic(1)) for _ in range(3))
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(count):
            producer.produce(source, b"{}", b"k", headers=headers_of(number))
        producer.flush(30)
        pipeline = write_pipeline(folder, broker.bootstrap, source, target, dead)
        with Job(pipeline, JobOptions(once=True, engine="fused", max_offsets=1)) as job:
            job.prepare()
            job.run(spark)
            (totals,) = job.totals.values()
            if totals.batches != count:
                raise SystemExit(f"{totals.batches} batches instead of {count}")


if __name__ == "__main__":
    main()
