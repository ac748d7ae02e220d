"""What all tests share: hypothesis profiles, a home of their own, and no silent skip in CI."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.embedded.kafka import Kafka
    from penstock.embedded.pulsar import Pulsar
    from penstock.embedded.registry import Registry

# Slow machines are no finding of a property test, so neither deadline nor the check for slow data.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=50, **_PATIENT)
settings.register_profile("ci", max_examples=200, print_blob=True, **_PATIENT)
settings.register_profile("soak", max_examples=5000, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


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


# Real servers, one of each kind for each worker: tests use topic names of their own.


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    from penstock.embedded.kafka import Kafka

    with Kafka() as server:
        yield server


@pytest.fixture(scope="session")
def pulsar() -> Iterator[Pulsar]:
    from penstock.embedded.pulsar import Pulsar

    with Pulsar(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    from penstock.embedded.registry import Registry

    with Registry() as server:
        yield server


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[Kafka]:
    from penstock.embedded.kafka import Kafka

    with Kafka(secured=True) as server:
        yield server


@pytest.fixture(scope="session")
def secured_pulsar() -> Iterator[Pulsar]:
    from penstock.embedded.pulsar import Pulsar

    with Pulsar(secured=True, durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of this process, as a pipeline makes it."""
    from penstock.pipeline import classes
    from penstock.pipeline.session import spark_session

    classes.prepare()
    session = spark_session("tests", master="local[1]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first, in their random order; then those with servers, the slow ones last.

    Workers take whole files: there the files with slow tests go first, so that all workers end together.
    """
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
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
