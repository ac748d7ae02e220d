"""The planner in the driver: it plans offsets, and loads no kernel, no Arrow and no Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

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
        self.refreshed, self.is_open = 0, True
        self.settings: Settings | None = None
        self.stop: threading.Event | None = None

    def partitions(self, topic: str, *, refresh: bool = False) -> int:
        self.refreshed += refresh
        return 1

    def close(self) -> None:
        self.is_open = False

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


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> _Broker:
    """A cluster that notes how it was opened, and tells only what is committed."""
    found = _Broker()

    def opened(settings: Settings, stop: threading.Event) -> _Broker:
        found.settings, found.stop = settings, stop
        return found

    def latest(cluster: object, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        return {0: found.end if read_committed else found.end + 1}

    monkeypatch.setattr(source, "Cluster", opened)
    monkeypatch.setattr(source, "latest", latest)
    return found


@pytest.fixture
def planner_of(broker: _Broker) -> Callable[..., Planner]:
    def made(**more: Any) -> Planner:
        settings = Settings.of({"bootstrap.servers": "127.0.0.1:1"})
        return Planner(**{"settings": settings, "topic": "t", "begin": {0: 0}, "limit": 10, **more})

    return made


def test_what_is_not_committed_is_not_planned(planner_of: Callable[..., Planner]) -> None:
    planner = planner_of(workers=lambda: 1)
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 5}}
    assert planner.end() == {"t": {"0": 5}}


def test_new_partitions_are_looked_for_every_ten_seconds(
    broker: _Broker, planner_of: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(source, "monotonic", lambda: now[0])
    planner = planner_of(workers=lambda: 1)
    for seconds, looked in ((0.0, 1), (9.0, 1), (2.0, 2), (9.0, 2)):
        now[0] += seconds
        planner.plan({"t": {"0": 0}})
        assert broker.refreshed == looked


def test_a_planner_that_waits_tells_when_nothing_was_there(
    broker: _Broker, planner_of: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends when nothing comes any more asks for it, and a wait is long."""
    now = [1000.0]
    planner = planner_of(workers=lambda: 1)

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(source, "monotonic", tick)
    monkeypatch.setattr(source, "_LONGEST_PAUSE", 0.001)
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert now[0] >= 1000.0 + source._LONGEST_WAIT
    assert planner.idle_at == now[0]


def test_a_topic_that_is_frozen_is_not_waited_for(
    planner_of: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = planner_of(workers=lambda: 1)
    planner.freeze()
    monkeypatch.setattr(Planner, "_wait", lambda *_: pytest.fail("it waits"))
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}


def test_a_planner_sees_each_end_once(broker: _Broker, planner_of: Callable[..., Planner]) -> None:
    """What ended a wait is planned without asking again, and what comes after it is asked for."""
    planner = planner_of(workers=lambda: 1)
    threading.Timer(0.05, lambda: setattr(broker, "end", 7)).start()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 7}}
    broker.end = 9
    assert planner.plan({"t": {"0": 7}}) == {"t": {"0": 9}}


@pytest.mark.parametrize(("workers", "tasks"), [(0, 1), (1, 1), (2, 2)])
def test_a_batch_has_tasks_also_before_a_worker_is_there(
    planner_of: Callable[..., Planner], workers: int, tasks: int
) -> None:
    shares = planner_of(workers=lambda: workers).shares({"t": {}}, {"t": {"0": 5, "1": 5}})
    assert len(shares) == tasks
    assert sorted(span.partition for share in shares for span in share) == [0, 1]


def test_a_planner_that_is_released_does_not_wait_for_a_broker_and_closes(
    broker: _Broker, planner_of: Callable[..., Planner]
) -> None:
    planner = planner_of(workers=lambda: 1)
    planner.plan({"t": {"0": 0}})
    assert broker.settings is not None
    assert broker.settings.stop_timeout == source._STOP_SECONDS
    planner.release()
    assert broker.stop is not None
    assert broker.stop.is_set()
    planner.close()
    assert not broker.is_open
