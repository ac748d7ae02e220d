"""`penstock run`: the routes of a pipeline, one status line a batch, totals at the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from penstock.cli import output
from penstock.cli.settings import Format, configuration, current
from penstock.cli.sparkstart import compile_kernels, silence_java_clients, start_spark
from penstock.embedded.private import remove_folders, temporary_folder
from penstock.errors import ConfigError, PipelineError, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.job import Job, Progress, Watcher

__all__ = ["command"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KILLED_BY: Final = 128
_MOMENT: Final = 5.0
_ALWAYS: Final = ("n_in", "n_out", "n_dead")
"""What a status line says even if it is nothing."""
_WANTED_COLUMNS: Final = (
    "source",
    *(name.removeprefix("n_") for name in _ALWAYS),
    "unmatched",
    "lag",
    "batches",
)
"""What the table at the end has even if it is nothing."""


class OnDataLoss(StrEnum):
    """What to do if records are gone from a topic before they were read."""

    STOP = "stop"
    CONTINUE = "continue"


class EngineName(StrEnum):
    """Who runs the routes."""

    AUTO = "auto"
    FUSED = "fused"
    COLUMNS = "columns"
    LOOP = "loop"


def _refuse_real_time(given: bool) -> None:
    if given:
        raise UsageError(
            "--real-time is gone",
            why="The loop has lower latency than Spark's Real-Time Mode had, and delivers exactly once.",
            next="penstock run --engine loop",
        )


File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Once = Annotated[bool, typer.Option("--once", help="Process what is there now, then end.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when nothing comes any more.")]
Idle = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.5, help="What --until-idle calls idle; 5 if not given."),
]
Master = Annotated[
    str | None, typer.Option(help="The Spark master; else as Spark is configured, or local[*,4].")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; can be given several times."),
]
DriverMemory = Annotated[
    str | None,
    typer.Option("--driver-memory", metavar="SIZE", help="Memory of Spark's Java, such as 2g."),
]
Ui = Annotated[bool, typer.Option("--ui", help="Serve Spark's UI and print its address.")]
RealTime = Annotated[bool, typer.Option("--real-time", hidden=True, callback=_refuse_real_time)]
EngineOption = Annotated[
    EngineName | None,
    typer.Option("--engine", help="Who runs the routes, loop without Spark; else as the pipeline says."),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option("--at-least-once", help="Write without transactions where fused or loop would use them."),
]
Shadow = Annotated[
    int,
    typer.Option(
        "--shadow",
        metavar="N",
        min=0,
        help="Let one of N records of fused or loop be done twice and compared; 0: none.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="Consumer group to commit progress to; else the one that the contract names."),
]
OnDataLossOption = Annotated[
    OnDataLoss | None,
    typer.Option(
        "--on-data-loss", help="If records are gone before they were read; else as the pipeline says."
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Go on from the offsets of another pipeline's group; for the loop."),
]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Records of one batch of Spark at most; 500 000 if not given."),
]
MaxBytes = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="Bytes of one batch of fused, about; 1 GiB if not given."),
]
MaxTasks = Annotated[
    int | None,
    typer.Option("--max-tasks", min=1, help="Tasks of one batch of fused at most; else as Spark has slots."),
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        "--max-failures",
        min=0,
        help="End when a source has failed so often in a row while others go on; 10 if not given, 0: never.",
    ),
]
Trigger = Annotated[
    str | None,
    typer.Option(
        "--trigger",
        metavar="INTERVAL",
        help="Begin a batch of Spark at most so often, as PT10S; else as the pipeline says, or at once.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh-checkpoint", help="Begin anew where the checkpoint does not fit; the old one is kept beside."
    ),
]
Replay = Annotated[
    bool | None,
    typer.Option(
        "--replay/--no-replay",
        help="If an older checkpoint was put back: write again what was written since, or go on behind it.",
    ),
]
MetricsAt = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve /metrics, /healthz and /readyz here; off if not given.",
    ),
]
BrokerTimeout = Annotated[
    float,
    typer.Option(
        "--broker-timeout",
        metavar="SECONDS",
        min=1.0,
        help="With --once or --until-idle: end when a broker is away for so long. Without: go on trying.",
    ),
]
PackageFile = Annotated[
    Path | None,
    typer.Option(
        "--package",
        metavar="FOLDER",
        help="What `penstock package` made, for the workers of a cluster; else they get Penstock alone.",
    ),
]
WorkerPython = Annotated[
    str | None, typer.Option("--worker-python", metavar="PATH", help="The Python of the cluster's workers.")
]


def command(
    file: File = Path("pipeline.yaml"),
    once: Once = False,
    until_idle: UntilIdle = False,
    idle: Idle = None,
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    ui: Ui = False,
    engine: EngineOption = None,
    at_least_once: AtLeastOnce = False,
    shadow: Shadow = 0,
    real_time: RealTime = False,
    group: Group = None,
    on_data_loss: OnDataLossOption = None,
    take_over: TakeOver = False,
    max_offsets: MaxOffsets = None,
    max_bytes: MaxBytes = None,
    max_tasks: MaxTasks = None,
    max_failures: MaxFailures = None,
    trigger: Trigger = None,
    fresh_checkpoint: Fresh = False,
    replay: Replay = None,
    broker_timeout: BrokerTimeout = 60.0,
    metrics: MetricsAt = None,
    package: PackageFile = None,
    worker_python: WorkerPython = None,
) -> None:
    """Run a pipeline; the first lines say by which engine each route runs, and what its delivery is worth.

    SIGTERM or Ctrl-C finishes the batch that runs; a second one ends at once.
    """
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.job import (
        IDLE_SECONDS,
        MAX_BYTES_PER_TRIGGER,
        MAX_FAILURES,
        JobOptions,
        job_of,
    )
    from penstock.pipeline.spark.session import connect_refusal, is_connect

    if once and until_idle:
        raise UsageError("--once and --until-idle are two ends", next="give one of them")
    if idle is not None and not until_idle:
        raise UsageError("--idle says what --until-idle waits for", next="add --until-idle, or leave it out")
    address = _address(metrics)
    options = JobOptions(
        once=once,
        until_idle=(idle or IDLE_SECONDS) if until_idle else None,
        engine=engine,
        exactly_once=not at_least_once,
        shadow=shadow,
        group=group,
        on_data_loss=on_data_loss,
        take_over=take_over,
        max_offsets=max_offsets,
        max_bytes=max_bytes or MAX_BYTES_PER_TRIGGER,
        max_tasks=max_tasks,
        max_failures=MAX_FAILURES if max_failures is None else max_failures,
        trigger=_interval(trigger),
        fresh_checkpoint=fresh_checkpoint,
        replay=replay,
        broker_timeout=broker_timeout,
    )
    pipeline = load_pipeline(file, context=configuration().context())
    of_spark = {
        "--master": master,
        "--conf": conf or None,
        "--driver-memory": driver_memory,
        "--ui": ui or None,
        "--max-offsets": max_offsets,
        "--replay": replay,
        "--max-bytes": max_bytes,
        "--max-tasks": max_tasks,
        "--max-failures": max_failures,
        "--trigger": trigger,
        "--package": package,
        "--worker-python": worker_python,
    }
    _refuse_idle_words(str(engine or pipeline.engine), of_spark, shadow=shadow, take_over=take_over)
    settings = _settings(conf or [], master, driver_memory, ui=ui)
    settings |= _of_package(package, settings)
    if str(engine or pipeline.engine) != EngineName.LOOP and is_connect(settings):
        raise connect_refusal()
    output.show_logs(debug=False)
    with job_of(pipeline, options) as job:
        _run(job, _Cluster(settings, worker_python), address)


def _settings(conf: Sequence[str], master: str | None, memory: str | None, *, ui: bool) -> dict[str, str]:
    """Return what the command line sets in Spark; an option of its own beats `--conf`."""
    found = {}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(
                f"'{text}' sets nothing in Spark",
                where="--conf",
                why="The names of Spark's settings begin with `spark.`.",
                next="write --conf spark.KEY=VALUE",
            )
        found[key] = value
    if master is not None:
        found["spark.master"] = master
    if memory is not None:
        found["spark.driver.memory"] = memory
    if ui:
        found["spark.ui.enabled"] = "true"
    return found


def _interval(text: str | None) -> float | None:
    """Read the duration of --trigger; raises UsageError."""
    from penstock.pipeline.compile import seconds_of

    seconds = None if text is None else seconds_of(text)
    if text is not None and seconds is None:
        raise UsageError(
            f"{text} is no duration", where="--trigger", next="write it like PT0.5S, PT10S or PT1M"
        )
    return seconds


def _of_package(package: Path | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that bring an application to the workers; UsageError if the folder holds none."""
    from penstock.pipeline.spark.submission import read_application

    if package is None:
        return {}
    found = read_application(package.absolute()).settings
    others = given.get("spark.archives")
    return {**found, "spark.archives": f"{others},{found['spark.archives']}"} if others else found


def _refuse_idle_words(engine: str, of_spark: Mapping[str, object], *, shadow: int, take_over: bool) -> None:
    """Refuse options that have no meaning for an engine, instead of doing without them."""
    if engine == EngineName.LOOP:
        for word, value in of_spark.items():
            if value is not None:
                raise UsageError(f"{word} is for Spark, and the loop runs without", next=f"leave {word} out")
    elif take_over:
        raise UsageError(
            "--take-over is for the loop, whose progress is a group",
            why="The progress of a Spark job is its checkpoint, which belongs to one pipeline file.",
            next="leave --take-over out, or run --engine loop",
        )
    if engine == EngineName.COLUMNS and shadow:
        raise UsageError(
            "--shadow compares the kernel of fused and loop, and the columns engine has none",
            next="leave --shadow out, or choose another engine",
        )


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where the job runs, and what its workers get."""

    settings: Mapping[str, str]
    worker_python: str | None

    @contextmanager
    def equipped(self, spark: SparkSession, pipeline: Pipeline) -> Iterator[None]:
        """Send Penstock to the workers; those of a local master, or of an application, have it."""
        from penstock.pipeline.spark.startup import is_local
        from penstock.pipeline.spark.submission import brings_application, make_package

        context = spark.sparkContext
        if is_local(context.master or "") or brings_application(context.getConf()):
            yield
        else:
            with temporary_folder("penstock-") as folder:
                context.addPyFile(str(make_package(pipeline, folder / "penstock-package.zip").path))
                yield


def _run(job: Job, cluster: _Cluster, address: tuple[str, int] | None) -> None:
    began = time.monotonic()
    job.watch(_status_lines())
    with _served(job, address):
        job.prepare()
        _say_how(job)
        try:
            if job.needs_spark:
                _run_in_spark(job, cluster)
            else:
                with _signals(job):
                    job.run()
        finally:
            _summary(job, time.monotonic() - began)


def _run_in_spark(job: Job, cluster: _Cluster) -> None:
    from penstock.pipeline.spark.startup import is_local

    spark = start_spark(
        settings=cluster.settings,
        sources=len(job.totals),
        worker_python=cluster.worker_python,
        light=job.only_plans,
        fused=job.uses_kernels,
    )
    try:
        _refuse_local_checkpoint(spark, job.progress_in)
        silence_java_clients(spark)
        if (page := spark.sparkContext.uiWebUrl) is not None:
            output.talk(f"Spark's UI on {page}")
        if job.uses_kernels and is_local(spark.sparkContext.master or ""):
            compile_kernels()
        with cluster.equipped(spark, job.pipeline), _signals(job):
            job.run(spark)
    finally:
        _stop_spark(spark)


def _refuse_local_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Refuse a folder of the driver's container: the next driver would begin anew on another machine."""
    from penstock.pipeline.spark.file_system import is_remote

    in_cluster = spark.sparkContext.getConf().get("spark.submit.deployMode", "client") == "cluster"
    if in_cluster and not is_remote(checkpoint):
        raise PipelineError(
            f"the checkpoint {checkpoint} is a folder of the driver's container",
            why="In deploy mode `cluster` the next attempt may run on another machine, and would begin anew.",
            next="name a store that every machine reaches: checkpoint: hdfs://..., s3a://... or file:///mounted",
        )


def _stop_spark(spark: SparkSession) -> None:
    """End Spark; Java may have ended before, by the same signal."""
    from penstock.pipeline.spark.startup import java_has_ended

    if java_has_ended(0.0):
        return
    try:
        spark.stop()
    except OSError:
        if not java_has_ended(_MOMENT):
            raise


# What is told


def _say_how(job: Job) -> None:
    """Say of each route who runs it and what its delivery is worth, before the first record is read."""
    for each in job.plan:
        if current().output is Format.JSON:
            output.talk(json.dumps(asdict(each)))
        else:
            output.talk(f"route {each.route}: engine {each.engine}, {each.guarantee}")


def _status_lines() -> Watcher:
    from penstock.pipeline.job import Watcher

    class StatusLines(Watcher):
        def batch(self, progress: Progress) -> None:
            tell = _BATCHES.get(current().output, _batch_line)
            tell(progress)

        def lost(self, source: str, records: int) -> None:
            output.talk(f"warning: {records} records of {source} were deleted before they were read")

        def note(self, text: str) -> None:
            output.talk(text)

    return StatusLines()


def _batch_line(progress: Progress) -> None:
    counts = progress.counts
    told = [f"{counts[name]} {_label(name)}" for name in counts if counts[name] or name in _ALWAYS]
    # What is said last is cut where a terminal is narrow.
    line = " · ".join((f"{progress.seconds:.1f} s", f"lag {progress.lag}", *told))
    output.status(f"{progress.source} · batch {progress.batch} · {line}")


def _batch_json(progress: Progress) -> None:
    counts = {_label(name): count for name, count in progress.counts.items()}
    about = {"source": progress.source, "batch": progress.batch, **counts}
    output.talk(json.dumps({**about, "lag": progress.lag, "seconds": round(progress.seconds, 3)}))


_BATCHES: Final[dict[Format, Callable[[Any], None]]] = {Format.JSON: _batch_json}


def _label(counter: str) -> str:
    return counter.removeprefix("n_")


def _summary(job: Job, seconds: float) -> None:
    counters = _counters(job)
    labels = [_label(name) for name in counters]
    if current().output is Format.TABLE:
        rows = [
            (name, *(each.counts[counter] for counter in counters), each.lost, each.lag, each.batches)
            for name, each in job.totals.items()
        ]
        # A column of zeros that nobody waits for only makes the table too wide for a terminal.
        columns = ("source", *labels, "lost", "lag", "batches")
        kept = [
            n for n, column in enumerate(columns) if column in _WANTED_COLUMNS or any(row[n] for row in rows)
        ]
        output.rows([columns[n] for n in kept], [[row[n] for n in kept] for row in rows], current().output)
        output.talk(f"{seconds:.1f} s; progress in {job.progress_in}")
        return
    total = sum((each.counts for each in job.totals.values()), Counter[str]())
    sources = [
        {
            "source": name,
            **{_label(counter): each.counts[counter] for counter in counters},
            "lost": each.lost,
            "lag": each.lag,
            "batches": each.batches,
        }
        for name, each in job.totals.items()
    ]
    totals = {_label(counter): total[counter] for counter in counters}
    lost = sum(each.lost for each in job.totals.values())
    value = {
        "total": {**totals, "lost": lost},
        "sources": sources,
        "routes": [asdict(each) for each in job.plan],
        "seconds": round(seconds, 1),
    }
    output.document(value, current().output)


def _counters(job: Job) -> tuple[str, ...]:
    """Name the counters of every engine, and those of one that has counted something else."""
    from penstock.pipeline.stage import COUNTERS

    return tuple(dict.fromkeys((*COUNTERS, *(name for each in job.totals.values() for name in each.counts))))


# How it is asked to end


@contextmanager
def _signals(job: Job) -> Iterator[None]:
    """Let the first signal end the job after its batch, and the second at once."""
    asked: list[int] = []

    def handle(signum: int, frame: object) -> None:
        if asked:
            # Spark's Java and our own servers end with us: their input is our pipe.
            remove_folders()
            os._exit(_KILLED_BY + signum)
        asked.append(signum)
        job.stop()  # Nothing is printed here: a handler may interrupt somebody who prints.

    # One that is ignored, as SIGHUP is below nohup, stays so.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What is served


def _served(job: Job, address: tuple[str, int] | None) -> AbstractContextManager[object]:
    if address is None:
        return nullcontext()
    from penstock.pipeline.job.metrics import CONTENT_TYPE, Metrics
    from penstock.pipeline.job.pages import Answer, serve

    metrics = Metrics(outages=job.outages)
    job.watch(metrics)

    def health() -> Answer:
        if job.running:
            return Answer("\n".join(("running", *job.stalled(), "")).encode())
        return Answer(b"not running\n", HTTPStatus.SERVICE_UNAVAILABLE)

    def ready() -> Answer:
        stalled = job.stalled() if job.running else ["not running"]
        if not stalled:
            return Answer(b"ready\n")
        return Answer("\n".join((*stalled, "")).encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    pages = {
        "/metrics": lambda: Answer(metrics.text(), content_type=CONTENT_TYPE),
        "/healthz": health,
        "/readyz": ready,
    }
    return _told(serve(*address, pages))


@contextmanager
def _told(served: AbstractContextManager[tuple[str, int]]) -> Iterator[None]:
    with served as (host, port):
        output.talk(f"metrics on http://{host}:{port}/metrics")
        yield


def _address(text: str | None) -> tuple[str, int] | None:
    """Read [HOST:]PORT; without a host it is the loopback interface."""
    if text is None:
        return None
    try:
        found = urlsplit(f"//127.0.0.1:{text}" if text.isdecimal() else f"//{text}")
        host, port = found.hostname, found.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise ConfigError(f"'{text}' is no address", where="--metrics", next="write --metrics HOST:PORT")
    return host, port
