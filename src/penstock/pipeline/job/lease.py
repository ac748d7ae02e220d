"""One writer of a checkpoint at a time.

Every job that uses a checkpoint begins a new epoch: it creates `.writer/N` for the next number N, which only
one of two can do where the store's create is exclusive. The file says who the writer is, and is written
again every few seconds: that is the lease. Who finds an epoch whose lease is renewed is refused; one whose
lease has run out, or was given back, is followed by the next epoch. A writer looks for newer epochs with each
renewal, and ends when there is one.

Time is the store's: the age of a lease is the difference of two modification times, so clocks of different
machines do not matter. On a local disk nobody waits for a lease: the lock of the operating system shows that
an earlier writer on the same machine has ended.

A lease is no proof: a machine that was suspended may write until its next look. What such a job writes
exactly once is fenced by the broker, because the transactional ids belong to the checkpoint; and Spark's own
logs have exclusively created files.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from penstock.errors import JobFailed, PenstockError, Refused, Unreachable
from penstock.pipeline.spark.file_system import FileSystem

__all__ = ["Lease", "StopAsked", "leased", "until_reachable"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

RENEW_SECONDS = 5.0
LEASE_SECONDS = 20.0
"""A lease that was not renewed for so long has run out: a driver may lose some seconds to a collection."""
SETTLE_SECONDS = 3.0
"""Where create is not exclusive, two may have made the same epoch: the one whose file remains has it."""
_LOOK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 30.0
_FOLDER: Final = ".writer"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class StopAsked(Exception):
    """The end of the job was asked for while it waited for the lease of another."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """Who has an epoch; what the file says, which may be half written."""

    id: str = ""
    host: str = "an unknown machine"
    pid: int = 0
    machine: str = ""
    """Equal on all processes that share locks: containers have host names of their own."""
    released: bool = False

    @classmethod
    def here(cls) -> _Writer:
        try:
            machine = _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            machine = socket.gethostname()
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), machine)

    @classmethod
    def read(cls, files: FileSystem, path: str) -> _Writer:
        try:
            found: Any = json.loads(files.read(path) or "")
            return cls(
                str(found["id"]),
                str(found["host"])[:200],
                int(found["pid"]),
                str(found["machine"]),
                found["released"] is True,
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return cls()

    @property
    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else self.host


class Lease:
    """An epoch of a checkpoint that this process has; made by `leased`."""

    def __init__(self, files: FileSystem, epoch: int, writer: _Writer) -> None:
        self.epoch = epoch
        self._files = files
        self._writer = writer
        self._path = f"{_FOLDER}/{epoch}"
        self._successor: str | None = None
        self._ended = Event()
        self._thread = Thread(target=self._renew, name="penstock-lease", daemon=True)

    def require(self) -> None:
        """Raise JobFailed if another job has begun a newer epoch, as far as the last look showed."""
        if self._successor is not None:
            raise JobFailed(
                "another job took over this checkpoint",
                where=self._files.where(),
                why=f"{self._successor} uses it now; this job had not renewed its lease in time.",
                next="let that one work; a copy of a checkpoint cannot run beside the original",
            )

    def look(self) -> None:
        """Renew the lease, or find that another job took over. Raises PenstockError if the store fails."""
        newest = _newest(self._files)
        found = _Writer.read(self._files, f"{_FOLDER}/{newest}") if newest else _Writer()
        # A file without text is being written; where ours is gone, it was removed by hand.
        is_other = newest == self.epoch and found.id not in ("", self._writer.id)
        if newest > self.epoch or is_other:
            self._successor = str(found)
        else:
            self._files.write(self._path, self._writer.text)

    def start(self) -> None:
        """Renew it from now on."""
        self._thread.start()

    def release(self) -> None:
        """Give the epoch back, so that the next job need not wait."""
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)
        if self._successor is None:
            self._writer = replace(self._writer, released=True)
            self._reached(self.look)

    def _renew(self) -> None:
        while self._successor is None and not self._ended.wait(RENEW_SECONDS):
            self._reached(self.look)

    def _reached(self, action: Callable[[], object]) -> bool:
        """Call it; False if the store, or Spark's Java, does not answer: the job itself is told by Spark."""
        from py4j.protocol import Py4JError

        try:
            action()
        except (PenstockError, Py4JError, OSError, ValueError) as exc:
            _log.debug("the lease of %s could not be renewed: %s", self._files.where(), exc)
            return False
        return True


@contextmanager
def leased(
    files: FileSystem, note: Callable[[str], object] = lambda text: None, stop: Event | None = None
) -> Iterator[Lease]:
    """Be the one writer of a checkpoint; raises Refused if another job is.

    `note` is told of a wait, which `stop` ends: then it raises StopAsked.
    """
    with files.lock() as held:
        if not held:
            raise _in_use(files, _Writer.read(files, f"{_FOLDER}/{_newest(files)}"))
        lease = _begin(files, note, stop or Event())
        lease.start()
        try:
            yield lease
        finally:
            lease.release()


def _begin(files: FileSystem, note: Callable[[str], object], stop: Event) -> Lease:
    before = _newest(files)
    if before:
        _require_ended(files, before, note, stop)
    writer, epoch = _Writer.here(), before + 1
    created = files.create(f"{_FOLDER}/{epoch}", writer.text)
    if created and not files.is_atomic:
        sleep(SETTLE_SECONDS)
    newest = _newest(files)
    owner = _Writer.read(files, f"{_FOLDER}/{newest}")
    if not created or newest != epoch or owner.id != writer.id:
        raise _in_use(files, owner)
    for number in _epochs(files):
        if number < epoch:
            files.delete(f"{_FOLDER}/{number}")
    return Lease(files, epoch, writer)


def _require_ended(files: FileSystem, epoch: int, note: Callable[[str], object], stop: Event) -> None:
    """Wait until the lease of an epoch has run out; raises Refused if it is renewed, StopAsked on `stop`."""
    path = f"{_FOLDER}/{epoch}"
    owner = _Writer.read(files, path)
    if owner.released or (files.has_locks and owner.machine == _Writer.here().machine):
        return
    renewed = files.modified(path)
    if renewed is None:
        raise _in_use(files, owner)
    left = LEASE_SECONDS - (_now(files) - renewed)
    if left > 0:
        note(f"the last job with this checkpoint, {owner}, did not say that it ended: waiting {left:.0f} s")
    end = monotonic() + left
    while monotonic() < end:
        if stop.wait(min(_LOOK_SECONDS, LEASE_SECONDS / 4)):
            raise StopAsked
        if files.modified(path) != renewed:
            if _Writer.read(files, path).released:
                return
            raise _in_use(files, owner)


def _now(files: FileSystem) -> float:
    """Return the time by the clock of the store."""
    path = f"{_FOLDER}/now-{uuid.uuid4().hex}"
    files.create(path, "")
    try:
        return files.modified(path) or 0.0
    finally:
        files.delete(path)


def _epochs(files: FileSystem) -> list[int]:
    return [int(name) for name in files.list(_FOLDER) if name.isdecimal()]


def _newest(files: FileSystem) -> int:
    return max(_epochs(files), default=0)


def _in_use(files: FileSystem, owner: _Writer) -> Refused:
    return Refused(
        "another job runs with this checkpoint",
        where=files.where(),
        why=f"{owner} uses it.",
        next="end it, or name another folder under checkpoint",
    )


def until_reachable(
    action: Callable[[], _T], *, where: str, stop: Event, seconds: float | None, note: Callable[[str], object]
) -> _T | None:
    """Call until the store answers; after so many seconds raise what it raises, None: never.

    Returns None if the end was asked for meanwhile, also by StopAsked. That something else than the store,
    whose address is `where`, is not reachable is raised at once.
    """
    began, noted = monotonic(), ""
    while not stop.is_set():
        try:
            found = action()
        except StopAsked:
            break
        except Unreachable as exc:
            waited = monotonic() - began
            is_store = (exc.where or "").startswith(where)
            if not is_store or (seconds is not None and waited > seconds):
                raise
            if exc.what != noted:
                note(f"{exc.what}; waiting")
                noted = exc.what
            stop.wait(_RETRY_SECONDS)
        else:
            if noted:
                note(f"the file system of the checkpoint can be used after {monotonic() - began:.0f} s")
            return found
    return None
