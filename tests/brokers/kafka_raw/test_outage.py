"""A cluster that is away: told once, and given up soon when the end was asked for."""

from __future__ import annotations

import logging
import socket
import time
from threading import Event

import pytest

from penstock.brokers.kafka_raw.calls import END_TXN
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.coordinator import Coordinator, CoordinatorKind
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.outage import OutageLog
from penstock.errors import Unreachable


@pytest.fixture
def settings() -> Settings:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return Settings.of({"bootstrap.servers": f"127.0.0.1:{port}"}, deadline=60.0, stop_timeout=0.2)


def test_the_end_is_not_held_up_by_a_cluster_that_is_away(settings: Settings) -> None:
    stop = Event()
    stop.set()
    began = time.monotonic()
    with Cluster(settings, stop=stop) as cluster:
        coordinator = Coordinator(cluster, CoordinatorKind.GROUP, "g")
        with pytest.raises(Unreachable):
            coordinator.ask(END_TXN, (), lambda answer: None)
        with pytest.raises(Unreachable):
            cluster.partitions("t")
    assert time.monotonic() - began < 10


def test_a_cluster_that_is_away_is_told_once(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(logging.getLogger("test"), "kafka")
    with Cluster(settings, outage=outage) as cluster:
        for _ in range(5):
            cluster.try_refresh()
    assert len(caplog.records) == 1
    assert "kafka: lost" in caplog.text
    assert "127.0.0.1" in str(outage.reason)
