"""A folder on a file system of Hadoop, with a Java that is played: what its answers and exceptions mean."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from penstock.errors import AccessDenied, PenstockError, PipelineError, Unreachable
from penstock.pipeline.spark.hadoop import HadoopFileSystem


def opened(address: str = "hdfs://namenode:8020/ck") -> Any:
    spark = MagicMock()
    spark._jsparkSession.sessionState().newHadoopConf().get.return_value = ""
    made: Any = HadoopFileSystem(address, spark)
    # What Hadoop's FileSystem and Spark's CheckpointFileManager are asked.
    made._files, made._manager = MagicMock(), MagicMock()
    return made


def raised(text: str) -> PySparkException:
    return PySparkException(f"An error occurred while calling o1.x.\n: {text}\n\tat org.apache.X(Y.java:1)")


@pytest.mark.parametrize(
    ("scheme", "atomic"),
    [
        *((scheme, True) for scheme in ("hdfs", "HDFS", "webhdfs", "swebhdfs", "viewfs")),
        *((scheme, False) for scheme in ("s3a", "abfss", "gs", "oss", "ofs", "xyz")),
    ],
)
def test_only_stores_that_promise_it_have_an_exclusive_create(scheme: str, atomic: bool) -> None:
    assert opened(f"{scheme}://place/ck").is_atomic is atomic


@pytest.mark.parametrize(
    ("set_", "unset"),
    [
        ("org.apache.spark.X.FileSystemBasedCheckpointFileManager", True),
        ("com.example.TheirManager", False),
        ("", False),
    ],
)
def test_the_file_manager_of_local_disks_is_not_used(set_: str, unset: bool) -> None:
    spark = MagicMock()
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    configuration.get.return_value = set_
    HadoopFileSystem("hdfs://namenode/ck", spark)
    assert configuration.unset.called is unset


@pytest.mark.parametrize("step", ["create", "write", "close"])
@pytest.mark.parametrize(
    "text",
    [
        "org.apache.hadoop.fs.FileAlreadyExistsException: /ck/f for client 127.0.0.1 already exists",
        "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException: Failed to CREATE_FILE /ck/f",
    ],
)
def test_a_file_that_somebody_else_creates_is_not_created(step: str, text: str) -> None:
    files = opened()
    stream = files._files.create.return_value
    (files._files.create if step == "create" else getattr(stream, step)).side_effect = raised(text)
    assert files.create("f", "x") is False


def test_a_new_file_does_not_replace_one() -> None:
    files = opened()
    assert files.create("f", "x") is True
    assert files._files.create.call_args.args[1] is False
    files._files.create.side_effect = raised("java.io.IOException: disk full")
    with pytest.raises(PipelineError, match="cannot be written"):
        files.create("f", "x")


@pytest.mark.parametrize("step", ["create", "write", "close"])
@pytest.mark.parametrize("scheme", ["hdfs", "s3a"])
def test_a_file_whose_text_cannot_be_written_is_not_left_behind(scheme: str, step: str) -> None:
    """It would be taken for that of another job; only where create is exclusive is it certainly ours."""
    files = opened(f"{scheme}://place/ck")
    away = raised("File /ck/f could only be written to 0 of the 1 minReplication nodes")
    stream = files._files.create.return_value
    (files._files.create if step == "create" else getattr(stream, step)).side_effect = away
    files._files.delete.side_effect = raised("java.net.ConnectException: Connection refused")
    with pytest.raises(Unreachable, match="does not answer") as caught:
        files.create("f", "x")
    assert "could only be written" in (caught.value.why or "")
    assert files._files.delete.called is (scheme == "hdfs" and step != "create")


def test_a_write_that_fails_replaces_nothing() -> None:
    files = opened()
    stream = files._manager.createAtomic.return_value
    stream.write.side_effect = raised("java.io.IOException: disk full")
    with pytest.raises(PipelineError, match="cannot be written"):
        files.write("f", "x")
    assert stream.cancel.called
    assert not stream.close.called
    stream.write.side_effect = None
    files.write("f", "x")
    assert stream.close.called


def test_a_rename_that_the_store_does_not_do_is_an_error() -> None:
    files = opened()
    files._files.rename.return_value = False
    with pytest.raises(PipelineError, match="cannot be renamed") as caught:
        files.rename("a", "b")
    assert caught.value.where == "hdfs://namenode:8020/ck/a"
    files._files.rename.return_value = True
    files.rename("a", "b")


def test_times_are_in_seconds() -> None:
    files = opened()
    files._files.getFileStatus().getModificationTime.return_value = 1_700_000_000_500
    assert files.modified("f") == 1_700_000_000.5


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [
        ("org.apache.hadoop.ipc.StandbyException: Operation category READ", Unreachable, "does not answer"),
        ("org.apache.hadoop.ipc.RetriableException: later", Unreachable, "does not answer"),
        ("java.net.ConnectException: Connection refused", Unreachable, "does not answer"),
        ("java.net.SocketTimeoutException: 60000 ms", Unreachable, "does not answer"),
        ("File /ck/f could only be written to 0 of the 1 minReplication nodes", Unreachable, "not answer"),
        # A NameNode in safe mode asks its clients to try again.
        (
            "org.apache.hadoop.ipc.RetriableException: org.apache.hadoop.hdfs.server.namenode"
            ".SafeModeException: Cannot create file",
            Unreachable,
            "safe mode",
        ),
        (
            "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: blk_1 file=/ck/f",
            Unreachable,
            "no DataNode",
        ),
        (
            "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException: The NameSpace quota of / is exceeded",
            PipelineError,
            "no room",
        ),
        (
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of / is exceeded",
            PipelineError,
            "no room",
        ),
        ("java.net.UnknownHostException: nowhere", PipelineError, "host"),
        ("org.apache.hadoop.security.AccessControlException: denied", AccessDenied, "may not use"),
        ("java.nio.file.AccessDeniedException: s3a://bucket: 403", AccessDenied, "may not use"),
        ("org.apache.hadoop.security.KerberosAuthException: failure", AccessDenied, "credentials"),
        (
            "java.io.IOException: javax.security.sasl.SaslException: GSS initiate failed [Caused by "
            "GSSException: No valid credentials provided (Mechanism level: Connection refused)]",
            Unreachable,
            "key distribution center",
        ),
        (
            "org.apache.hadoop.security.KerberosAuthException: failure to login: javax.security.auth.login"
            ".LoginException: Receive timed out",
            Unreachable,
            "key distribution center",
        ),
        ("token.SecretManager$InvalidToken: token can't be found", AccessDenied, "credentials"),
        ("UnsupportedFileSystemException: No FileSystem for scheme", PipelineError, "no file system for"),
        ("java.io.IOException: something else", PipelineError, "cannot be read"),
    ],
)
def test_each_failure_of_a_store_has_its_sentence(text: str, kind: type[PenstockError], what: str) -> None:
    files = opened()
    files._files.exists.side_effect = raised(text)
    with pytest.raises(PenstockError, match=what) as caught:
        files.exists("f")
    assert type(caught.value) is kind
    assert caught.value.next
    assert "Y.java" not in str(caught.value)
