"""penstock.pipeline.spark.session: how Java is started, and what becomes of it if that is interrupted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError

from penstock.errors import StartupError
from penstock.pipeline.spark import session


def test_java_is_killed_if_its_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {noted}.new && mv {noted}.new {noted}\nexec sleep 600\n")
    submit.chmod(0o755)

    def sleep(seconds: float) -> None:
        """Take the place of PySpark's wait for Java: Ctrl-C comes when Java has been started."""
        if noted.exists():
            raise KeyboardInterrupt

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "time", SimpleNamespace(sleep=sleep))
    popen = vars(java_gateway)["Popen"]
    with pytest.raises(KeyboardInterrupt):
        session._launch_apart({})
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    assert vars(java_gateway)["Popen"] is popen


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_start_can_be_abandoned(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {noted}.new && mv {noted}.new {noted}\nexec sleep 600\n")
    submit.chmod(0o755)

    def sleep(seconds: float) -> None:
        if noted.exists():
            session.abandon_start()

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(session, "_abandoned", Event())
    monkeypatch.setattr(session, "_java", [])
    if when == "before":
        session.abandon_start()
    with pytest.raises((StartupError, PySparkRuntimeError)):
        session._launch_apart({})
    assert noted.exists() == (when == "meanwhile")
    for process in session._java:
        assert process.poll() is not None


_TELLS = """
import json, os, psutil
from pyspark import SparkContext
from penstock.pipeline.spark.session import spark_session

spark = spark_session(master="local[1]")
java = psutil.Process(SparkContext._gateway.proc.pid)
(worker,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
print(json.dumps({"java": java.environ(), "worker": worker}))
spark.stop()
"""


@pytest.mark.server
def test_java_and_its_workers_get_no_variables_that_they_do_not_need() -> None:
    environment = {
        **os.environ,
        "KAFKA_PASSWORD": "hunter2",
        "PENSTOCK_PULSAR_TOKEN": "hunter2",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "LC_ALL": "C.UTF-8",
    }
    command = [sys.executable, "-c", _TELLS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout).values():
        assert "hunter2" not in found.values()
        assert (found["LC_ALL"], found["SPARK_LOCAL_HOSTNAME"]) == ("C.UTF-8", "localhost")


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000\n", 8), ("150000 100000\n", 2), ("1000 100000\n", 1), ("", 8)]
)
def test_cores_are_counted_within_the_quota_of_a_container(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(session, "_CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert session.slots(2) == (f"local[{2 * cores},4]", {"spark.default.parallelism": str(cores)})


@pytest.mark.parametrize("cores", [1, 2, 16, 64])
@pytest.mark.parametrize("sources", [2, 3, 5, 100])
def test_every_source_has_a_slot_for_each_of_its_tasks(sources: int, cores: int) -> None:
    master, settings = session.slots(sources, cores)
    tasks = int(settings["spark.default.parallelism"])
    assert master == f"local[{sources * tasks},4]"
    assert 1 <= tasks <= cores
    assert sources * tasks <= max(4 * cores, sources)
