"""How a command starts Spark: what it needs is fetched and made ready once, and told while it takes time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.cli.fetching import fetch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compile_kernels", "silence_java_clients", "start_spark"]


def compile_kernels() -> None:
    """Compile the kernels of tasks if the cache does not have them, and say so."""
    from penstock.pipeline import kernel_cache

    if not kernel_cache.is_compiled():
        with output.progress("compiling kernels, once: a minute or more"):
            kernel_cache.compile_kernels()


def start_spark(name: str = "penstock", **how: Any) -> SparkSession:
    """Give the session; `how` is what `spark_session` takes."""
    from penstock.pipeline.spark import class_archive
    from penstock.pipeline.spark.session import spark_session
    from penstock.pipeline.spark.startup import is_submitted

    if not how.get("light") and not is_submitted():
        fetch(["spark"])
    if not is_submitted() and not class_archive.are_prepared():
        with output.progress("preparing Spark for quick starts, once"):
            class_archive.prepare()
    with output.progress("starting Spark"):
        return spark_session(name, **how)


def silence_java_clients(spark: SparkSession) -> None:
    """Let the command say what the end of Java means: its clients would each write a traceback."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None
