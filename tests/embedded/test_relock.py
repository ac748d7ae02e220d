"""Rebuilding the locks: what Maven brings becomes lines, what is dropped does not."""

from __future__ import annotations

import hashlib
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from penstock.embedded import relock
from penstock.embedded.artifact import LOCKS, parse_lock, read_lock

# Stands for Maven: keeps the pom it was given and brings the files of a folder.
MAVEN = """#!/bin/sh
cp pom.xml {seen}
cp -r {repository} lib
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "locks").mkdir()
    maven = tmp_path / "bin" / "mvn"
    maven.write_text(MAVEN.format(seen=tmp_path / "seen.xml", repository=folder))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(relock, "_LOCKS", tmp_path / "locks")
    return folder


def put(repository: Path, path: str, content: bytes) -> None:
    (repository / path).parent.mkdir(parents=True, exist_ok=True)
    (repository / path).write_bytes(content)


def test_what_maven_brings_becomes_a_lock(repository: Path, tmp_path: Path) -> None:
    put(repository, "org/z/last/2/last-2.jar", b"last")
    put(repository, "org/a/first/1.0-rc1/first-1.0-rc1-linux-x86_64.jar", b"first")
    put(repository, "org/a/app/1/app-1-all.tar.gz", b"packed")
    put(repository, "org/a/first/1.0-rc1/first-1.0-rc1.pom", b"no artifact")
    put(repository, "org/a/first/1.0-rc1/first-1.0-rc1-osx-x86_64.jar", b"dropped")
    put(repository, "io/dropped/x/1/x-1.jar", b"dropped")
    entry = {"about": "a test", "roots": ["org.z:last:2"], "drop": ["io.dropped:*", "org.a:*:osx-*"]}
    assert relock.relock("test", entry) == 3
    text = (tmp_path / "locks" / "test.lock").read_text()
    assert text.startswith("# test: a test\n")
    assert [artifact.coordinate for artifact in parse_lock(text, origin="test.lock")] == [
        "org.a:app:1:all:tar.gz",
        "org.a:first:1.0-rc1:linux-x86_64:jar",
        "org.z:last:2",
    ]
    last = parse_lock(text, origin="test.lock")[-1]
    assert (last.size, last.sha256) == (4, hashlib.sha256(b"last").hexdigest())


def test_the_pom_asks_for_the_roots(repository: Path, tmp_path: Path) -> None:
    entry = {
        "about": "a test",
        "boms": ["org.b:bom:3"],
        "roots": ["org.a:app:1:all:tar.gz"],
        "transitive": False,
    }
    relock.relock("test", entry)
    pom = (tmp_path / "seen.xml").read_text()
    bom, root = pom.split("</dependencyManagement>")
    assert "<groupId>org.b</groupId>" in bom
    assert "<type>pom</type><scope>import</scope>" in bom
    assert "<type>tar.gz</type>" in root
    assert "<classifier>all</classifier>" in root
    assert "<exclusion>" in root


def test_a_file_of_coordinates_elsewhere(repository: Path, tmp_path: Path) -> None:
    put(repository, "org/z/last/2/last-2.jar", b"last")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "coordinates.toml").write_text('[own]\nabout = "a test"\nroots = ["org.z:last:2"]\n')
    relock._main([folder / "coordinates.toml"])
    (artifact,) = parse_lock((folder / "own.lock").read_text(), origin="own.lock")
    assert artifact.coordinate == "org.z:last:2"


def test_every_shipped_lock_has_its_coordinates() -> None:
    text = (resources.files("penstock.embedded") / "locks" / "coordinates.toml").read_text()
    coordinates = tomllib.loads(text)
    assert sorted(coordinates) == sorted(LOCKS)
    for name, entry in coordinates.items():
        locked = {artifact.coordinate for artifact in read_lock(name)}
        assert set(entry["roots"]) <= locked, name
        assert not [a for a in read_lock(name) if relock._dropped(a, entry.get("drop", ()))]
