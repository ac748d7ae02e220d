"""The files of a checkpoint: the same on a local disk and on HDFS, and what fails is told in our words."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import AccessDenied, MachineError, PenstockError, PipelineError, Unreachable
from penstock.pipeline.job import lease as lease_module
from penstock.pipeline.job.lease import leased
from penstock.pipeline.spark.file_system import FileSystem, LocalFileSystem, open_file_system
from penstock.pipeline.spark.hadoop import HadoopFileSystem, hadoop_error

if TYPE_CHECKING:
    from mini_cluster import MiniCluster
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", pytest.param("hdfs", marks=[pytest.mark.server, pytest.mark.slow])])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    """An empty folder that is not there yet."""
    if request.param == "local":
        return LocalFileSystem(tmp_path / "a b")
    cluster: Any = request.getfixturevalue("hdfs")
    found = open_file_system(f"{cluster.address}/{uuid.uuid4().hex}/a b", request.getfixturevalue("spark"))
    assert isinstance(found, HadoopFileSystem)
    return found


def test_files_come_and_go(files: FileSystem) -> None:
    assert (files.list(""), files.read("f"), files.exists("f"), files.modified("f")) == (
        [],
        None,
        False,
        None,
    )
    files.write("sub/f", "one\n")
    files.write("sub/f", "two ä\n")
    assert files.read("sub/f") == "two ä\n"
    assert files.list("sub") == ["f"]
    assert files.list("") == ["sub"]
    assert files.create("sub/g", "mine")
    assert not files.create("sub/g", "yours")
    assert files.read("sub/g") == "mine"
    assert (files.modified("sub/g") or 0) > 0
    files.rename("sub", "other")
    assert (files.exists("sub"), files.list("other")) == (False, ["f", "g"])
    files.delete("other")
    files.delete("other")
    assert files.list("") == []
    assert files.where("x") == f"{files.where()}/x"


def test_a_file_that_is_no_text_is_a_value_error(files: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("f", "x" * 2000)
    for module in ("file_system", "hadoop"):
        monkeypatch.setattr(f"penstock.pipeline.spark.{module}.LARGEST_FILE", 1999)
    with pytest.raises(ValueError, match="too large"):
        files.read("f")


def test_a_file_of_the_largest_size_is_read(files: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("file_system", "hadoop"):
        monkeypatch.setattr(f"penstock.pipeline.spark.{module}.LARGEST_FILE", 2000)
    files.write("f", "x" * 2000)
    assert files.read("f") == "x" * 2000


def test_a_write_that_is_cut_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalFileSystem(tmp_path)
    files.write("f", "old")
    write = Path.write_text

    def cut(path: Path, text: str, **options: Any) -> int:
        write(path, text[:2], **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(MachineError, match="cannot be written"):
        files.write("f", "newer")
    assert files.read("f") == "old"


def test_a_mount_without_locks_leaves_it_to_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFileSystem(tmp_path)
    assert files.has_locks

    def refused(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with files.lock() as held:
        assert held
    assert not files.has_locks


def test_of_many_that_create_a_file_one_succeeds(files: FileSystem) -> None:
    files.write("other", "")
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(files.create("f", "x"))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [False] * 7 + [True]


def test_a_lease_on_every_file_system(files: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 5.0)
    with leased(files) as first:
        assert first.epoch == 1
        with pytest.raises(PenstockError, match="another job"), leased(files):
            pass
        first.require()
    with leased(files) as second:
        assert second.epoch == 2


def test_a_local_path_does_not_become_one_of_the_default_file_system(tmp_path: Path) -> None:
    assert LocalFileSystem(tmp_path).url("x") == f"file://{tmp_path}/x"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "java.io.IOException: DestHost:destPort localhost:8020 , LocalHost:localPort driver/127.0.0.1:0. "
            "Failed on local exception: java.io.IOException: "
            "org.apache.hadoop.security.AccessControlException: "
            "Client cannot authenticate via:[TOKEN, KERBEROS]",
            "does not accept the credentials",
        ),
        (
            "org.apache.hadoop.security.AccessControlException: SIMPLE authentication is not enabled.  "
            "Available:[TOKEN, KERBEROS]",
            "does not accept the credentials",
        ),
        (
            "java.nio.file.AccessDeniedException: bucket: "
            "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided",
            "does not accept the credentials",
        ),
        (
            "org.apache.hadoop.security.AccessControlException: Permission denied: user=penstock, "
            'access=WRITE, inode="/":hdfs:supergroup:drwxr-xr-x',
            "may not use the checkpoint",
        ),
    ],
    ids=["no-ticket", "no-kerberos", "no-key", "no-right"],
)
def test_who_is_not_logged_in_is_told_to_log_in(text: str, what: str) -> None:
    """Hadoop has one exception for both, a missing login and a missing right."""
    error = hadoop_error(text, "hdfs://localhost:8020/ck", "read")
    assert isinstance(error, AccessDenied)
    assert what in error.what
    assert error.where == "hdfs://localhost:8020/ck"
    assert ("log in" in (error.next or "")) == ("credentials" in what)


@pytest.fixture
def in_safe_mode(hdfs: MiniCluster) -> Iterator[None]:
    hdfs.order("safemode on")
    yield
    hdfs.order("safemode off")


@pytest.mark.server
@pytest.mark.slow
class TestErrors:
    def test_a_scheme_that_spark_does_not_know(self, spark: SparkSession) -> None:
        for scheme, package in (("xyz", "misspelt"), ("s3a", "org.apache.hadoop:hadoop-aws:3.")):
            with pytest.raises(PipelineError, match=f"no file system for {scheme}://") as caught:
                open_file_system(f"{scheme}://bucket/ck", spark)
            assert package in (caught.value.next or "")

    def test_a_namenode_in_safe_mode(
        self, spark: SparkSession, hdfs: MiniCluster, in_safe_mode: None
    ) -> None:
        files = open_file_system(f"{hdfs.address}/safe", spark)
        assert files.read("f") is None
        for write in (files.write, files.create):
            with pytest.raises(Unreachable, match="safe mode") as caught:
                write("f", "x")
            assert "dfsadmin" in (caught.value.next or "")

    def test_a_namenode_that_is_not_there(self, spark: SparkSession) -> None:
        with pytest.raises(Unreachable, match="does not answer"):
            open_file_system("hdfs://127.0.0.1:1/ck", spark).exists("f")
        with pytest.raises(PipelineError, match="host"):
            open_file_system("hdfs://nowhere.invalid:8020/ck", spark).exists("f")

    @pytest.mark.parametrize("url", ["hdfs:///ck", "viewfs:///ck"])
    def test_no_configuration_that_names_the_host(self, spark: SparkSession, url: str) -> None:
        with pytest.raises(PipelineError, match="names no host") as caught:
            open_file_system(url, spark)
        assert "HADOOP_CONF_DIR" in (caught.value.next or "")

    def test_a_folder_of_somebody_else(self, spark: SparkSession, hdfs: MiniCluster) -> None:
        files: Any = open_file_system(f"{hdfs.address}/{uuid.uuid4().hex}", spark)
        files.write("f", "x")
        jvm: Any = spark.sparkContext._jvm
        permission = jvm.org.apache.hadoop.fs.permission.FsPermission("000")
        files._files.setPermission(files._path(""), permission)
        groups = jvm.org.apache.hadoop.security.UserGroupInformation
        # The owner of the NameNode may do everything; so another user asks.
        other = groups.createRemoteUser("somebody")
        configuration = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[union-attr]
        uri = files._path("").toUri()
        files._files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(
            uri, configuration, other.getUserName()
        )
        with pytest.raises(AccessDenied, match="may not use") as caught:
            files.read("f")
        assert "right" in (caught.value.next or "")
