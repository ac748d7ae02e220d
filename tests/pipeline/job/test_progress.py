"""What Spark reports of its batches, on a real Spark: quickly enough that nothing piles up in Java."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.job.progress import Progress, listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[list[str]]:
    """Collect what threads of callbacks ask of Java."""
    from py4j.clientserver import ClientServerConnection

    found: list[str] = []
    send, pytest_thread = ClientServerConnection.send_command, threading.get_ident()

    def recorded(self: Any, command: str) -> str:
        # Finalizers of references to Java run in any thread; Java does not wait for them.
        if threading.get_ident() != pytest_thread and not command.startswith("m\nd\n"):
            found.append(command)
        return str(send(self, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", recorded)
    yield found


def start(spark: SparkSession, folder: Path) -> Any:
    """Count the rows of a file in each batch, as a job does, until it is stopped."""
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    counted = rows.observe("s", *(F.count(F.lit(1)).alias(name) for name in COUNTERS))
    written = counted.writeStream.format("noop").queryName("s")
    return written.option("checkpointLocation", str(folder)).start()


def test_an_event_of_spark_costs_java_one_question(
    spark: SparkSession, tmp_path: Path, questions: list[str]
) -> None:
    batches: list[Progress] = []
    ended: list[str] = []
    heard = listener({"s": ("t", {0: 15})}, batches.append, ended.append)
    spark.streams.addListener(heard)
    try:
        query = start(spark, tmp_path)
        until(lambda: len(batches) >= 10)
        run = str(query.runId)
        query.stop()
        until(lambda: ended)
    finally:
        spark.streams.removeListener(heard)
    assert ended == [run]
    assert [each.batch for each in batches] == list(range(len(batches)))
    assert {(each.source, each.records, each.counts["n_in"]) for each in batches} == {("s", 3, 3)}
    assert all(each.seconds > 0 for each in batches)
    # Spark reports an idle query too, and its end.
    assert len(questions) <= len(batches) + 2


def test_spark_keeps_few_batches_of_the_past(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    executions = spark._jsparkSession.sharedState().statusStore()
    jobs = spark.sparkContext._jsc.sc().statusStore()
    none = jvm.java.util.ArrayList()
    query = start(spark, tmp_path)
    try:
        until(lambda: (query.lastProgress or {}).get("batchId", 0) >= 60, 250)
        # Spark removes the oldest in a thread of its own, some at a time.
        until(lambda: executions.executionsCount() <= 30)
        until(lambda: jobs.jobsList(none).size() <= 30)
        assert len(query.recentProgress) <= 10
    finally:
        query.stop()


def test_queries_that_have_ended_leave_no_thread_in_python(spark: SparkSession, tmp_path: Path) -> None:
    """A query is started again for as long as what it needs is away; each has a thread of Java of its own."""
    ended: list[str] = []
    heard = listener({}, lambda progress: None, ended.append)
    spark.streams.addListener(heard)
    try:
        threads = list[int]()
        for number in range(4):
            query = start(spark, tmp_path / str(number))
            until(lambda each=query: each.lastProgress)  # type: ignore[misc]
            query.stop()
            until(lambda count=number + 1: len(ended) == count)  # type: ignore[misc]
            threads.append(threading.active_count())
        until(lambda: threading.active_count() <= threads[0])
    finally:
        spark.streams.removeListener(heard)
