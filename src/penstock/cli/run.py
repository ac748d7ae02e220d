"""`penstock run`: the routes of a pipeline, one status line a batch, totals at the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import output
from penstock.cli.run_options import (
    AtLeastOnce,
    BrokerTimeout,
    Conf,
    DriverMemory,
    EngineName,
    EngineOption,
    File,
    Fresh,
    Group,
    Idle,
    Master,
    MaxBytes,
    MaxFailures,
    MaxOffsets,
    MaxTasks,
    MetricsAt,
    Once,
    OnDataLossOption,
    PackageFile,
    RealTime,
    Replay,
    Shadow,
    Split,
    TakeOver,
    Trigger,
    Ui,
    UntilIdle,
    WorkerPython,
    job_options,
    metrics_address,
    refuse_idle_words,
    spark_settings,
)
from penstock.cli.settings import Format, configuration, current
from penstock.cli.sparkstart import compile_kernels, silence_java_clients, start_spark
from penstock.embedded.private import remove_folders, temporary_folder
from penstock.errors import PipelineError

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
    split: Split = False,
    max_failures: MaxFailures = None,
    trigger: Trigger = None,
    fresh_checkpoint: Fresh = False,
    replay: Replay = None,
    broker_timeout: BrokerTimeout = 60.0,
    metrics: MetricsAt = None,
    package: PackageFile = None,
    worker_python: WorkerPython = None,
) -> None:
    """Run a pipeline; the first lines say where each route runs, and what its delivery is worth.

    SIGTERM or Ctrl-C finishes the batch that runs; a second one ends at once.
    """
    given = locals()
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.job import job_of
    from penstock.pipeline.spark.session import connect_refusal, is_connect
    from penstock.pipeline.spark.submission import refuse_packed_checkpoint

    options, address = job_options(given), metrics_address(metrics)
    pipeline = load_pipeline(file, context=configuration().context())
    chosen = str(engine or pipeline.engine)
    refuse_idle_words(chosen, given)
    settings = spark_settings(given, pipeline)
    if chosen != EngineName.LOOP:
        refuse_packed_checkpoint(pipeline)
        if is_connect(settings):
            raise connect_refusal()
    output.show_logs(debug=False)
    with job_of(pipeline, options) as job:
        _run(job, _Cluster(settings, worker_python), address)


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
                context.addPyFile(
                    str(make_package(pipeline, folder / "penstock-package.zip", configuration()).path)
                )
                yield


def _run(job: Job, cluster: _Cluster, address: tuple[str, int] | None) -> None:
    began = time.monotonic()
    job.watch(_status_lines())
    with _served(job, address):
        job.prepare()
        _say_how(job)
        try:
            if job.engine == EngineName.SPARK:
                _run_in_spark(job, cluster)
            else:
                with _signals(job):
                    job.run()
        except BaseException:
            # A job that wrote nothing has no sum: zeros, a lag among them, would be taken as measured.
            if any(each.batches or each.counts for each in job.totals.values()):
                _summary(job, time.monotonic() - began)
            raise
        _summary(job, time.monotonic() - began)


def _run_in_spark(job: Job, cluster: _Cluster) -> None:
    from penstock.pipeline.spark.startup import is_local

    spark = start_spark(
        job.pipeline.name or Path(job.pipeline.path).stem,
        settings=cluster.settings,
        sources=len(job.totals),
        worker_python=cluster.worker_python,
        light=job.only_plans,
        fused=job.uses_kernels,
    )
    try:
        _refuse_local_checkpoint(spark, job.pipeline)
        silence_java_clients(spark)
        if (page := spark.sparkContext.uiWebUrl) is not None:
            output.talk(f"Spark's UI on {page}")
        if job.uses_kernels and is_local(spark.sparkContext.master or ""):
            compile_kernels()
        with cluster.equipped(spark, job.pipeline), _signals(job):
            job.run(spark)
    finally:
        _stop_spark(spark)


def _refuse_local_checkpoint(spark: SparkSession, pipeline: Pipeline) -> None:
    """Refuse a folder of the driver's container: the next driver would begin anew on another machine.

    A `file:` URL passes: it says that the folder is mounted wherever the driver may run.
    """
    from penstock.pipeline.spark.file_system import is_remote

    conf = spark.sparkContext.getConf()
    # In its pod on Kubernetes the driver of deploy mode `cluster` is submitted once more, in mode `client`.
    in_cluster = (
        conf.get("spark.submit.deployMode", "client") == "cluster"
        or conf.get("spark.kubernetes.submitInDriver", "false") == "true"
    )
    if in_cluster and not is_remote(pipeline.checkpoint) and not pipeline.is_checkpoint_mounted:
        raise PipelineError(
            f"the checkpoint {pipeline.checkpoint} is a folder of the driver's container",
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
    """Say of each route where it runs and what its delivery is worth, before the first record is read."""
    for each in job.plan:
        if current().output is Format.JSON:
            output.talk(json.dumps(asdict(each)))
        else:
            decides = each.evaluator + (", condition by Spark" if each.condition_by_spark else "")
            output.talk(f"route {each.route}: engine {each.engine} ({decides}), {each.guarantee}")


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
    """Name the counters of every job, and those of one that has counted something else."""
    from penstock.pipeline.counters import COUNTERS

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
