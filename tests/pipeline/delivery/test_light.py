"""The planner in the driver: it plans offsets, and loads no kernel, no Arrow and no Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import JobFailed
from penstock.pipeline.delivery import range_planner
from penstock.pipeline.delivery.end_watch import EndWatch
from penstock.pipeline.delivery.offset_ranges import REFERENCE_COST
from penstock.pipeline.delivery.range_planner import BatchLimits, Planner

HEAVY = ("numba", "pyarrow", "pandas", "pyspark")


def test_the_planner_loads_no_kernel() -> None:
    module = "penstock.pipeline.delivery.range_planner"
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
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


SETTINGS = Settings.of({"bootstrap.servers": "127.0.0.1:1"})


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> _Broker:
    """What every planner of the test asks: it notes how it was opened, and tells only what is committed."""
    made = _Broker()

    def opened(settings: Settings, stop: threading.Event) -> _Broker:
        made.settings, made.stop = settings, stop
        return made

    def latest(cluster: object, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        return {0: made.end if read_committed else made.end + 1}

    monkeypatch.setattr(range_planner, "Cluster", opened)
    monkeypatch.setattr(range_planner, "latest", latest)
    monkeypatch.setattr(range_planner, "bytes_per_offset", lambda cluster, topic, positions: {})
    return made


def planner_of(limit: int = 10, **more: Any) -> Planner:
    slots = more.pop("slots", 1)
    limits = BatchLimits(offsets=lambda: limit, bytes=more.pop("most_bytes", 1 << 30), slots=lambda: slots)
    watch = more.pop("watch", None) or EndWatch(SETTINGS, ask=lambda topics: {})
    return Planner(settings=SETTINGS, topic="t", begin={0: 0}, limits=limits, watch=watch, **more)


@pytest.mark.parametrize(("cost", "tasks"), [(1, 1), (REFERENCE_COST, 2)])
def test_a_batch_is_divided_by_what_its_records_cost(cost: int, tasks: int) -> None:
    planner = planner_of(slots=2)
    planner.limits.record_cost = cost
    assert len(planner.shares({"t": {}}, {"t": {"0": 5_000, "1": 5_000}})) == tasks


@pytest.mark.parametrize(
    ("split", "tasks", "shares"),
    [
        (False, None, [[(0, 400_000)]]),
        (True, None, [[(0, 200_000)], [(200_000, 400_000)]]),
        (True, 1, [[(0, 400_000)]]),
    ],
)
def test_a_partition_is_cut_between_tasks_only_if_that_was_allowed(
    split: bool, tasks: int | None, shares: list[list[tuple[int, int]]]
) -> None:
    planner = planner_of(slots=2)
    planner.limits.split, planner.limits.tasks = split, tasks
    found = planner.shares({"t": {"0": 0}}, {"t": {"0": 400_000}})
    assert [[(span.start, span.end) for span in share] for share in found] == shares


def test_a_planner_notices_before_a_batch_that_the_topic_was_made_again(broker: _Broker) -> None:
    planner = planner_of(topic_id="one")
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
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(range_planner, "monotonic", lambda: now)
    planner = planner_of(topic_id="one")
    planner.release()
    start = {"t": {"0": 1000}}
    # The end lags behind for a moment: the id is asked for once a second, and nothing else happens.
    for _ in range(5):
        assert planner.plan(start) == start
    assert broker.asked == 1
    broker.end = 1000
    now += 2 * range_planner.SHRUNK_SECONDS
    assert planner.plan(start) == start
    broker.end = 999
    assert planner.plan(start) == start
    now += range_planner.SHRUNK_SECONDS / 2
    assert planner.plan(start) == start
    assert broker.asked == 3
    now += range_planner.SHRUNK_SECONDS
    with pytest.raises(JobFailed, match="ends at 999"):
        planner.plan(start)
    broker.id = "two"
    with pytest.raises(JobFailed, match="made again"):
        planner_of(topic_id="one").plan(start)


def test_a_planner_waits_until_something_has_come(broker: _Broker) -> None:
    asked: list[list[str]] = []

    def ends(topics: list[str]) -> dict[str, dict[int, int]]:
        asked.append(topics)
        return {"t": {0: 7 if len(asked) == 4 else 5}}

    watch = EndWatch(SETTINGS, ask=ends)
    planner = planner_of(watch=watch)
    # The wait is no part of the batch: Spark hears that there is nothing, and asks again.
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert asked == [["t"]] * 4
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 7}}
    assert planner.end() == {"t": {"0": 7}}
    watch.close()


def test_a_planner_whose_topic_the_shared_question_leaves_out_asks_for_itself(broker: _Broker) -> None:
    watch = EndWatch(SETTINGS, ask=lambda topics: {})
    planner = planner_of(watch=watch)
    threading.Timer(0.1, lambda: setattr(broker, "end", 9)).start()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 9}}
    watch.close()


def test_topics_that_wait_share_one_question(broker: _Broker) -> None:
    """Twenty that wait for a second are asked for some ten times in all, not two hundred."""
    asked: list[list[str]] = []

    def ends(topics: list[str]) -> dict[str, dict[int, int]]:
        asked.append(topics)
        return {topic: {0: 5} for topic in topics}

    watch, released = EndWatch(SETTINGS, ask=ends), threading.Event()
    names = [f"t{number}" for number in range(20)]
    threads = [
        threading.Thread(
            target=watch.wait,
            args=(name, {0: 5}, 1.0),
            kwargs={"released": released, "asked": lambda: None},
        )
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.close()
    assert len(asked) <= 16
    assert asked[-1] == sorted(names)


def test_a_planner_that_is_released_does_not_wait(broker: _Broker) -> None:
    watch = EndWatch(SETTINGS, ask=lambda topics: {"t": {0: 5}})
    planner = planner_of(watch=watch)
    began = time.monotonic()
    threading.Timer(0.1, planner.release).start()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert time.monotonic() - began < range_planner.LONGEST_WAIT_SECONDS
    watch.close()


def test_a_planner_of_a_trigger_does_not_wait(broker: _Broker) -> None:
    began = time.monotonic()
    assert planner_of(waits=False).plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert time.monotonic() - began < range_planner.LONGEST_WAIT_SECONDS


def test_a_topic_that_is_frozen_is_not_asked_again(broker: _Broker) -> None:
    planner = planner_of(3)
    planner.freeze()
    broker.end = 9
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 3}}
    assert planner.plan({"t": {"0": 3}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}


def test_what_is_not_committed_is_not_planned(broker: _Broker) -> None:
    planner = planner_of()
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 5}}
    assert planner.end() == {"t": {"0": 5}}


def test_new_partitions_are_looked_for_every_ten_seconds(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(range_planner, "monotonic", lambda: now[0])
    planner = planner_of()
    for seconds, looked in ((0.0, 1), (9.0, 1), (2.0, 2), (9.0, 2)):
        now[0] += seconds
        planner.plan({"t": {"0": 0}})
        assert broker.refreshed == looked


def test_a_planner_that_waits_tells_when_nothing_was_there(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends when nothing comes any more asks for it, and a wait is long."""
    monkeypatch.setattr(range_planner, "LONGEST_WAIT_SECONDS", 0.5)
    watch = EndWatch(SETTINGS, ask=lambda topics: {"t": {0: 5}})
    planner = planner_of(watch=watch)
    began = time.monotonic()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert time.monotonic() - began >= 0.5
    assert planner.idle_at > began + 0.1
    watch.close()


def test_a_topic_that_is_frozen_is_not_waited_for(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = planner_of()
    planner.freeze()
    monkeypatch.setattr(Planner, "_wait", lambda *_: pytest.fail("it waits"))
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}


def test_a_planner_sees_each_end_once(broker: _Broker) -> None:
    """What ended a wait is planned without asking again, and what comes after it is asked for."""
    planner = planner_of()
    threading.Timer(0.05, lambda: setattr(broker, "end", 7)).start()
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 5}}
    assert planner.plan({"t": {"0": 5}}) == {"t": {"0": 7}}
    broker.end = 9
    assert planner.plan({"t": {"0": 7}}) == {"t": {"0": 9}}


@pytest.mark.parametrize(("slots", "tasks"), [(0, 1), (1, 1), (2, 2)])
def test_a_batch_has_tasks_also_before_a_worker_is_there(slots: int, tasks: int) -> None:
    shares = planner_of(slots=slots).shares({"t": {}}, {"t": {"0": 60_000, "1": 60_000}})
    assert len(shares) == tasks
    assert sorted(span.partition for share in shares for span in share) == [0, 1]


def test_a_planner_that_is_released_does_not_wait_for_a_broker_and_closes(broker: _Broker) -> None:
    planner = planner_of()
    planner.plan({"t": {"0": 0}})
    assert broker.settings is not None
    assert broker.settings.stop_timeout == range_planner._STOP_SECONDS
    planner.release()
    assert broker.stop is not None
    assert broker.stop.is_set()
    planner.close()
    assert not broker.is_open


def test_a_batch_of_large_records_is_short(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.end = 10_000
    monkeypatch.setattr(range_planner, "bytes_per_offset", lambda cluster, topic, positions: {0: 400_000.0})
    planner = planner_of(1_000_000, most_bytes=100_000_000)
    assert planner.plan({"t": {"0": 0}}) == {"t": {"0": 250}}
