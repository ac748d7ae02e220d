"""Spark's checkpoint of one source: how far it has come.

Its layout is Spark's: `offsets/N` says what batch N covers, `commits/N` that it is written, `sources/0/0`
where the source began.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.brokers.kafka_offsets import Offsets
from penstock.pipeline.job.fingerprint import UnreadableCheckpoint
from penstock.pipeline.job.offsets import read_offsets
from penstock.pipeline.spark.file_system import FileSystem

__all__ = ["Checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The folder of one source, and the file with its fingerprint beside it."""

    files: FileSystem
    name: str

    @property
    def folder(self) -> str:
        """Where it is, for people."""
        return self.files.where(self.name)

    @property
    def url(self) -> str:
        """Where it is, for Spark."""
        return self.files.url(self.name)

    @property
    def fingerprint(self) -> str:
        """The file beside it that says what it belongs to."""
        return f"{self.name}.json"

    @property
    def exists(self) -> bool:
        """Whether a query has begun in it."""
        return self.files.exists(f"{self.name}/metadata")

    def position(self, topic: str) -> Offsets:
        """Return where the next batch begins; nothing if no batch was ever planned."""
        done = self._newest("commits")
        return self._offsets("sources/0/0" if done is None else f"offsets/{done}", topic)

    def planned(self, topic: str) -> Offsets:
        """Return where the newest batch ends, whether it is written or not; nothing if there is none."""
        newest = self._newest("offsets")
        return {} if newest is None else self._offsets(f"offsets/{newest}", topic)

    @property
    def has_open_batch(self) -> bool:
        """Whether a batch was planned whose end Spark has not noted: some of it may be written."""
        return self.open_batch is not None

    @property
    def open_batch(self) -> int | None:
        """The number of the batch that was planned and whose end Spark has not noted; None: there is none."""
        planned, done = self._newest("offsets"), self._newest("commits")
        return planned if planned is not None and (done is None or planned > done) else None

    def batch_time(self, topic: str, end: Offsets) -> int:
        """Return the time of the newest batch, in milliseconds: Spark notes it once, and repeats it.

        Raises UnreadableCheckpoint if that batch does not end at `end`, or says no time.
        """
        newest = self._newest("offsets")
        path = f"offsets/{newest}"
        if newest is None or self._offsets(path, topic) != end:
            raise self._unreadable(path, f"the newest batch does not end at {dict(end)}")
        text = self.files.read(f"{self.name}/{path}")
        try:
            return int(json.loads((text or "").splitlines()[1])["batchTimestampMs"])
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as exc:
            raise self._unreadable(path, f"it has no time of the batch: {exc!r}") from exc

    def put_aside(self) -> str | None:
        """Move it out of the way; return its new place, None if there was nothing."""
        if not self.files.exists(self.name):
            return None
        number = 1
        while self.files.exists(aside := f"{self.name}.old-{number}"):
            number += 1
        self.files.rename(self.name, aside)
        self.files.delete(self.fingerprint)
        return self.files.where(aside)

    def _newest(self, log: str) -> int | None:
        names = self.files.list(f"{self.name}/{log}")
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _offsets(self, file: str, topic: str) -> Offsets:
        path = f"{self.name}/{file}"
        try:
            text = self.files.read(path)
            if text is None:
                return {}
            # A version, in offsets/N a line about the query, and the offsets.
            lines = text.splitlines()
            if len(lines) < (3 if file.startswith("offsets/") else 2):
                raise ValueError("it is cut: there are no offsets in it")
            return read_offsets(lines[-1], topic)
        except (ValueError, RecursionError) as exc:
            raise self._unreadable(file, str(exc)) from exc

    def _unreadable(self, file: str, why: str) -> UnreadableCheckpoint:
        return UnreadableCheckpoint(
            "the checkpoint cannot be read",
            where=self.files.where(f"{self.name}/{file}"),
            why=why,
            next="put a whole copy of this file back, or begin anew: --fresh-checkpoint, or name another "
            "folder under checkpoint",
        )
