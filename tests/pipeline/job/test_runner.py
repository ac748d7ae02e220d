"""Single steps of a running Spark job, with everything beside it played."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.outage import OutageLog
from penstock.errors import JobFailed, Unreachable
from penstock.pipeline.job import Job, JobOptions, Progress, Watcher, lease, runner


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lost_records = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def lost(self, source: str, records: int) -> None:
        self.lost_records += records


def job_with(**options: Any) -> Job:
    """A job of one source `s`."""
    pipeline: Any = SimpleNamespace(trigger=0.0, checkpoint="hdfs://namenode/ck")
    made = Job(pipeline, JobOptions(**options))
    made.totals = {"s": runner.Totals()}
    made.outages = {"s": OutageLog(logging.getLogger("test"), "s: kafka")}
    return made


def batch(**more: Any) -> Progress:
    return Progress(**{"source": "s", "batch": 1, "counts": {"n_in": 1}, "seconds": 0.1, "lag": 0, **more})


def test_a_job_whose_lease_was_taken_over_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def require() -> None:
        raise JobFailed("another job took over this checkpoint")

    job = job_with()
    job._lease = SimpleNamespace(require=require)  # type: ignore[assignment]
    job._queries = {"s": SimpleNamespace(run_id="1", is_active=True)}  # type: ignore[dict-item]
    monkeypatch.setattr(runner, "_TURN", 0.001)
    monkeypatch.setattr(runner, "_LAST_WORDS", 0.0)
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: False)
    monkeypatch.setattr(runner, "ended", lambda query, seconds: True)
    with pytest.raises(JobFailed, match="another job took over"):
        job._watch(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("programs", "uses"), [([], False), ([False], False), ([False, True], True)])
def test_workers_need_the_routing_kernel_where_a_program_has_one(programs: list[bool], uses: bool) -> None:
    def checked(has_kernel: bool) -> Any:
        return SimpleNamespace(work=SimpleNamespace(program=SimpleNamespace(has_kernel=has_kernel)))

    job = job_with()
    job._checked = (*map(checked, programs),)  # type: ignore[assignment]
    assert job.uses_kernels is uses


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({"once": True}, 7.0), ({"until_idle": 5.0}, 7.0), ({}, None)],
    ids=["once", "until idle", "daemon"],
)
@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_remote_checkpoint_is_waited_for_and_a_store_that_promises_less_is_noted(
    options: dict[str, Any], seconds: float | None, is_atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, notes, waited = job_with(**options, broker_timeout=7.0), Notes(), list[Any]()
    files = SimpleNamespace(is_atomic=is_atomic, where=lambda: "hdfs://namenode/ck")
    resumed: list[Any] = []

    def until_reachable(action: Any, *, where: str, stop: Any, seconds: float | None, note: Any) -> Any:
        waited.append((where, stop, seconds))
        return action()

    monkeypatch.setattr(runner, "until_reachable", until_reachable)
    monkeypatch.setattr(runner, "open_file_system", lambda folder, spark: files)
    monkeypatch.setattr(runner, "leased", lambda files, note, stop: nullcontext(stop))
    monkeypatch.setattr(job, "_resume", resumed.append)
    job.watch(notes)
    job._open_remote(None)  # type: ignore[arg-type]
    assert waited == [("hdfs://namenode/ck", job._stop, seconds)]
    assert job._lease is job._stop  # type: ignore[comparison-overlap]  # it ends a wait for the lease too
    assert ["no exclusive create" in note for note in notes.notes] == ([] if is_atomic else [True])
    assert resumed == [files]


def test_a_store_that_goes_away_while_a_job_looks_at_its_checkpoint_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, notes, held, looked = job_with(), Notes(), list[Any](), list[Any]()
    files = SimpleNamespace(is_atomic=True)

    def prepare(checked: Any, pipeline: Any, options: Any, clusters: Any, files: Any) -> tuple[()]:
        looked.append(files)
        if len(looked) == 1:
            raise Unreachable("its NameNode is in safe mode", where="hdfs://namenode/ck/s.json")
        return ()

    monkeypatch.setattr(lease, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(runner, "open_file_system", lambda folder, spark: files)
    monkeypatch.setattr(runner, "leased", lambda files, note, stop: nullcontext(held.append(files)))
    monkeypatch.setattr(runner, "prepare", prepare)
    job.watch(notes)
    job._open_remote(None)  # type: ignore[arg-type]
    assert looked == [files, files]
    assert held == [files]  # its lease is taken once
    assert notes.notes[0] == "its NameNode is in safe mode; waiting"


def test_a_job_that_is_asked_to_end_while_its_store_is_away_looks_at_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, resumed = job_with(), list[Any]()
    monkeypatch.setattr(job, "_resume", resumed.append)
    job.stop()
    job._open_remote(None)  # type: ignore[arg-type]
    assert resumed == []


@pytest.mark.parametrize(("age", "known"), [(0.0, {0: 9}), (9.0, {0: 9}), (11.0, None)])
def test_the_end_that_a_planner_was_told_is_taken_for_the_lag_for_a_moment(
    age: float, known: dict[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, given = job_with(), dict[str, Any]()
    monkeypatch.setattr(runner, "monotonic", lambda: 100.0)
    monkeypatch.setattr(runner, "LagMonitor", lambda *_, **more: given.update(more))
    monkeypatch.setattr(job._clusters, "new", lambda *_, **__: None)
    receive = SimpleNamespace(server="k", connection=None)
    source: Any = SimpleNamespace(topic="t", is_on_pulsar=False, receive=receive)
    job._watch_lag("s", source, {}, outage=None)
    assert given["known"]() is None  # no query runs
    job._queries["s"] = SimpleNamespace(planner=None)  # type: ignore[assignment]
    assert given["known"]() is None  # Spark plans it
    planner = SimpleNamespace(asked_at=100.0 - age, known_end={0: 9})
    job._queries["s"] = SimpleNamespace(planner=planner)  # type: ignore[assignment]
    assert given["known"]() == known


def test_what_a_batch_has_read_is_committed_and_is_where_the_lag_is_measured_from() -> None:
    job, commits = job_with(), list[dict[int, int]]()
    job._committers["s"] = SimpleNamespace(commit=commits.append)  # type: ignore[assignment]
    monitor = job._monitors["s"] = SimpleNamespace(position={0: 1})  # type: ignore[assignment]
    job._heard(batch(start={0: 1}, end={0: 5}, lag=3, lost=0))
    assert commits == [{0: 5}]
    assert monitor.position == {0: 5}
    assert (job.totals["s"].lag, job.totals["s"].batches) == (3, 1)


@pytest.mark.parametrize(
    ("policy", "records", "earliest", "lost"),
    [
        ("continue", 10, {0: 20}, 10),  # offsets 10 to 20 are gone
        ("continue", 15, {0: 20}, 5),  # some of them were read before they were deleted
        ("continue", 10, {0: 10}, 0),  # nothing is gone: they are markers of transactions
        ("continue", 10, {0: 99}, 10),  # what is gone behind the batch is counted by the next one
        ("continue", 20, {0: 20}, 0),
        ("stop", 10, {0: 20}, 0),
        ("continue", 10, Unreachable("no answer"), 0),
    ],
)
def test_records_that_are_gone_are_counted_as_far_as_they_are_missing(
    policy: str, records: int, earliest: Any, lost: int
) -> None:
    def ask(topic: str) -> Any:
        if isinstance(earliest, Exception):
            raise earliest
        return earliest

    job, notes = job_with(), Notes()
    job.watch(notes)
    job._clusters = SimpleNamespace(source=lambda *_: SimpleNamespace(earliest=ask))  # type: ignore[assignment]
    job._prepared["s"] = SimpleNamespace(  # type: ignore[assignment]
        survey=SimpleNamespace(earliest={0: 0}),
        on_data_loss=policy,
        counts_places=False,
        source=SimpleNamespace(topic="t", receive=SimpleNamespace(server="k", connection=None)),
    )
    job._heard(batch(start={0: 10}, end={0: 30}, records=records, lost=None))
    assert (job.totals["s"].lost, notes.lost_records) == (lost, lost)


def test_places_in_ledgers_say_nothing_about_what_is_gone() -> None:
    job = job_with()
    job._prepared["s"] = SimpleNamespace(counts_places=True)  # type: ignore[assignment]
    job._heard(batch(start={0: 10}, end={0: 1 << 40}, records=1, lost=None))
    assert job.totals["s"].lost == 0


def test_what_an_engine_has_counted_itself_is_lost() -> None:
    job = job_with()
    job._heard(batch(start={0: 10}, end={0: 30}, records=1, lost=4))
    assert job.totals["s"].lost == 4


@pytest.mark.parametrize("problem", [None, JobFailed("broken")])
def test_the_checkpoint_is_given_back_while_java_can_still_be_asked(
    problem: JobFailed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is stopped after `run`, before the job is left: a remote lease could not be released then."""

    def run(spark: Any) -> None:
        steps.append("runs")
        if problem is not None:
            raise problem

    job, steps = job_with(), list[str]()
    job._files = SimpleNamespace()  # type: ignore[assignment]
    job._held.callback(steps.append, "given back")
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(master="local[2]"),
        streams=SimpleNamespace(addListener=lambda heard: None, removeListener=lambda heard: None),
    )
    monkeypatch.setattr(runner, "query_session", lambda spark, checkpoint: spark)
    monkeypatch.setattr(runner, "SparkMetrics", lambda spark, names: Notes())
    monkeypatch.setattr(runner, "java_has_ended", lambda seconds: False)
    monkeypatch.setattr(job, "_run", run)
    with nullcontext() if problem is None else pytest.raises(JobFailed, match="broken"):
        job.run(spark)
    assert steps == ["runs", "given back"]
