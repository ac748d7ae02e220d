"""The planner in the driver: it plans offsets, and loads no kernel, no Arrow and no Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import JobFailed
from penstock.pipeline.fused import source
from penstock.pipeline.fused.source import Planner

HEAVY = ("numba", "pyarrow", "pandas", "pyspark")


def test_the_planner_loads_no_kernel() -> None:
    code = f"import sys, penstock.pipeline.fused.source; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_driver_loads_no_kernel() -> None:
    code = "import sys, penstock.pipeline.job, penstock.pipeline.job.fused; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class _Broker:
    """A cluster whose topic may be made again; it counts how often it is asked for ids."""

    def __init__(self) -> None:
        self.id, self.end, self.asked = "one", 5, 0

    def partitions(self, topic: str, *, refresh: bool = False) -> int:
        return 1

    def topic_id(self, topic: str) -> str:
        self.asked += 1
        return self.id


def test_a_planner_notices_before_a_batch_that_the_topic_was_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = _Broker()
    monkeypatch.setattr(source, "Cluster", lambda settings, stop: broker)
    monkeypatch.setattr(source, "latest", lambda cluster, topic, **_: {0: broker.end})
    settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
    planner = Planner(settings=settings, topic="t", begin={0: 0}, limit=10, workers=lambda: 1, topic_id="one")
    planner.release()  # it waits for nothing
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 5}}
    assert broker.asked == 1
    # Nothing new: nobody is asked for the id, however often it is planned.
    for _ in range(5):
        assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert broker.asked == 1
    broker.id, broker.end = "two", 9
    with pytest.raises(JobFailed, match="made again"):
        planner.plan({"t": {"0": 5}})


def test_a_planner_notices_a_topic_that_ends_before_what_was_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, now = _Broker(), 100.0
    monkeypatch.setattr(source, "Cluster", lambda settings, stop: broker)
    monkeypatch.setattr(source, "latest", lambda cluster, topic, **_: {0: broker.end})
    monkeypatch.setattr(source, "monotonic", lambda: now)
    settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
    planner = Planner(settings=settings, topic="t", begin={0: 0}, limit=10, workers=lambda: 1, topic_id="one")
    planner.release()
    start = {"t": {"0": 1000}}
    # The end lags behind for a moment: the id is asked for once a second, and nothing else happens.
    for _ in range(5):
        assert planner.plan(start) == start
    assert broker.asked == 1
    broker.end = 1000
    now += 2 * source.SHRUNK_SECONDS
    assert planner.plan(start) == start
    broker.end = 999
    assert planner.plan(start) == start
    now += source.SHRUNK_SECONDS / 2
    assert planner.plan(start) == start
    assert broker.asked == 3
    now += source.SHRUNK_SECONDS
    with pytest.raises(JobFailed, match="ends at 999"):
        planner.plan(start)
    broker.id = "two"
    fresh = Planner(settings=settings, topic="t", begin={0: 0}, limit=10, workers=lambda: 1, topic_id="one")
    with pytest.raises(JobFailed, match="made again"):
        fresh.plan(start)


def test_a_planner_waits_until_something_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, asked = _Broker(), []

    def latest(cluster: object, topic: str, **_: object) -> dict[int, int]:
        asked.append(broker.end)
        if len(asked) == 4:
            broker.end = 7
        return {0: broker.end}

    monkeypatch.setattr(source, "Cluster", lambda settings, stop: broker)
    monkeypatch.setattr(source, "latest", latest)
    settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
    planner = Planner(settings=settings, topic="t", begin={0: 0}, limit=10, workers=lambda: 1)
    # The wait is no part of the batch: Spark hears that there is nothing, and asks again.
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert asked == [5, 5, 5, 5]
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 7}}
    assert len(asked) == 4
    assert planner.end() == {"t": {"0": 7}}


def test_a_planner_that_is_released_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _Broker()
    monkeypatch.setattr(source, "Cluster", lambda settings, stop: broker)
    monkeypatch.setattr(source, "latest", lambda cluster, topic, **_: {0: 5})
    settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
    planner = Planner(settings=settings, topic="t", begin={0: 0}, limit=10, workers=lambda: 1)
    began = time.monotonic()
    threading.Timer(0.1, planner.release).start()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert time.monotonic() - began < source._LONGEST_WAIT


def test_a_topic_that_is_frozen_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _Broker()
    monkeypatch.setattr(source, "Cluster", lambda settings, stop: broker)
    monkeypatch.setattr(source, "latest", lambda cluster, topic, **_: {0: broker.end})
    settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
    planner = Planner(settings=settings, topic="t", begin={0: 0}, limit=3, workers=lambda: 1)
    planner.freeze()
    broker.end = 9
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 3}}
    assert planner.plan({"t": {"0": 3}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
