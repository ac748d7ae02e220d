"""A Java program of this folder in a process of its own; it ends with its standard input."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from penstock.embedded.artifact import parse_lock
from penstock.embedded.artifacts import ensure_artifacts
from penstock.embedded.java import find_java

__all__ = ["JavaProgram", "locked_jars"]

HERE = Path(__file__).parent
_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 280.0
_END_SECONDS = 8.0
"""YARN takes half a minute to stop what nobody uses any more."""


def locked_jars(name: str) -> list[str]:
    """Return the jars of a lock of this folder, fetched if they are missing."""
    lock = HERE / f"{name}.lock"
    return [
        str(jar) for jar in ensure_artifacts(parse_lock(lock.read_text(encoding="utf-8"), origin=lock.name))
    ]


class JavaProgram:
    """The process of one source file, which compiles itself."""

    def __init__(self, source: str, folder: Path) -> None:
        self.folder = folder
        """Where it runs, and where its output is kept."""
        self._source = HERE / source
        self._lines: Queue[str | None] = Queue()
        self._said: deque[str] = deque(maxlen=100)

    def start(self, jars: Sequence[str], options: Sequence[str], arguments: Sequence[str]) -> str:
        """Start it and wait until it is ready; return what it says with that word."""
        words = [
            str(find_java().executable),
            *_SMALL,
            *options,
            "-cp",
            os.pathsep.join(jars),
            str(self._source),
        ]
        self._process = subprocess.Popen(
            [*words, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read, name=self._source.stem, daemon=True)
        self._reader.start()
        try:
            return self.answer("ready", _START_SECONDS)
        except BaseException:
            self.end()
            raise

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self, prefix: str, seconds: float) -> str:
        """Wait for a line that begins so; return the rest of it."""
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except Empty:
                line = None
            assert line is not None, "".join(self._said)
            if line.startswith(prefix):
                return line.removeprefix(prefix).strip()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._reader.join(30)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with (self.folder / f"{self._source.stem}.log").open("w", encoding="utf-8", buffering=1) as log:
            for line in self._process.stdout:
                log.write(line)
                self._said.append(line)
                self._lines.put(line)
        self._lines.put(None)
