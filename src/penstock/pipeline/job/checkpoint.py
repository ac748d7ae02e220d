"""Spark's checkpoint of one source as a folder: how far it has come, and who uses it.

Its layout is Spark's: `offsets/N` says what batch N covers, `commits/N` that it is written, `sources/0/0`
where the source began.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.errors import PipelineError, Refused
from penstock.pipeline.job.offsets import read_offsets

__all__ = ["Checkpoint", "locked"]

_LARGEST_FILE: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The folder of one source."""

    folder: Path

    @property
    def fingerprint(self) -> Path:
        """The file beside it that says what it belongs to."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def exists(self) -> bool:
        """Whether a query has begun in it."""
        return (self.folder / "metadata").exists()

    def position(self, topic: str) -> Offsets:
        """Give where the next batch begins; nothing if no batch was ever planned."""
        done = self._newest("commits")
        path = self.folder / "sources" / "0" / "0" if done is None else self.folder / "offsets" / str(done)
        if not path.exists():
            return {}
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError("it is too large")
            # A version, in offsets/N a line about the query, and the offsets.
            return read_offsets(path.read_text(encoding="utf-8").splitlines()[-1], topic)
        except (OSError, ValueError, IndexError, RecursionError) as exc:
            raise PipelineError(
                "the checkpoint cannot be read",
                where=str(path),
                why=str(exc),
                next="begin anew: --fresh-checkpoint, or name another folder under checkpoint",
            ) from exc

    def put_aside(self) -> Path | None:
        """Move it out of the way; give its new place, None if there was nothing."""
        if not self.folder.exists():
            return None
        number = 1
        while (aside := self.folder.with_name(f"{self.folder.name}.old-{number}")).exists():
            number += 1
        self.folder.rename(aside)
        self.fingerprint.unlink(missing_ok=True)
        return aside

    def _newest(self, log: str) -> int | None:
        folder = self.folder / log
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=None)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep two jobs from working with the same checkpoints: each would write what the other has written."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise Refused(
                "another job runs with this checkpoint",
                where=str(folder),
                next="end it, or name another folder under checkpoint",
            ) from exc
        yield
    finally:
        os.close(descriptor)
