"""The process of one invocation: signals that end it as Ctrl-C does, and standard streams that may be closed.

A time-out of a CI job is SIGTERM, a terminal that is closed is SIGHUP: both run the same clean-up as SIGINT.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from penstock.errors import MachineError

__all__ = ["Ended", "as_machine_error", "discard_stdout", "end_by_signals", "open_streams"]

_KILLED_BY: Final = 128
"""A shell gives this and the number of the signal as the exit code."""


class Ended:
    """Which signal ended the invocation."""

    def __init__(self) -> None:
        self._by: int = signal.SIGINT

    def by(self, signum: int, frame: FrameType | None) -> None:
        """Do what SIGINT does at this moment: an event loop or a verb may have a handler of its own."""
        self._by = signum
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # ignored, as in a background job of a shell script: there only SIGINT is meant
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The exit code of a shell for a process that the signal ended."""
        return _KILLED_BY + self._by


@contextmanager
def end_by_signals() -> Iterator[Ended]:
    """Let SIGTERM and SIGHUP interrupt as SIGINT does; one that is ignored, as below nohup, stays ignored."""
    ended = Ended()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    # A handler that is there belongs to the program that calls `main`.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, ended.by)
    try:
        yield ended
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class _Closed(io.RawIOBase):
    """A standard stream that was closed when the process started: it fails when it is used, not before."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._told = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise self._error()

    def write(self, raw: object) -> int:
        if not self._told:
            self._told = True
            raise self._error()
        return memoryview(raw).nbytes  # type: ignore[arg-type]

    def _error(self) -> OSError:
        return OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)


def open_streams() -> None:
    """Make the standard streams usable.

    One that is closed is None in Python, which `print` takes for stdout. A character that a terminal or pipe
    cannot take is written as an escape.
    """
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("standard input")))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Closed("standard output")), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Let what is still in the buffer of stdout go nowhere: the interpreter's last flush must not fail."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def as_machine_error(exc: OSError, *, where: str | None = None) -> MachineError:
    """Say what the operating system refused, for which file, and what can be done."""
    file = exc.filename if isinstance(exc.filename, str) else where
    said = exc.strerror or str(exc) or type(exc).__name__
    return MachineError(
        f"cannot use {file}: {said}" if file else f"the operating system refused: {said}",
        where=file,
        next=_ADVICE.get(exc.errno or 0, "look at this file, folder or device, or name another one"),
    )


_ADVICE: Final[Mapping[int, str]] = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EACCES: "give this user the right to it, or name another place (PENSTOCK_HOME)",
    errno.EPERM: "give this user the right to it, or name another place (PENSTOCK_HOME)",
    errno.EROFS: "name a place that can be written (PENSTOCK_HOME)",
    errno.ENOTDIR: "it has to be a folder: remove the file, or name another place (PENSTOCK_HOME)",
    errno.EEXIST: "it has to be a folder: remove the file, or name another place (PENSTOCK_HOME)",
    errno.EBADF: "open it: it was closed when the command began",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
