"""Spark's classes in one file that Java maps, instead of finding, reading and checking them one by one.

Java calls it class data sharing. The file is made once for a Java and a Spark, by a run that does what a job
does at its start; after that Spark starts with half of the CPU. A file that does not fit is not used by Java,
and Spark starts as it would without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.embedded.home import penstock_home, require_disk_space
from penstock.embedded.java import find_java
from penstock.errors import DiskSpaceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["are_prepared", "java_options", "prepare"]

_SECONDS: Final = 300.0
"""So long may the run take that makes the file; usual are fifteen."""
_SIZE: Final = 400_000_000
"""So much disk it may need, with room to spare."""
_SILENT: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Java writes its doubts about such a file to the standard output, where only data belongs."""


def java_options() -> tuple[str, ...]:
    """Give the options that let Java use the file; none if there is no file."""
    path = _path()
    if not path.is_file() or not path.stat().st_size:
        return ()
    return (f"-XX:SharedArchiveFile={path}", *_SILENT)


def are_prepared() -> bool:
    """Tell whether the file was made, or found to be impossible with this Java."""
    return _path().exists()


def prepare() -> None:
    """Make the file, unless somebody else is just doing it; an empty one says that this Java cannot."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            require_disk_space(path.parent, _SIZE)
        except (BlockingIOError, DiskSpaceError):
            return
        if not path.exists():
            _train(path)


def _path() -> Path:
    import pyspark

    java = find_java()
    release = java.home / "release"
    told = hashlib.sha256(str(java.home).encode())
    told.update(release.read_bytes() if release.is_file() else b"")
    for jar in sorted((Path(pyspark.__file__).parent / "jars").iterdir()):
        # Java refuses the file when the path, the size or the time of a jar is another.
        found = jar.stat()
        told.update(f"\n{jar} {found.st_size} {found.st_mtime_ns}".encode())
    return penstock_home() / "spark" / f"classes-{told.hexdigest()[:16]}.jsa"


def _train(path: Path) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    command = [sys.executable, "-m", __name__, str(fresh)]
    try:
        done = subprocess.run(command, timeout=_SECONDS, check=False, capture_output=True)
        if done.returncode or not fresh.is_file():
            fresh.write_bytes(b"")
        fresh.replace(path)
    except subprocess.TimeoutExpired:
        fresh.unlink(missing_ok=True)


def _trained(path: str) -> None:
    """Start Spark, let it do what a job does, and let Java note which classes that took."""
    from pyspark import SparkContext

    from penstock.pipeline.session import spark_session

    spark = spark_session("classes", java_options=(f"-XX:ArchiveClassesAtExit={path}",))
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load().select("value")
    counted = stream.mapInArrow(_same, "value bigint").writeStream.format("noop").start()
    while counted.isActive and len(counted.recentProgress) < 2:
        counted.awaitTermination(1)
    counted.stop()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    # Java ends when nobody holds its standard input, and writes the file then.
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    _trained(sys.argv[1])
