"""A Java program that has recorded its classes starts with them; what is not whole is not used."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from penstock.embedded import artifacts, java
from penstock.embedded.artifacts import ensure
from penstock.embedded.class_archive import ClassArchive, jars_of
from penstock.embedded.home import penstock_home
from penstock.embedded.java import find_java
from penstock.embedded.registry import Registry
from penstock.embedded.stack import Stack


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def archive_of(jar: Path) -> ClassArchive:
    return ClassArchive("program", find_java(), [jar])


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "a.jar"
    path.write_bytes(b"one")
    return path


def test_a_program_is_recorded_once_and_used_from_then_on(jar: Path) -> None:
    first = archive_of(jar)
    assert first.use() == ()
    option = first.record()[0]
    Path(option.partition("=")[2]).write_bytes(b"classes")
    first.keep(has_ended_well=True)
    again = archive_of(jar)
    assert again.is_settled
    assert again.record() == ()
    assert again.use()[0] == f"-XX:SharedArchiveFile={again.path}"
    assert again.path.read_bytes() == b"classes"


def test_what_a_program_that_was_killed_has_written_is_removed(jar: Path) -> None:
    first = archive_of(jar)
    fresh = Path(first.record()[0].partition("=")[2])
    fresh.write_bytes(b"half")
    first.keep(has_ended_well=False)
    assert not fresh.exists()
    assert archive_of(jar).record()


def test_a_java_that_writes_nothing_is_not_asked_again(jar: Path) -> None:
    first = archive_of(jar)
    assert first.record()
    first.keep(has_ended_well=True)
    assert archive_of(jar).record() == ()
    assert archive_of(jar).use() == ()


def test_another_jar_has_another_file(jar: Path) -> None:
    before = archive_of(jar).path
    jar.write_bytes(b"other content")
    assert archive_of(jar).path != before


def test_homes_that_share_jars_and_java_by_links_name_them_alike(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jars", "java"):
        (home / name).mkdir(parents=True)
    wheel = tmp_path / "wheel"
    (wheel / "bin").mkdir(parents=True)
    named = artifacts._store(), java._launcher_home(wheel)
    second = tmp_path / "second"
    second.mkdir()
    for name in ("jars", "java"):
        (second / name).symlink_to(home / name)
    monkeypatch.setenv("PENSTOCK_HOME", str(second))
    assert (artifacts._store(), java._launcher_home(wheel)) == named


def test_nothing_is_recorded_without_room(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.embedded.class_archive._LARGEST", 1 << 60)
    assert archive_of(jar).record() == ()


def test_the_star_of_a_class_path_is_every_jar_of_the_folder(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    found = jars_of(["-cp", f"/x.jar:{tmp_path}/*", "Main"])
    assert found == [Path("/x.jar"), tmp_path / "a.jar", tmp_path / "b.jar"]
    assert jars_of(["-version"]) == []


def test_a_stack_records_only_if_it_is_asked_to() -> None:
    assert not any(server.records_classes for server in Stack().servers.values())
    assert all(server.records_classes for server in Stack(record_classes=True).servers.values())


@pytest.mark.server
def test_a_server_that_has_recorded_starts_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_HOME")
    ensure(["registry"])
    jars = penstock_home() / "jars"
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to(jars)
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    registry = Registry()
    registry.records_classes = True
    with registry:
        assert registry.is_recording
    (made,) = (home / "classes").glob("registry-*.jsa")
    assert made.stat().st_size > 10_000_000
    with Registry() as second:
        assert second.pid is not None
        assert not second.is_recording
        assert str(made) in {mapped.path for mapped in psutil.Process(second.pid).memory_maps()}
