"""Spark's class archive: made once for a Java and a Spark, by a run that does what a job does at its start.

A session that is started with `archive().record()` makes it too, at its end.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.config import Child, child_environment
from penstock.embedded.class_archive import ClassArchive
from penstock.embedded.java import find_java
from penstock.embedded.private import temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["archive", "are_prepared", "end_java", "prepare"]

_SECONDS: Final = 300.0
"""So long may the run take that makes the file; usual are fifteen."""
_SETTINGS_OF_USER: Final = frozenset({"PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "MASTER"})
_TRAINING_SETTINGS: Final = {"spark.python.daemon.module": "pyspark.daemon"}
"""The daemon of a job loads the kernels, which takes minutes where none are compiled yet; Java sees none."""


def archive() -> ClassArchive:
    """Give the file of Spark's classes for the Java and the Spark of this process."""
    import pyspark

    jars = Path(pyspark.__file__).absolute().parent / "jars"
    return ClassArchive("spark", find_java(), sorted(jars.iterdir()))


def are_prepared() -> bool:
    """Tell whether the file was made, or found to be impossible with this Java."""
    return archive().is_settled


def prepare() -> None:
    """Make the file, unless somebody else is just doing it."""
    found = archive()
    found.path.parent.mkdir(parents=True, exist_ok=True)
    with found.path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if options := found.record():
            _train(found, options)


def _train(found: ClassArchive, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", __name__, *options]
    try:
        with temporary_folder("penstock-") as folder:
            environment = _environment(folder / "conf")
            done = subprocess.run(
                command, timeout=_SECONDS, check=False, capture_output=True, env=environment
            )
    except subprocess.TimeoutExpired:
        found.keep(has_ended_well=False)
    else:
        # What failed once fails again: an empty file says so.
        found.keep(has_ended_well=True) if not done.returncode else found.give_up()


def _environment(conf_folder: Path) -> dict[str, str]:
    """Return the environment of the run, without settings of the user.

    `conf_folder` must not exist: Java records every folder of the class path that does, and then refuses
    the file to each session whose class path has another one in that place, or none. An event log, a
    listener or a jar of the user has no part in the run, and a setting that Spark refuses would pass for a
    Java that cannot make the file.
    """
    found = child_environment(Child.SPARK, {"SPARK_CONF_DIR": str(conf_folder)})
    return {name: value for name, value in found.items() if name not in _SETTINGS_OF_USER}


def _trained(options: Sequence[str]) -> None:
    """Start Spark, let it do what a job does, and let Java note which classes that took."""
    from penstock.pipeline.spark.session import DEFAULT_MASTER, spark_session

    spark = spark_session("classes", master=DEFAULT_MASTER, settings=_TRAINING_SETTINGS, java_options=options)
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load().select("value")
    counted = stream.mapInArrow(_same, "value bigint").writeStream.format("noop").start()
    while counted.isActive and len(counted.recentProgress) < 2:
        counted.awaitTermination(1)
    counted.stop()
    spark.stop()
    end_java()


def end_java(*, kill: bool = False) -> bool:
    """End the Java of a Spark session that was stopped, and wait until it has written what it records.

    `kill` ends it at once; nothing is written then. Says whether it has ended by itself.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # Java ends when nobody holds its standard input, and writes the file then.
    gateway.proc.stdin.close()
    if kill:
        gateway.proc.kill()
    try:
        return bool(gateway.proc.wait(_SECONDS) == 0)
    except subprocess.TimeoutExpired:
        return False


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    _trained(sys.argv[1:])
