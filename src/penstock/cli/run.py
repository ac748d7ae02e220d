"""`penstock run`: the routes of a pipeline on Spark, one status line a batch, totals at the end."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.fetching import fetch
from penstock.cli.settings import configuration, current

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.job import Progress

__all__ = ["command"]

_LABELS = {
    "n_in": "in",
    "n_out": "out",
    "n_dead": "dead",
    "n_unmatched": "unmatched",
    "n_dropped": "dropped",
}

File = Annotated[Path, typer.Argument(help="The pipeline file.")]


def command(
    file: File = Path("pipeline.yaml"),
    once: Annotated[bool, typer.Option("--once", help="Process what is there now, then end.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*,4]",
) -> None:
    """Run a pipeline: at least once, with its progress in the checkpoint; SIGTERM ends it gracefully."""
    from penstock.pipeline.assembly import sources_of
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.job import run_once, start
    from penstock.pipeline.session import spark_session

    config = configuration()
    pipeline = load_pipeline(file, context=config.context())
    sources = sources_of(pipeline)
    fetch(["spark"])
    totals, began = Counter[str](), time.monotonic()

    def report(progress: Progress) -> None:
        totals.update(progress.counts)
        counts = " · ".join(f"{progress.counts[name]} {label}" for name, label in _LABELS.items())
        output.talk(f"batch {progress.batch} · {counts} · lag {progress.lag} · {progress.seconds:.1f} s")

    with output.progress("starting Spark"):
        spark = spark_session(master=master)
    try:
        if once:
            run_once(spark, pipeline, report)
        else:
            queries = [start(spark, each, pipeline, once=False, on_progress=report) for each in sources]
            _stop_on_sigterm(queries)
            for query in queries:
                query.awaitTermination()
    finally:
        spark.stop()
    rows = [(label, totals[name]) for name, label in _LABELS.items()]
    output.rows(("events", "count"), rows, current().output)
    output.talk(f"{time.monotonic() - began:.1f} s; at least once, progress in {pipeline.checkpoint}")


def _stop_on_sigterm(queries: list[StreamingQuery]) -> None:
    def stop(signum: int, frame: object) -> None:
        for query in queries:
            query.stop()

    signal.signal(signal.SIGTERM, stop)
