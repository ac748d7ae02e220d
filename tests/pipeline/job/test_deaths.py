"""Deaths of processes that a job needs: each is named, with its cause and what to change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from standalone import Standalone

from penstock.errors import JobFailed
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.job.failure import failure, is_worker_failure, java_ended
from penstock.record import KafkaRecord

Make = Callable[..., Any]

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task "
    "0.3 in stage 3.0 (TID 9) (host executor 2): ExecutorLostFailure (executor 2 exited caused by one of the "
    "running tasks) Reason: "
)


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "not enough memory", "spark.driver.memory"),
        (
            LOST + "Container killed by YARN for exceeding physical memory limits. 3.1 GB of 3 GB used.",
            "ended the container",
            "spark.executor.memoryOverhead",
        ),
        (
            LOST + "Container from a bad node: container_1 on host: h. Exit status: 143.",
            "ended the container",
            "spark.executor.memoryOverhead",
        ),
        (
            LOST + "The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM).",
            "ended the container",
            "spark.executor.memoryOverhead",
        ),
        (LOST + "Command exited with code 52", "not enough memory", "spark.executor.memory on a cluster"),
        (
            LOST + "The executor with id 2 exited with exit code 52(JVM OOM).",
            "not enough memory",
            "spark.executor.memory on a cluster",
        ),
        (
            LOST + "Container marked as failed: container_1 on host: h. Exit status: 52. Diagnostics: x",
            "not enough memory",
            "spark.executor.memory on a cluster",
        ),
        (LOST + "Command exited with code 137", "ended the container", "memoryOverhead"),
        (LOST + "Command exited with code 143", "ended the container", "memoryOverhead"),
        (LOST + "Executor heartbeat timed out after 124587 ms", "executors were lost", "log of the executor"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "Python worker of Spark was killed",
            "spark.executor.memoryOverhead",
        ),
        ("Python worker failed to connect back.", "did not start in time", "less to do"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "lacks a library", "--worker-python"),
        (
            "RuntimeError: a worker of Spark runs on linux-aarch64, the driver on linux-x86_64",
            "another kind of machine",
            "one kind of machine",
        ),
        (
            "Job 3 cancelled because SparkContext was shut down",
            "Spark was stopped",
            "run again",
        ),
    ],
)
def test_each_death_has_its_sentence(text: str, what: str, advice: str) -> None:
    found = failure(Exception(text), "s", {})
    assert what in found.what
    assert found.next is not None
    assert advice in found.next
    assert is_worker_failure(found) is ("Python worker" in text)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (-9, "killed by SIGKILL"),
        (137, "killed by SIGKILL"),
        (-15, "killed by SIGTERM"),
        (143, "killed by SIGTERM"),
        (52, "not enough memory"),
        (3, "not enough memory"),
        (1, "has ended"),
        (None, "has ended"),
        (255, "has ended"),
    ],
)
def test_a_java_that_has_ended_is_told_by_its_exit_code(code: int | None, what: str) -> None:
    found = java_ended(code)
    assert isinstance(found, JobFailed)
    assert what in found.what
    assert found.next is not None
    assert "run again" in found.next


# On real processes

_JAVA = "org.apache.spark.deploy.SparkSubmit"


def record(number: int) -> KafkaRecord:
    attributes = {"id": f"e-{number}", "source": "/s", "type": "t"}
    return KafkaBinding().encode(CloudEvent(attributes, b"{}"), key=b"k%d" % number)


def family(running: Any, word: str) -> list[psutil.Process]:
    driver = psutil.Process(running.process.pid)
    # Java has the name of the workers' module among its settings.
    kind = "java" if word in _JAVA else "python"
    family = [each for each in driver.children(recursive=True) if kind in each.name()]
    return [each for each in family if word in " ".join(each.cmdline())]


def error_of(running: Any) -> dict[str, Any]:
    (line,) = [line for line in running.told().splitlines() if line.startswith('{"error"')]
    found: dict[str, Any] = json.loads(line)["error"]
    return found


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_java_that_is_killed_is_told(project: Make) -> None:
    shop = project().create().write()
    shop.produce([record(number) for number in range(50)])
    running = shop.spawn("run", "--engine", "spark", "-o", "json")
    running.until(r'"batch": 0')
    (java,) = family(running, _JAVA)
    java.send_signal(signal.SIGKILL)
    assert running.ended() == 1
    error = error_of(running)
    assert error["what"] == "Spark's Java process was killed by SIGKILL"
    assert "memory" in error["why"]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.soak  # in CI: test_exactly_once
@pytest.mark.timeout(400)
def test_a_python_worker_that_is_killed_costs_nothing(project: Make) -> None:
    shop = project().create(partitions=2).write()
    shop.produce([record(number) for number in range(3000)])
    running = shop.spawn("run", "--until-idle", "--engine", "spark", "--max-offsets", "100", "-o", "json")
    running.until(r'"batch": \d', times=3)
    for worker in family(running, "penstock.pipeline.delivery.worker_daemon"):
        worker.send_signal(signal.SIGKILL)
    assert running.ended() == 0, running.told()
    assert len({KafkaBinding().decode(each).id for each in shop.read("out")}) == len(shop.read("out")) == 3000


_WITHOUT_MEMORY = """
import sys, threading
from pathlib import Path
from penstock.config import load
from penstock.errors import JobFailed
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, Watcher, job_of
from penstock.pipeline.spark.session import spark_session

folder = Path(sys.argv[1])
pipeline = load_pipeline(folder / "pipeline.yaml", context=load(start=folder).context())
spark = spark_session("small", master="local[2]", settings={"spark.driver.memory": "600m"}, light=True)

def fill():
    try:
        spark.sql("SELECT length(repeat(repeat(uuid(), 100000), 500))").collect()
    except Exception:
        pass

class Eater(Watcher):
    def batch(self, progress):
        threading.Thread(target=fill, daemon=True).start()

with job_of(pipeline, JobOptions(engine="spark")) as job:
    job.watch(Eater())
    job.prepare()
    try:
        job.run(spark)
    except JobFailed as failed:
        print(failed.what, "|", failed.next)
"""


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_java_without_memory_is_told(project: Make) -> None:
    shop = project().create().write()
    shop.produce([record(number) for number in range(50)])
    command = [sys.executable, "-c", _WITHOUT_MEMORY, str(shop.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.startswith("Spark's Java had not enough memory | give it more"), done


@pytest.mark.soak
@pytest.mark.timeout(580)
def test_an_executor_without_memory_is_told(project: Make, tmp_path: Path) -> None:
    large = {"sql": "length(repeat(repeat(id, 100000), 4000)) > 0"}
    shop = project().create().write(large)
    shop.produce([record(number) for number in range(3)])
    with Standalone(tmp_path, workers=1) as cluster:
        small = ("--conf", "spark.executor.memory=500m", "--conf", "spark.task.maxFailures=2")
        here = ("--master", cluster.address, "--worker-python", sys.executable)
        running = shop.spawn("run", "--once", *here, *small, "-o", "json", SPARK_LOCAL_IP="127.0.0.1")
        assert running.ended() == 1, running.told()
    error = error_of(running)
    assert error["what"] == "Spark's Java had not enough memory"
    assert "spark.executor.memory" in error["next"]
