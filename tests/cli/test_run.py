"""penstock run: what it refuses before it starts, its status lines and its summary."""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import penstock
from penstock.cli import run
from penstock.cli.app import main
from penstock.cli.run_options import job_options, metrics_address, spark_settings
from penstock.cli.settings import Format, Settings, scope, use
from penstock.embedded.private import make_folder
from penstock.errors import ConfigError, PipelineError, UsageError
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import IDLE_SECONDS, MAX_BYTES_PER_TRIGGER, MAX_FAILURES, Planned, Progress, Totals
from penstock.pipeline.spark import startup, submission

SHOP = str(Path(__file__).parents[2] / "examples/shop/pipeline.yaml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--once", "--until-idle"], "two ends"),
        (["--metrics", "nowhere:port"], "is no address"),
        (["missing.yaml"], "missing.yaml"),
        (["."], "it is a folder"),
        (["--real-time"], "penstock run --engine loop"),
        ([SHOP, "--driver-memory", "2gigs"], "--driver-memory"),
        ([SHOP, "--driver-memory", "2048"], "like 512m or 2g"),
        ([SHOP, "--master", "spark.example:7077"], "spark://HOST:7077"),
        ([SHOP, "--conf", "spark.master=mesos://host"], "no master of Spark"),
    ],
)
def test_wrong_words_are_told_before_anything_starts(
    words: list[str], said: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_address_without_a_host_is_on_the_loopback_interface() -> None:
    assert metrics_address("9400") == ("127.0.0.1", 9400)
    assert metrics_address("[::1]:9400") == ("::1", 9400)
    assert metrics_address(None) is None
    with pytest.raises(ConfigError):
        metrics_address("host")


PROGRESS = Progress(
    source="kafka-orders",
    batch=42,
    counts={"n_in": 1204, "n_out": 1201, "n_dead": 0, "n_unmatched": 3, "n_expired": 0},
    seconds=0.81,
    lag=7,
)


def told(fmt: Format, capsys: pytest.CaptureFixture[str]) -> str:
    with scope():
        use(Settings(output=fmt))
        run._status_lines().batch(PROGRESS)
    return capsys.readouterr().err


def test_a_batch_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "kafka-orders · batch 42 · 0.8 s · lag 7 · 1204 in · 1201 out · 0 dead · 3 unmatched\n"
    assert told(Format.TABLE, capsys) == line


def test_a_batch_is_one_object_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(Format.JSON, capsys))
    assert (found["source"], found["batch"], found["in"], found["lag"]) == ("kafka-orders", 42, 1204, 7)


def test_the_summary_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    sources = {
        "a": Totals(counts=Counter(n_in=5, n_dead=1), batches=2, lost=3),
        "b": Totals(counts=Counter(n_in=2), batches=1, lag=9),
    }
    planned = [Planned("r", "a", "spark", "exactly once on k", "kernel")]
    job: Any = SimpleNamespace(totals=sources, pipeline=SimpleNamespace(checkpoint="c"), plan=planned)
    with scope():
        use(Settings(output=Format.JSON))
        run._summary(job, 1.26)
    found = json.loads(capsys.readouterr().out)
    assert (found["total"]["in"], found["total"]["dead"], found["total"]["lost"]) == (7, 1, 3)
    assert [each["source"] for each in found["sources"]] == ["a", "b"]
    assert found["sources"][1]["lag"] == 9
    assert found["seconds"] == 1.3
    assert found["routes"] == [
        {
            "route": "r",
            "source": "a",
            "engine": "spark",
            "guarantee": "exactly once on k",
            "evaluator": "kernel",
            "condition_by_spark": False,
        }
    ]


@pytest.mark.parametrize(
    ("fmt", "line"),
    [
        (Format.TABLE, "route r: engine spark (kernel), exactly once on k"),
        (
            Format.JSON,
            '{"route": "r", "source": "a", "engine": "spark", "guarantee": "exactly once on k", '
            '"evaluator": "kernel", "condition_by_spark": false}',
        ),
    ],
)
def test_engine_and_guarantee_are_said_before_anything_runs(
    fmt: Format, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    class Job:
        engine, totals, pipeline, progress_in = "loop", {"a": Totals()}, None, "c"
        plan: ClassVar[list[Planned]] = []

        def watch(self, watcher: object) -> None:
            return None

        def prepare(self) -> None:
            self.plan.append(Planned("r", "a", "spark", "exactly once on k", "kernel"))

        def run(self) -> None:
            order.append(capsys.readouterr().err)

    with scope():
        use(Settings(output=fmt))
        run._run(Job(), run._Cluster({}, None), None)  # type: ignore[arg-type]
    assert order == [f"{line}\n"]


def test_the_table_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    totals = {"kafka-sensor.readings": Totals(counts=Counter(n_in=1204, n_out=1201, n_retried=2), batches=3)}
    job: Any = SimpleNamespace(totals=totals, progress_in="c", plan=[])
    run._summary(job, 1.0)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["source", "in", "out", "dead", "unmatched", "retried", "lag", "batches"]
    assert max(len(header), len(row)) <= 80


PIPELINE = """\
engine: ENGINE
routes:
  r: {receive: onIn, send: toOut, delivery: {deadLetterSink: dead}}
"""
CONTRACT = """\
asyncapi: 3.0.0
info: {title: t, version: '1'}
servers: {k: {host: '127.0.0.1:9', protocol: kafka}}
channels: {in: {address: in}, out: {address: out}, dead: {address: dead}}
operations:
  onIn: {action: receive, channel: {$ref: '#/channels/in'}}
  toOut: {action: send, channel: {$ref: '#/channels/out'}}
"""


@pytest.mark.parametrize(
    ("engine", "words", "said"),
    [
        ("loop", ["--master", "local[1]"], "--master is for Spark"),
        ("loop", ["--max-offsets", "5"], "--max-offsets is for Spark"),
        ("loop", ["--max-failures", "0"], "--max-failures is for Spark"),
        ("loop", ["--ui"], "--ui is for Spark"),
        ("loop", ["--split"], "--split is for Spark"),
        ("loop", ["--conf", "spark.a=b"], "--conf is for Spark"),
        ("loop", ["--worker-python", "python3"], "--worker-python is for Spark"),
        ("loop", ["--driver-memory", "2g"], "--driver-memory is for Spark"),
        ("loop", ["--max-bytes", "5"], "--max-bytes is for Spark"),
        ("loop", ["--max-tasks", "5"], "--max-tasks is for Spark"),
        ("loop", ["--trigger", "PT1S"], "--trigger is for Spark"),
        ("loop", ["--replay"], "--replay is for Spark"),
        ("loop", ["--no-replay"], "--no-replay is for Spark"),
        ("spark", ["--trigger", "soon"], "soon is no duration"),
        ("spark", ["--engine", "loop", "--package", "p.zip"], "--package is for Spark"),
        ("spark", ["--package", "job"], "job holds no application"),
        ("spark", ["--package", "asyncapi.yaml"], "asyncapi.yaml holds no application"),
        ("spark", ["--take-over"], "--take-over is for the loop"),
        ("spark", ["--engine", "columns", "--idle", "9"], "--engine columns means spark now"),
        ("spark", ["--idle", "9"], "--until-idle"),
        ("spark", ["--once", "--idle", "9"], "--until-idle"),
    ],
)
def test_options_that_cannot_apply_are_refused(
    engine: str, words: list[str], said: str, isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    (isolated_home / "pipeline.yaml").write_text(PIPELINE.replace("ENGINE", engine))
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT be handled: a shell that starts tests in the background lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_first_signal_asks_and_the_second_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make_folder("penstock-job-")
    before = signal.getsignal(signal.SIGTERM)
    with run._signals(SimpleNamespace(stop=lambda: done.append("stop"))):  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert done[:2] == ["stop", 128 + signal.SIGINT]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


CODE = """
from penstock.cli import output
output.status("batch 1 " + "x" * 300)
output.status("batch 2")
output.talk("the end")
output.status("batch 3")
output.rows(("source", "in"), [("a", 1)], "table")
output.status("batch 4")
output.data("data")
"""


def test_a_terminal_has_one_status_line_that_is_written_over(terminal: Any) -> None:
    code, shown = terminal(CODE)
    assert code == 0
    lines = shown.replace("\r\n", "\n").split("\n")
    assert lines[0].startswith("\r\x1b[2Kbatch 1 xxx")
    assert lines[0].endswith("\r\x1b[2Kbatch 2")
    assert len(lines[0].split("\r")[1]) <= 100 + len("\x1b[2K")
    assert lines[1] == "the end"
    # What goes to stdout begins on a line of its own, too.
    assert lines[2].endswith("batch 3")
    assert lines[3].replace("\x1b[1m", "").startswith("source")
    assert lines[5].endswith("batch 4")
    assert lines[6] == "data"


NOTHING: dict[str, Any] = {"conf": None, "master": None, "driver_memory": None, "ui": False, "package": None}


@pytest.mark.parametrize("text", ["spark.x", "x=y", "=y", "sparkx=1"])
def test_what_sets_nothing_in_spark_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="sets nothing in Spark"):
        spark_settings({**NOTHING, "conf": [text]})


@pytest.mark.parametrize(
    ("arguments", "defaults", "conf", "archives", "paths"),
    [
        ("", "", [], "ours.zip#o", "./o"),
        ("", "spark.archives a.zip\nspark.executorEnv.PYTHONPATH /x:/y", [], "a.zip,ours.zip#o", "./o:/x:/y"),
        ("--archives b.zip", "spark.archives a.zip", [], "b.zip,ours.zip#o", "./o"),
        ("--conf spark.executorEnv.PYTHONPATH=/z", "", ["spark.archives=c"], "c,ours.zip#o", "./o:/z"),
        ("--archives b.zip,ours.zip#o", "", [], "b.zip,ours.zip#o", "./o"),
    ],
)
def test_a_package_is_added_to_what_the_user_sends_to_the_workers(
    arguments: str,
    defaults: str,
    conf: list[str],
    archives: str,
    paths: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"spark.archives": "ours.zip#o", "spark.executorEnv.PYTHONPATH": "./o"}
    monkeypatch.setattr(submission, "read_application", lambda _: SimpleNamespace(settings=dict(own)))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    found = spark_settings({**NOTHING, "conf": conf, "package": tmp_path})
    assert found == {"spark.archives": archives, "spark.executorEnv.PYTHONPATH": paths}


def test_settings_of_the_command_line() -> None:
    conf = ["spark.a=b=c", "spark.master=local", "spark.d="]
    found = spark_settings({**NOTHING, "conf": conf, "master": "local[3]", "driver_memory": "2g", "ui": True})
    assert found == {
        "spark.a": "b=c",
        "spark.d": "",
        "spark.master": "local[3]",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "true",
    }


NO_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("idle", "max_failures", "engine", "group", "on_data_loss", "max_offsets", "max_bytes")),
    **dict.fromkeys(("max_tasks", "trigger", "replay")),
    **dict.fromkeys(("once", "until_idle", "at_least_once", "take_over", "fresh_checkpoint", "split"), False),
    "shadow": 0,
    "broker_timeout": 60.0,
}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "max_failures", MAX_FAILURES),
        ({"max_failures": 0}, "max_failures", 0),  # no number is too much
        ({"max_failures": 3}, "max_failures", 3),
        ({}, "replay", None),  # the job refuses, and asks
        ({"replay": False}, "replay", False),
        ({"replay": True}, "replay", True),
        ({}, "trigger", None),  # as the pipeline says
        ({"trigger": "PT0S"}, "trigger", 0.0),
        ({"trigger": "PT1M"}, "trigger", 60.0),
        ({}, "until_idle", None),
        ({"until_idle": True}, "until_idle", IDLE_SECONDS),
        ({"until_idle": True, "idle": 9.0}, "until_idle", 9.0),
        ({}, "exactly_once", True),
        ({"at_least_once": True}, "exactly_once", False),
        ({}, "max_bytes", MAX_BYTES_PER_TRIGGER),
        ({"max_bytes": 7}, "max_bytes", 7),
        ({"split": True}, "split", True),
    ],
)
def test_what_the_job_is_told(given: dict[str, Any], name: str, value: object) -> None:
    assert getattr(job_options({**NO_OPTIONS, **given}), name) == value


OF_APPLICATION = {"spark.executorEnv.PYTHONPATH": "./penstock_application/python:/theirs"}


@pytest.mark.parametrize(
    ("master", "conf", "sent"),
    [
        ("local[*,4]", {}, False),
        ("spark://host:7077", {}, True),
        ("spark://host:7077", {"spark.executorEnv.PYTHONPATH": "/theirs"}, True),
        ("yarn", OF_APPLICATION, False),
    ],
)
def test_workers_get_penstock_once(
    master: str, conf: dict[str, str], sent: bool, monkeypatch: pytest.MonkeyPatch, isolated_home: Path
) -> None:
    files: list[str] = []
    monkeypatch.setattr(submission, "make_package", lambda _, path, config: SimpleNamespace(path=path))
    context = SimpleNamespace(master=master, getConf=lambda: conf, addPyFile=files.append)
    pipeline: Any = None
    with run._Cluster({}, None).equipped(SimpleNamespace(sparkContext=context), pipeline):  # type: ignore[arg-type]
        assert [Path(file).name for file in files] == (["penstock-package.zip"] if sent else [])


@pytest.mark.parametrize("batches", [0, 1])
def test_a_job_that_fails_is_summed_up_if_it_has_written_something(
    batches: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Job:
        engine, plan, progress_in = "loop", (), "c"
        totals: ClassVar[dict[str, Totals]] = {"a": Totals(batches=batches)}

        def watch(self, watcher: object) -> None: ...

        def prepare(self) -> None: ...

        def run(self) -> None:
            raise PipelineError("Spark did not start")

    with scope(), pytest.raises(PipelineError):
        run._run(Job(), run._Cluster({}, None), None)  # type: ignore[arg-type]
    assert ("batches" in capsys.readouterr().out) == bool(batches)


def test_the_application_is_named_after_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pipelines on a cluster are ten rows of its master and of its history server."""
    named: list[str] = []

    class Started(Exception): ...

    def starts(name: str = "penstock", **_: object) -> None:
        named.append(name)
        raise Started

    monkeypatch.setattr(run, "start_spark", starts)
    for name in (None, "orders"):
        job: Any = SimpleNamespace(
            pipeline=SimpleNamespace(name=name, path="/a/large.yaml"),
            totals={},
            only_plans=True,
            uses_kernels=True,
        )
        with pytest.raises(Started):
            run._run_in_spark(job, run._Cluster({}, None))
    assert named == ["large", "orders"]


@pytest.mark.parametrize("ended", [True, False])
def test_only_a_java_that_has_ended_need_not_be_stopped(ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(startup, "java_has_ended", lambda seconds: ended and seconds > 0)
    with nullcontext() if ended else pytest.raises(ConnectionRefusedError):
        run._stop_spark(SimpleNamespace(stop=stop))  # type: ignore[arg-type]


def test_a_package_of_another_version_of_the_functions_is_refused(
    isolated_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (isolated_home / ".git").mkdir()
    (isolated_home / "asyncapi.yaml").write_text(CONTRACT)
    (isolated_home / "pipeline.yaml").write_text(PIPELINE.replace("ENGINE", "spark"))
    about = {
        "penstock": penstock.__version__,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "platform": sysconfig.get_platform(),
        "modules": "0",
        "pipeline": "pipeline.yaml",
        "libraries": [],
    }
    (isolated_home / "job").mkdir()
    (isolated_home / "application.json").write_text(json.dumps(about))
    with tarfile.open(isolated_home / "job" / "application.tar.gz", "w:gz") as archive:
        archive.add(isolated_home / "application.json", "application.json")
    assert main(["run", "--package", "job"]) == 2
    error = capsys.readouterr().err
    assert "does not fit this job" in error and "modules" in error
    assert f"penstock package pipeline.yaml --to {isolated_home / 'job'}" in " ".join(error.split())


YARN = {"spark.submit.deployMode": "cluster"}
POD = {"spark.submit.deployMode": "client", "spark.kubernetes.submitInDriver": "true"}
"""In the driver's pod Spark starts the driver once more, in client mode."""


@pytest.mark.parametrize(
    ("conf", "checkpoint", "refused"),
    [
        (YARN, "/data/checkpoints", True),
        (YARN, "hdfs://namenode/checkpoints", False),
        (YARN, "file:///mounted/checkpoints", False),
        (POD, "/data/checkpoints", True),
        (POD, "s3a://bucket/checkpoints", False),
        (POD, "file:/mounted/checkpoints", False),
        ({"spark.submit.deployMode": "client"}, "/data/checkpoints", False),
        ({}, "/data/checkpoints", False),
    ],
)
def test_a_checkpoint_in_the_drivers_container_is_refused(
    conf: dict[str, str], checkpoint: str, refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "asyncapi.yaml").write_text(CONTRACT)
    text = PIPELINE.replace("ENGINE", "spark")
    (tmp_path / "pipeline.yaml").write_text(f"checkpoint: {checkpoint}\n{text}")
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    with pytest.raises(PipelineError, match="folder of the driver's container") if refused else nullcontext():
        run._refuse_local_checkpoint(spark, load_pipeline(tmp_path / "pipeline.yaml"))
