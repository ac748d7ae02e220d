"""What is told of a cluster that has no executor for a job."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from penstock.pipeline.job.executors import ExecutorWatch


class Cluster:
    """A cluster that is looked at every five seconds."""

    def __init__(self) -> None:
        self.context: Any = MagicMock()
        self.notes: list[str] = []
        self.now = 100.0
        self.busy = True
        self.watch = ExecutorWatch(self.context, self.notes.append, clock=lambda: self.now)

    def stand(self, executors: int, seconds: float) -> None:
        """Have so many executors for so long."""
        self.context._jsc.sc().getExecutorMemoryStatus().size.return_value = executors + 1
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.watch.look(lambda: self.busy)


def test_a_batch_that_waits_for_executors_is_told_once_and_when_it_has_some() -> None:
    cluster = Cluster()
    cluster.stand(2, 60)
    cluster.stand(0, 25)
    assert cluster.notes == [] and cluster.watch.seconds == 0.0
    assert cluster.watch.has_none  # who asks for the end does not wait half a minute
    cluster.stand(0, 60)
    assert len(cluster.notes) == 1 and "no executor for this job for 30 s" in cluster.notes[0]
    assert cluster.watch.seconds > 60
    cluster.stand(1, 10)
    assert len(cluster.notes) == 2 and "executors again after" in cluster.notes[1]
    assert cluster.watch.seconds == 0.0 and not cluster.watch.has_none


def test_a_long_wait_is_told_again_after_minutes() -> None:
    cluster = Cluster()
    cluster.stand(0, 3600)
    assert 5 < len(cluster.notes) < 15


def test_an_idle_job_needs_no_executor() -> None:
    cluster = Cluster()
    cluster.busy = False
    cluster.stand(0, 600)
    assert cluster.notes == []


def test_spark_is_asked_every_few_seconds() -> None:
    cluster = Cluster()
    cluster.stand(2, 60)
    assert 10 <= cluster.context._jsc.sc().getExecutorMemoryStatus().size.call_count <= 13
