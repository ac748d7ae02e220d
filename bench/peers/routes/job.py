"""Runs pipelines in one warm Spark session, for the checkout whose Python runs this file.

One JSON object a line on standard input: the folder of a pipeline, the engine, the offsets of a batch. One a
line on standard output: wall seconds and CPU seconds of this process tree for `run`, and what was counted.
It uses only what the versions that are compared have in common.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from penstock.config import load
from penstock.pipeline.compile import load_pipeline
from penstock.pipeline.job import JobOptions, job_of
from penstock.pipeline.spark.session import spark_session


def cpu_seconds() -> float:
    """CPU of this process and of all that it has started, ended ones included."""
    spent = 0.0
    for each in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            spent += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return spent


def run(session: Any, asked: dict[str, Any]) -> dict[str, Any]:
    folder = Path(asked["folder"])
    sys.path.insert(0, str(folder))
    pipeline = load_pipeline(folder / "pipeline.yaml", context=load(start=folder).context("bench"))
    options = JobOptions(once=True, engine=asked["engine"], max_offsets=asked["max_offsets"])
    with job_of(pipeline, options) as job:
        job.prepare()
        before, began = cpu_seconds(), time.perf_counter()
        job.run(session)
        wall, cpu = time.perf_counter() - began, cpu_seconds() - before
        (totals,) = job.totals.values()
    sys.path.remove(str(folder))
    return {"wall": wall, "cpu": cpu, "in": totals.counts["n_in"], "out": totals.counts["n_out"]}


def main() -> None:
    session = spark_session("bench")
    # What a job prints must not stand between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer = run(session, json.loads(line))
        except Exception as exc:  # noqa: BLE001  # the one who asks says what it was
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=answers, flush=True)
    session.stop()


if __name__ == "__main__":
    main()
