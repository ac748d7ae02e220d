"""The files of a checkpoint, on a local disk or on any file system that Spark reaches.

A path without a scheme, or a `file:` URL, is a local folder: it is used through the operating system, because
a job refuses what is wrong with such a checkpoint before Spark is started, which takes seconds. Everything
else goes through the Java of Spark's driver, see `hadoop`.

All paths are relative to the folder of the checkpoint, with `/` between names. Errors are those of
penstock.errors; a file that is not there is none.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import MachineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "LARGEST_FILE",
    "FileSystem",
    "LocalFileSystem",
    "is_remote",
    "open_file_system",
    "read_text",
]

LARGEST_FILE: Final = 16 * 1024 * 1024
"""Bytes; no file of a checkpoint that we read is nearly as large."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_LOCK: Final = ".lock"


class FileSystem(ABC):
    """The folder of a checkpoint, and everything below it."""

    is_atomic: bool
    """Whether of two that create the same file at the same time exactly one succeeds."""
    has_locks = False
    """Whether `lock` shows reliably that no other process of this machine uses the folder."""

    @abstractmethod
    def where(self, path: str = "") -> str:
        """Return the full name of a path, for people."""

    @abstractmethod
    def url(self, path: str) -> str:
        """Return the full name of a path as Spark is given it."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Tell whether there is such a file or folder."""

    @abstractmethod
    def read(self, path: str) -> str | None:
        """Return the text of a file; None if there is none. ValueError if it is too large or no UTF-8."""

    @abstractmethod
    def write(self, path: str, text: str) -> None:
        """Write a file in one step: a crash leaves the old one or the new one. Folders are made.

        Where the store has no such step, a reader may find no file for a moment, and a crash may leave none.
        """

    @abstractmethod
    def create(self, path: str, text: str) -> bool:
        """Make a new file; False if it exists. It is found by others before its text is."""

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """Give a file or folder a new name, which must not exist."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file or folder if it is there."""

    @abstractmethod
    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds by the store's clock; None if there is none."""

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the folder against processes of this machine; False: another one holds it."""
        yield True


class LocalFileSystem(FileSystem):
    """A folder of this machine, or one that is mounted."""

    is_atomic = True
    has_locks = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def where(self, path: str = "") -> str:
        return str(self._folder / path)

    def url(self, path: str) -> str:
        # With a scheme: the default file system of a cluster is another one. Hadoop takes the path unescaped.
        return f"file://{self._folder / path}"

    def exists(self, path: str) -> bool:
        with self._errors(path, "read"):
            return (self._folder / path).exists()

    def read(self, path: str) -> str | None:
        with self._errors(path, "read"):
            try:
                with (self._folder / path).open("rb") as file:
                    return read_text(file.read(LARGEST_FILE + 1))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, path: str, text: str) -> None:
        target = self._folder / path
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        with self._errors(path, "written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(target)

    def create(self, path: str, text: str) -> bool:
        target = self._folder / path
        with self._errors(path, "written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with target.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                return False
        return True

    def list(self, path: str) -> list[str]:
        with self._errors(path, "read"):
            try:
                return sorted(os.listdir(self._folder / path))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def rename(self, path: str, to: str) -> None:
        with self._errors(path, "renamed"):
            (self._folder / path).rename(self._folder / to)

    def delete(self, path: str) -> None:
        target = self._folder / path
        with self._errors(path, "removed"):
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def modified(self, path: str) -> float | None:
        with self._errors(path, "read"):
            try:
                return (self._folder / path).stat().st_mtime
            except FileNotFoundError:
                return None

    @contextmanager
    def lock(self) -> Iterator[bool]:
        with self._errors(_LOCK, "written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                held = False
            except OSError:
                # A mount without locks: the lease alone keeps jobs apart.
                self.has_locks, held = False, True
            yield held
        finally:
            os.close(descriptor)

    @contextmanager
    def _errors(self, path: str, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise MachineError(
                f"the checkpoint cannot be {action}",
                where=self.where(path),
                why=str(exc),
                next="make the folder usable for this user, or name another one under checkpoint",
            ) from exc


def is_remote(location: str) -> bool:
    """Tell whether a checkpoint is reached by Spark alone.

    >>> is_remote("hdfs://namenode:8020/ck"), is_remote("hdfs:/ck")
    (True, True)
    >>> is_remote("/var/ck"), is_remote("runs:today/ck")
    (False, False)
    """
    return _SCHEME.match(location) is not None


def open_file_system(location: str, spark: SparkSession | None = None) -> FileSystem:
    """Open the folder of a checkpoint; one on another file system needs Spark."""
    if not is_remote(location):
        return LocalFileSystem(Path(location))
    from penstock.pipeline.spark.hadoop import HadoopFileSystem

    assert spark is not None, "a checkpoint with a scheme is reached by Spark"
    return HadoopFileSystem(location, spark)


def read_text(data: bytes) -> str:
    """Return the text of a file; ValueError if it is too large or no UTF-8."""
    if len(data) > LARGEST_FILE:
        raise ValueError("it is too large")
    return data.decode()
