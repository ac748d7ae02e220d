"""What all tests share: hypothesis profiles, a home of their own, and no silent skip in CI."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from penstock.embedded.home import penstock_home

if TYPE_CHECKING:
    from kdc import Kdc
    from mini_cluster import MiniCluster
    from pyspark.sql import SparkSession

    from penstock.embedded.kafka import Kafka
    from penstock.embedded.pulsar import Pulsar
    from penstock.embedded.registry import Registry
    from penstock.embedded.server import Server

_S = TypeVar("_S", bound="Server")

# Slow machines are no finding of a property test, so neither deadline nor the check for slow data.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=50, print_blob=True, **_PATIENT)
settings.register_profile("soak", max_examples=5000, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Every Spark driver that a test starts: Java's second compiler works hard for what runs a few seconds.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# A run in the background, or below nohup, ignores these signals, and so would every program that a test
# starts. With a handler that does nothing only this process does.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command run with -v in this process shows logs; the next test shall not."""
    loggers = [logging.getLogger(name) for name in (None, "penstock", "asyncio")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder as working directory, with no setting from outside; its path is given."""
    for name in [*os.environ]:
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)
    for name, folder in {
        "PENSTOCK_HOME": "home",
        "XDG_CONFIG_HOME": "config",
        "XDG_STATE_HOME": "state",
    }.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


_OF_THE_MACHINE = ("classes", "jars", "java", "kafka", "spark")
"""What is fetched or made once for a machine: with it servers and Spark start in half of the time."""


@pytest.fixture(scope="session")
def machine_home() -> Path:
    """Where that is; a test may have a home of its own."""
    for name in _OF_THE_MACHINE:
        (penstock_home() / name).mkdir(parents=True, exist_ok=True)
    return penstock_home()


@pytest.fixture
def furnished_home(machine_home: Path, isolated_home: Path) -> Path:
    """The home of a test with an isolated one, in which real servers and Spark are started."""
    home = penstock_home()
    home.mkdir()
    for name in _OF_THE_MACHINE:
        (home / name).symlink_to(machine_home / name)
    return home


# Real servers, one of each kind for each worker: tests use topic names of their own.


@contextmanager
def _quick(server: _S) -> Iterator[_S]:
    """Start a server with the classes that one of its kind has recorded.

    Where none has, as in CI, this one does and is started again: a run of all tests starts dozens of them.
    The other workers wait for it, which is less work than recording the same.
    """
    server.records_classes = True
    classes = penstock_home() / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    try:
        with (classes / f"{server.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            server.start()
            if server.is_recording:
                server.stop()
                server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    from penstock.embedded.kafka import Kafka

    with _quick(Kafka()) as server:
        yield server


@pytest.fixture(scope="session")
def pulsar() -> Iterator[Pulsar]:
    from penstock.embedded.pulsar import Pulsar

    with _quick(Pulsar(durable=False)) as server:
        yield server


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    from penstock.embedded.registry import Registry

    with _quick(Registry()) as server:
        yield server


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[Kafka]:
    from penstock.embedded.kafka import Kafka

    with _quick(Kafka(secured=True)) as server:
        yield server


@pytest.fixture(scope="session")
def secured_pulsar() -> Iterator[Pulsar]:
    from penstock.embedded.pulsar import Pulsar

    with _quick(Pulsar(secured=True, durable=False)) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, as a pipeline makes it."""
    from penstock.pipeline.spark import class_archive
    from penstock.pipeline.spark.session import spark_session

    class_archive.prepare()
    session = spark_session("tests", master="local[1]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A NameNode with one DataNode."""
    from mini_cluster import MiniCluster

    with MiniCluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A Kerberos that knows the daemons of a mini cluster and one user."""
    from kdc import Kdc

    with Kdc(tmp_path_factory.mktemp("kdc")) as started:
        yield started


_NAMES_A_MARKER = re.compile(r"mark\.(server|slow|node)")


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_every_server_test_is_found(items: list[pytest.Item]) -> None:
    """Refuse a test that `make test-server` would not see: it reads only files that name a marker."""
    marked = {
        item.path
        for item in items
        if any(item.get_closest_marker(name) for name in ("server", "slow", "node"))
    }
    for path in marked:
        places = {path, path.with_name("conftest.py")} - {Path(__file__)}
        if not any(
            _NAMES_A_MARKER.search(each.read_text(encoding="utf-8")) for each in places if each.exists()
        ):
            raise pytest.UsageError(
                f"{path} has tests with servers, and neither it nor its conftest.py says so"
            )


_WEIGHTS = {"slow": 10, "server": 1}
"""Roughly how long such a test takes, compared with others."""


def _weight(item: pytest.Item) -> float:
    """A test with a time limit of its own is a long one."""
    limit = item.get_closest_marker("timeout")
    marked = sum(each for name, each in _WEIGHTS.items() if item.get_closest_marker(name))
    return marked + (limit.args[0] / 10 if limit is not None and limit.args else 0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first, in their random order; then those with servers, the slow ones last.

    Workers take whole files: there the files with most to do go first, so that all workers end together.
    """
    if hasattr(config, "workerinput"):
        work: defaultdict[Path, float] = defaultdict(float)
        for item in items:
            work[item.path] += _weight(item)
        items.sort(key=lambda item: -work[item.path])
    else:
        items.sort(
            key=lambda item: [item.get_closest_marker(name) is not None for name in ("slow", "server")]
        )


_IN_CI = os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test with real servers runs or fails; skipping it would make green mean nothing."""
    report = yield
    # An expected failure is declared by a marker; pytest.xfail inside of a test is a skip by another name.
    expected = hasattr(report, "wasxfail") and not isinstance(
        call.excinfo and call.excinfo.value, pytest.xfail.Exception
    )
    if _IN_CI and report.skipped and not expected and item.get_closest_marker("server"):
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)  # with it, the failure would not count
        report.longrepr = f"a test with real servers was skipped in CI: {call.excinfo and call.excinfo.value}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that is skipped while it is imported."""
    report = yield
    if _IN_CI and report.skipped and "mark.server" in collector.path.read_text(encoding="utf-8"):
        report.outcome = "failed"
        report.longrepr = "a file of tests with real servers was skipped in CI"
    return report
