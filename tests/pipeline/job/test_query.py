"""The query of one source: how it is started and divided, and how it ends, with a Spark that is played."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.brokers.kafka_raw.settings import Settings
from penstock.errors import PipelineError
from penstock.pipeline.job import JobOptions, fused, query
from penstock.pipeline.job.query import RunningQuery, ended, finish, start_query


class Writer:
    """A DataStreamWriter that notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def queryName(self, name: str) -> Writer:
        self.told["name"] = name
        return self

    def option(self, key: str, value: str) -> Writer:
        self.told[key] = value
        return self

    def trigger(self, **how: Any) -> Writer:
        self.told |= how
        return self

    def start(self) -> Any:
        return SimpleNamespace(runId="run-1")


@pytest.mark.parametrize(
    ("options", "trigger", "waits", "interval"),
    [
        ({}, {"processingTime": "0 milliseconds"}, True, 0.0),
        ({"trigger": 0.5}, {"processingTime": "500 milliseconds"}, False, 0.5),
        ({"trigger": 10.0}, {"processingTime": "10000 milliseconds"}, False, 10.0),
        ({"once": True}, {"availableNow": True}, True, 0.0),
    ],
)
def test_batches_begin_when_there_is_something_or_at_the_times_of_the_trigger(
    options: dict[str, Any],
    trigger: dict[str, Any],
    waits: bool,
    interval: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer, given = Writer(), dict[str, Any]()
    monkeypatch.setattr(query, "planner_of", lambda *_, **more: given.update(more) or "planner")
    monkeypatch.setattr(query, "counted", lambda *_, **__: writer)
    prepared: Any = SimpleNamespace(
        source=SimpleNamespace(
            name="s",
            topic="s",
            asks_spark=False,
            routes=[SimpleNamespace(name="r", plan=SimpleNamespace(reads_now=False))],
        ),
        work=SimpleNamespace(settings=None),
        query=SimpleNamespace(begin={}),
        checkpoint=SimpleNamespace(url="file:///ck/s"),
        open_batch=None,
    )
    watches: Any = SimpleNamespace(of=lambda settings: None)
    running = start_query(None, prepared, JobOptions(**options), watches)  # type: ignore[arg-type]
    assert writer.told == {"name": "s", "checkpointLocation": "file:///ck/s", **trigger}
    assert given["waits"] is waits
    assert (running.run_id, running.planner, running.interval) == ("run-1", "planner", interval)


@pytest.mark.parametrize(("age", "waiting"), [(0.5, True), (5.0, True), (20.0, False)])
def test_between_two_triggers_a_query_is_waiting(age: float, waiting: bool) -> None:
    planner: Any = SimpleNamespace(idle_at=monotonic() - age)
    assert RunningQuery(MagicMock(), "1", planner, 10.0).is_waiting is waiting


# How it ends


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a query of Spark by what it says of itself; its Java is a mock."""
    monkeypatch.setattr("pyspark.SparkContext._jvm", MagicMock())

    def make(message: str, *, interval: float = 0.0, active: bool = True, steps: tuple[str, ...] = ()) -> Any:
        java = MagicMock()
        batch = java.getLatestExecutionContext.return_value
        batch.getDuration = lambda step: SimpleNamespace(isDefined=lambda: step in steps)
        spark = MagicMock(status={"message": message, "isTriggerActive": active})
        spark._jsq.streamingQuery.return_value = java
        return RunningQuery(spark, "1", None, interval), spark, java.state.return_value

    return make


def test_a_query_that_sleeps_until_its_next_trigger_is_stopped(running: Any) -> None:
    made, spark, state = running("Waiting for next trigger", interval=60.0, active=False)
    assert finish(made)
    assert spark.stop.called and not state.set.called


@pytest.mark.parametrize("interval", [0.0, 60.0])
@pytest.mark.parametrize(
    ("message", "steps", "is_asked"),
    [
        ("Waiting for data to arrive", (), True),
        ("Processing new data", ("queryPlanning",), True),
        # One that is not planned yet would be interrupted, and one that is committed begins another.
        ("Getting offsets", (), False),
        ("Processing new data", ("queryPlanning", "commitOffsets"), False),
    ],
)
def test_a_query_is_asked_to_end_where_that_interrupts_nothing(
    running: Any, interval: float, message: str, steps: tuple[str, ...], is_asked: bool
) -> None:
    made, spark, state = running(message, interval=interval, steps=steps)
    assert finish(made) is is_asked
    assert state.set.called is is_asked
    assert not spark.stop.called


def test_a_query_without_an_interval_is_not_stopped_between_two_batches(running: Any) -> None:
    made, spark, state = running("Waiting for data to arrive", active=False)
    assert finish(made)
    assert state.set.called and not spark.stop.called


@pytest.mark.parametrize(
    ("terminated", "alive", "has_ended"), [(False, True, False), (True, True, False), (True, False, True)]
)
def test_a_query_has_ended_when_its_last_batch_is_written(
    terminated: bool, alive: bool, has_ended: bool
) -> None:
    spark = MagicMock()
    spark.awaitTermination.return_value = terminated
    spark._jsq.streamingQuery().queryExecutionThread().isAlive.return_value = alive
    assert ended(RunningQuery(spark, "1"), 0.1) is has_ended


# The fused query


@dataclass(frozen=True)
class Told:
    """What workers are told."""

    settings: Settings
    topic: str = "t"
    pulsar: None = None
    program: Any = field(default_factory=lambda: SimpleNamespace(has_kernel=True))
    belonging: Any = field(default_factory=lambda: SimpleNamespace(topic_id=None))

    def packed(self) -> bytes:
        return b"%d" % self.settings.deadline


@pytest.mark.parametrize(
    ("master", "deadline", "told"),
    [("local[*,4]", 60.0, b"60"), ("spark://host:7077", 60.0, b"15"), ("yarn", 5.0, b"5")],
)
def test_a_task_on_a_cluster_gives_its_slot_back_while_a_broker_is_away(
    master: str, deadline: float, told: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(fused, "planned_stream", lambda *given: read.append(given[-1]) or MagicMock())
    monkeypatch.setattr("pyspark.sql.functions.sum", MagicMock())
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    work: Any = Told(Settings(bootstrap=(), deadline=deadline))
    fused.counted(spark, work, None, name="s", title="s, route r")  # type: ignore[arg-type]
    assert [each.args for each in read] == [(told,)]


@pytest.mark.parametrize(
    ("most", "slots", "offsets"),
    [(None, 1, 500_000), (None, 8, 2_000_000), (5, 8, 5), (9_000_000, 1, 9_000_000)],
)
def test_a_batch_grows_with_the_cluster_unless_it_is_bounded(
    most: int | None, slots: int, offsets: int
) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=slots, getConf=dict))
    work: Any = Told(Settings(bootstrap=()))
    made = fused.planner_of(spark, work, JobOptions(max_offsets=most), {}, watch=None, waits=True)  # type: ignore[arg-type]
    assert made.limit == offsets


@pytest.mark.parametrize(("limit", "refused"), [(None, False), (78, False), (77, True)])
def test_a_topic_has_to_take_the_marker_at_the_end_of_a_transaction(limit: int | None, refused: bool) -> None:
    program: Any = SimpleNamespace(targets=[SimpleNamespace(topic="out", limit=limit)])
    if refused:
        with pytest.raises(PipelineError, match="takes 77 bytes at a time"):
            fused._require_room_for_markers(program)
    else:
        fused._require_room_for_markers(program)
