"""Jars by lock: fetched from a repository on loopback, verified, kept, shared, and fetched once."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.embedded import artifacts, home
from penstock.embedded.artifact import Artifact
from penstock.embedded.artifacts import Fetched, ensure_artifacts, status, unpacked
from penstock.errors import ArtifactError, DiskSpaceError

fetches = pytest.mark.slow  # each of them starts Java at least once

CONTENT = bytes(range(256)) * 400


class Quiet(ThreadingHTTPServer):
    """A server for clients that some tests kill."""

    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        assert isinstance(sys.exception(), OSError)


class Repository:
    """A Maven repository on loopback that counts what it is asked for, and fails as it is told."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.cut: set[str] = set()
        self.closed_gates: set[str] = set()
        self.gate = threading.Event()
        self._server = Quiet(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def add(self, name: str, content: bytes, *, version: str = "1", type: str = "jar") -> Artifact:
        """Put a file into the repository and give the line of the lock that names it."""
        artifact = Artifact(
            group="org.test",
            name=name,
            version=version,
            type=type,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        self.files[self.path(artifact)] = content
        return artifact

    @staticmethod
    def path(artifact: Artifact) -> str:
        group = artifact.group.replace(".", "/")
        return f"/{group}/{artifact.name}/{artifact.version}/{artifact.file_name}"

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._head()

            def do_GET(self) -> None:
                if (content := self._head()) is None:
                    return
                repository.asked[self.path] += 1
                half = len(content) // 2
                self.wfile.write(content[:half])
                if self.path in repository.closed_gates:
                    repository.gate.wait()
                if self.path in repository.cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.wfile.write(content[half:])

            def _head(self) -> bytes | None:
                content = repository.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                return content

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def repository(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """An empty repository, the only one known here, and an empty home."""
    served = Repository()
    monkeypatch.setenv("PENSTOCK_MAVEN_MIRROR", served.url)
    monkeypatch.setattr(artifacts, "FETCHERS", 2)
    yield served
    served.close()


@fetches
def test_a_lock_is_fetched_with_progress_and_then_shared(repository: Repository) -> None:
    wanted = [repository.add(f"part-{n}", CONTENT[n:] * (n + 1)) for n in range(3)]
    seen: list[Fetched] = []
    files = ensure_artifacts(wanted, seen.append)
    assert [file.read_bytes() for file in files] == [CONTENT[n:] * (n + 1) for n in range(3)]
    total = sum(artifact.size for artifact in wanted)
    assert seen[-1] == Fetched(files=3, of_files=3, bytes=total, of_bytes=total)
    assert all(now.of_bytes == total and 0 <= now.bytes <= total for now in seen)
    assert [now.files for now in seen] == sorted(now.files for now in seen)

    again: list[Fetched] = []
    assert ensure_artifacts(wanted, again.append) == files
    assert again == []
    assert repository.asked == {repository.path(artifact): 1 for artifact in wanted}


@fetches
def test_two_versions_and_two_types_of_one_module(repository: Repository) -> None:
    wanted = [
        repository.add("module", b"old", version="1.0"),
        repository.add("module", b"new", version="2.0"),
        repository.add("module", b"packed", version="2.0", type="tar.gz"),
    ]
    assert [file.read_bytes() for file in ensure_artifacts(wanted)] == [b"old", b"new", b"packed"]


@fetches
def test_a_corrupted_jar_is_fetched_again(repository: Repository) -> None:
    good, bad = repository.add("good", CONTENT), repository.add("bad", CONTENT + b"!")
    _, file = ensure_artifacts([good, bad])
    file.write_bytes(b"x" * bad.size)  # of the right size, and wrong
    ensure_artifacts([good, bad])
    assert file.read_bytes() == CONTENT + b"!"
    assert repository.asked == {repository.path(good): 1, repository.path(bad): 2}


@fetches
def test_a_wrong_checksum_is_an_error_and_nothing_of_it_is_kept(repository: Repository) -> None:
    good, bad = repository.add("good", CONTENT), repository.add("bad", CONTENT)
    repository.files[repository.path(bad)] = b"evil" + CONTENT[4:]
    with pytest.raises(ArtifactError, match=r"bad-1\.jar .* sha256 differs") as caught:
        ensure_artifacts([good, bad])
    assert caught.value.where == "org.test:bad:1"
    kept = [path for path in home.penstock_home().rglob("*") if path.is_file()]
    assert [path.name for path in kept if path.suffix == ".jar"] == ["good-1.jar"]
    assert not [path for path in kept if path.read_bytes().startswith(b"evil")]

    repository.files[repository.path(bad)] = CONTENT
    ensure_artifacts([good, bad])
    assert repository.asked[repository.path(good)] == 1


@fetches
def test_an_interrupted_download_resumes(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, leftovers: Callable[[], set[int]]
) -> None:
    monkeypatch.setattr(artifacts, "FETCHERS", 1)
    first, second = repository.add("first", CONTENT * 2), repository.add("second", CONTENT)
    repository.closed_gates.add(repository.path(second))

    def interrupt(now: Fetched) -> None:
        if now.files == 1 and repository.asked[repository.path(second)]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_artifacts([first, second], interrupt)
    assert leftovers() == set()

    repository.gate.set()
    files = ensure_artifacts([first, second])
    assert [file.read_bytes() for file in files] == [CONTENT * 2, CONTENT]
    assert repository.asked == {repository.path(first): 1, repository.path(second): 2}


@fetches
def test_a_broken_connection_is_an_error_and_the_next_try_goes_on(repository: Repository) -> None:
    whole, cut = repository.add("whole", CONTENT), repository.add("cut", CONTENT)
    repository.cut.add(repository.path(cut))
    with pytest.raises(ArtifactError, match="cut"):
        ensure_artifacts([whole, cut])
    repository.cut.clear()
    assert ensure_artifacts([whole, cut])[1].read_bytes() == CONTENT
    assert repository.asked[repository.path(whole)] == 1


@fetches
def test_a_stalled_download_is_given_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, leftovers: Callable[[], set[int]]
) -> None:
    monkeypatch.setattr(artifacts, "_STALLED_AFTER", 5.0)
    stalls = repository.add("stalls", CONTENT)
    repository.closed_gates.add(repository.path(stalls))
    with pytest.raises(ArtifactError, match="org.test:stalls:1"):
        ensure_artifacts([stalls])
    assert leftovers() == set()


@fetches
def test_what_is_not_in_the_repository_is_named(repository: Repository) -> None:
    there, missing = repository.add("there", CONTENT), repository.add("missing", CONTENT)
    del repository.files[repository.path(missing)]
    with pytest.raises(ArtifactError, match="1 jars could not be fetched: org.test:missing:1"):
        ensure_artifacts([there, missing])


@fetches
def test_no_network_names_what_is_missing_and_where_the_cache_is(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    monkeypatch.setenv("PENSTOCK_MAVEN_MIRROR", nowhere)
    with pytest.raises(ArtifactError) as caught:
        artifacts.ensure(["spark"])
    assert "4 jars could not be fetched" in caught.value.what
    assert "org.apache.kafka:kafka-clients:3.9.2" in caught.value.what
    assert caught.value.where == str(home.penstock_home() / "jars")
    assert "Connection refused" in (caught.value.why or "")
    assert "network" in (caught.value.next or "")
    assert status("spark") == (0, 4)


# Takes a line of a lock, says that it has begun, and fetches.
FETCH = """
import sys
from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
wanted = parse_lock(sys.argv[1], origin="test")
print("begun", flush=True)
for file in ensure_artifacts(wanted):
    print(file, flush=True)
"""


def begin_fetch(artifact: Artifact) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", FETCH, artifact.line]
    process = subprocess.Popen(code, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@fetches
def test_two_processes_fetch_once(repository: Repository, eventually: Callable[..., None]) -> None:
    artifact = repository.add("shared", CONTENT)
    repository.closed_gates.add(repository.path(artifact))
    with begin_fetch(artifact) as one:
        eventually(lambda: repository.asked)
        with begin_fetch(artifact) as other:
            repository.gate.set()
            said = {process.communicate(timeout=120)[0] for process in (one, other)}
    assert (one.returncode, other.returncode) == (0, 0)
    assert said == {f"{home.penstock_home() / 'jars' / artifact.path}\n"}
    assert repository.asked == {repository.path(artifact): 1}


@fetches
def test_a_fetch_that_is_killed_leaves_nothing_running(
    repository: Repository, eventually: Callable[..., None], gone: Callable[[int], bool]
) -> None:
    artifact = repository.add("left", CONTENT)
    repository.closed_gates.add(repository.path(artifact))
    with begin_fetch(artifact) as process:
        eventually(lambda: repository.asked)
        started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        assert started
        process.send_signal(signal.SIGKILL)
    eventually(lambda: all(map(gone, started)))


def test_a_file_is_hashed_once_until_it_changes(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a jar"
    digest = hashlib.sha256(content).hexdigest()
    artifact = Artifact(group="g", name="n", version="1", size=len(content), sha256=digest)
    stored = home.penstock_home() / "jars" / artifact.path
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    hashed: list[Path] = []
    monkeypatch.setattr(artifacts, "sha256_of", lambda path: hashed.append(path) or digest)
    for _ in range(3):
        assert ensure_artifacts([artifact]) == [stored]
    assert hashed == [stored]
    stored.write_bytes(b"a car")
    os.utime(stored, (1, 1))
    ensure_artifacts([artifact])
    assert hashed == [stored, stored]


def test_a_full_disk_is_refused_before_anything_is_fetched(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = home.shutil.disk_usage(isolated_home)._replace(free=10**8)
    monkeypatch.setattr(home.shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(DiskSpaceError, match="only 100 MB of disk are free"):
        artifacts.ensure(["spark"])


def test_a_file_that_goes_while_progress_looks(isolated_home: Path) -> None:
    staging = home.penstock_home() / "fetch"
    part = staging / "0" / "org.test" / "a-1.jar.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("gone")  # listed, and not there when its size is asked for
    artifact = Artifact(group="org.test", name="a", version="1", size=1, sha256="0" * 64)
    assert artifacts._progress_of([artifact], staging).bytes == 0


# Archives


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    packed = archive(tmp_path / "app.tar.gz", {"app.jar": b"app", "lib/dep.jar": b"dep"})
    folder = unpacked(packed)
    assert (folder / "lib" / "dep.jar").read_bytes() == b"dep"
    (folder / "app.jar").write_bytes(b"touched")
    assert unpacked(packed) == folder
    assert (folder / "app.jar").read_bytes() == b"touched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.tar.gz", "app.tar.gz.d"]


@pytest.mark.parametrize("name", ["../escaped.jar", "a/../../escaped.jar", "{tmp}/escaped.jar"])
def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    packed = archive(inside / "app.tar.gz", {"app.jar": b"app", name.format(tmp=tmp_path): b"evil"})
    try:
        folder = unpacked(packed)
    except ArtifactError as exc:
        assert "app.tar.gz" in exc.what
        assert [path.name for path in inside.iterdir()] == ["app.tar.gz"]
    else:  # an absolute name loses its slash and stays inside
        assert name.startswith("{")
        assert all(path.is_relative_to(folder) for path in inside.rglob("*.jar"))
    assert not (tmp_path / "escaped.jar").exists()


def test_a_broken_archive_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    packed = archive(tmp_path / "app.tar.gz", {"app.jar": os.urandom(50_000)})
    packed.write_bytes(packed.read_bytes()[:20_000])
    with pytest.raises(ArtifactError, match=r"app\.tar\.gz"):
        unpacked(packed)
    assert [path.name for path in tmp_path.iterdir()] == ["app.tar.gz"]


def test_who_comes_while_another_one_unpacks_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = archive(tmp_path / "app.tar.gz", {"app.jar": b"app"})
    monkeypatch.setattr(artifacts, "_unpack", lambda *_: pytest.fail("it was unpacked meanwhile"))
    waits = threading.Event()
    flock = fcntl.flock

    def waiting(stream: Any, operation: int) -> None:
        waits.set()
        flock(stream, operation)

    with packed.open("rb") as other, ThreadPoolExecutor(1) as pool:
        flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", waiting)
        found = pool.submit(unpacked, packed)
        try:
            assert waits.wait(10)
            (tmp_path / "app.tar.gz.d").mkdir()
        finally:
            flock(other, fcntl.LOCK_UN)
        assert found.result(10) == tmp_path / "app.tar.gz.d"


def test_what_a_killed_run_left_half_unpacked_is_removed(tmp_path: Path) -> None:
    packed = archive(tmp_path / "app.tar.gz", {"app.jar": b"app"})
    left = tmp_path / f"app.tar.gz.d.{'0' * 32}"
    left.mkdir()
    (left / "app.jar").write_bytes(b"ap")
    assert (unpacked(packed) / "app.jar").read_bytes() == b"app"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.tar.gz", "app.tar.gz.d"]


@fetches
def test_a_mark_of_an_earlier_run_does_not_name_the_cause_of_a_later_one(repository: Repository) -> None:
    missing = repository.add("missing", CONTENT)
    del repository.files[repository.path(missing)]
    mark = home.penstock_home() / "fetch" / "0" / f"{missing.path}.wrong"
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(ArtifactError, match="could not be fetched"):
        ensure_artifacts([missing])
