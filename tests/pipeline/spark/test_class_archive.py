"""Spark's classes come from one file; a file that does not fit is passed over in silence."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark import SparkContext

from penstock.embedded.java import find_java
from penstock.pipeline.spark import class_archive, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    return tmp_path


def archive(content: bytes) -> Path:
    path = class_archive.archive().path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


@pytest.mark.server
def test_the_session_of_the_tests_maps_the_file(spark: SparkSession) -> None:
    (option, *_) = class_archive.archive().use()
    _, _, path = option.partition("=")
    gateway = SparkContext._gateway
    assert gateway is not None
    java = psutil.Process(gateway.proc.pid)
    is_asked = option in java.cmdline()
    assert (path in {mapped.path for mapped in java.memory_maps()}) == is_asked
    # Another worker may have made it while this one started its Java without it.
    assert is_asked or Path(path).stat().st_ctime > psutil.Process().create_time()


def test_nothing_is_asked_of_java_before_the_file_is_there(home: Path) -> None:
    assert not class_archive.are_prepared()
    assert class_archive.archive().use() == ()


def test_a_java_that_cannot_make_the_file_is_asked_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fails)
    class_archive.prepare()
    class_archive.prepare()
    assert len(asked) == 1
    assert class_archive.are_prepared()
    assert class_archive.archive().use() == ()


def test_settings_of_the_user_have_no_part_in_making_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that Spark refuses would pass for a Java that cannot make the file, and would do so for ever."""
    monkeypatch.setenv("SPARK_CONF_DIR", "/of/the/user")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.eventLog.enabled=true pyspark-shell")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xbroken")
    seen: list[dict[str, str]] = []

    def runs(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[bytes]:
        # A folder that exists would stand in the class path that the file is made for.
        assert not Path(env["SPARK_CONF_DIR"]).exists()
        seen.append(env)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", runs)
    class_archive.prepare()
    assert {"PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "MASTER"}.isdisjoint(seen[0])


def test_no_kernel_is_compiled_while_the_file_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' daemon of a job loads the kernels, which where none are compiled takes minutes."""
    given: dict[str, Any] = {}

    class Started(Exception): ...

    def starts(name: str, **how: Any) -> None:
        given.update(how)
        raise Started

    monkeypatch.setattr(session, "spark_session", starts)
    with pytest.raises(Started):
        class_archive._trained([])
    assert given["settings"]["spark.python.daemon.module"] == "pyspark.daemon"


def test_a_file_of_rubbish_neither_stops_java_nor_makes_it_talk(home: Path) -> None:
    archive(b"rubbish" * 1000)
    command = [str(find_java().executable), *class_archive.archive().use(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "rubbish" not in done.stderr
    assert "spark-" not in done.stderr
