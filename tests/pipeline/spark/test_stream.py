"""A stream that is planned in the driver, on a real Spark and without a broker."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import psutil
import pyarrow as pa
import pytest

from penstock.pipeline.spark import stream as stream_module
from penstock.pipeline.spark.stream import Offset, planned_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counter:
    """Plans numbers, at most `limit` a batch, as they are added."""

    limit = 100

    def __init__(self, count: int = 0) -> None:
        self.count, self.waits, self.closed, self.is_frozen = count, True, False, False
        self.failure: Exception | None = None
        self._changed = threading.Condition()

    def add(self, count: int) -> None:
        with self._changed:
            self.count += count
            self._changed.notify_all()

    def fail(self, failure: Exception) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self.waits = False
            self._changed.notify_all()

    def start(self) -> Offset:
        return {"t": {"0": 0}}

    def plan(self, start: Offset) -> Offset:
        at = start["t"]["0"]
        with self._changed:
            if at == self.count and not self.is_frozen:
                self._changed.wait_for(lambda: self.count > at or not self.waits or self.failure, 30)
                if self.failure is not None:
                    raise self.failure
                return start
            return {"t": {"0": min(at + self.limit, self.count)}}

    def end(self) -> Offset | None:
        return {"t": {"0": self.count}}

    def freeze(self) -> None:
        self.is_frozen = True

    def shares(self, start: Offset, end: Offset) -> Sequence[object]:
        return [range(start["t"]["0"], end["t"]["0"])]

    def close(self) -> None:
        self.closed = True


def read(share: range) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [len(share)], "stop": [share.stop]})


def stream(spark: SparkSession, planner: Counter, folder: Path, rows: list[tuple[int, int]]) -> Any:
    def take(frame: Any, batch: int) -> None:
        rows.extend((row.n, row.stop) for row in frame.collect())

    counts = planned_stream(spark, "numbers", "n bigint, stop bigint", planner, read)
    return counts.writeStream.option("checkpointLocation", str(folder)).foreachBatch(take)


def command_lines() -> Iterator[str]:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            yield " ".join(child.cmdline())


def until(condition: Callable[[], object], query: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_batches_are_planned_as_numbers_come_and_go_on_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[tuple[int, int]] = []
    planner = Counter(150)
    query = stream(spark, planner, tmp_path, rows).trigger(processingTime="0 seconds").start()
    until(lambda: len(rows) == 2, query)
    assert not any("streaming_source" in words for words in command_lines())
    time.sleep(1.0)  # a while in which nothing comes: the planner waits, and that is no part of a batch
    planner.add(10)
    until(lambda: len(rows) == 3 and query.lastProgress["batchId"] == 2, query)
    assert rows == [(100, 100), (50, 150), (10, 160)]
    last = query.recentProgress[-1]
    assert last["durationMs"]["latestOffset"] < 900
    assert last["sources"][0]["description"] == "numbers"
    planner.release()
    query.stop()
    assert planner.closed

    planner, rows = Counter(300), []
    again = stream(spark, planner, tmp_path, rows).trigger(availableNow=True).start()
    assert again.awaitTermination(60)
    assert rows == [(100, 260), (40, 300)]


@pytest.mark.slow
def test_what_a_planner_raises_ends_the_query(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import StreamingQueryException

    planner = Counter()
    query = stream(spark, planner, tmp_path, []).trigger(processingTime="0 seconds").start()
    planner.fail(KeyError("no such topic"))
    with pytest.raises(StreamingQueryException, match="no such topic"):
        query.awaitTermination(60)
    assert planner.closed
    assert "Traceback" not in capfd.readouterr().err


def test_what_spark_asks_for_is_what_the_planner_is_asked_for() -> None:
    """Without Spark: offsets are texts here."""
    jvm, context = MagicMock(), MagicMock()
    python = jvm.org.apache.spark.sql.execution.datasources.v2.python
    python.PythonStreamingSourceOffset = lambda text: SimpleNamespace(json=lambda: text)
    python.PythonStreamingInputPartition = lambda number, share, none: (number, pickle.loads(share))
    gateway = SimpleNamespace(new_array=lambda kind, size: [None] * size)
    context._jvm, context._gateway = jvm, gateway
    spark: Any = SimpleNamespace(sparkContext=context)
    planner = Counter(150)
    found = stream_module._Stream("numbers", spark, planner, "factory")
    begin = found.initialOffset()
    assert begin.json() == '{"t": {"0": 0}}'
    assert found.latestOffset(begin, None).json() == '{"t": {"0": 100}}'
    assert found.reportLatestOffset().json() == '{"t": {"0": 150}}'
    assert found.deserializeOffset("x").json() == "x"
    assert found.createReaderFactory() == "factory"
    # Spark asks for the tasks of a batch twice; the second time nothing is asked of anybody.
    end = found.latestOffset(begin, None)
    planned = found.planInputPartitions(begin, end)
    assert [number for number, _ in planned] == list(
        range(len(planner.shares({"t": {"0": 0}}, {"t": {"0": 100}})))
    )
    names = context.setLocalProperty.call_args_list
    assert [call.args[0] for call in names] == ["spark.job.description", "callSite.short"]
    assert found.planInputPartitions(begin, end) is planned
    assert len(context.setLocalProperty.call_args_list) == 2
    # The same begin with another end is another batch.
    longer = found.planInputPartitions(begin, found.deserializeOffset('{"t": {"0": 150}}'))
    assert [share for _, share in longer] == [range(150)]
    assert found.planInputPartitions(end, found.latestOffset(end, None)) is not planned
    found.prepareForTriggerAvailableNow()
    assert planner.is_frozen
    assert not planner.closed
    found.stop()
    assert planner.closed


def test_an_end_that_is_not_known_is_not_told() -> None:
    context: Any = MagicMock()
    spark: Any = SimpleNamespace(sparkContext=context)
    planner: Any = SimpleNamespace(end=lambda: None)
    assert stream_module._Stream("numbers", spark, planner, "factory").reportLatestOffset() is None


def test_a_batch_is_as_long_as_its_offsets_are_apart() -> None:
    start: Offset = {"t": {"0": 5, "1": 9}}
    # Partition 2 is new, and partition 1 was made again.
    assert stream_module._rows(start, {"t": {"0": 8, "1": 2, "2": 4}}) == 7


@pytest.mark.parametrize(
    ("level", "kept"), [(logging.NOTSET, logging.CRITICAL), (logging.DEBUG, logging.DEBUG)]
)
def test_callbacks_are_quiet_unless_somebody_wants_to_see_them(level: int, kept: int) -> None:
    logger = logging.getLogger("py4j")
    before = logger.level
    try:
        logger.setLevel(level)
        stream_module._quiet_callbacks()
        assert logger.level == kept
    finally:
        logger.setLevel(before)


# In a task


def doubled(share: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"a": [share], "b": [2 * share]})


def batch(share: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(share)])], ["share"])


def test_a_share_becomes_rows() -> None:
    (found,) = stream_module._task(doubled)([batch(21)])
    assert found.to_pydict() == {"a": [21], "b": [42]}


def test_every_batch_of_a_share_is_given() -> None:
    def twice(share: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"a": [share]})
        yield pa.RecordBatch.from_pydict({"a": [share + 1]})

    found = stream_module._task(twice)([batch(1), batch(7)])
    assert [each.to_pydict() for each in found] == [{"a": [1]}, {"a": [2]}, {"a": [7]}, {"a": [8]}]


def test_a_worker_on_another_platform_is_refused_before_it_imports_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = stream_module._task(doubled)
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-riscv64")
    with pytest.raises(RuntimeError, match="a worker of Spark runs on linux-riscv64, the driver on "):
        next(iter(task([batch(1)])))
