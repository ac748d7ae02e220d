"""A job of several sources: what becomes of the others when one fails, and of all when the job does."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.brokers.outage import OutageLog
from penstock.errors import AccessDenied, ConfigError, JobFailed, PipelineError, TlsFailed, Unreachable
from penstock.pipeline.job import Job, JobOptions, Watcher, query, restarts, runner
from penstock.pipeline.job.loop import LoopJob


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job without an end, that waits for nothing; `Sources` gives it its sources."""
    monkeypatch.setattr(restarts, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(runner, "_TURN", 0.001)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.0)
    return Job(SimpleNamespace(trigger=0.0), JobOptions())  # type: ignore[arg-type]


class Sources:
    """Queries of several sources, each with its own outcomes; those without any go on until the end."""

    def __init__(self, job: Job, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, list[Any]]) -> None:
        self.started: list[str] = []
        for name in outcomes:
            job._prepared[name] = SimpleNamespace(  # type: ignore[assignment]
                name=name,
                source=SimpleNamespace(connections={}),
                schemas=SimpleNamespace(learn=lambda text: False),
                open_batch=None,
            )
            job.totals[name] = runner.Totals()
            job.outages[name] = OutageLog(logging.getLogger("test"), f"{name}: kafka")
        self.notes = Notes()
        job.watch(self.notes)
        finished: set[str] = set()

        def start(spark: Any, prepared: Any, options: Any, watches: Any) -> Any:
            self.started.append(prepared.name)
            return SimpleNamespace(run_id=f"{len(self.started)}", is_active=False, name=prepared.name)

        def ended(query: Any, seconds: float) -> bool:
            left = outcomes[query.name]
            if not left:
                return query.run_id in finished
            found = left.pop(0)
            if isinstance(found, Exception):
                raise found
            return bool(found)

        monkeypatch.setattr(runner, "ended", ended)
        monkeypatch.setattr(runner, "start_query", start)
        monkeypatch.setattr(runner, "finish", lambda query: finished.add(query.run_id) or True)
        monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)


def broken() -> PySparkException:
    return PySparkException("something else")


def test_a_source_that_fails_is_started_again_while_others_go_on(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.options = JobOptions(max_failures=4, trigger=0.0)
    job._restarts = restarts.Restarts(job._note, max_failures=4, has_end=False)
    played = Sources(job, monkeypatch, {"s": [broken() for _ in range(9)], "good": []})
    with pytest.raises(JobFailed, match="the job stopped"):
        job._run(None)  # type: ignore[arg-type]
    assert played.started == ["s", "good", "s", "s", "s"]
    assert [note.partition("; ")[2] for note in played.notes.notes] == [
        f"failure {number} of 4, starting it again in 0 s" for number in (1, 2, 3)
    ]


def test_a_source_that_fails_in_a_run_with_an_end_does_not_end_the_others(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.options = JobOptions(once=True, trigger=0.0)
    job._restarts = restarts.Restarts(job._note, max_failures=4, has_end=True)
    played = Sources(job, monkeypatch, {"s": [broken()], "good": [False, False, False, True]})
    with pytest.raises(JobFailed, match="the job stopped"):
        job._run(None)  # type: ignore[arg-type]
    assert played.started == ["s", "good"]
    assert played.notes.notes == ["s: the job stopped; the other sources go on"]


def test_pauses_between_failures_grow_and_are_bounded() -> None:
    notes: list[str] = []
    made = restarts.Restarts(notes.append, max_failures=0, has_end=False)
    pauses = [made.next_start("s", JobFailed("x"), others_go_on=True) for _ in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    made.worked("s")
    assert notes[-1].startswith("s: writes again after")
    assert made.next_start("s", JobFailed("x"), others_go_on=True) == 1


def test_a_cluster_that_stays_away_is_told_again_after_a_while() -> None:
    now, notes = 1.0, list[str]()
    made = restarts.Restarts(notes.append, max_failures=2, has_end=False, clock=lambda: now)
    away = restarts.AwayFailure("kafka is away")
    told = []
    for now in (1.0, 6.0, restarts.REMIND_SECONDS, restarts.REMIND_SECONDS + 2.0, 1e6):  # noqa: B007
        assert made.next_start("s", away, others_go_on=False) == restarts.AWAY_PAUSE
        told.append(len(notes))
    assert told == [1, 1, 1, 2, 3]
    # Another reason is told at once.
    made.next_start("s", restarts.AwayFailure("the registry is away"), others_go_on=False)
    assert notes[-1] == "s: the registry is away; trying again until it does"


def test_outages_of_a_cluster_do_not_count_as_failures_of_a_source() -> None:
    made = restarts.Restarts(lambda text: None, max_failures=2, has_end=False)
    for _ in range(5):
        made.next_start("s", restarts.AwayFailure("kafka is away"), others_go_on=True)
    assert made.next_start("s", JobFailed("x"), others_go_on=True) == 1
    assert made.next_start("s", JobFailed("x"), others_go_on=True) is None


def test_an_error_of_several_sources_has_the_reasons_of_all() -> None:
    problems: dict[str, PipelineError] = {
        "a": JobFailed("it stopped", why="no disk", next="run again"),
        "b": JobFailed("it is away", next="start it"),
        "c": JobFailed("it stopped", why="no memory", next="run again"),
    }
    found = restarts.combined(problems)
    assert found.why == "a: it stopped: no disk\nb: it is away\nc: it stopped: no memory"
    assert (found.where, found.next) == ("a, b, c", "run again; start it")


# The trouble of one source


def registry(error: Exception, method: str) -> Any:
    """Schemas of a source whose registry does not do one of the two things that it is asked for."""

    def asked(*_: object) -> bool:
        raise error

    return SimpleNamespace(learn=asked if method == "learn" else lambda text: True, refresh=asked)


def refresh(prepared: Any, pipeline: Any) -> Any:
    if hasattr(prepared.schemas, "refresh"):
        prepared.schemas.refresh()
    return prepared


@pytest.mark.parametrize("method", ["learn", "refresh"])
@pytest.mark.parametrize(
    "error", [AccessDenied("no"), TlsFailed("unknown"), ConfigError("no such file"), Unreachable("no answer")]
)
@pytest.mark.parametrize("end", [{"once": True}, {}], ids=["once", "daemon"])
def test_the_trouble_of_one_source_with_its_registry_does_not_end_the_others(
    job: Job, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, end: dict[str, Any]
) -> None:
    job.options = JobOptions(**end, trigger=0.0)
    job._restarts = restarts.Restarts(job._note, max_failures=3, has_end=bool(end))
    monkeypatch.setattr(runner, "refreshed", refresh)
    monkeypatch.setattr(restarts, "AWAY_PAUSE", 0.0)
    unknown = [PySparkException("UnknownSchemas") for _ in range(2)]
    good: list[Any] = [False] * 20
    played = Sources(job, monkeypatch, {"s": [*unknown, True], "good": [*good, True]})
    job._prepared["s"].schemas = registry(error, method)  # type: ignore[misc]
    if end:
        with pytest.raises(type(error)) as raised:
            job._run(None)  # type: ignore[arg-type]
        assert raised.value is error
        assert played.started == ["s", "good"]
        assert played.notes.notes == [f"s: {error.what}; the other sources go on"]  # type: ignore[attr-defined]
    else:
        job._run(None)  # type: ignore[arg-type]
        assert played.started == ["s", "good", "s", "s"]


@pytest.mark.parametrize("again", [True, False])
def test_a_key_file_that_is_just_being_replaced_does_not_end_the_other_sources(
    job: Job, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    played = Sources(job, monkeypatch, {"s": [broken(), True], "good": [False] * 20 + [True]})
    errors: list[Exception] = [ConfigError("the key cannot be read") for _ in range(1 if again else 20)]
    begin: Any = runner.start_query

    def start(spark: Any, prepared: Any, options: Any, watches: Any) -> Any:
        if prepared.name == "s" and "s" in played.started and errors:
            raise errors.pop()
        return begin(spark, prepared, options, watches)

    monkeypatch.setattr(runner, "start_query", start)
    if again:
        job._run(None)  # type: ignore[arg-type]
        assert played.started == ["s", "good", "s"]
    else:
        with pytest.raises(ConfigError, match="the key cannot be read"):
            job._run(None)  # type: ignore[arg-type]
    assert "s: the key cannot be read; failure 2 of 10" in played.notes.notes[1]


def test_secrets_that_cannot_be_read_when_a_query_fails_do_not_end_the_other_sources(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Sources(job, monkeypatch, {"s": [broken(), True], "good": [False] * 20 + [True]})

    def unmasked(*_: object) -> JobFailed:
        raise ConfigError("the key cannot be read")

    monkeypatch.setattr(runner, "failure", unmasked)
    job._run(None)  # type: ignore[arg-type]
    assert played.started == ["s", "good", "s"]


@pytest.mark.parametrize(
    "text",
    ["penstock.errors.ProducerFenced: a newer producer", "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update"],
)
def test_a_source_that_another_job_took_over_is_not_started_again(
    job: Job, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    played = Sources(job, monkeypatch, {"s": [PySparkException(text)], "good": []})
    with pytest.raises(JobFailed, match="another job took over"):
        job._run(None)  # type: ignore[arg-type]
    assert played.started == ["s", "good"]


# What still runs when a job fails


class Query:
    """A query of Spark that runs or was asked to end."""

    def __init__(self, *, is_active: bool, problem: Exception | None = None, ends: Any = True) -> None:
        self.is_active, self.problem, self.ends = is_active, problem, ends
        self.run_id = "1"
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1
        if self.problem is not None:
            raise self.problem


def test_queries_are_stopped_each_by_itself_when_a_job_fails(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {
        "broken": Query(is_active=True, problem=ValueError("not now")),
        "runs": Query(is_active=True),
        "writes its last batch": Query(is_active=False),
        "does not get to its end": Query(is_active=False, ends=False),
        "has failed": Query(is_active=False, ends=StreamingQueryException("no")),
    }
    waited: list[tuple[str, float]] = []

    def ended(running: Any, seconds: float) -> bool:
        waited.append((next(name for name, each in queries.items() if each is running), seconds))
        if isinstance(running.ends, Exception):
            raise running.ends
        return bool(running.ends)

    def fails(spark: Any) -> None:
        job._queries = queries  # type: ignore[assignment]
        raise JobFailed("the lease is gone")

    closed: list[bool] = []
    watcher = Notes()
    job.watch(watcher)
    job._prepared = {}
    monkeypatch.setattr(query, "ended", ended)
    monkeypatch.setattr(job, "_watch", fails)
    monkeypatch.setattr(job._watches, "close", lambda: closed.append(True))
    with pytest.raises(JobFailed, match="the lease is gone"):
        job._run(None)  # type: ignore[arg-type]
    assert [each.stopped for each in queries.values()] == [1, 1, 0, 1, 0]
    assert [name for name, _ in waited] == list(queries)[2:]
    assert all(seconds > 1 for _, seconds in waited)
    assert watcher.notes == ["broken: its query could not be stopped: not now"]
    assert closed == [True]


def test_an_end_at_once_closes_what_waits_for_records(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    job._queries = {"s": Query(is_active=True, problem=KeyboardInterrupt())}  # type: ignore[dict-item, arg-type]
    job._prepared = {}
    monkeypatch.setattr(job, "_watch", lambda spark: None)
    monkeypatch.setattr(job._watches, "close", lambda: closed.append(True))
    with pytest.raises(KeyboardInterrupt):
        job._run(None)  # type: ignore[arg-type]
    assert closed == [True]


@pytest.mark.parametrize("engine", [Job, LoopJob])
def test_a_job_runs_once(engine: type[Job]) -> None:
    made = engine(SimpleNamespace(trigger=0.0), JobOptions())  # type: ignore[arg-type]
    made._run_once()
    with pytest.raises(PipelineError, match="this job has run before"):
        made.run(SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(("ours", "looks"), [(True, 26), (False, 2)])
def test_a_java_that_is_not_ours_is_asked_by_a_connection_now_and_then(
    job: Job, monkeypatch: pytest.MonkeyPatch, ours: bool, looks: int
) -> None:
    now = 100.0
    asked: list[float] = []
    monkeypatch.setattr(runner, "monotonic", lambda: now)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 5.0)
    monkeypatch.setattr(runner, "java_is_ours", lambda: ours)
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: asked.append(now) is not None)
    for turn in range(26):
        now = 100.0 + turn / 5
        job._to_look_at(everybody=bool(turn % 2))
    assert len(asked) == looks
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: True)
    now += 5.0
    with pytest.raises(JobFailed, match="Java process has ended"):
        job._to_look_at(everybody=False)
