"""What Spark's own tools show of a job: progress, jobs and stages, its metrics system, the event log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

Make = Callable[..., Any]


def records(count: int) -> list[KafkaRecord]:
    def record(number: int) -> KafkaRecord:
        attributes = {"id": f"e-{number}", "source": "/s", "type": "t"}
        return KafkaBinding().encode(CloudEvent(attributes, b"{}"), key=b"k%d" % number)

    # The last one is no event: a dead letter.
    return [*(record(number) for number in range(count - 1)), KafkaRecord(value=b"?", key=b"x")]


def test_spark_counts_records_and_names_its_jobs_by_source_and_route(
    project: Make, spark: SparkSession
) -> None:
    shop = project().create(partitions=3).write()
    shop.produce(records(40))
    totals = shop.run(spark, engine="spark")
    assert (totals.counts["n_in"], totals.counts["n_dead"]) == (40, 1)
    source = f"kafka-{shop.topic('in')}"
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = [jobs.apply(number) for number in range(jobs.size())]
    # Jobs of other tests in this session may have no description.
    described = [job for job in found if job.description().isDefined()]
    named = [job for job in described if source in job.description().get()]
    assert [job.description().get() for job in named] == [f"{source}, route r: 40 offsets in 1 tasks"]
    assert named[0].name() == f"{source}, route r"

    sources: Any = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    registries = sources.getSourcesByName("AccumulatorSource")
    gauges = registries.apply(registries.size() - 1).metricRegistry().getGauges()
    prefix = f"penstock.{source.replace('.', '_')}"
    assert {name: gauges.get(f"{prefix}.{name}").getValue() for name in ("in", "out", "dead")} == {
        "in": 40,
        "out": 39,
        "dead": 1,
    }


_WITH_EVENT_LOG = """
import sys
from pathlib import Path
from penstock.config import load
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, job_of
from penstock.pipeline.spark.session import spark_session

folder = Path(sys.argv[1])
pipeline = load_pipeline(folder / "pipeline.yaml", context=load(start=folder).context())
settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": sys.argv[2],
            "spark.eventLog.compress": "false"}
spark = spark_session("logged", master="local[1]", settings=settings, light=True)
with job_of(pipeline, JobOptions(once=True, engine="spark")) as job:
    job.prepare()
    job.run(spark)
spark.stop()
"""


@pytest.mark.soak
def test_an_event_log_can_be_read(project: Make, tmp_path: Path) -> None:
    shop = project().create(partitions=3).write()
    shop.produce(records(40))
    logs = tmp_path / "events"
    logs.mkdir()
    command = [sys.executable, "-c", _WITH_EVENT_LOG, str(shop.folder), str(logs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    files = [path for path in logs.rglob("events_*") if path.is_file()]
    events = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    kinds = {event["Event"] for event in events}
    assert {"SparkListenerApplicationStart", "SparkListenerApplicationEnd", "SparkListenerJobStart"} <= kinds
    source = f"kafka-{shop.topic('in')}"
    jobs = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    descriptions = {job["Properties"].get("spark.job.description") for job in jobs}
    assert f"{source}, route r: 40 offsets in 1 tasks" in descriptions
    told = [event["progress"] for event in events if event["Event"].endswith("QueryProgressEvent")]
    assert told[0]["sources"][0]["description"] == f"{source}, route r"
    counts = [each["observedMetrics"][source] for each in told if each["name"] == source]
    names = [field["name"] for field in counts[0]["schema"]["fields"]]
    assert dict(zip(names, counts[0]["values"], strict=True))["n_in"] == 40
    assert counts[0]["values"][:3] == [40, 39, 1]
