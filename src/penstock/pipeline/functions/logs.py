"""What a function logs or prints: one line of JSON each on standard error, with the id of its event.

The attribute `severitytext` (spec 004: log-level) of an event sets the level of the lines about it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.events import CloudEvent
from penstock.pipeline.functions.parcels import Record
from penstock.pipeline.functions.progress import Progress

__all__ = ["DEFAULT_LEVEL", "MOST_LINES", "InvocationLog", "level_of"]

DEFAULT_LEVEL: Final = logging.INFO
_LEVELS: Final[Mapping[str, int]] = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
MOST_LINES: Final = 1000
"""Of one call; a function that floods the log is cut off."""
_LONGEST: Final = 4096
_MOST_IDS: Final = 10
_STANDARD_ERROR: Final = 2


def level_of(event: CloudEvent) -> int:
    """Give the level that the publisher of an event wants; an unknown word asks for nothing.

    >>> level_of(CloudEvent({"id": "1", "source": "/", "type": "t", "severitytext": "Debug"}))
    10
    """
    return _LEVELS.get((event.get("severitytext") or "").lower(), DEFAULT_LEVEL)


class InvocationLog(logging.Handler):
    """Writes the lines of one function."""

    def __init__(self, route: str, progress: Progress, descriptor: int = _STANDARD_ERROR) -> None:
        super().__init__()
        self._route = route
        self._progress = progress
        self._descriptor = descriptor
        self._left = MOST_LINES

    def install(self) -> None:
        """Take over logging and printing in this process."""
        logging.raiseExceptions = False
        root = logging.getLogger()
        root.handlers = [self]
        root.setLevel(DEFAULT_LEVEL)
        sys.stdout = _Printed("stdout", logging.INFO)
        sys.stderr = _Printed("stderr", logging.WARNING)

    def begin(self) -> None:
        """Let through what the most talkative event of the call asks for."""
        self._left = MOST_LINES
        root, wanted = logging.getLogger(), self._level(self._progress.records)
        if root.level != wanted:
            root.setLevel(wanted)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, if its event wants it."""
        current = self._progress.current
        if record.levelno < self._level(current) or self._left == 0:
            return
        self._left -= 1
        ids = [record.event.id for record in current[:_MOST_IDS]]
        line = {
            "level": record.levelname.lower(),
            "logger": record.name,
            "route": self._route,
            "event-id": ids[0] if len(ids) == 1 else ids,
            "message": self.format(record)[:_LONGEST],
        }
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def _level(self, records: Sequence[Record]) -> int:
        return min((level_of(record.event) for record in records), default=DEFAULT_LEVEL)


class _Printed(io.TextIOBase):
    """What is printed, as lines of the log."""

    def __init__(self, name: str, level: int) -> None:
        self._logger = logging.getLogger(name)
        self._level = level
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._logger.log(self._level, "%s", line)
        if len(self._rest) > _LONGEST:
            self._logger.log(self._level, "%s", self._rest)
            self._rest = ""
        return len(text)
