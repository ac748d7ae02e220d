"""The lag of a job is measured beside it, and so is whether its cluster answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import pytest

from penstock.brokers.outage import OutageLog
from penstock.errors import ConfigError, PenstockError, Unreachable
from penstock.pipeline.job.lag import LagMonitor
from penstock.pipeline.job.metrics import Metrics


class Client:
    """Tells where a topic ends, or is away."""

    def __init__(self) -> None:
        self.end = 10
        self.is_away = False
        self.error: PenstockError = Unreachable("cannot reach kafka")
        self.asked = 0

    def latest(self, topic: str) -> dict[int, int]:
        self.asked += 1
        if self.is_away:
            raise self.error
        return {0: self.end}


def until(check: Callable[[], bool]) -> None:
    end = monotonic() + 20
    while not check():
        assert monotonic() < end
        sleep(0.002)


# A client is made anew after an outage, and just then the files of its certificate may be being written.
ERRORS = [Unreachable("cannot reach kafka"), ConfigError("a client of kafka cannot be made", why="no file")]


@pytest.mark.parametrize("error", ERRORS, ids=["away", "certificate"])
def test_lag_grows_while_no_batch_is_written_and_an_outage_is_told_once(
    caplog: pytest.LogCaptureFixture,
    error: PenstockError,
) -> None:
    client: Any = Client()
    client.error = error
    lags: list[int] = []
    outage = OutageLog(logging.getLogger("test"), "s: kafka")
    monitor = LagMonitor(client, "t", {0: 4}, lags.append, outage=outage, period=0.002)
    with caplog.at_level(logging.INFO):
        monitor.start()
        until(lambda: 6 in lags)
        client.end = 1_000
        until(lambda: 996 in lags)
        monitor.position = {0: 1_000}
        until(lambda: lags[-1] == 0)
        client.is_away = True
        until(lambda: outage.reason is not None)
        asked = client.asked
        until(lambda: client.asked > asked + 5)
        client.is_away = False
        until(lambda: outage.reason is None)
        monitor.close()
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


def test_metrics_tell_the_lag_and_the_outage_of_a_source() -> None:
    now = 0.0
    outage = OutageLog(logging.getLogger("test"), "s: kafka", clock=lambda: now)
    metrics = Metrics(outages={"s": outage})
    metrics.begin("s")
    metrics.lag("s", 42)
    outage.failed("connection refused")
    now = 7.0
    told = metrics.text().decode()
    assert 'penstock_pipeline_lag{source="s"} 42.0' in told
    assert 'penstock_pipeline_outage_seconds{source="s"} 7.0' in told


def test_the_end_of_an_outage_is_told_after_the_lag_that_it_left() -> None:
    client: Any = Client()
    client.is_away = True
    outage = OutageLog(logging.getLogger("test"), "s: kafka")
    reasons: list[str | None] = []
    monitor = LagMonitor(
        client, "t", {0: 4}, lambda lag: reasons.append(outage.reason), outage=outage, period=0.002
    )
    monitor.start()
    until(lambda: outage.reason is not None)
    client.is_away = False
    until(lambda: bool(reasons))
    monitor.close()
    assert reasons[0] is not None


def test_a_cluster_that_has_just_told_the_end_of_a_topic_is_not_asked_again() -> None:
    client: Any = Client()
    ends: list[dict[int, int] | None] = [{0: 7}]
    lags: list[int] = []
    monitor = LagMonitor(client, "t", {0: 4}, lags.append, period=0.002, known=lambda: ends[0])
    monitor.start()
    until(lambda: len(lags) > 3)
    assert (set(lags), client.asked) == ({3}, 0)
    ends[0] = None
    until(lambda: lags[-1] == 6)
    monitor.close()
    assert client.asked
