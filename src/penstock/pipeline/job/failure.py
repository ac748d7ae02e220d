"""Why a query ended, in our words: what Spark and Kafka's client say, by one table."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.config import MASK, Secret
from penstock.contract.credentials import Client, Connection, options
from penstock.errors import JobFailed
from penstock.pipeline.spark.hadoop import NO_KDC

__all__ = [
    "as_away",
    "failure",
    "is_away",
    "is_taken_over",
    "is_worker_failure",
    "java_ended",
    "may_be_away",
    "outage_in",
]

_MOST_TEXT: Final = 2000

_OUT_OF_MEMORY: Final = (3, 52)
"""Exit codes of Java after an OutOfMemoryError: by its own option, and by Spark (SparkExitCode.OOM)."""
_BY_SIGNAL: Final = 128
"""What a shell adds to the number of a signal."""

_LATE: Final = r"failed to connect back|waiting for the Python worker to connect back"
"""Spark gives a Python process that it starts ten seconds, and has no setting for it."""

_LATE_WORKER: Final = "a Python worker of Spark did not start in time"
_DEAD_WORKER: Final = "a Python worker of Spark was killed"
_JAVA_MEMORY: Final = "Spark's Java had not enough memory"
_NEXT_MEMORY: Final = (
    "give it more: spark.driver.memory for a job on this machine, spark.executor.memory on a cluster; then "
    "run again: the checkpoint knows where to go on"
)
_AWAY: Final = "a cluster did not answer in time"
_REFUSED: Final = "a cluster did not accept our credentials"
_NEXT_AWAY: Final = "start it, then run again: the checkpoint knows where to go on; penstock doctor"
_NO_ROOM: Final = "the file system has no room for the checkpoint: its quota is used up"
_FULL_DISK: Final = "a disk is full"
_STORE_AWAY: Final = "the file system of the checkpoint takes no writes, or does not answer"
_KDC_AWAY: Final = "the key distribution center of Kerberos does not answer"
_NO_TOPIC: Final = "a topic is not there any more"
_TAKEN_OVER: Final = "another job took over this checkpoint"
_FENCED: Final = "another job took over this checkpoint's transactions"

_CAUSES: Final[Sequence[tuple[str, str, str]]] = (
    (
        # Before the next row: Java wraps a login that nobody answers as one that is refused.
        NO_KDC,
        _KDC_AWAY,
        "start it, or let krb5.conf name the right one (-Djava.security.krb5.conf=FILE), then run again",
    ),
    (
        # Before what is said of any call that fails: Hadoop wraps a refused login as a lost connection.
        r"Client cannot authenticate via|KerberosAuthException|GSSException",
        "the login of this job at the file system of the checkpoint has run out, or is refused",
        "log in (kinit), or give Spark a principal and its keytab, with which it logs in again by itself "
        "(spark.kerberos.principal, spark.kerberos.keytab); then run again: the checkpoint knows where to go "
        "on",
    ),
    (
        r"SafeModeException|[Nn]ame ?[Nn]ode is in safe mode|could only be written to 0 of"
        r"|All datanodes .{0,300} are bad|StandbyException|No Route to Host from|Failed on local exception"
        r"|Call From \S+ to \S+ failed on|End of File Exception between local host|Could not obtain block",
        _STORE_AWAY,
        "start it, or wait until its NameNode has left safe mode, then run again",
    ),
    (
        # Spark says of a query that failed the message of the cause, and not always its class.
        r"Permission denied: user=|AccessControlException|AccessDeniedException",
        "the user of this job may not write the checkpoint, or not any more",
        "give this user the right to read and write the whole folder, then run again: the checkpoint knows "
        "where to go on",
    ),
    (
        r"QuotaExceededException|quota .{0,300}is exceeded",
        _NO_ROOM,
        "raise the quota of the folder (hdfs dfsadmin -setQuota, -setSpaceQuota), then run again: the "
        "checkpoint knows where to go on",
    ),
    (
        r"No space left on device",
        _FULL_DISK,
        "make room where Spark keeps its files (spark.local.dir of the driver and of the workers) and where "
        "the checkpoint is, then run again: the checkpoint knows where to go on",
    ),
    (
        r"the certificate files cannot be used",
        "a worker of Spark cannot read the certificates of a server",
        "put them at the same path on every worker, or send them with the application (spark-submit --files, "
        "which finds them by their names)",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using",
        _TAKEN_OVER,
        "end one of the two; a copy of a checkpoint cannot run beside the original",
    ),
    (
        r"data may have been missed|OffsetOutOfRange|offsets? (?:is|are|was) (?:changed|out of range)",
        "records were deleted before they were read",
        "set onDataLoss: continue to go on with what is left; the gap is counted",
    ),
    (
        r"RecordTooLargeException|larger than the max message size|MessageTooLarge|MESSAGE_TOO_LARGE",
        "a topic refused a record as too large",
        "raise max.message.bytes of the topic, above all of the dead-letter topic",
    ),
    (
        r"UnknownTopicOrPartition|not present in metadata|UNKNOWN_TOPIC_OR_PARTITION",
        _NO_TOPIC,
        "penstock plan shows what is missing, penstock apply makes it",
    ),
    (
        r"(?:Sasl|Ssl)?Authentication(?:Exception)?: |SslAuthenticationException|SaslAuthenticationException"
        r"|refuses a password that worked before",
        _REFUSED,
        "correct the credentials of this server in the context",
    ),
    (
        r"AuthorizationException|AUTHORIZATION_FAILED",
        "the user of this context may not do it",
        "give the user of this context the right to do it, or use a context of another user",
    ),
    (
        r"ProducerFenced",
        _FENCED,
        "end one of the two; a copy of a checkpoint cannot run beside the original",
    ),
    (
        r"No module named '(?:pyarrow|numba|numpy|penstock)",
        "the Python of a worker of Spark lacks a library",
        "send them with the job: penstock package --to job, then run --package job; or name a Python on the "
        "workers that has them: --worker-python",
    ),
    (
        r"a worker of Spark runs on \S+, the driver on ",
        "a worker of Spark is another kind of machine than the driver",
        "run the driver and all workers on one kind of machine: compiled libraries are for one",
    ),
    (
        _LATE,
        _LATE_WORKER,
        "run again when the machine has less to do: the checkpoint knows where to go on",
    ),
    (
        r"Python worker exited unexpectedly|Python worker.{0,80}(?:killed|crashed)",
        _DEAD_WORKER,
        "if memory was short, give the machine more, or on a cluster raise spark.executor.memoryOverhead, "
        "which Python's memory counts against; then run again: the checkpoint knows where to go on",
    ),
    (
        # An executor that has no memory ends by this exit code, often before it could say why.
        r"OutOfMemoryError|[Ee]xit(?:ed with)?(?: a non-zero exit)? (?:code|status):? ?52\b",
        _JAVA_MEMORY,
        _NEXT_MEMORY,
    ),
    (
        r"[Cc]ontainer (?:killed|from a bad node|marked as failed|.{0,40}exited)|possible container OOM"
        r"|containers exceeding thresholds|[Ee]xit(?:ed with)? (?:code|status):? ?(?:137|143)",
        "the cluster manager ended the container of an executor",
        "raise spark.executor.memoryOverhead if it was for its memory (Java beside its heap, and all Python "
        "workers), else see the manager's log of that container; then run again: the checkpoint knows where "
        "to go on",
    ),
    (
        r"ExecutorLostFailure|Executor heartbeat timed out|[Ee]xecutor .{0,40}lost",
        "executors were lost, again and again",
        "see the log of the executor on its machine; then run again: the checkpoint knows where to go on",
    ),
    (
        r"SparkContext (?:was|has been) (?:shut down|stopped|shutdown)|stopped SparkContext",
        "Spark was stopped while the job ran",
        "run again: the checkpoint knows where to go on",
    ),
    (
        r"TimeoutException|DisconnectException|NetworkException|errors\.Unreachable",
        _AWAY,
        _NEXT_AWAY,
    ),
)
_OF_FILES: Final = frozenset({_NO_ROOM, _FULL_DISK})
"""Causes that also the text of a broker may name."""
_DEFAULT: Final = ("the job stopped", "run again: the checkpoint knows where to go on")
_OURS: Final = re.compile(
    r"^penstock\.errors\.\w+: (?P<what>[^;\n]+)(?:;.*; next: (?P<next>.+))?", re.MULTILINE
)
"""An error of our own, as the traceback of a task ends with it; see `PenstockError.__str__`."""
_QUERY: Final = re.compile(r"^=== Streaming Query ===$.*?(?=^JVM stacktrace|\Z)", re.DOTALL | re.MULTILINE)
"""What Spark adds to the failure of a query: its offsets, its state and its plan."""
_NOISE: Final = re.compile(r"\s|Driver stacktrace|JVM stacktrace|===|Traceback|SQLSTATE")
"""Frames and the code in them are indented, in Java and in Python."""


def is_worker_failure(failed: JobFailed) -> bool:
    """Return whether a query failed because a Python worker died or came up too slowly."""
    return failed.what in (_LATE_WORKER, _DEAD_WORKER)


def is_taken_over(failed: JobFailed) -> bool:
    """Return whether a query failed because another job writes with the same checkpoint, or a copy of it."""
    return failed.what in (_TAKEN_OVER, _FENCED)


def is_away(failed: JobFailed, connections: Mapping[str, Connection]) -> bool:
    """Say whether a query failed because a cluster was away for longer than its tasks wait.

    Or refused a password that comes from a file: it is being changed, and a query that starts reads it again.
    """
    if failed.what == _REFUSED:
        given = (each.security.password or each.security.token for each in connections.values())
        return any(secret is not None and secret.changes for secret in given)
    return failed.what in (_AWAY, _STORE_AWAY, _KDC_AWAY)


def may_be_away(failed: JobFailed) -> bool:
    """Say whether a query failed because of a topic that is not there, or whose cluster did not answer.

    A Kafka producer without metadata cannot tell the two apart: it says "not present in metadata" of both.
    """
    return failed.what == _NO_TOPIC


def as_away(failed: JobFailed) -> JobFailed:
    """Return the same failure, said of a cluster that was away."""
    return JobFailed(_AWAY, where=failed.where, why=failed.why, next=_NEXT_AWAY)


def failure(exc: Exception, name: str, connections: Mapping[str, Connection]) -> JobFailed:
    """Say what happened to the query of a source; no secret is in the text."""
    text = _without_frames(_masked(str(exc), connections))
    found = next(((what, to_do) for pattern, what, to_do in _CAUSES if re.search(pattern, text)), None)
    # What a broker says of its own disk or quota is not said of Spark's.
    is_broker = found is not None and found[0] in _OF_FILES and outage_in(text) is not None
    what, to_do = (_AWAY, _NEXT_AWAY) if is_broker else found or _own_words(text)
    return JobFailed(what, where=name, why=text[:_MOST_TEXT], next=to_do)


def outage_in(text: str) -> str | None:
    """Return what the last error of our own in a text says, if it is that of a cluster that is away."""
    found = re.findall(r"^penstock\.errors\.(\w+): (.+)", text, re.MULTILINE)
    return found[-1][1] if found and found[-1][0] == "Unreachable" else None


def _own_words(text: str) -> tuple[str, str]:
    """Return what an error of our own says, which a task or a planner has raised."""
    found = _OURS.search(text)
    return _DEFAULT if found is None else (found["what"], found["next"] or _DEFAULT[1])


def java_ended(code: int | None) -> JobFailed:
    """Say why Spark's Java process has ended, by its exit code; None if that is not known.

    >>> java_ended(-9).what, java_ended(52).what
    ("Spark's Java process was killed by SIGKILL", "Spark's Java had not enough memory")
    """
    again = "run again: the checkpoint knows where to go on"
    if code in _OUT_OF_MEMORY:
        return JobFailed(_JAVA_MEMORY, why=f"It ended with exit code {code}.", next=_NEXT_MEMORY)
    number = 0 if code is None else -code if code < 0 else code - _BY_SIGNAL
    if number not in signal.valid_signals():
        why = "It ended by itself." if code is None else f"It ended with exit code {code}."
        return JobFailed("Spark's Java process has ended", why=why, next=again)
    name = signal.Signals(number).name
    why = "Somebody has sent the signal: a person, a service manager or a supervisor of this machine."
    if number == signal.SIGKILL:
        why = "Linux does so when the machine or the container has no memory left; a person may do so, too."
        again = (
            f"look for 'Out of memory' in the log of the kernel or the container, and give more; then {again}"
        )
    return JobFailed(f"Spark's Java process was killed by {name}", why=why, next=again)


def _masked(text: str, connections: Mapping[str, Connection]) -> str:
    for connection in connections.values():
        given = options(connection, Client.SPARK_KAFKA).values()
        for value in (*given, connection.security.password, connection.security.token):
            # An empty text would be found between any two letters.
            if isinstance(value, Secret) and (revealed := value.reveal()):
                text = text.replace(revealed, MASK)
    return text


def _without_frames(text: str) -> str:
    """Leave out stack traces, whose code names errors that did not happen, and what Spark says of the query.

    >>> _without_frames("it broke\\n\\tat org.apache.spark.X(Y.scala:1)\\n  File f\\nKeyError: 'x'")
    "it broke\\nKeyError: 'x'"
    """
    lines = [line for line in _QUERY.sub("", text).splitlines() if line.strip() and not _NOISE.match(line)]
    return "\n".join(dict.fromkeys(lines))
