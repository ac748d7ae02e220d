"""Executors of a cluster that come and go are used, and what they did can be read afterwards."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from standalone import SHORT_LIVED, HistoryServer, Standalone

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.delivery.offset_ranges import ENOUGH
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

Make = Callable[..., Any]
HERE = ("--worker-python", sys.executable)
"""Workers have the libraries of this Python."""
SENT = 4 * ENOUGH
"""Records for which four tasks pay."""
LARGE = 24 * ENOUGH
"""Records of which each of four partitions is a task, however few slots there are."""


def records(numbers: range, partitions: int) -> list[KafkaRecord]:
    encode = KafkaBinding().encode
    events = (CloudEvent({"id": f"e-{number}", "source": "/s", "type": "t"}, b"{}") for number in numbers)
    return [
        KafkaRecord(value=made.value, key=b"k", headers=made.headers, partition=number % partitions)
        for number, made in enumerate(map(encode, events))
    ]


class EventLog:
    """What Spark has written to its event log so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.words = [
            word
            for key, value in {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.rolling.enabled": "false",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": f"file://{folder}",
                "spark.executor.extraJavaOptions": SHORT_LIVED,
                "spark.executor.memory": "1g",
            }.items()
            for word in ("--conf", f"{key}={value}")
        ]

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for path in self.folder.iterdir():
            # The last line may be written in part.
            for line in path.read_text(encoding="utf-8").splitlines():
                if f'"SparkListener{kind}"' in line and line.endswith("}"):
                    found.append(json.loads(line))
        return found

    def tasks(self) -> list[dict[str, Any]]:
        return [event["Task Info"] for event in self.events("TaskEnd")]

    def executors(self) -> set[str]:
        """Name the executors that have done a task."""
        return {task["Executor ID"] for task in self.tasks()}

    def at_once(self) -> int:
        """Count the tasks that ran at the same time at most."""
        edges = [(task["Launch Time"], 1) for task in self.tasks()]
        edges += [(task["Finish Time"], -1) for task in self.tasks()]
        running = most = 0
        for _, step in sorted(edges):
            running += step
            most = max(most, running)
        return most


def until(what: str, check: Callable[[], Any], running: Any = None, seconds: float = 180.0) -> None:
    """Wait for something, while a program runs."""
    end = time.monotonic() + seconds
    while not check():
        assert running is None or running.process.poll() is None, running.told()
        assert time.monotonic() < end, (what, running and running.told())
        threading.Event().wait(0.3)


def ids(shop: Any) -> Counter[str]:
    return Counter(KafkaBinding().decode(each).id for each in shop.read("out"))


def test_twelve_partitions_use_four_slots_and_the_history_tells(project: Make, tmp_path: Path) -> None:
    shop = project().create(partitions=12).write()
    shop.produce(records(range(SENT), 12))
    log = EventLog(tmp_path / "events")
    cluster_folder = tmp_path / "cluster"
    cluster_folder.mkdir()
    with Standalone(cluster_folder, workers=2, cores=2) as cluster:
        words = ("--engine", "spark", "--once", "--master", cluster.address, *HERE, *log.words)
        running = shop.spawn("run", *words, SPARK_LOCAL_IP="127.0.0.1")
        assert running.ended(400) == 0, running.told()
    assert len(log.executors()) == 2
    assert log.at_once() == 4
    assert ids(shop) == Counter(f"e-{number}" for number in range(SENT))
    with HistoryServer(cluster_folder, log.folder) as history:

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"{history.address}/api/v1/applications{path}", timeout=30) as answer:
                return json.load(answer)

        until("no application", lambda: ask(""))
        (application,) = ask("")
        jobs = ask(f"/{application['id']}/jobs")
        texts = {job["description"] for job in jobs}
        assert any("route r" in text and "offsets in 4 tasks" in text for text in texts), texts


def test_a_worker_that_joins_later_is_used(project: Make, tmp_path: Path) -> None:
    shop = project().create(partitions=4).write()
    log = EventLog(tmp_path / "events")
    cluster_folder = tmp_path / "cluster"
    cluster_folder.mkdir()
    with Standalone(cluster_folder, workers=1, cores=1) as cluster:
        words = ("--engine", "spark", "--master", cluster.address, *HERE, *log.words)
        running = shop.spawn("run", *words, SPARK_LOCAL_IP="127.0.0.1")
        shop.produce(records(range(100), 4))
        until("nothing is done", log.tasks, running)
        cluster.add_worker()
        until("no second executor", lambda: len(log.events("ExecutorAdded")) == 2, running)
        shop.produce(records(range(100, SENT), 4))
        until("the second executor has nothing to do", lambda: len(log.executors()) == 2, running)
        until("not all is written", lambda: len(shop.read("out")) >= SENT, running)
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0, running.told()
    assert ids(shop) == Counter(f"e-{number}" for number in range(SENT))


def test_dynamic_allocation_goes_up_and_down(project: Make, tmp_path: Path) -> None:
    shop = project().create(partitions=4).write()
    log = EventLog(tmp_path / "events")
    cluster_folder = tmp_path / "cluster"
    cluster_folder.mkdir()
    settings = {
        "enabled": "true",
        "minExecutors": "1",
        "maxExecutors": "2",
        "executorIdleTimeout": "5s",
        "schedulerBacklogTimeout": "1s",
        "shuffleTracking.enabled": "true",
    }
    chosen = [
        word
        for key, value in settings.items()
        for word in ("--conf", f"spark.dynamicAllocation.{key}={value}")
    ]
    with Standalone(cluster_folder, workers=2, cores=1) as cluster:
        words = ("--engine", "spark", "--master", cluster.address, *HERE, *log.words, *chosen)
        # Four tasks that wait for one slot: longer than Spark waits before it asks for another executor.
        shop.produce(records(range(LARGE), 4))
        words = (*words, "--max-offsets", str(LARGE), "--conf", "spark.executor.cores=1")
        running = shop.spawn("run", *words, SPARK_LOCAL_IP="127.0.0.1")
        until("no second executor", lambda: len(log.events("ExecutorAdded")) > 1, running)
        until("not all is written", lambda: "lag 0" in running.told(), running)
        until("none is given back", lambda: log.events("ExecutorRemoved"), running)
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0, running.told()
    assert len(log.executors()) == 2
    assert ids(shop) == Counter(f"e-{number}" for number in range(LARGE))
