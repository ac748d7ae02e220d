"""Pulsar that is full or read-only while a job writes it: waited for, told of once, and nothing twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from pulsar_project import wait_until
from to_pulsar import ToPulsar, ask, events_with_poison

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.pipeline.delivery import loop
from penstock.pipeline.delivery.pulsar import cluster as pulsar_cluster
from penstock.pipeline.job import JobOptions, job_of

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]
Make = Callable[..., ToPulsar]


@pytest.fixture
def shop(tmp_path: Path, kafka: Kafka, pulsar: Pulsar) -> Iterator[Make]:
    made: list[ToPulsar] = []

    def make(**more: Any) -> ToPulsar:
        made.append(ToPulsar(folder=tmp_path, servers={"kafka": kafka}, **{"pulsar": pulsar, **more}))
        return made[-1]

    yield make
    for running in (each for project in made for each in project.processes):
        running.process.kill()
        running.process.wait(30)


@contextmanager
def running_loop(project: ToPulsar) -> Iterator[Any]:
    """Run a loop beside the test; what it fails of is raised at the end."""
    failed: list[Exception] = []
    with job_of(project.pipeline(), JobOptions(engine="loop")) as job:
        job.prepare()

        def run() -> None:
            try:
                job.run()
            except Exception as exc:  # noqa: BLE001  # raised below
                failed.append(exc)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield job
        finally:
            job.stop()
            thread.join()
            if failed:
                raise failed[0]


def fill(project: ToPulsar, policy: str) -> str:
    """Let the broker take nothing more of pout; those who write it have to open it again."""
    path = project.path("pout")
    ask(project.pulsar, "PUT", f"{path}-partition-0/subscription/slow")
    ask(project.pulsar, "POST", f"{path}/backlogQuota", {"limitSize": 100, "limitTime": -1, "policy": policy})

    def holds() -> bool:
        found = ask(project.pulsar, "GET", f"{path}/backlogQuotaMap?applied=true")
        return bool(found["destination_storage"]["policy"] == policy)

    wait_until(holds)
    ask(project.pulsar, "PUT", f"{path}/unload")
    return path


def stored(project: ToPulsar) -> int:
    return sum(map(len, project.messages("pout").values()))


@pytest.mark.parametrize(
    "policy", [pytest.param("producer_request_hold", marks=pytest.mark.soak), "producer_exception"]
)
def test_a_loop_waits_for_a_full_topic_and_says_so_once(
    shop: Make, policy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pulsar_cluster, "DELIVERY_SECONDS", 2.0)
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.1)
    caplog.set_level(logging.INFO)
    project = shop().create(partitions=2, targets=1).write(dead="pdead")
    project.produce(events_with_poison(500))
    with running_loop(project) as job:
        wait_until(lambda: stored(project) == 500)
        path = fill(project, policy)
        project.produce(events_with_poison(500, first=500))
        wait_until(lambda: "quota exceeded" in " ".join(job.stalled()))
        begun = monotonic()
        wait_until(lambda: monotonic() - begun > 3)  # it is tried again, and Kafka answers each time
        ask(project.pulsar, "DELETE", f"{path}/backlogQuota?backlogQuotaType=destination_storage")
        wait_until(lambda: stored(project) == 1000)
        wait_until(lambda: not job.stalled())
    project.assert_every_event_is_there_once(1000, dead="pdead")
    told = [record.getMessage() for record in caplog.records]
    assert len([each for each in told if "lost, tried again" in each]) == 1, told
    assert len([each for each in told if "kafka: back after" in each]) == 1, told
    assert any("next: consume the backlog" in each for each in told)
