"""How a Spark job ends, or goes on: signals to everybody, a Java that dies, workers that start too slowly."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import psutil
import pytest
from pyspark.errors import PySparkException

from penstock.brokers.outage import OutageLog
from penstock.errors import (
    AccessDenied,
    ClusterError,
    JobFailed,
    PipelineError,
    TlsFailed,
    Unreachable,
)
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher, restarts, runner, survey
from penstock.pipeline.job.executors import ExecutorWatch
from penstock.pipeline.job.failure import failure

Make = Callable[..., Any]
LATE = "[X] ... java.lang.SparkException: Python worker failed to connect back."


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job of one source, whose queries are played by `outcomes`."""
    monkeypatch.setattr(restarts, "LONGEST_WORKER_PAUSE", 0.0)
    monkeypatch.setattr(restarts, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(runner, "_TURN", 0.001)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.0)
    made = Job(SimpleNamespace(trigger=0.0), JobOptions())  # type: ignore[arg-type]
    prepared = SimpleNamespace(
        source=SimpleNamespace(connections={}),
        stage=None,
        schemas=SimpleNamespace(learn=lambda text: False),
        open_batch=None,
    )
    made._prepared = {"s": prepared}  # type: ignore[dict-item]
    made.totals = {"s": runner.Totals()}
    made.outages = {"s": OutageLog(logging.getLogger("test"), "s: kafka")}
    return made


def played(job: Job, monkeypatch: pytest.MonkeyPatch, outcomes: list[Any]) -> list[str]:
    """Run the job; an outcome is what a query ends with, or a batch that it tells of. Give the notes."""
    watcher, left, started = Notes(), iter(outcomes), []
    job.watch(watcher)

    def ended(query: Any, seconds: float) -> bool:
        found = next(left, True)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Progress):
            job._told.put(found)
            return False
        return bool(found)

    def start(spark: Any, prepared: Any, options: Any, watches: Any) -> Any:
        started.append(prepared)
        return SimpleNamespace(run_id=str(len(started)), is_active=False)

    monkeypatch.setattr(runner, "ended", ended)
    monkeypatch.setattr(runner, "start_query", start)
    monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)
    try:
        job._run(None)  # type: ignore[arg-type]
    finally:
        watcher.notes.append(f"{len(started)} starts")
    return watcher.notes


def notes_of(job: Job) -> list[str]:
    (watcher,) = (each for each in job._watchers if isinstance(each, Notes))
    return watcher.notes


class Stopper(Watcher):
    """Asks for the end when anything is noted."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def note(self, text: str) -> None:
        self._job.stop()


def late() -> PySparkException:
    return PySparkException(LATE)


def test_a_query_whose_worker_comes_up_too_slowly_is_started_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = played(job, monkeypatch, [late(), late()])
    assert notes[-1] == "3 starts"
    assert [note for note in notes if "did not start in time; failure" in note] == notes[:2]


def test_it_is_given_up_in_the_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobFailed, match="did not start in time"):
        played(job, monkeypatch, [late() for _ in range(20)])
    assert notes_of(job)[-1] == f"{restarts.MOST_WORKER_FAILURES} starts"


def test_only_failures_in_a_row_count(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Progress(source="s", batch=1, counts={"n_in": 1}, seconds=0.1, lag=0, lost=0)
    rounds = [each for _ in range(restarts.MOST_WORKER_FAILURES) for each in (late(), late(), batch)]
    assert played(job, monkeypatch, rounds)[-1] == f"{2 * restarts.MOST_WORKER_FAILURES + 1} starts"


@pytest.mark.parametrize(
    ("once", "records", "is_empty", "told"),
    [
        (True, 0, True, "s: nothing to read from t: the topic is empty"),
        (True, 0, False, "s: nothing to read from t: all of it was read before, as group g says"),
        (True, 1, False, None),
        (False, 0, True, None),
    ],
)
def test_a_run_that_has_read_nothing_says_why(
    job: Job, once: bool, records: int, is_empty: bool, told: str | None
) -> None:
    job.options = JobOptions(once=once)
    job.totals["s"].counts["n_in"] = records
    watcher = Notes()
    job.watch(watcher)
    job._note_nothing_new("s", "t", "group g", is_empty=is_empty)
    assert watcher.notes == ([] if told is None else [told])


def test_another_failure_ends_the_job_at_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobFailed, match="the job stopped"):
        played(job, monkeypatch, [PySparkException("something else")])


def away() -> PySparkException:
    return PySparkException("penstock.errors.Unreachable: cannot reach the broker")


def test_a_job_without_an_end_goes_on_for_as_long_as_a_cluster_is_away(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "AWAY_PAUSE", 0.0)
    notes = played(job, monkeypatch, [away() for _ in range(20)])
    assert notes[-1] == "21 starts"
    # Said once, however often it is tried.
    said = "s: a cluster did not answer in time; trying again until it does: cannot reach the broker"
    assert notes[:-1] == [said]
    assert job.stalled()[0].startswith("s: a cluster did not answer in time, tried for")
    job._heard(Progress(source="s", batch=1, counts={"n_in": 7}, seconds=0.1, lag=0, lost=0))
    assert job.stalled() == []


def test_a_source_whose_cluster_is_away_does_not_keep_a_job_alive_that_has_failed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job._prepared["t"] = job._prepared["s"]
    monkeypatch.setattr(restarts, "AWAY_PAUSE", 10.0)
    monkeypatch.setattr(runner, "finish", lambda query: False)
    # One source is away; when the other fails, none goes on.
    with pytest.raises(JobFailed, match="2 sources have failed") as failed:
        played(job, monkeypatch, [away(), PySparkException("something else")])
    assert "t: the job stopped" in str(failed.value)
    assert "s: a cluster did not answer in time" in str(failed.value)
    assert notes_of(job)[-1] == "2 starts"


def without_topic() -> PySparkException:
    what = "Topic out not present in metadata after 60000 ms."
    return PySparkException(f"org.apache.kafka.common.errors.TimeoutException: {what}")


@pytest.mark.parametrize("found", [None, Unreachable("no answer")])
def test_a_producer_that_knows_no_topic_because_a_cluster_was_away_does_not_end_a_job(
    job: Job, monkeypatch: pytest.MonkeyPatch, found: Exception | None
) -> None:
    monkeypatch.setattr(restarts, "AWAY_PAUSE", 0.0)
    monkeypatch.setattr(survey, "survey", lambda *_: raised(found))
    notes = played(job, monkeypatch, [without_topic()])
    assert notes == ["s: a cluster did not answer in time; trying again until it does", "2 starts"]


@pytest.mark.parametrize(
    "found", [PipelineError("kafka has no topic out"), AccessDenied("it may not be seen")]
)
def test_a_topic_that_is_gone_ends_a_job(job: Job, monkeypatch: pytest.MonkeyPatch, found: Exception) -> None:
    monkeypatch.setattr(survey, "survey", lambda *_: raised(found))
    with pytest.raises(JobFailed, match="a topic is not there any more"):
        played(job, monkeypatch, [without_topic()])


def raised(found: Exception | None) -> None:
    if found is not None:
        raise found


def unanswered(text: str) -> bool:
    raise Unreachable("cannot reach the registry", where="http://registry", next="start it")


def failing(text: str) -> bool:
    """As a registry does whose Kafka is away."""
    raise ClusterError(
        "the registry refused: GET /schemas/ids/7", why="50001 Error in the backend data store"
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [(unanswered, "the schema registry did not answer"), (failing, "the schema registry gave no schema")],
)
def test_a_job_without_an_end_goes_on_for_as_long_as_the_registry_is_away(
    job: Job, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], bool], told: str
) -> None:
    answers: Iterator[Callable[[str], bool]] = iter((answer, answer, bool))

    def learn(text: str) -> bool:
        return next(answers)(text)

    job._prepared["s"].schemas.learn = learn  # type: ignore[method-assign]
    monkeypatch.setattr(restarts, "AWAY_PAUSE", 0.0)
    monkeypatch.setattr(runner, "refreshed", lambda prepared, pipeline: prepared)
    batch = Progress(source="s", batch=1, counts={"n_in": 1}, seconds=0.1, lag=0, lost=0)
    unknown = [PySparkException("UnknownSchemas") for _ in range(3)]
    notes = played(job, monkeypatch, [*unknown, batch])
    assert notes[0] == f"s: {told}; trying again until it does"
    assert notes[1].startswith("s: writes again after")
    assert notes[2:] == ["4 starts"]


def test_a_job_with_an_end_does_not_wait_for_the_registry(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.options = JobOptions(once=True)
    job._prepared["s"].schemas.learn = unanswered  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        played(job, monkeypatch, [PySparkException("UnknownSchemas")])


@pytest.mark.parametrize("refusal", [AccessDenied("no"), TlsFailed("no such authority")])
def test_a_registry_that_does_not_let_us_in_ends_a_job(
    job: Job, monkeypatch: pytest.MonkeyPatch, refusal: ClusterError
) -> None:
    def refused(text: str) -> bool:
        raise refusal

    job._prepared["s"].schemas.learn = refused  # type: ignore[method-assign]
    with pytest.raises(type(refusal)):
        played(job, monkeypatch, [PySparkException("UnknownSchemas")])


@pytest.mark.parametrize("end", [{"once": True}, {"until_idle": 5.0}])
def test_a_job_with_an_end_gives_up(job: Job, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any]) -> None:
    job.options = JobOptions(**end)
    monkeypatch.setattr(job, "_idle", lambda queries: False)
    with pytest.raises(JobFailed, match="a cluster did not answer in time"):
        played(job, monkeypatch, [away()])


def test_a_job_that_is_asked_to_end_while_a_cluster_is_away_has_not_failed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "finish", lambda query: True)
    job.watch(Stopper(job))
    assert played(job, monkeypatch, [away()])[-1] == "1 starts"


@pytest.mark.parametrize("lacks", ["broker", "executor"])
def test_a_batch_that_waits_for_what_is_away_is_given_up_at_the_end(
    job: Job, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """`finish` lets the batch that runs be written; it never is, and who asked for the end waits for it."""
    stopped: list[str] = []
    looks = iter(range(200))
    query = SimpleNamespace(run_id="1", is_active=True, has_data=True, stop=lambda: stopped.append("s"))
    monkeypatch.setattr(runner, "start_query", lambda *_: query)
    monkeypatch.setattr(runner, "finish", lambda query: True)
    monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)
    if lacks == "executor":
        context = MagicMock()
        context._jsc.sc().getExecutorMemoryStatus().size.return_value = 1
        job._executors = ExecutorWatch(context, lambda text: None)

    def ended(query: Any, seconds: float) -> bool:
        job.stop()
        assert next(looks) < 100, "the batch is waited for"
        if lacks == "broker" and not job.outages["s"].seconds:
            job.outages["s"].failed("connection refused")
        return bool(stopped)

    monkeypatch.setattr(runner, "ended", ended)
    job._run(None)  # type: ignore[arg-type]
    assert stopped


def test_a_source_that_does_not_get_on_is_named_with_its_reason(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(runner, "monotonic", lambda: now)
    outage = job.outages["s"] = OutageLog(logging.getLogger("test"), "s: kafka", clock=lambda: now)
    job._progressed["s"] = now
    job.totals["s"].lag = 7
    assert job.stalled() == []
    now = 170.0
    assert job.stalled() == ["s: 7 records wait, and nothing was written for 70 s"]
    outage.failed("connection refused")
    now = 175.0
    assert job.stalled() == ["s: no answer for 5 s: connection refused"]
    outage.worked()
    # What could not be written in the outage is no reason to doubt what is written after it.
    assert job.stalled() == []
    now = 240.0
    assert job.stalled() == ["s: 7 records wait, and nothing was written for 65 s"]
    job._heard(Progress(source="s", batch=1, counts={"n_in": 7}, seconds=0.1, lag=0, lost=0))
    assert job.stalled() == []


def test_a_start_that_fails_so_is_tried_again_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [late(), late(), SimpleNamespace(run_id="1", is_active=False)]

    def start(spark: Any, prepared: Any, options: Any, watches: Any) -> Any:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(runner, "start_query", start)
    monkeypatch.setattr(runner, "ended", lambda query, seconds: True)
    monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)
    job._run(None)  # type: ignore[arg-type]
    assert not outcomes
    outcomes[:] = [PySparkException("nonsense")]
    with pytest.raises(JobFailed, match="the job stopped") as failed:
        job._run(None)  # type: ignore[arg-type]
    assert failed.value.why == "nonsense"


def test_a_job_that_is_asked_to_end_waits_for_nobody(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.stop()
    monkeypatch.setattr(runner, "finish", lambda query: True)
    assert played(job, monkeypatch, [late()])[-1] == "0 starts"


def test_a_job_that_is_asked_to_end_in_the_pause_has_not_failed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "finish", lambda query: True)
    job.watch(Stopper(job))
    notes = played(job, monkeypatch, [late()])
    assert "failure 1 of" in notes[0]
    assert notes[-1] == "1 starts"


@pytest.mark.parametrize("before", [[], [late()]], ids=["first", "again"])
def test_a_job_that_is_asked_to_end_while_a_start_is_late_has_not_failed(
    job: Job, before: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job._prepared["t"] = job._prepared["s"]
    started: list[Any] = []
    outcomes, most = list(before), 2 * len(before)

    def start(spark: Any, prepared: Any, options: Any, watches: Any) -> Any:
        if len(started) == most:
            job.stop()
            raise late()
        started.append(prepared)
        return SimpleNamespace(run_id=str(len(started)), is_active=False)

    def ended(query: Any, seconds: float) -> bool:
        if outcomes:
            raise outcomes.pop()
        return True

    monkeypatch.setattr(runner, "ended", ended)
    monkeypatch.setattr(runner, "start_query", start)
    monkeypatch.setattr(runner, "finish", lambda query: True)
    monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)
    job._run(None)  # type: ignore[arg-type]
    assert len(started) == most


@pytest.mark.parametrize("asked", [True, False])
def test_a_java_that_is_gone_is_no_bug_of_ours(
    job: Job, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: True)
    monkeypatch.setattr(runner, "_RECENTLY", 0.01)
    watcher = Notes()
    job.watch(watcher)
    if asked:
        job.stop()
        with job._outliving_java():
            raise failure(Exception("SparkContext was shut down"), "s", {})
        assert "the batch that ran is repeated" in watcher.notes[0]
    else:
        with pytest.raises(JobFailed, match="Java process has ended"), job._outliving_java():
            raise ConnectionRefusedError(111, "Connection refused")


def test_a_failure_beside_a_living_java_stays_what_it_is(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: False)
    job.stop()
    with pytest.raises(KeyError), job._outliving_java():
        raise KeyError("x")


# On real servers


def everybody(running: Any) -> None:
    """As systemd does by default: Java and the workers get it, too, whatever their session."""
    driver = psutil.Process(running.process.pid)
    for each in [*reversed(driver.children(recursive=True)), driver]:
        each.send_signal(signal.SIGTERM)


def the_group(running: Any) -> None:
    """As `timeout` does."""
    os.killpg(running.process.pid, signal.SIGTERM)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("signalled", [pytest.param(the_group, marks=pytest.mark.soak), everybody])
def test_sigterm_to_all_ends_a_job_in_order(project: Make, signalled: Callable[[Any], None]) -> None:
    shop = project().create().write()
    event = CloudEvent({"id": "1", "source": "/s", "type": "t"}, b"x")
    shop.produce([KafkaBinding().encode(event)])
    running = shop.spawn("run")
    running.until(r"batch \d+ ")
    signalled(running)
    assert running.ended() == 0, running.told()
    said = running.told()
    assert "Traceback" not in said
    assert "PK900" not in said
    assert "progress in" in said
    assert len(shop.read("out")) == 1
