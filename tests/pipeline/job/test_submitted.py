"""Spark's own settings with real Spark: spark-submit, sessions of the user, `--conf`, `--ui`, event logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from penstock.embedded.artifacts import ensure
from penstock.embedded.java import find_java
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(500)]

SUBMIT = Path(sys.executable).with_name("spark-submit")
ACCESS_KEY = "AKIDEXAMPLE0123456789"
"""No name of a setting stands in it: only the name of its own setting makes it a secret."""
EVENTS = 5

OWN_SCRIPT = """\
import json, sys
from pathlib import Path
from penstock.config import load
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, job_of
from penstock.spark import read_events, spark_session

spark = spark_session("not this name")
context = load(start=Path.cwd()).context()
events = read_events(spark, "asyncapi.yaml", "receive", stream=False, context=context)
found = {"events": events.count(), "pid": spark.sparkContext._gateway.proc}
pipeline = load_pipeline("pipeline.yaml", context=context)
with job_of(pipeline, JobOptions(once=True)) as job:
    job.prepare()
    job.run(spark)
    (totals,) = job.totals.values()
found |= {"totals": dict(totals.counts), "conf": dict(spark.sparkContext.getConf().getAll())}
found["heap"] = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
found["ui"] = spark.sparkContext.uiWebUrl
found["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")
Path("found.json").write_text(json.dumps(found))
spark.stop()
"""

ENTRY = "import sys\nfrom penstock.cli.app import main\nsys.exit(main())\n"

NOTEBOOK = """\
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from penstock.config import load
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, job_of
from penstock.spark import events_from, read_events, spark_session, to_records

spark = (
    SparkSession.builder.master("local[1]").appName("mine").config("spark.jars", sys.argv[1])
    .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
)
spark.conf.set("spark.sql.shuffle.partitions", "11")
spark.conf.set("spark.sql.ansi.enabled", "false")

def state():
    return [
        dict(spark.conf.getAll), dict(spark.sparkContext.getConf().getAll()),
        SparkSession.getActiveSession() is spark, SparkSession.builder.getOrCreate() is spark,
        [table.name for table in spark.catalog.listTables()], len(spark.streams.active),
    ]

before = state()
assert spark_session("other", settings={"spark.sql.shuffle.partitions": "3"}) is spark
context = load(start=Path.cwd()).context()
events = read_events(spark, "asyncapi.yaml", "receive", stream=False, data="variant", context=context)
count = to_records(events.drop("data")).count()
assert state() == before, "changed by the functions for DataFrames"
totals = {}
for name in ("bytes", "condition"):
    pipeline = load_pipeline(f"{name}.yaml", context=context)
    with job_of(pipeline, JobOptions(once=True)) as job:
        job.prepare()
        job.run(spark)
        totals[name] = dict(next(iter(job.totals.values())).counts)
    assert state() == before, f"changed by a job, {name}"
Path("found.json").write_text(json.dumps({"count": count, "totals": totals}))
spark.stop()
"""


def event(number: int) -> KafkaRecord:
    headers = {"ce_specversion": "1.0", "ce_id": str(number), "ce_source": "/s", "ce_type": "t"}
    headers["content-type"] = "application/json"
    return KafkaRecord(
        value=b'{"n": %d}' % number, headers=tuple((key, text.encode()) for key, text in headers.items())
    )


def environment(**more: str) -> dict[str, str]:
    """Return the environment of somebody who works with PySpark: a Java, and the Python of the workers."""
    own = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**os.environ, **own, **more}


def spark_submit(folder: Path, script: str, *words: str, options: tuple[str, ...], **more: str) -> None:
    (folder / "app.py").write_text(script)
    command = [str(SUBMIT), *options, "app.py", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def filled(project: Callable[..., Any], kafka: Kafka) -> Any:
    """Make a project whose topic has some events."""
    made = project().create().write()
    made.produce(event(number) for number in range(EVENTS))
    return made


def test_every_setting_of_a_submit_is_in_force(filled: Any) -> None:
    folder: Path = filled.folder
    (folder / "conf").mkdir()
    (folder / "logs").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        f"spark.hadoop.fs.s3a.access.key {ACCESS_KEY}\nspark.eventLog.enabled true\n"
        "spark.eventLog.compress false\n"
        f"spark.eventLog.dir {folder}/logs\nspark.sql.session.timeZone Asia/Tokyo\n"
    )
    options = ("--master", "local[1]", "--name", "submitted", "--driver-memory", "700m")
    more = {"spark.sql.shuffle.partitions": "7", "spark.ui.enabled": "true", "spark.ui.port": "0"}
    conf = tuple(word for pair in more.items() for word in ("--conf", "=".join(pair)))
    spark_submit(folder, OWN_SCRIPT, options=(*options, *conf), SPARK_CONF_DIR=str(folder / "conf"))
    found = json.loads((folder / "found.json").read_text())
    assert found["pid"] is None, "no other Java was started"
    assert (found["events"], found["totals"]["n_in"], found["totals"]["n_out"]) == (EVENTS, EVENTS, EVENTS)
    assert found["conf"]["spark.master"] == "local[1]"
    assert found["conf"]["spark.app.name"] == "submitted"
    assert found["conf"]["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert found["partitions"] == "7"
    assert 500e6 < found["heap"] < 760e6
    assert found["ui"]
    log = "".join(path.read_text() for path in (folder / "logs").rglob("*") if path.is_file())
    assert "spark.hadoop.fs.s3a.access.key" in log
    assert ACCESS_KEY not in log


@pytest.mark.soak
def test_an_entry_script_runs_a_pipeline(filled: Any) -> None:
    options = ("--master", "local[1]", "--driver-memory", "700m")
    spark_submit(filled.folder, ENTRY, "run", "pipeline.yaml", "--once", options=options)
    assert len(filled.read("out")) == EVENTS


def test_a_session_of_a_notebook_stays_as_it_was(filled: Any) -> None:
    folder: Path = filled.folder
    document = json.loads((folder / "pipeline.yaml").read_text())
    for name in ("bytes", "condition"):
        if name == "condition":
            document["routes"]["r"]["sql"] = "data:n::int >= 0"
        text = json.dumps({**document, "checkpoint": f"checkpoint-{name}"})
        (folder / f"{name}.yaml").write_text(text)
    (folder / "notebook.py").write_text(NOTEBOOK)
    jars = ",".join(map(str, ensure(["spark"])["spark"]))
    command = [sys.executable, "notebook.py", jars]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert found["count"] == EVENTS
    assert {each["n_out"] for each in found["totals"].values()} == {EVENTS}


@pytest.mark.soak
def test_run_takes_settings_and_serves_the_ui(filled: Any) -> None:
    folder: Path = filled.folder
    (folder / "conf").mkdir()
    defaults = {
        "spark.driver.extraJavaOptions": "-Dof.the.user=1",
        "spark.sql.shuffle.partitions": "5",
        "spark.driver.memory": "500m",
        "spark.app.name": "of-the-file",
        "spark.ui.port": "0",
    }
    text = "".join(f"{key} {value}\n" for key, value in defaults.items())
    (folder / "conf" / "spark-defaults.conf").write_text(text)
    words = ("--ui", "--driver-memory", "650m", "--conf", "spark.sql.shuffle.partitions=3")
    running = filled.spawn(
        "run", "pipeline.yaml", *words, SPARK_CONF_DIR=str(folder / "conf"), PYSPARK_SUBMIT_ARGS=_ARGUMENTS
    )
    (page,) = running.until(r"Spark's UI on (http://127\.0\.0\.1:\d+)")
    running.until(r"batch 0")
    (java,) = [
        each for each in psutil.Process(running.process.pid).children(recursive=True) if each.name() == "java"
    ]
    listening = {each.laddr.ip for each in java.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    command = java.cmdline()
    assert "-Xmx650m" in command
    assert "-Dof.the.user=1" in command
    assert any(word.startswith("-Dlog4j2.configurationFile=") for word in command)
    (application,) = read_json(f"{page}/api/v1/applications")
    assert application["name"] == "of-the-file"
    shown = read_json(f"{page}/api/v1/applications/{application['id']}/environment")
    settings = dict(shown["sparkProperties"])
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert settings["spark.of.arguments"] == "yes"
    running.process.terminate()
    assert running.ended() == 0, running.told()


_ARGUMENTS = "--conf spark.of.arguments=yes --conf spark.sql.shuffle.partitions=4 pyspark-shell"


def read_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def test_speculation_is_refused_with_its_reason(filled: Any) -> None:
    running = filled.spawn("run", "pipeline.yaml", "--once", "--conf", "spark.speculation=true")
    assert running.ended() == 4
    assert "spark.speculation is on" in running.told()
    assert "--conf spark.speculation=false" in running.told()


def test_a_setting_that_java_does_not_take_is_no_bug(filled: Any) -> None:
    running = filled.spawn("run", "pipeline.yaml", "--once", "--driver-memory", "900000g")
    assert running.ended() == 1
    assert "Spark's Java ended before it was ready" in running.told()
    assert "PK900" not in running.told()
