"""The job: topics in, routes, topics out, by Spark or by a loop alone; prepared, watched and ended."""

from penstock.pipeline.compile import Pipeline
from penstock.pipeline.job.choice import LOOP
from penstock.pipeline.job.options import (
    IDLE_SECONDS,
    MAX_BYTES_PER_TRIGGER,
    MAX_FAILURES,
    MAX_OFFSETS_PER_TRIGGER,
    JobOptions,
)
from penstock.pipeline.job.progress import Progress
from penstock.pipeline.job.runner import Job, Planned, Totals
from penstock.pipeline.job.watcher import Watcher

__all__ = [
    "IDLE_SECONDS",
    "MAX_BYTES_PER_TRIGGER",
    "MAX_FAILURES",
    "MAX_OFFSETS_PER_TRIGGER",
    "Job",
    "JobOptions",
    "Planned",
    "Progress",
    "Totals",
    "Watcher",
    "job_of",
]


def job_of(pipeline: Pipeline, options: JobOptions) -> Job:
    """Make the job that the options or the pipeline ask for."""
    if (options.engine or pipeline.engine) != LOOP:
        return Job(pipeline, options)
    from penstock.pipeline.job.loop import LoopJob

    return LoopJob(pipeline, options)
