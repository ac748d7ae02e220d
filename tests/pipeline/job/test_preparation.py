"""What is refused, looked at and written before a job runs, with everything beside it replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.errors import CheckpointMismatch, JobFailed
from penstock.pipeline.delivery.range_progress import Belonging
from penstock.pipeline.job import JobOptions, preparation
from penstock.pipeline.job import loop as job_loop
from penstock.pipeline.job.fingerprint import Change, Fingerprint, write_fingerprint
from penstock.pipeline.job.kept_plan import KeptPlan
from penstock.pipeline.job.loop import LoopJob
from penstock.pipeline.spark.file_system import LocalFileSystem

EXACTLY, AT_LEAST = (
    SimpleNamespace(exactly_once=True, delivers_once=True, pulsar=None),
    SimpleNamespace(exactly_once=False, delivers_once=False, pulsar=None),
)
SOURCE: Any = SimpleNamespace(
    name="in",
    topic="in",
    servers=("prod",),
    written=("prod",),
    routes=(),
    dead={},
    asks_spark=False,
    receive=SimpleNamespace(server="prod", connection=None),
)


@pytest.mark.parametrize(
    ("was", "work", "options", "refused"),
    [
        (True, AT_LEAST, JobOptions(), True),
        (True, EXACTLY, JobOptions(), False),
        (True, AT_LEAST, JobOptions(exactly_once=False), False),
        (False, AT_LEAST, JobOptions(), False),
        (None, AT_LEAST, JobOptions(), False),
    ],
)
def test_exactly_once_does_not_become_less_unasked(
    was: bool | None,
    work: Any,
    options: JobOptions,
    refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "read_fingerprint", lambda *_: SimpleNamespace(exactly_once=was))
    checkpoint: Any = SimpleNamespace(files=None, exists=True, fingerprint="x.json", folder="x")

    def check() -> None:
        preparation._refuse_downgrade(SOURCE, options, checkpoint, work)

    if refused:
        with pytest.raises(CheckpointMismatch, match="was delivered exactly once"):
            check()
    else:
        check()


@pytest.mark.parametrize("work", [EXACTLY, AT_LEAST])
def test_what_a_job_delivers_is_written_beside_its_checkpoint(
    work: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[Any] = []
    delivers = work.exactly_once
    ready = SimpleNamespace(
        source=SOURCE,
        survey=None,
        query=None,
        work=work,
        exactly_once=delivers,
        plan=KeptPlan(digest="d", pipeline="p", contract="c") if delivers else None,
        begun=None,
        checkpoint=SimpleNamespace(fingerprint="in.json", exists=False),
    )
    monkeypatch.setattr(preparation, "_prepare", lambda *_: ready)
    monkeypatch.setattr(preparation, "_fingerprint", lambda *_, **more: more)
    monkeypatch.setattr(
        preparation, "write_fingerprint", lambda _, path, found: written.append((path, found))
    )
    checked: Any = SimpleNamespace(source=SOURCE)
    nothing: Any = SimpleNamespace()
    preparation.prepare([checked], nothing, JobOptions(), nothing, LocalFileSystem(tmp_path))
    plan = {"digest": "d", "pipeline": "p", "contract": "c"} if delivers else {}
    assert written == [("in.json", {"exactly_once": delivers, "plan": plan, "begun": {}})]


LOG = 'v1\n{"batchWatermarkMs":0}\n'


@pytest.mark.parametrize(
    ("marks", "replay", "expected"),
    [
        # Two batches are planned, one is committed: a mark within the open one is that of a crash.
        ({0: 10}, None, "as it is"),
        ({0: 20, 1: 5}, None, "as it is"),
        ({}, None, "as it is"),
        ({0: 20}, True, "as it is"),
        ({0: 21}, None, "refused"),
        ({0: 20, 1: 6}, None, "refused"),
        ({0: 21}, False, "as it is"),
        ({0: 21}, True, "new"),
    ],
)
def test_marks_that_are_ahead_of_the_open_batch_are_told(
    marks: dict[int, int], replay: bool | None, expected: str, tmp_path: Path
) -> None:
    files = LocalFileSystem(tmp_path)
    old = Fingerprint(
        topic="in",
        cluster_id=None,
        topic_id=None,
        partitions=2,
        operations=(),
        routes={},
        query="q",
        begin={"0": 0, "1": 5},
    )
    write_fingerprint(files, "in.json", old)
    files.write("in/metadata", "{}")
    files.write("in/offsets/0", LOG + '{"in":{"0":10}}')
    files.write("in/offsets/1", LOG + '{"in":{"0":20}}')
    files.write("in/commits/0", "v1\n{}")
    checked: Any = SimpleNamespace(source=SOURCE, work=EXACTLY, survey=SimpleNamespace(earliest={}))
    clusters: Any = SimpleNamespace(client=lambda *_: SimpleNamespace(committed=lambda *_: marks))

    def query() -> Any:
        checkpoint = preparation.Checkpoint(files=files, name="in")
        return preparation._query(checked, checkpoint, JobOptions(replay=replay), clusters)

    if expected == "refused":
        with pytest.raises(CheckpointMismatch, match="older than what was written") as caught:
            query()
        assert "--replay" in (caught.value.next or "")
        return
    found, notes = query()
    assert (found.name == "q") == (expected == "as it is")
    # What is written again begins where the checkpoint stands.
    assert found.begin == ({0: 0, 1: 5} if expected == "as it is" else {0: 10, 1: 5})
    assert len(notes) == (replay is not None)


class TwoSteps(LocalFileSystem):
    """A store that replaces a file by a removal and a rename; the driver can be killed between them."""

    dies = False
    written = 0

    def write(self, path: str, text: str) -> None:
        self.written += 1
        if self.dies:
            self.delete(path)
            raise KeyboardInterrupt
        super().write(path, text)


@dataclass(frozen=True)
class Told:
    """The part of a fused job's work that a checkpoint decides about."""

    exactly_once: bool = True
    group: str = ""
    run: str = ""
    outputs: tuple[int, ...] = ()
    pulsar: None = None
    progress: None = None
    plan: str | None = None

    @property
    def delivers_once(self) -> bool:
        return self.exactly_once


class OneSource:
    """Prepares a source, again and again, with the same checkpoint of one batch that is open."""

    def __init__(self, files: TwoSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = files
        self.partitions = 1
        self.earliest = 0
        self.policy = "stop"
        self.work = Told()
        self.source = SOURCE
        monkeypatch.setattr(preparation, "beyond_end", lambda *_: ())
        self.prepare()
        files.write("in/metadata", "{}")
        files.write("in/offsets/0", LOG + '{"in":{"0":10}}')
        files.written = 0

    def prepare(self, **options: Any) -> Any:
        offsets = dict.fromkeys(range(self.partitions), 0)
        found = SimpleNamespace(
            cluster_id="c",
            topic_id=None,
            earliest=dict.fromkeys(offsets, self.earliest),
            latest=offsets,
            created={},
            limits={},
        )
        checked: Any = SimpleNamespace(
            source=self.source,
            stage=None,
            schemas=None,
            survey=found,
            on_data_loss=self.policy,
            group=None,
            work=self.work,
            notes=(),
        )
        clusters: Any = SimpleNamespace(client=lambda *_: SimpleNamespace(committed=lambda *_: {}))
        pipeline: Any = SimpleNamespace()
        (ready,) = preparation.prepare([checked], pipeline, JobOptions(**options), clusters, self.files)
        return ready

    def lose_fingerprint(self) -> None:
        """Let a driver be killed while it notes that the topic has grown."""
        self.partitions, self.files.dies = 2, True
        with pytest.raises(KeyboardInterrupt):
            self.prepare()
        self.files.dies = False
        assert not self.files.exists("in.json")


@pytest.fixture
def one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneSource:
    return OneSource(TwoSteps(tmp_path), monkeypatch)


def test_a_fingerprint_that_has_not_changed_is_not_written_again(one_source: OneSource) -> None:
    name = one_source.prepare().query.name
    assert one_source.prepare().query.name == name
    assert one_source.files.written == 0


def test_an_open_batch_without_a_fingerprint_is_not_written_twice_unasked(one_source: OneSource) -> None:
    one_source.lose_fingerprint()
    for options in ({}, {"replay": False}):
        with pytest.raises(CheckpointMismatch, match="an open batch and no fingerprint") as refused:
            one_source.prepare(**options)
        assert str(refused.value.where).endswith("in.json")
        assert "--replay" in str(refused.value.next)
    assert not one_source.files.exists("in.json")
    found = one_source.prepare(replay=True)
    assert "is written again" in found.notes[0]
    assert one_source.files.exists("in.json")
    assert one_source.prepare().query.name == found.query.name


def test_without_a_fingerprint_a_checkpoint_can_be_put_aside(one_source: OneSource) -> None:
    one_source.lose_fingerprint()
    found = one_source.prepare(fresh_checkpoint=True)
    assert "begins anew" in found.notes[0]
    assert one_source.files.exists("in.old-1/offsets/0")


@pytest.mark.parametrize("closed", [True, False])
def test_without_a_fingerprint_a_checkpoint_is_used_where_nothing_is_promised(
    one_source: OneSource, closed: bool
) -> None:
    one_source.lose_fingerprint()
    if closed:  # all that was planned is written: new marks begin where the checkpoint stands
        one_source.files.write("in/commits/0", "v1\n{}")
    else:
        one_source.work = Told(exactly_once=False)
    found = one_source.prepare()
    assert found.query.begin == ({0: 10} if closed else {0: 0, 1: 0})
    assert len(found.notes) == (not closed)


def test_a_checkpoint_that_fits_is_used_whatever_is_allowed(one_source: OneSource) -> None:
    name = one_source.prepare().query.name
    found = one_source.prepare(fresh_checkpoint=True)
    assert (found.query.name, found.notes) == (name, ())
    assert one_source.files.list("") == ["in", "in.json"]


def test_records_that_are_gone_are_counted_here_where_spark_reads(one_source: OneSource) -> None:
    one_source.earliest = 4
    with pytest.raises(JobFailed, match="4 records of in were deleted"):
        one_source.prepare()
    one_source.policy = "continue"
    assert one_source.prepare().lost == 0  # tasks count them themselves
    one_source.source = SimpleNamespace(**{**vars(SOURCE), "asks_spark": True})
    assert one_source.prepare().lost == 4


@pytest.mark.parametrize(
    ("committed", "marks", "position"),
    [
        (True, {0: 5}, {0: 10}),  # the mark of an earlier batch
        (True, {0: 17}, {0: 17}),
        (True, {}, {0: 10}),
        (False, {0: 3}, {0: 3, 1: 2}),
        (False, {}, {0: 1, 1: 2}),
    ],
)
def test_a_source_goes_on_behind_both_its_checkpoint_and_its_marks(
    committed: bool, marks: dict[int, int], position: dict[int, int], tmp_path: Path
) -> None:
    files = LocalFileSystem(tmp_path)
    if committed:
        files.write("in/offsets/0", LOG + '{"in":{"0":10}}')
        files.write("in/commits/0", "v1\n{}")
    clusters: Any = SimpleNamespace(client=lambda *_: SimpleNamespace(committed=lambda *_: marks))
    checkpoint = preparation.Checkpoint(files=files, name="in")
    query = preparation.Query("q", {0: 1, 1: 2})
    checked: Any = SimpleNamespace(source=SOURCE, work=EXACTLY)
    assert preparation._position(checked, checkpoint, query, clusters) == position


@pytest.mark.parametrize(
    ("name", "exists", "fresh", "left"),
    [
        ("before", True, False, None),
        ("before", True, True, ["before.old-1"]),
        ("before", False, False, ["before.json"]),  # a job that never began: nothing is lost
        ("now", True, False, ["now", "now.json"]),  # its topic is compared by its own rule
    ],
)
def test_a_checkpoint_of_an_operation_that_has_moved_is_not_forgotten(
    name: str, exists: bool, fresh: bool, left: list[str] | None, tmp_path: Path
) -> None:
    files = LocalFileSystem(tmp_path)
    old = Fingerprint(
        topic="t1", cluster_id=None, topic_id=None, partitions=1, operations=("onIn",), routes={}
    )
    write_fingerprint(files, f"{name}.json", old)
    if exists:
        files.write(f"{name}/metadata", "{}")
    route = SimpleNamespace(receive=SimpleNamespace(id="onIn"))
    source: Any = SimpleNamespace(name="now", topic="t2", routes=(route,))
    options = JobOptions(fresh_checkpoint=fresh)
    if left is None:
        with pytest.raises(CheckpointMismatch, match="belongs to something else"):
            preparation._leave_none_behind([source], files, options)
    else:
        preparation._leave_none_behind([source], files, options)
        assert files.list("") == left


@dataclass(frozen=True)
class Noted:
    """The part of a fingerprint that says when partitions were created."""

    created: dict[str, str]


@pytest.mark.parametrize(
    ("exists", "seen", "kept"),
    [
        (True, {}, {"0": "then", "1": "then"}),  # not allowed to look this time
        (True, {"1": "now", "2": "now"}, {"0": "then", "1": "now", "2": "now"}),
        (False, {"1": "now"}, {"1": "now"}),
    ],
)
def test_what_cannot_be_seen_of_a_topic_this_time_is_compared_the_next_time(
    exists: bool,
    seen: dict[str, str],
    kept: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    there: list[Any] = [Noted({"0": "then", "1": "then"})]
    ready = SimpleNamespace(
        source=SOURCE,
        survey=None,
        query=None,
        work=None,
        exactly_once=False,
        plan=None,
        begun=None,
        checkpoint=SimpleNamespace(fingerprint="in.json", exists=exists),
    )
    monkeypatch.setattr(preparation, "_prepare", lambda *_: ready)
    monkeypatch.setattr(preparation, "_fingerprint", lambda *_, **__: Noted(seen))
    monkeypatch.setattr(preparation, "read_fingerprint", lambda *_: there[-1])
    monkeypatch.setattr(preparation, "write_fingerprint", lambda files, path, found: there.append(found))
    nothing: Any = SimpleNamespace()
    checked: Any = SimpleNamespace(source=SOURCE)
    preparation.prepare([checked], nothing, JobOptions(), nothing, LocalFileSystem(tmp_path))
    assert there[-1] == Noted(kept)


class Marks:
    """The offsets of a group: partition 0 at offset 5; notes how it was asked."""

    stable: list[bool] = []

    def __init__(self, cluster: object, group: str) -> None:
        return

    def committed(self, topic: str, *, stable: bool = True) -> dict[int, GroupOffset]:
        self.stable.append(stable)
        return {0: GroupOffset(5, "")}


class Nowhere:
    """A cluster that is not asked."""

    def __init__(self, settings: object) -> None:
        return

    def __enter__(self) -> Nowhere:
        return self

    def __exit__(self, *_: object) -> None:
        return


@pytest.fixture
def prepare_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Prepares the loop of a source whose topic begins at 8, behind the offset of its group."""
    found = SimpleNamespace(earliest={0: 8}, latest={0: 20}, is_empty=False)
    work = SimpleNamespace(
        settings=None,
        group="g",
        topic="in",
        has_outputs=False,
        outputs={},
        belonging=Belonging(),
        exactly_once=True,
        plan=None,
        program=SimpleNamespace(has_kernel=False),
        pulsar=None,
        progress=None,
        pulsar_outputs={},
    )
    for name, made in {
        "refuse_unrunnable": lambda *_: None,
        "stage_of": lambda *_: None,
        "check_functions": lambda *_: None,
        "survey": lambda *_: found,
        "group_of": lambda *_: "g",
        "settled": lambda *_: None,
        "work_of": lambda *_, **__: work,
        "owner_of": lambda *_: None,
        "promised": lambda *_: (),
        "Cluster": Nowhere,
        "GroupOffsets": Marks,
    }.items():
        monkeypatch.setattr(job_loop, name, made)
    monkeypatch.setattr(Marks, "stable", [])

    def run(passed: tuple[Change, ...] = (), **options: Any) -> Any:
        monkeypatch.setattr(job_loop, "beyond_end", lambda *_: passed)
        job = LoopJob(
            SimpleNamespace(on_data_loss="stop", trigger=None, requires_exactly_once=False),
            JobOptions(**options),
        )  # type: ignore[arg-type]
        return job._prepare_one(SOURCE)

    return run


def test_what_a_killed_loop_has_left_open_is_not_waited_for(prepare_loop: Callable[..., Any]) -> None:
    with pytest.raises((JobFailed, CheckpointMismatch)):
        prepare_loop()
    assert Marks.stable == [False]


def test_records_that_are_gone_concern_nobody_who_begins_anew(prepare_loop: Callable[..., Any]) -> None:
    with pytest.raises((JobFailed, CheckpointMismatch)):
        prepare_loop()
    other = Change("the topic ends before that", fatal=True)
    assert prepare_loop((other,), fresh_checkpoint=True).anew


def test_schemas_that_were_learnt_reach_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "stage_of", lambda source, pipeline, schemas: f"with {schemas}")
    monkeypatch.setattr(preparation, "settled", lambda stage, survey, clusters: f"settled {stage}")
    monkeypatch.setattr(preparation, "with_stage", lambda work, stage: replace(work, stage=stage))
    told = preparation.WorkerSpec(program=None, stage="old", settings=None, topic="in", group="g")  # type: ignore[arg-type]
    ready: Any = preparation.Prepared(
        source=SOURCE,
        stage="old",  # type: ignore[arg-type]
        schemas="two",  # type: ignore[arg-type]
        survey=None,  # type: ignore[arg-type]
        checkpoint=None,  # type: ignore[arg-type]
        on_data_loss="stop",
        query=None,  # type: ignore[arg-type]
        work=told,
    )
    nothing: Any = None
    found: Any = preparation.refreshed(ready, nothing)
    assert (found.stage, found.work.stage, found.work.group) == ("settled with two", "settled with two", "g")


def test_less_than_before_is_explained_by_what_cannot_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "read_fingerprint", lambda *_: SimpleNamespace(exactly_once=True))
    monkeypatch.setattr(preparation, "why_unrepeatable", lambda source, *, indexed: "a function")
    source: Any = SimpleNamespace(**{**vars(SOURCE), "native_pulsar": ("pulsar",)})
    work: Any = SimpleNamespace(exactly_once=True, delivers_once=False, pulsar=None)
    checkpoint: Any = SimpleNamespace(files=None, exists=True, fingerprint="x.json", folder="x")
    with pytest.raises(CheckpointMismatch) as refused:
        preparation._refuse_downgrade(source, JobOptions(), checkpoint, work)
    assert refused.value.why == "pulsar: a function"
