"""A folder on a file system of Hadoop (HDFS, object stores), reached by the Java of Spark's driver.

Files are used through Hadoop's FileSystem API with the Hadoop configuration of the session; where a file is
replaced in one step, through Spark's own CheckpointFileManager.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import AccessDenied, PenstockError, PipelineError, Unreachable
from penstock.pipeline.spark.file_system import LARGEST_FILE, FileSystem, read_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NO_KDC", "PACKAGES", "HadoopFileSystem", "hadoop_error"]

NO_KDC: Final = (
    r"(?:LoginException: |Mechanism level: )[^)\n]{0,200}(?:Connection (?:refused|reset|timed out)"
    r"|(?:Receive|[Cc]onnect|Read) timed out|No route to host|[Uu]nreachable|Cannot locate KDC"
    r"|Cannot contact any KDC)"
)
"""How Java says that a login failed because no key distribution center of Kerberos has answered."""

_FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_FILE_MANAGER: Final = "FileSystemBasedCheckpointFileManager"
"""What our own sessions use for the sake of local disks; it cannot replace a file in one step on HDFS."""

_ATOMIC: Final = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs"})
"""File systems on which of two that create or rename a file at the same time one fails. Object stores promise
less, and what they promise depends on their settings."""

PACKAGES: Final[Mapping[str, str]] = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "s3": "org.apache.hadoop:hadoop-aws:{hadoop} (write s3a:// instead)",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "oss": "org.apache.hadoop:hadoop-aliyun:{hadoop}",
    "cosn": "org.apache.hadoop:hadoop-cos:{hadoop}",
    "obs": "org.apache.hadoop:hadoop-huaweicloud:{hadoop}",
    "tos": "org.apache.hadoop:hadoop-tos:{hadoop}",
    "ofs": "org.apache.ozone:ozone-filesystem-hadoop3-client",
    "o3fs": "org.apache.ozone:ozone-filesystem-hadoop3-client",
}
"""Which package gives Spark the file system of a scheme that it does not bring itself."""


class HadoopFileSystem(FileSystem):
    """A folder on a file system of Hadoop, reached by the Java of Spark's driver.

    The calls wait as long as Hadoop's client does, which tries several times by settings of its own.
    """

    def __init__(self, folder: str, spark: SparkSession) -> None:
        self._folder = folder.rstrip("/")
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._scheme = folder.partition(":")[0].lower()
        self.is_atomic = self._scheme in _ATOMIC
        session: Any = spark._jsparkSession
        configuration = session.sessionState().newHadoopConf()
        if str(configuration.get(_FILE_MANAGER, "")).endswith(_LOCAL_FILE_MANAGER):
            configuration.unset(_FILE_MANAGER)
        with self._errors("", "opened"):
            root = self._path("")
            self._files = root.getFileSystem(configuration)
            manager = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
            self._manager = manager.create(root, configuration)

    def where(self, path: str = "") -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def url(self, path: str) -> str:
        return self.where(path)

    def exists(self, path: str) -> bool:
        with self._errors(path, "read"):
            return bool(self._files.exists(self._path(path)))

    def read(self, path: str) -> str | None:
        with self._errors(path, "read"):
            if not self._files.exists(self._path(path)):
                return None
            stream = self._files.open(self._path(path))
            try:
                return read_text(bytes(stream.readNBytes(LARGEST_FILE + 1)))
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        with self._errors(path, "written"):
            self._make_parent(path)
            stream = self._manager.createAtomic(self._path(path), True)
            try:
                stream.write(text.encode())
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def create(self, path: str, text: str) -> bool:
        with self._errors(path, "written"):
            self._make_parent(path)
            is_ours = False
            try:
                stream = self._files.create(self._path(path), False)
                is_ours = self.is_atomic
                stream.write(text.encode())
                stream.close()
            except Exception as exc:
                # Stores that look before they write tell it at the end; HDFS tells apart a file that is open.
                if re.search("FileAlreadyExistsException|AlreadyBeingCreatedException", _java_text(exc)):
                    return False
                if is_ours:
                    # Without DataNodes HDFS still has the name, which would be taken for that of another job.
                    with suppress(Exception):
                        self._files.delete(self._path(path), True)
                raise
        return True

    def list(self, path: str) -> list[str]:
        with self._errors(path, "read"):
            if not self._files.exists(self._path(path)):
                return []
            return sorted(str(each.getPath().getName()) for each in self._files.listStatus(self._path(path)))

    def rename(self, path: str, to: str) -> None:
        with self._errors(path, "renamed"):
            if not self._files.rename(self._path(path), self._path(to)):
                raise PipelineError(
                    "a part of the checkpoint cannot be renamed",
                    where=self.where(path),
                    why=f"The file system does not give it the name {self.where(to)}.",
                    next="rename it by hand, or name another folder under checkpoint",
                )

    def delete(self, path: str) -> None:
        with self._errors(path, "removed"):
            self._files.delete(self._path(path), True)

    def modified(self, path: str) -> float | None:
        with self._errors(path, "read"):
            if not self._files.exists(self._path(path)):
                return None
            return float(self._files.getFileStatus(self._path(path)).getModificationTime()) / 1000.0

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.where(path))

    def _make_parent(self, path: str) -> None:
        self._files.mkdirs(self._path(path).getParent())

    @contextmanager
    def _errors(self, path: str, action: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except (Py4JJavaError, PySparkException) as exc:
            text = _java_text(exc)
            if _NO_FILE_SYSTEM.search(text):
                raise self._unknown_scheme(_first_line(text)) from exc
            raise hadoop_error(text, self.where(path), action) from exc

    def _unknown_scheme(self, why: str) -> PipelineError:
        hadoop = str(self._jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        package = PACKAGES.get(self._scheme, "").format(hadoop=hadoop)
        given = f"the package {package} has it" if package else "some package has it, or it is misspelt"
        return PipelineError(
            f"Spark knows no file system for {self._scheme}://",
            where=f"checkpoint: {self._folder}",
            why=why,
            next=f"{given}: penstock run --conf spark.jars.packages=..., or name another folder",
        )


_NO_FILE_SYSTEM: Final = re.compile(
    r"No (?:Abstract)?FileSystem (?:for scheme|configured)|UnsupportedFileSystemException"
    r"|ClassNotFoundException: Class \S*FileSystem|NoClassDefFoundError"
)
_NOT_ACCEPTED: Final = "the file system of the checkpoint does not accept the credentials of this job"
_CAUSES: Final[Sequence[tuple[re.Pattern[str], type[PenstockError], str, str]]] = (
    (
        re.compile("SafeModeException"),
        Unreachable,
        "the file system of the checkpoint takes no writes: its NameNode is in safe mode",
        "it leaves safe mode when enough DataNodes have reported: hdfs dfsadmin -safemode get",
    ),
    (
        re.compile("BlockMissingException|Could not obtain block"),
        Unreachable,
        "no DataNode that has a file of the checkpoint answers",
        "start the DataNodes; hdfs fsck PATH -files -blocks -locations tells whether a block is lost",
    ),
    (
        re.compile(r"QuotaExceededException"),
        PipelineError,
        "the file system has no room for the checkpoint: its quota is used up",
        "raise the quota of the folder: hdfs dfsadmin -setQuota, -setSpaceQuota",
    ),
    (
        re.compile("Incomplete HDFS URI, no host|Empty Mount table in config"),
        PipelineError,
        "the checkpoint names no host, and Spark has no configuration of Hadoop that does",
        "let HADOOP_CONF_DIR name the folder of core-site.xml and hdfs-site.xml, or write the host: "
        "hdfs://namenode:8020/folder",
    ),
    (
        re.compile("UnknownHostException"),
        PipelineError,
        "the host of the checkpoint's file system is not known",
        "correct the host under checkpoint, or give Spark the configuration that names it (HADOOP_CONF_DIR)",
    ),
    (
        # Before those of a login that is refused: Java wraps both in the same exceptions.
        re.compile(NO_KDC),
        Unreachable,
        "the key distribution center of Kerberos does not answer, so nobody can log in to the file system of "
        "the checkpoint",
        "start it, or let krb5.conf name the right one (-Djava.security.krb5.conf=FILE)",
    ),
    (
        re.compile("SIMPLE authentication is not enabled"),
        AccessDenied,
        _NOT_ACCEPTED,
        "let HADOOP_CONF_DIR name the configuration of that cluster, which says that it wants Kerberos; then "
        "log in (kinit), or give Spark the principal and keytab: spark.kerberos.principal, "
        "spark.kerberos.keytab",
    ),
    (
        # Before the next row: Hadoop says both, no login and no right, by the same exceptions.
        re.compile(
            "Client cannot authenticate via|KerberosAuthException|GSSException|SaslException"
            "|NoAuthWithAWSException|InvalidToken"
        ),
        AccessDenied,
        _NOT_ACCEPTED,
        "log in (kinit), or give Spark the principal and keytab (spark.kerberos.principal, "
        "spark.kerberos.keytab) or the keys of the store",
    ),
    (
        re.compile("AccessControlException|AccessDeniedException|Permission denied"),
        AccessDenied,
        "the user of this job may not use the checkpoint",
        "give this user the right to read and write the folder, or name another one under checkpoint",
    ),
    (
        re.compile(
            "ConnectException|ConnectTimeoutException|SocketTimeoutException|NoRouteToHostException"
            "|StandbyException|RetriableException|EOFException|Connection reset"
            "|could only be written to 0 of the"
        ),
        Unreachable,
        "the file system of the checkpoint does not answer",
        "start it, or correct the address under checkpoint",
    ),
)


def hadoop_error(text: str, where: str, action: str) -> PenstockError:
    """Return the error for an exception of Java and its causes, a line each; `action`: what was tried."""
    why = _first_line(text)
    for pattern, kind, what, to_do in _CAUSES:
        if pattern.search(text):
            return kind(what, where=where, why=why, next=to_do)
    return PipelineError(
        f"the checkpoint cannot be {action}",
        where=where,
        why=why,
        next="look at the file system with its own tools, or name another folder under checkpoint",
    )


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _java_text(exc: Exception) -> str:
    """Return an exception of Java and its causes, a line each, without their stack traces."""
    lines = str(exc).splitlines()
    kept = [line.removeprefix(": ").strip() for line in lines if line and not line[0].isspace()]
    return "\n".join(line for line in kept if not line.startswith(("An error occurred", "JVM stacktrace")))
