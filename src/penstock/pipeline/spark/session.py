"""Which Spark session a program works in, and with which settings.

| order | where a setting comes from |
|---|---|
| 1 | a session that is active: used as it is, never changed |
| 2 | `settings` of the caller: `penstock run --conf`, `--master`, `--driver-memory`, `--ui` |
| 3 | spark-submit: its options, PYSPARK_SUBMIT_ARGS, spark-defaults.conf, MASTER; read by Spark itself |
| 4 | DEFAULTS, where nothing was set |

Jars, Java options and the patterns of redaction are no choice: ours are added to what is set. What the
queries of a pipeline need is set in a session of their own, `query_session`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.embedded.artifacts import ensure
from penstock.errors import MissingExtra, PipelineError, Refused, StartupError
from penstock.pipeline.rules import NO_CONNECT
from penstock.pipeline.spark import startup
from penstock.pipeline.spark.file_system import is_remote
from penstock.pipeline.spark.startup import is_local, is_submitted

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = [
    "ADDED_PATTERNS",
    "DEFAULTS",
    "DEFAULT_MASTER",
    "QUERY_SETTINGS",
    "Default",
    "Scope",
    "connect_refusal",
    "is_connect",
    "query_session",
    "slots",
    "spark_session",
]

_log = logging.getLogger(__name__)
_CPU_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, and four tries of a task: a broker that restarts must not end the job."""


class Scope(Enum):
    """In which sessions a default holds."""

    ALL = "every session that Penstock makes"
    LAUNCHED = "unless spark-submit started the program"
    LOCAL = "with a local master, unless spark-submit started the program"


@dataclass(frozen=True, slots=True)
class Default:
    """A value for a setting that nobody set, and why it is not Spark's own."""

    value: str
    reason: str
    scope: Scope = Scope.LOCAL


DEFAULTS: Final[Mapping[str, Default]] = {
    "spark.sql.session.timeZone": Default("UTC", "a timestamp means the same on every machine", Scope.ALL),
    "spark.speculation": Default("false", "a second copy of a task would fence the first", Scope.ALL),
    "spark.log.level": Default("ERROR", "the job reports failures itself", Scope.LAUNCHED),
    "spark.ui.enabled": Default("false", "no port that nobody asked for; `--ui` turns it on"),
    "spark.driver.bindAddress": Default("127.0.0.1", "a local job listens on loopback only"),
    "spark.driver.host": Default("127.0.0.1", "the same"),
    "spark.sql.shuffle.partitions": Default("4", "200 tasks of a small shuffle cost more than its data"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": Default("20000", "larger batches cost less a record"),
    "spark.python.daemon.module": Default(
        "penstock.pipeline.delivery.worker_daemon", "workers are forked with Arrow and the kernels loaded"
    ),
    "spark.ui.retainedJobs": Default("20", "Spark keeps jobs for its pages, also where none is served"),
    "spark.ui.retainedStages": Default("20", "the same"),
    "spark.ui.retainedTasks": Default("200", "the same"),
    "spark.ui.dagGraph.retainedRootRDDs": Default("20", "the same"),
    "spark.sql.ui.retainedExecutions": Default("20", "the same; each holds the text and graph of its plan"),
    "spark.kafka.consumer.cache.timeout": Default(
        "30s", "a query that is started again leaves its consumers open"
    ),
    "spark.kafka.consumer.cache.evictorThreadRunInterval": Default("10s", "the same"),
    "spark.kafka.consumer.fetchedData.cache.timeout": Default("30s", "the same, and what they had fetched"),
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": Default("10s", "the same"),
    "spark.sql.streaming.numRecentProgressUpdates": Default("10", "each report is taken as it comes"),
}
"""Settings that we choose where nothing was set."""

_NOT_FUSED: Final = "penstock.pipeline.daemon"
_PROGRESS_BAR: Final = "spark.ui.showConsoleProgress"
_DAEMON: Final = "spark.python.daemon.module"

_SHOWN_OPTIONS: Final = "spark.sql.redaction.options.regex"
ADDED_PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "spark.redaction.regex": (
        "(?i)secret|password|token|access[.]?key",
        "(?i:jaas|account[.]?key|private[.]?key)",
    ),
    _SHOWN_OPTIONS: (
        "(?i)url",
        "(?i:jaas|password|secret|token|truststore|keystore|access[.]?key)",
    ),
}
"""Patterns of redaction: Spark's own, which holds where nothing was set, and what we add in each case."""

QUERY_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "spark.sql.session.timeZone": ("UTC", "a condition means the same in every session"),
    "spark.sql.ansi.enabled": ("true", "the same"),
    "spark.sql.execution.arrow.useLargeVarTypes": (
        "false",
        "conditions and DataFrames read Arrow's usual types",
    ),
}
"""Set in the session of a pipeline's queries, whatever the session of the program says."""

_FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_PROCESSES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Spark's default starts a process for each rename on a local disk: 100 ms a batch."""

_CONNECT_NEXT: Final = (
    "unset SPARK_REMOTE, SPARK_API_MODE and spark.remote, and name a cluster with --master; "
    "or run --engine loop, which needs no Spark"
)
_KAFKA_CLASS: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


_MOST_WORKERS: Final = 4
"""Python workers for each core at most, when all sources are busy at the same time."""


def slots(sources: int, cores: int | None = None) -> tuple[str, dict[str, str]]:
    """Return a local master, and settings, on which no source waits for the tasks of another.

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


# The session of the program


def spark_session(
    name: str = "penstock",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    sources: int = 1,
    worker_python: str | None = None,
    light: bool = False,
    fused: bool = True,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """Return the active session as it is; else one with what was set, and with our defaults for the rest.

    `settings` and `master` are explicit and beat spark-submit's options and files. `sources` is how many
    sources share the session, if the master is left to us. A `light` Java only plans, as for routes without
    `sql:`: it starts with half of the CPU, is slow with records and has no Kafka connector. `fused=False`
    says that no task will call the routing kernel: its workers do without it. `java_options` are given to
    Java instead of those that make it start quickly. Over Spark Connect the session is Spark's own, as it is.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("spark", "pyspark", purpose="a pipeline") from None
    if is_connect(settings):
        return SparkSession.builder.getOrCreate()
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    explicit = {**(settings or {}), **({} if master is None else {"spark.master": master})}
    default_master, parallelism = slots(sources)
    startup.start_java(explicit, default_master=default_master, light=light, options=java_options)
    conf = SparkConf(_jvm=SparkContext._jvm)
    for key, value in explicit.items():
        conf.set(key, value)
    if conf.get("spark.remote", None):
        raise connect_refusal()
    if is_submitted():
        _set_defaults(conf, {Scope.ALL}, fused=fused)
    else:
        local = {Scope.LOCAL} if is_local(_master(conf)) else set()
        _set_defaults(conf, {Scope.ALL, Scope.LAUNCHED, *local}, fused=fused)
        for key, value in parallelism.items() if _master(conf) == default_master else ():
            conf.setIfMissing(key, value)
        _undo_shell(conf, name, explicit)
    _add_patterns(conf)
    if not light:
        _add_connector(SparkContext._jvm, conf)
    with _worker_python(conf, worker_python):
        context = _context(conf)
    return _session(context, _master(conf))


def _master(conf: SparkConf) -> str:
    return conf.get("spark.master", "") or ""


def _set_defaults(conf: SparkConf, scopes: Collection[Scope], *, fused: bool) -> None:
    for key, default in DEFAULTS.items():
        if default.scope in scopes:
            conf.setIfMissing(key, _NOT_FUSED if key == _DAEMON and not fused else default.value)


def _undo_shell(conf: SparkConf, name: str, explicit: Mapping[str, str]) -> None:
    """Take back the name and the progress bar that spark-submit gives to a shell, unless they were set."""
    if startup.was_set("spark.app.name", explicit) is None:
        conf.setAppName(name)
    if startup.was_set(_PROGRESS_BAR, explicit) is None:
        conf.set(_PROGRESS_BAR, "false")


def _add_patterns(conf: SparkConf) -> None:
    for key, (default, ours) in ADDED_PATTERNS.items():
        conf.set(key, f"{conf.get(key, default)}|{ours}")


def _add_connector(jvm: Any, conf: SparkConf) -> None:
    """Let Java load the Kafka connector from our jars, unless the user's jars or packages have one."""
    from py4j.protocol import Py4JJavaError

    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_KAFKA_CLASS, False, loader)
    except Py4JJavaError:
        jars = [str(jar) for jar in ensure(["spark"])["spark"]]
        for jar in jars:
            loader.addURL(jvm.java.io.File(jar).toURI().toURL())
        if not is_local(_master(conf)):
            # The tasks of a local master have the loader of the driver; executors get copies.
            conf.set("spark.jars", ",".join(filter(None, (conf.get("spark.jars", ""), *jars))))


@contextmanager
def _worker_python(conf: SparkConf, chosen: str | None) -> Iterator[None]:
    """Let PySpark see the Python of the workers: the one chosen, then the one set, then ours or theirs.

    Local workers would take `python3` from PATH, which knows neither Arrow nor us.
    """
    name = "PYSPARK_PYTHON"
    local = is_local(_master(conf))
    found = chosen or conf.get("spark.pyspark.python", None) or os.environ.get(name)
    with startup.variables({name: found or (sys.executable if local else "python3")}):
        yield


def _context(conf: SparkConf) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    try:
        return SparkContext(conf=conf)
    except Py4JJavaError as exc:
        why = str(exc.java_exception)
        # Where Spark stops the context while it is made, Java stumbles over what is no longer there.
        if not is_local(_master(conf)) and "NullPointerException" in why:
            raise _ended_while_starting(_master(conf)) from exc
        raise _did_not_start(why) from exc


def _session(context: Any, master: str) -> SparkSession:
    """Make the session of a new context, which Spark stops by itself where no master answers for a minute."""
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    try:
        return SparkSession(context)
    except Py4JJavaError as exc:
        raise _ended_while_starting(master) from exc


def _ended_while_starting(master: str) -> StartupError:
    return StartupError(
        "Spark ended while it started",
        where=master,
        why="The master did not answer, or ended the application; the lines above are Spark's own.",
        next="start the cluster, or correct --master",
    )


def _did_not_start(why: str) -> StartupError:
    return StartupError(
        "Spark did not start", why=why, next="correct --master, --conf or spark-defaults.conf"
    )


# The session of a pipeline's queries


def query_session(spark: SparkSession, checkpoint: str) -> SparkSession:
    """Return a session for the queries of a pipeline beside the given one, which stays as it is.

    It has what was set in the given one, at run time too, and QUERY_SETTINGS.
    Raises PipelineError over Spark Connect, Refused where speculation is on, and StartupError for a setting
    of SQL whose value Spark does not take: it looks at those when a session is made, not at its start.
    """
    from pyspark.errors import IllegalArgumentException

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise connect_refusal()
    conf = spark.sparkContext.getConf()
    if str(conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise Refused(
            "spark.speculation is on, and a pipeline does not run with it",
            why="Spark would start a second copy of a slow task, which fences the first one: "
            "its producer is refused in the middle of its batch.",
            next="set spark.speculation=false for this application: --conf spark.speculation=false",
        )
    try:
        own = spark.newSession()
        given = _copy_settings(spark, own)
        for key, (value, _) in QUERY_SETTINGS.items():
            own.conf.set(key, value)
    except IllegalArgumentException as exc:
        # Behind the message stands Java's stack.
        raise _did_not_start(str(exc).partition("\n")[0]) from exc
    if not is_remote(checkpoint) and not conf.contains(_FILE_MANAGER) and _FILE_MANAGER not in given:
        own.conf.set(_FILE_MANAGER, _WITHOUT_PROCESSES)
    default, ours = ADDED_PATTERNS[_SHOWN_OPTIONS]
    pattern = given.get(_SHOWN_OPTIONS, default)
    if ours not in pattern:
        # Plans show the options of sources and sinks, with the keys in them.
        own.conf.set(_SHOWN_OPTIONS, f"{pattern}|{ours}")
    return own


def _copy_settings(spark: SparkSession, own: SparkSession) -> dict[str, str]:
    """Set in a new session what was set in another one while it ran, as the keys of a store; return all."""
    from pyspark.errors import PySparkException

    given, known = dict(spark.conf.getAll), dict(own.conf.getAll)
    for key, value in given.items():
        if known.get(key) != value:
            try:
                own.conf.set(key, value)
            except PySparkException as exc:  # a static one, which a builder may have given to that session
                _log.debug("%s cannot be set for queries: %s", key, exc)
    return given


def is_connect(settings: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment, or these settings, ask for Spark Connect."""
    mode = (settings or {}).get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    return (
        mode.lower() == "connect"
        or "spark.remote" in (settings or {})
        or any(os.environ.get(name) for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"))
    )


def connect_refusal() -> PipelineError:
    """Return the error of a pipeline that was asked to run over Spark Connect."""
    return PipelineError(f"{NO_CONNECT.id}: {NO_CONNECT.message}", next=_CONNECT_NEXT)
