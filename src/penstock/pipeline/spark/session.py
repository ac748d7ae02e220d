"""The one way Penstock makes a Spark session: Spark 4.2.0, our jars, our Java, our Python, quiet, in UTC."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from penstock.config import Child, child_environment
from penstock.embedded.artifacts import ensure
from penstock.embedded.home import penstock_home
from penstock.embedded.java import find_java
from penstock.errors import MissingExtra, StartupError
from penstock.pipeline.spark import class_archive
from penstock.pipeline.spark.spark_home import lean_spark
from penstock.pipeline.spark.stderr_filter import filtered_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_MASTER",
    "SETTINGS",
    "abandon_start",
    "is_local",
    "java_has_ended",
    "slots",
    "spark_session",
]

_CPU_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
DEFAULT_MASTER = "local[*,4]"
"""All cores, and four tries of a task: a broker that restarts must not end the job."""

SETTINGS: Mapping[str, tuple[str, str]] = {
    "spark.sql.session.timeZone": ("UTC", "a timestamp means the same on every machine"),
    "spark.ui.enabled": ("false", "a port that nobody asked for"),
    "spark.ui.showConsoleProgress": ("false", "our own status line is the progress"),
    "spark.driver.bindAddress": ("127.0.0.1", "a local job listens on loopback only"),
    "spark.driver.host": ("127.0.0.1", "the same"),
    "spark.driver.memory": ("1g", "what a route needs; more only grows the resident size"),
    "spark.log.level": ("ERROR", "what a person must see comes from us"),
    "spark.sql.shuffle.partitions": ("4", "a route has no shuffle; state of a small job fits four"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("20000", "larger batches cost less a record"),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": ("true", "errors without our frames"),
    "spark.python.worker.reuse": ("true", "a worker imports Arrow once"),
    "spark.python.daemon.module": (
        "penstock.pipeline.fused.daemon",
        "workers are forked with Arrow and the kernels",
    ),
    "spark.sql.streaming.metricsEnabled": ("false", "we report our own metrics"),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "the default starts a process for each rename on a local disk: 100 ms a batch",
    ),
    "spark.streaming.stopGracefullyOnShutdown": ("true", "a batch that runs is finished"),
    "spark.sql.redaction.options.regex": (
        "(?i)url|jaas|password|secret|token|truststore|keystore",
        "a plan that is printed shows no credentials",
    ),
    "spark.redaction.regex": ("(?i)jaas|password|secret|token", "nor does the environment"),
}
"""Every setting that we change, with its reason."""

_LOCAL_ONLY = frozenset(
    {
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.python.daemon.module",
        "spark.sql.streaming.checkpointFileManagerClass",
    }
)
"""A cluster is reached by a real address, its workers get us with the job, after their daemon, and its
checkpoint is on no local disk."""

_NOT_FUSED: Mapping[str, str] = {"spark.python.daemon.module": "penstock.pipeline.daemon"}

_LIGHT = ("-XX:TieredStopAtLevel=1",)
"""Without Java's second compiler: it works hard at each start for code that sees no record."""

_LOG4J2 = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{short}
"""

_REPORTED: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.util.Utils",
)
"""Loggers that repeat the traceback of a failed task; the exception of its query is reported by the job.

A query is started again for as long as a broker or the registry is away, with some 300 lines each time.
"""


_MOST_WORKERS: Final = 4
"""Python workers for each core at most, when all sources are busy at the same time."""


def slots(sources: int, cores: int | None = None) -> tuple[str, dict[str, str]]:
    """Give the master of this machine, and its settings, on which no source waits for the tasks of another.

    A task whose broker is away holds its slot until it gives up. So each source has as many slots as it has
    tasks: one for each core, or less where there are many sources.

    >>> slots(1, cores=8)
    ('local[*,4]', {})
    >>> slots(3, cores=8)
    ('local[24,4]', {'spark.default.parallelism': '8'})
    >>> slots(20, cores=2)
    ('local[20,4]', {'spark.default.parallelism': '1'})
    """
    if sources < 2:
        return DEFAULT_MASTER, {}
    cores = cores or _cores()
    tasks = max(1, min(cores, _MOST_WORKERS * cores // sources))
    return f"local[{sources * tasks},4]", {"spark.default.parallelism": str(tasks)}


def _cores() -> int:
    """Count the cores that this process may use, as Java does: within the quota of a container."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CPU_QUOTA.read_text(encoding="ascii").split()
        return found if quota == "max" else max(1, min(found, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        return found


def is_local(master: str) -> bool:
    """Tell whether a master runs the job inside of this process.

    >>> is_local("local[*,4]"), is_local("spark://host:7077")
    (True, False)
    """
    return master.startswith("local")


def spark_session(
    name: str = "penstock",
    *,
    master: str = DEFAULT_MASTER,
    settings: Mapping[str, str] | None = None,
    package: Path | None = None,
    worker_python: str | None = None,
    light: bool = False,
    fused: bool = True,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """Give the session of this process, made with our settings if there is none.

    On a cluster the workers are sent `package` (see `package.py`) and run `worker_python`, or the `python3`
    on their PATH. A `light` Java only plans, as for the fused engine: it starts with half of the CPU and is
    slow with records. `fused=False` says that no task will be fused: its workers do without those kernels.
    `java_options` are given to it instead of those that make it start quickly.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("spark", "pyspark", purpose="a pipeline") from None
    _prepare_environment(sys.executable if is_local(master) else worker_python or "python3")
    quick = class_archive.archive().use() if java_options is None else java_options
    flags = (f"-Dlog4j2.configurationFile={_log4j2()}", *quick, *(_LIGHT if light else ()))
    chosen = {
        "spark.app.name": name,
        "spark.master": master,
        **{key: value for key, (value, _) in SETTINGS.items() if is_local(master) or key not in _LOCAL_ONLY},
        "spark.jars": ",".join(map(str, ensure(["spark"])["spark"])),
        "spark.driver.extraJavaOptions": shlex.join(flags),
        **({} if fused or not is_local(master) else _NOT_FUSED),
        **(settings or {}),
    }
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with lean_spark() if is_local(master) else nullcontext():
        _launch_apart(chosen)
        session = builder.getOrCreate()
    if package is not None:
        session.sparkContext.addPyFile(str(package))
    return session


def _launch_apart(chosen: Mapping[str, str]) -> None:
    """Start Java in a session of its own, if there is none yet.

    A signal to our process group, as `timeout` and a terminal send it, is for us: we end Java when the batch
    that runs is written. Java ends by itself when the pipe to us breaks, once it is up.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf()
        for key, value in chosen.items():
            conf.set(key, value)
        with filtered_stderr() as stderr, _started_with_care(stderr):
            gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


@contextmanager
def _started_with_care(stderr: int) -> Iterator[None]:
    """Give Java the environment that it needs, and kill it if `launch_gateway` does not return.

    Its standard error is the file `stderr`.

    PySpark would hand down our whole environment, with its passwords. And if it is interrupted, as by Ctrl-C,
    it removes the folder into which Java is about to write its port. Java's main thread then fails, its
    server thread lives on, and nobody is left who would end the process. PySpark gives its Popen to nobody.
    """
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            _refuse_if_abandoned()
            started.append(self)
            options["env"] = child_environment(Child.SPARK, environ=options["env"])
            options["stderr"] = stderr
            super().__init__(*args, **options)
            _java.append(self)
            _refuse_if_abandoned()  # it was asked for meanwhile

    names = vars(java_gateway)
    original = names["Popen"]
    names["Popen"] = Recorded
    try:
        yield
    except BaseException:
        for process in started:
            if getattr(process, "pid", None) is not None:
                with process:  # closes its pipe and waits
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        names["Popen"] = original


_abandoned = Event()
_java: list[subprocess.Popen[bytes]] = []
"""The Java processes that this process has started."""


def abandon_start() -> None:
    """Make a `spark_session` that runs in another thread fail soon, and end its Java.

    For a process that is about to end: it makes no other session.
    """
    _abandoned.set()
    for process in _java:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _refuse_if_abandoned() -> None:
    if _abandoned.is_set():
        raise StartupError("the start of Spark was given up")


def java_has_ended(seconds: float) -> bool:
    """Wait so long for Spark's Java process to end; say whether it has."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _prepare_environment(worker_python: str) -> None:
    # Local workers would take `python3` from PATH, which knows neither Arrow nor us.
    os.environ["PYSPARK_PYTHON"] = worker_python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(find_java().home)


def _log4j2() -> Path:
    path = penstock_home() / "spark" / "log4j2.properties"
    rows = (
        f"logger.{number}.name = {name}\nlogger.{number}.level = off\n"
        for number, name in enumerate(_REPORTED)
    )
    text = _LOG4J2 + "".join(rows)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    return path
