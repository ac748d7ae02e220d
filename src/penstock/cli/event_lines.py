"""Events for `penstock publish`, one a line: a file wholly before it is sent, a pipe as it comes."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli import output
from penstock.errors import EventError, MachineError, UsageError

if TYPE_CHECKING:
    from penstock.events import CloudEvent

__all__ = ["LONGEST_LINE", "PipedEvents", "is_live", "read_all", "read_bytes"]

LONGEST_LINE: Final = 64 << 20
"""Bytes of a line that a pipe may hold back; no broker takes an event of that size."""
_CHUNK: Final = 1 << 16


def is_live(file: str | None) -> bool:
    """Whether events are written while they are read: standard input is a pipe, a socket or a terminal."""
    if file not in (None, "-"):
        return False
    try:
        number = sys.stdin.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)


def read_all(file: str | None) -> list[CloudEvent]:
    """Read every event of a file, or of standard input to its end; UsageError if a line is no event."""
    made: list[CloudEvent] = []
    refused = 0
    for number, line in enumerate(read_bytes(file or "-").splitlines(), 1):
        try:
            made += _events(line, number)
        except EventError as error:
            refused += 1
            output.error(error)
    if refused:
        raise UsageError(f"{refused} lines are no events; nothing was sent", next="correct them")
    return made


def read_bytes(file: str) -> bytes:
    """Read a file, or standard input to its end if it is -."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise MachineError(
            f"cannot read {file}: {exc.strerror}",
            where=file,
            next="name a file that is there, or - for standard input",
        ) from exc


class PipedEvents:
    """The events of standard input; None while there is no whole line, so that who sends can go on.

    A line that is no event is shown with its number and counted in `refused`; those behind it are read.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._line = 0

    def __iter__(self) -> Iterator[CloudEvent | None]:
        """Give events until the input ends; never waits. UsageError for a line above LONGEST_LINE."""
        for line in _lines(sys.stdin.fileno()):
            if line is None:
                yield None
                continue
            self._line += 1
            try:
                yield from _events(line, self._line)
            except EventError as error:
                self.refused += 1
                output.error(error)


def _lines(number: int) -> Iterator[bytes | None]:
    """Split what comes through a file descriptor into lines; None if nothing is there now.

    The descriptor is read itself: a buffered reader cannot say whether a line is there.
    """
    begun: list[bytes] = []
    held = 0
    while True:
        if not select.select([number], [], [], 0)[0]:
            yield None
            continue
        chunk = os.read(number, _CHUNK)
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        held += len(first)
        if held > LONGEST_LINE:
            raise UsageError(
                f"a line is longer than {LONGEST_LINE >> 20} MiB",
                where="standard input",
                next="write one event a line, each with a line feed behind it",
            )
        if rest:
            yield b"".join(begun)
            yield from rest[:-1]
            begun, held = [rest[-1]], len(rest[-1])
        if not chunk:
            yield b"".join(begun)
            return


def _events(line: bytes, number: int) -> Iterator[CloudEvent]:
    from penstock.events import FORMATS

    if not line.strip():
        return
    try:
        yield FORMATS.named("json").decode(line)
    except EventError as error:
        error.where = f"line {number}"
        raise
