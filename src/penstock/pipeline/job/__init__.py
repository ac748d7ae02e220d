"""The job: sources on Kafka, the stage on Spark's workers, sinks on Kafka; prepared, watched and ended."""

from penstock.pipeline.job.options import IDLE_SECONDS, MAX_OFFSETS_PER_TRIGGER, JobOptions
from penstock.pipeline.job.progress import Progress
from penstock.pipeline.job.runner import Job, Totals
from penstock.pipeline.job.sinks import Delivery, delivery_of
from penstock.pipeline.job.watcher import Watcher

__all__ = [
    "IDLE_SECONDS",
    "MAX_OFFSETS_PER_TRIGGER",
    "Delivery",
    "Job",
    "JobOptions",
    "Progress",
    "Totals",
    "Watcher",
    "delivery_of",
]
