"""Starts Spark's Java for this process, and ends it: its options, its environment, the folder it starts from.

Nothing here decides about a setting of Spark. What the user said goes to `spark-submit` unchanged; what we
add are Java options in front of the user's and variables that the user did not set, so everything that
spark-submit knows (PYSPARK_SUBMIT_ARGS, spark-defaults.conf, MASTER) is read by Spark itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any, Final

from penstock.config import Child, child_environment
from penstock.embedded.home import penstock_home
from penstock.embedded.java import find_java
from penstock.errors import StartupError
from penstock.pipeline.spark import class_archive
from penstock.pipeline.spark.hadoop import NO_KDC
from penstock.pipeline.spark.stderr_filter import FilteredStderr, filtered_stderr

__all__ = [
    "SHELL",
    "abandon_start",
    "expected_master",
    "is_local",
    "is_submitted",
    "java_exit_code",
    "java_has_ended",
    "java_is_ours",
    "lean_home",
    "lean_spark",
    "variables",
    "was_set",
    "start_java",
    "unless_java_ended",
]

_LIGHT: Final = ("-XX:TieredStopAtLevel=1",)
"""Without Java's second compiler: it costs CPU at each start, for code that sees no record."""

_STDERR_SECONDS: Final = 5.0
"""For the last lines of a Java that has ended."""
_EARLY_ENDS: Final[Sequence[tuple[str, str, str]]] = (
    (
        NO_KDC,
        "the key distribution center of Kerberos does not answer",
        "start it, or let krb5.conf name the right one (-Djava.security.krb5.conf=FILE); then run again",
    ),
    (
        r"Clock skew too great",
        "the clock of this machine differs too much from that of Kerberos",
        "set the clocks of both by NTP, then run again",
    ),
    (
        r"KerberosAuthException|LoginException|Keytab file: .* does not exist",
        "Spark could not log in by Kerberos",
        "correct spark.kerberos.principal and spark.kerberos.keytab: klist -kt FILE lists the principals of "
        "a keytab, which the user of this job must be able to read",
    ),
)
"""What a Java that ended before it was ready has told, what that means and what to do."""

_FLAGS: Final = {
    "spark.master": "--master",
    "spark.driver.memory": "--driver-memory",
    "spark.app.name": "--name",
    "spark.archives": "--archives",
}
"""Settings whose flag beats their `--conf`: given as flags, they also beat those of PYSPARK_SUBMIT_ARGS."""

_RECENTLY: Final = 2.0
"""Seconds that Java may take to end, if something failed because of that."""
_BETWEEN_LOOKS: Final = 0.1
"""Seconds between two looks whether Java is still there."""

_SECRET: Final = re.compile("(?i)secret|password|token|access[.]?key|jaas|account[.]?key|private[.]?key")
"""Settings that Spark does not show: its own pattern of redaction, and what we add to it."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
SHELL: Final = "pyspark-shell"
"""What spark-submit runs when it only opens the gateway to Python."""

_LOG4J2: Final = """status = error
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

_LINKED: Final = ("bin", "jars")
"""The folders that Java is started with."""


def is_local(master: str) -> bool:
    """Return whether a master runs the tasks inside of the driver's Java.

    >>> is_local("local[*,4]"), is_local("spark://host:7077"), is_local("local-cluster[2,1,1024]")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def is_submitted() -> bool:
    """Return whether spark-submit started this process: its Java is up, with everything that it was told."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


# Java


def start_java(
    settings: Mapping[str, str],
    *,
    default_master: str,
    light: bool = False,
    options: Sequence[str] | None = None,
) -> None:
    """Make Spark's Java run and PySpark know it; one that runs already is left as it is.

    `settings` are explicit and beat every other source. `options` are Java options instead of those that make
    it start quickly. Raises StartupError if Java ends before it is ready.

    Java gets a session of its own. A signal to our process group, as `timeout` and a terminal send it, is for
    us: we end Java when the batch that runs is written. Java ends by itself when the pipe to us breaks.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    if is_submitted():
        SparkContext._ensure_initialized()
        return
    master = expected_master(settings, default_master)
    quick = class_archive.archive().use() if options is None else options
    ours = (*_log_options(), *quick, *(_LIGHT if light else ()))
    granted = {
        "JAVA_HOME": str(find_java().home),
        # Spark appends the options of the user to these, so the user's win.
        "SPARK_SUBMIT_OPTS": " ".join(filter(None, (shlex.join(ours), os.environ.get("SPARK_SUBMIT_OPTS")))),
        # Read last of all, so every other way to name a master wins.
        "MASTER": os.environ.get("MASTER", default_master),
        _ARGUMENTS: _submit_arguments(settings),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if is_local(master):
        granted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    home = lean_spark() if is_local(master) else nullcontext()
    try:
        with home, filtered_stderr() as stderr, variables(granted), _started_with_care(granted, stderr):
            gateway = launch_gateway(None, {"start_new_session": True})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as exc:
        _refuse_if_abandoned()
        raise _ended_early(stderr.failure(_STDERR_SECONDS)) from exc
    SparkContext._ensure_initialized(gateway=gateway)


def _ended_early(failure: str) -> StartupError:
    """Return the error for a Java that ended before it was ready; `failure`: its exception, if any."""
    for pattern, what, to_do in _EARLY_ENDS:
        if re.search(pattern, failure):
            return StartupError(what, why=failure, next=to_do)
    return StartupError(
        "Spark's Java ended before it was ready",
        why=failure or "The lines above are its own.",
        next="correct --master, --conf, --driver-memory, PYSPARK_SUBMIT_ARGS or spark-defaults.conf",
    )


def _submit_arguments(settings: Mapping[str, str]) -> str:
    """Return the arguments of spark-submit: those of the environment, then explicit settings, which win.

    Every user of the machine sees them, so secrets are left out: those are in the SparkConf from which the
    context and its Hadoop configuration are made. They are not there while spark-submit itself fetches jars.
    """
    words = shlex.split(os.environ.get(_ARGUMENTS, SHELL))
    words = words[:-1] if words[-1:] == [SHELL] else words
    for key, value in settings.items():
        if _is_secret(key, value):
            continue
        words += (_FLAGS[key], value) if key in _FLAGS else ("--conf", f"{key}={value}")
    return shlex.join((*words, SHELL))


def _is_secret(key: str, value: str) -> bool:
    # What other settings than these say is needed for the start of Java, as its options and class path are.
    is_late = key.startswith(("spark.hadoop.", "spark.executorEnv."))
    return _SECRET.search(key) is not None or (is_late and _SECRET.search(value) is not None)


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process while PySpark reads them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _started_with_care(granted: Mapping[str, str], stderr: FilteredStderr) -> Iterator[None]:
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
            options["env"] = child_environment(Child.SPARK, granted, environ=options["env"])
            del options["env"][_ARGUMENTS]  # they are on its command line; its workers need not see them
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
    """Make a `start_java` that runs in another thread fail soon, and end its Java.

    For a process that is about to end: it makes no other session.
    """
    _abandoned.set()
    for process in _java:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _refuse_if_abandoned() -> None:
    if _abandoned.is_set():
        raise StartupError("the start of Spark was given up")


def java_is_ours() -> bool:
    """Return whether Spark's Java is a child of this process, so that a look at it costs nothing."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None) is not None


def java_exit_code() -> int | None:
    """Return the exit code of Spark's Java process; None while it runs, or if it is not ours."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return None if process is None else process.poll()


def java_has_ended(seconds: float) -> bool:
    """Wait so long for Spark's Java to end; return whether it has."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return False
    process = getattr(gateway, "proc", None)
    if process is None:
        return _is_closed(gateway.gateway_parameters, monotonic() + seconds)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def unless_java_ended() -> Iterator[None]:
    """Let pass what fails because Spark's Java process is gone."""
    try:
        yield
    except Exception:
        if not java_has_ended(_RECENTLY):
            raise


def _is_closed(gateway: Any, end: float) -> bool:
    """Wait until the port of a Java that spark-submit started refuses connections; return whether it does."""
    while True:
        try:
            with socket.create_connection((gateway.address, gateway.port), timeout=1.0):
                pass
        except OSError:
            return True
        if monotonic() >= end:
            return False
        sleep(_BETWEEN_LOOKS)


# What is known before Java is up


def expected_master(settings: Mapping[str, str], default: str) -> str:
    """Return the master that spark-submit will find, for what depends on it before Java is up."""
    return was_set("spark.master", settings) or os.environ.get("MASTER", default)


def was_set(key: str, settings: Mapping[str, str]) -> str | None:
    """Return what was set for a key, for what cannot be asked of Java; None if nothing was.

    Spark's own order: explicit settings, options of the submit, its file of properties, spark-defaults.conf.
    """
    words = shlex.split(os.environ.get(_ARGUMENTS, ""))
    found = (settings.get(key), _in_options(words, key), *(_in_file(path, key) for path in _files(words)))
    return next((value for value in found if value is not None), None)


def _in_options(words: Sequence[str], key: str) -> str | None:
    """Return the last value of a key among spark-submit's options; a flag beats `--conf`."""
    flagged = list(_values(words, _FLAGS[key])) if key in _FLAGS else []
    set_ = (value.partition("=") for value in _values(words, "--conf", "-c"))
    found = flagged or [value for name, _, value in set_ if name == key]
    return found[-1] if found else None


def _values(words: Sequence[str], *flags: str) -> Iterator[str]:
    """Return the values of an option, written `--option value` or `--option=value`."""
    for word, value in pairwise((*words, "")):
        name, equals, joined = word.partition("=")
        if word in flags:
            yield value
        elif equals and name in flags:
            yield joined


def _files(words: Sequence[str]) -> list[Path]:
    """Return the files that settings are read from; the first that has one wins."""
    given = [Path(value) for value in _values(words, "--properties-file")][-1:]
    # A file that is named takes the place of the defaults, unless they are asked for.
    has_defaults = not given or "--load-spark-defaults" in words
    return [*given, *([_conf_folder() / "spark-defaults.conf"] if has_defaults else [])]


def _in_file(path: Path, key: str) -> str | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    rows = (re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in text.splitlines())
    found = [row[1] for row in rows if len(row) > 1 and row[0] == key]
    return found[-1] if found else None


def _conf_folder() -> Path:
    """Return the folder where Spark looks for spark-defaults.conf and log4j2.properties."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).absolute().parent
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")


def _log_options() -> tuple[str, ...]:
    """Return the option that names our log settings; none where the user has a file of that kind."""
    folder = _conf_folder()
    if any((folder / f"log4j2.{ending}").exists() for ending in ("properties", "xml", "yaml", "json")):
        return ()
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
    return (f"-Dlog4j2.configurationFile={path}",)


# The home of a local Spark


@contextmanager
def lean_spark() -> Iterator[None]:
    """Start Spark from the lean home, unless the environment names one."""
    if "SPARK_HOME" in os.environ or (home := lean_home()) is None:
        yield
        return
    with variables({"SPARK_HOME": str(home)}):
        yield


def lean_home() -> Path | None:
    """Return a folder that links to the installed package; None if it is not whole, or links cannot be made.

    Spark puts `python/lib/pyspark.zip` of its home before everything else on the path of each Python that it
    starts. Nothing compiled is in there, so each of them compiles PySpark anew, for most of a second. Without
    the archive they import what is installed, compiled once.
    """
    import pyspark

    package = Path(pyspark.__file__).absolute().parent
    # One name for one folder: the file of shared classes fits only the paths it was made with.
    home = (penstock_home() / "spark").resolve() / hashlib.sha256(os.fsencode(package)).hexdigest()[:12]
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in (*_LINKED, *(("conf",) if (package / "conf").is_dir() else ())):
            with suppress(FileExistsError):
                (home / part).symlink_to(package / part, target_is_directory=True)
    except OSError:
        return None
    return home if all((home / part).is_dir() for part in _LINKED) else None
