"""The jars of the locks on this machine: fetched once, verified by sha256, shared between projects.

`ensure` gives the files of some locks and fetches what is missing, side by side, with progress. One
process at a time fetches. What an interrupted run had finished is kept and not fetched again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tarfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from penstock.embedded.artifact import Artifact, read_lock, sha256_of
from penstock.embedded.home import penstock_home, require_disk_space
from penstock.embedded.ivy import start_download
from penstock.embedded.java import find_java
from penstock.embedded.process import ServerProcess, last_lines
from penstock.errors import ArtifactError

__all__ = ["FETCHERS", "Fetched", "Progress", "classpath", "ensure", "ensure_artifacts", "status", "unpacked"]

FETCHERS = 4
"""Ivy downloads one file at a time: this many of them run side by side."""

_WRONG = ".wrong"
"""Ends the name of a mark: a file that was fetched was not what the lock says."""
_STALLED_AFTER = 180.0
"""Seconds without one more byte after which a download is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """How far a fetch has come, in files and bytes."""

    files: int
    of_files: int
    bytes: int
    of_bytes: int


Progress = Callable[[Fetched], None]


def status(lock: str) -> tuple[int, int]:
    """Give how many files of a lock are on this machine, and how many it has."""
    artifacts = read_lock(lock)
    return sum(_has_size(artifact) for artifact in artifacts), len(artifacts)


def classpath(lock: str, progress: Progress | None = None) -> str:
    """Give the class path of a lock, fetching what is missing."""
    return os.pathsep.join(str(path) for path in ensure([lock], progress)[lock])


def ensure(locks: Sequence[str], progress: Progress | None = None) -> dict[str, list[Path]]:
    """Give the verified files of each lock, fetching what is missing or is not what the lock says."""
    wanted = {lock: read_lock(lock) for lock in locks}
    ensure_artifacts([artifact for artifacts in wanted.values() for artifact in artifacts], progress)
    return {lock: [_stored(artifact) for artifact in artifacts] for lock, artifacts in wanted.items()}


def ensure_artifacts(artifacts: Sequence[Artifact], progress: Progress | None = None) -> list[Path]:
    """Give the verified files of these artifacts, in their order, fetching what is missing or wrong."""
    everything = list(dict.fromkeys(artifacts))
    if _unverified(everything):
        with _one_at_a_time():
            if missing := _unverified(everything):
                _fetch(missing, progress)
    return [_stored(artifact) for artifact in artifacts]


def unpacked(archive: Path) -> Path:
    """Unpack a verified tar archive beside it, once, and give the folder."""
    folder = archive.with_name(archive.name + ".d")
    if not folder.is_dir():
        with archive.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    for left in folder.parent.glob(f"{folder.name}.{'?' * 32}"):
        shutil.rmtree(left, ignore_errors=True)  # of a run that was killed: we have the lock
    fresh = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    try:
        with tarfile.open(archive) as tar:
            _extract(tar, fresh)
        fresh.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as exc:
        raise _not_unpacked(archive, exc) from exc
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Unpack files and folders that stay inside; Python's own filter came with 3.11.4."""
    for member in tar.getmembers():
        target = (folder / member.name.lstrip("/")).resolve()
        if not (member.isreg() or member.isdir()) or not target.is_relative_to(folder.resolve()):
            raise tarfile.ExtractError(f"{member.name} does not belong into a folder of jars")
        member.name = str(target.relative_to(folder.resolve()))
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:
        tar.extractall(folder)


def _not_unpacked(archive: Path, exc: Exception) -> ArtifactError:
    return ArtifactError(
        f"{archive.name} cannot be unpacked: {exc}",
        where=str(archive),
        next="remove the file and run it again: it is fetched once more",
    )


def _store() -> Path:
    # One name for one folder: a file of shared classes fits only the paths it was made with.
    return (penstock_home() / "jars").resolve()


def _stored(artifact: Artifact) -> Path:
    return _store() / artifact.path


def _has_size(artifact: Artifact) -> bool:
    path = _stored(artifact)
    return path.is_file() and path.stat().st_size == artifact.size


def _is_right(path: Path, artifact: Artifact) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    known = (path, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, artifact)
    if known in _right:
        return True
    if found.st_size != artifact.size or not path.is_file() or sha256_of(path) != artifact.sha256:
        return False
    _right.add(known)
    return True


_right: set[tuple[Path, int, int, int, Artifact]] = set()
"""Files that this process has hashed, as they were then: servers that start together share most of them."""


def _unverified(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Hash every file once in a process: a broken jar shows here and not as a riddle inside a server."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        right = pool.map(lambda artifact: _is_right(_stored(artifact), artifact), artifacts)
    return [artifact for artifact, good in zip(artifacts, right, strict=True) if not good]


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    home = penstock_home()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(missing: Sequence[Artifact], progress: Progress | None) -> None:
    staging = penstock_home() / "fetch"
    require_disk_space(staging, sum(artifact.size for artifact in missing) + 500_000_000)
    parts = _parts(missing)
    folders = [staging / str(number) for number in range(len(parts))]
    _collect(missing, staging)
    for mark in staging.glob(f"*/**/*{_WRONG}"):  # of an earlier run: what comes now may be right
        mark.unlink()
    left = _unverified(missing)
    java = find_java()
    running = [
        start_download(java, part, folder)
        for part, folder in zip(_parts(left), folders, strict=False)
        if part
    ]
    try:
        _watch(running, missing, staging, progress)
    finally:
        _end(running)
        _collect(missing, staging)
    if still := _unverified(missing):
        raise _not_fetched(still, staging)
    shutil.rmtree(staging, ignore_errors=True)


def _parts(artifacts: Sequence[Artifact]) -> list[list[Artifact]]:
    """Share the artifacts out, the largest first, always to the part that has least to carry."""
    parts: list[list[Artifact]] = [[] for _ in range(FETCHERS)]
    for artifact in sorted(artifacts, key=lambda artifact: -artifact.size):
        # A request costs about as much as half a megabyte: count files, too.
        min(parts, key=lambda part: sum(a.size + 500_000 for a in part)).append(artifact)
    return parts


def _watch(
    running: Sequence[ServerProcess],
    missing: Sequence[Artifact],
    staging: Path,
    progress: Progress | None,
) -> None:
    moved, moved_at = -1, time.monotonic()
    while any(process.running for process in running):
        now = _progress_of(missing, staging)
        if progress:
            progress(now)
        if now.bytes != moved:
            moved, moved_at = now.bytes, time.monotonic()
        if time.monotonic() - moved_at > _STALLED_AFTER:
            return
        time.sleep(0.2)
    if progress:
        progress(_progress_of(missing, staging))


def _progress_of(missing: Sequence[Artifact], staging: Path) -> Fetched:
    sizes = {path.name: _size(path) for path in staging.glob("*/*/*")}
    done = [
        artifact
        for artifact in missing
        if sizes.get(artifact.file_name) == artifact.size or _has_size(artifact)
    ]
    partial = sum(size for name, size in sizes.items() if name.endswith(".part"))
    return Fetched(
        files=len(done),
        of_files=len(missing),
        bytes=sum(artifact.size for artifact in done) + partial,
        of_bytes=sum(artifact.size for artifact in missing),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Ivy has just renamed it
        return 0


def _end(running: Sequence[ServerProcess]) -> None:
    for process in running:
        process.kill()


def _collect(missing: Sequence[Artifact], staging: Path) -> None:
    """Move every finished file that is what the lock says into the store; drop a finished one that is not."""
    for artifact in missing:
        for found in staging.glob(f"*/{artifact.path}"):
            if _is_right(found, artifact):
                _stored(artifact).parent.mkdir(parents=True, exist_ok=True)
                found.replace(_stored(artifact))
            else:
                found.unlink()
                found.with_name(found.name + _WRONG).touch()


def _not_fetched(still: Sequence[Artifact], staging: Path) -> ArtifactError:
    wrong = [a for a in still if list(staging.glob(f"*/{a.path}{_WRONG}"))]
    if wrong:
        shutil.rmtree(staging, ignore_errors=True)
        return ArtifactError(
            f"{wrong[0].file_name} is not the file its lock names: the sha256 differs",
            where=wrong[0].coordinate,
            why=f"{len(wrong)} of the fetched files differ; they were not kept",
            next="try again; if it stays so, the repository or something on the way changes the file",
        )
    logs = [line for log in sorted(staging.glob("*/ivy.log")) for line in last_lines(log, 4)]
    names = ", ".join(artifact.coordinate for artifact in still[:3])
    return ArtifactError(
        f"{len(still)} jars could not be fetched: {names}{' ...' if len(still) > 3 else ''}",
        where=str(_store()),
        why="\n".join(logs[:8]) or "the downloads stalled",
        next="check the network and run it again (what was fetched is kept), or copy the files into "
        f"{_store()} from a machine that has them",
    )
