"""An application on a real YARN with its checkpoint in a real HDFS, in cluster mode: deaths, Kerberos."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
import pytest

from penstock.brokers.kafka_admin import KafkaAdmin
from penstock.brokers.kafka_records import publish, scan
from penstock.embedded.java import find_java
from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from kdc import Kdc
    from mini_cluster import MiniCluster

    from penstock.embedded.kafka import Kafka

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(2400)]

SPARK = Path(pyspark.__file__).parent
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ORDERS = 600
DRIVER = re.compile(r"container_(\d+_\d+)_(\d+)_000001")
"""An application and one of its attempts."""
"""The first container of each attempt is the driver's."""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A ResourceManager with two NodeManagers, and an HDFS."""
    from mini_cluster import MiniCluster

    with MiniCluster(tmp_path_factory.mktemp("yarn"), node_managers=2) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    return f"yarn-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def project(tmp_path: Path, kafka: Kafka, yarn: MiniCluster, prefix: str) -> Path:
    return write_project(tmp_path, kafka, f"{yarn.address}/checkpoints/{prefix}", prefix)


def write_project(folder: Path, kafka: Kafka, checkpoint: str, prefix: str) -> Path:
    """Make topics and a pipeline with a route of the kernel, whose checkpoint is in HDFS."""
    for name in ("in", "out", "dead"):
        KafkaAdmin(kafka.client_options()).create_topic(
            f"{prefix}-{name}", partitions=4, replicas=1, settings={}
        )
    channels: dict[str, Any] = {name: {"address": f"{prefix}-{name}"} for name in ("in", "out", "dead")}
    channels["in"]["x-penstock-dead-letter"] = {"$ref": "#/channels/dead"}
    actions = {"onIn": ("receive", "in"), "toOut": ("send", "out")}
    contract = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": {"k": {"host": kafka.bootstrap, "protocol": "kafka"}},
        "channels": channels,
        "operations": {
            name: {"action": action, "channel": {"$ref": f"#/channels/{channel}"}}
            for name, (action, channel) in actions.items()
        },
    }
    pipeline = {
        "contract": "asyncapi.yaml",
        "checkpoint": checkpoint,
        "routes": {"copies": {"receive": "onIn", "where": "type = 't'", "send": "toOut"}},
    }
    (folder / "asyncapi.yaml").write_text(json.dumps(contract))
    (folder / "pipeline.yaml").write_text(json.dumps(pipeline))
    return folder


def order(number: int, topic: str) -> KafkaRecord:
    attributes = {"specversion": b"1.0", "id": b"%d" % number, "source": b"/s", "type": b"t"}
    headers = tuple((f"ce_{name}", value) for name, value in attributes.items())
    return KafkaRecord(value=b"{}", key=b"%d" % number, headers=headers, topic=topic)


def submitted(
    project: Path, yarn: MiniCluster, executors: int, *words: str, kdc: Kdc | None = None
) -> subprocess.Popen[bytes]:
    """Run the command line that `penstock package` prints; with a `kdc` as its user."""
    command = [sys.executable, "-m", "penstock.cli", "package", "--to", "job", "--no-libraries", "-o", "json"]
    packed = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=200, check=False)
    assert packed.returncode == 0, packed.stderr
    line = json.loads(packed.stdout)["submit"]["YARN"].replace("\\\n", " ")
    given = shlex.split(re.sub(r"python3\.\d+\b", sys.executable, line))
    java_options = " ".join((*QUICK_JAVA, *((kdc.java_option,) if kdc else ())))
    settings = {
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
        "spark.executor.instances": str(executors),
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.maxAppAttempts": "2",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    login = ["--principal", kdc.principal, "--keytab", str(kdc.keytab)] if kdc else []
    environment = {
        **os.environ,
        "HADOOP_CONF_DIR": str(yarn.configuration),
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({"SPARK_SUBMIT_OPTS": kdc.java_option, "KRB5CCNAME": str(project / "none")} if kdc else {}),
    }
    with (project / "submit.log").open("wb") as log:
        return subprocess.Popen(
            ["bash", str(SPARK / "bin" / "spark-submit"), *options, *login, *given[1:], *words],
            cwd=project,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def containers(yarn: MiniCluster, kind: str) -> Iterator[psutil.Process]:
    """Give the Java processes of a class that run in containers of this YARN."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        is_kind = bool(words) and words[0].endswith("java") and any(kind in word for word in words)
        if is_kind and str(yarn.folder) in " ".join(words):
            yield process


def eventually(condition: Callable[[], bool], seconds: float, told: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, told()
        time.sleep(0.2)


def logs(project: Path, yarn: MiniCluster) -> str:
    """Give the ends of what spark-submit and the containers said."""
    files = [project / "submit.log", *yarn.folder.rglob("container_*/std*")]
    return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def drivers(yarn: MiniCluster) -> set[tuple[str, str]]:
    """Name the applications that this YARN has run so far, each with each of its attempts."""
    return set(DRIVER.findall("\n".join(str(path) for path in yarn.folder.rglob("container_*_000001"))))


@pytest.mark.parametrize(
    ("killed", "executors"),
    [
        ("ApplicationMaster", 1),
        pytest.param("ApplicationMaster", 2, marks=pytest.mark.soak),
        pytest.param("YarnCoarseGrainedExecutorBackend", 2, marks=pytest.mark.soak),
    ],
)
def test_a_container_that_is_killed_loses_nothing_and_repeats_nothing(
    killed: str, executors: int, kafka: Kafka, project: Path, yarn: MiniCluster, prefix: str
) -> None:
    options, before = kafka.client_options(), drivers(yarn)
    publish(options, (order(number, f"{prefix}-in") for number in range(ORDERS // 2)))
    words = ("--until-idle", "--idle", "5", "--max-offsets", "100")
    submit = submitted(project, yarn, executors, *words)
    try:
        eventually(
            lambda: any(True for _ in scan(options, f"{prefix}-out")) or submit.poll() is not None,
            900,
            lambda: logs(project, yarn),
        )
        assert submit.poll() is None, logs(project, yarn)
        victims = list(containers(yarn, killed))
        assert victims
        for each in victims[:1]:
            each.kill()
        publish(options, (order(number, f"{prefix}-in") for number in range(ORDERS // 2, ORDERS)))
        assert submit.wait(280) == 0, logs(project, yarn)
    finally:
        submit.kill()
        submit.wait(30)
    found = [KafkaBinding().decode(record).id for record in scan(options, f"{prefix}-out")]
    assert sorted(map(int, found)) == list(range(ORDERS))
    attempts = drivers(yarn) - before
    assert len({application for application, _ in attempts}) == 1
    assert len(attempts) == (2 if killed == "ApplicationMaster" else 1)


@pytest.fixture
def secure_yarn(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[MiniCluster]:
    """The same with Kerberos: nobody without a ticket submits, or uses a file."""
    from mini_cluster import MiniCluster

    with MiniCluster(tmp_path_factory.mktemp("secure"), node_managers=1, kdc=kdc) as cluster:
        yield cluster


@pytest.mark.soak
def test_an_application_with_principal_and_keytab(
    kafka: Kafka, tmp_path: Path, secure_yarn: MiniCluster, kdc: Kdc, prefix: str
) -> None:
    checkpoint = f"{secure_yarn.address}/user/penstock/{prefix}"
    project = write_project(tmp_path, kafka, checkpoint, prefix)
    options = kafka.client_options()
    for end in (20, 30):
        publish(options, (order(number, f"{prefix}-in") for number in range(20 if end > 20 else 0, end)))
        submit = submitted(project, secure_yarn, 1, "--once", kdc=kdc)
        try:
            assert submit.wait(200) == 0, logs(project, secure_yarn)
        finally:
            submit.kill()
            submit.wait(30)
        found = [KafkaBinding().decode(record).id for record in scan(options, f"{prefix}-out")]
        assert sorted(map(int, found)) == list(range(end))
