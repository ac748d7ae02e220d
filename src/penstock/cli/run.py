"""`penstock run`: the routes of a pipeline, one status line a batch, totals at the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from penstock.cli import output
from penstock.cli.settings import Format, configuration, current
from penstock.cli.sparkstart import start_spark
from penstock.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.pipeline.compile import Pipeline
    from penstock.pipeline.job import Job, Progress, Watcher

__all__ = ["command"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_KILLED_BY: Final = 128
_ALWAYS: Final = ("n_in", "n_out", "n_dead")
"""What a status line says even if it is nothing."""


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


File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Once = Annotated[bool, typer.Option("--once", help="Process what is there now, then end.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when nothing comes any more.")]
Idle = Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="What --until-idle calls idle.")]
Master = Annotated[str, typer.Option(help="The Spark master.")]
RealTime = Annotated[
    bool, typer.Option("--real-time", help="Spark's Real-Time Mode: milliseconds, not batches.")
]
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
MaxOffsets = Annotated[int, typer.Option("--max-offsets", min=1, help="Records of one batch at most.")]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh-checkpoint", help="Begin anew where the checkpoint does not fit; the old one is kept beside."
    ),
]
MetricsAt = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="[HOST:]PORT", help="Serve /metrics and /healthz here; off if not given."
    ),
]
PackageFile = Annotated[
    Path | None,
    typer.Option(
        "--package",
        metavar="FILE",
        help="What `penstock package` made, for a cluster; made anew if not given.",
    ),
]
WorkerPython = Annotated[
    str | None, typer.Option("--worker-python", metavar="PATH", help="The Python of the cluster's workers.")
]


def command(
    file: File = Path("pipeline.yaml"),
    once: Once = False,
    until_idle: UntilIdle = False,
    idle: Idle = 5.0,
    master: Master = "local[*,4]",
    engine: EngineOption = None,
    at_least_once: AtLeastOnce = False,
    shadow: Shadow = 0,
    real_time: RealTime = False,
    group: Group = None,
    on_data_loss: OnDataLossOption = None,
    max_offsets: MaxOffsets = 500_000,
    fresh_checkpoint: Fresh = False,
    metrics: MetricsAt = None,
    package: PackageFile = None,
    worker_python: WorkerPython = None,
) -> None:
    """Run a pipeline; `penstock routes --explain` says by which engine, and what its delivery is worth.

    SIGTERM or Ctrl-C finishes the batch that runs; a second one ends at once.
    """
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.job import JobOptions, job_of

    if once and until_idle:
        raise UsageError("--once and --until-idle are two ends", next="give one of them")
    if real_time and (once or until_idle):
        raise UsageError("Real-Time Mode has no end of its own", next="leave --once and --until-idle out")
    if real_time and engine not in (None, EngineName.AUTO, EngineName.COLUMNS):
        raise UsageError("Real-Time Mode is for columns only", next="leave --real-time or --engine out")
    address = _address(metrics)
    options = JobOptions(
        once=once,
        until_idle=idle if until_idle else None,
        real_time=real_time,
        engine=engine,
        exactly_once=not at_least_once,
        shadow=shadow,
        group=group,
        on_data_loss=on_data_loss,
        max_offsets=max_offsets,
        fresh_checkpoint=fresh_checkpoint,
    )
    pipeline = load_pipeline(file, context=configuration().context())
    output.show_logs(debug=False)
    with job_of(pipeline, options) as job:
        _run(job, _Cluster(master, package, worker_python), address)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where the job runs, and what its workers get."""

    master: str
    package: Path | None
    worker_python: str | None

    @contextmanager
    def packed(self, pipeline: Pipeline) -> Iterator[Path | None]:
        """Give the archive for the workers; a job in this process needs none."""
        from penstock.pipeline.package import make_package
        from penstock.pipeline.session import is_local

        if self.package is not None or is_local(self.master):
            yield self.package
            return
        with TemporaryDirectory(prefix="penstock-") as folder:
            yield make_package(pipeline, Path(folder) / "penstock-package.zip").path


def _run(job: Job, cluster: _Cluster, address: tuple[str, int] | None) -> None:
    began = time.monotonic()
    job.watch(_status_lines())
    with _served(job, address):
        job.prepare()
        try:
            if job.needs_spark:
                _run_in_spark(job, cluster)
            else:
                with _signals(job):
                    job.run()
        finally:
            _summary(job, time.monotonic() - began)


def _run_in_spark(job: Job, cluster: _Cluster) -> None:
    with cluster.packed(job.pipeline) as package:
        spark = start_spark(
            master=cluster.master,
            package=package,
            worker_python=cluster.worker_python,
            light=job.only_plans,
        )
        try:
            with _signals(job):
                job.run(spark)
        finally:
            spark.stop()


# What is told


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
    line = " · ".join((*told, f"lag {progress.lag}", f"{progress.seconds:.1f} s"))
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
        output.rows(("source", *labels, "lost", "lag", "batches"), rows, current().output)
        for line in dict.fromkeys(job.promises.values()):
            output.talk(line)
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
    value = {"total": {**totals, "lost": lost}, "sources": sources, "seconds": round(seconds, 1)}
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
            # Spark's Java ends with us: its input is our pipe.
            os._exit(_KILLED_BY + signum)
        asked.append(signum)
        job.stop()  # Nothing is printed here: a handler may interrupt somebody who prints.

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
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

    metrics = Metrics()
    job.watch(metrics)

    def health() -> Answer:
        if job.running:
            return Answer(b"running\n")
        return Answer(b"not running\n", HTTPStatus.SERVICE_UNAVAILABLE)

    pages = {"/metrics": lambda: Answer(metrics.text(), content_type=CONTENT_TYPE), "/healthz": health}
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
