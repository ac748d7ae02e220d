"""One server as a child process: started behind a guard, awaited until ready, stopped cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.config import Child, child_environment
from penstock.errors import StartupError

__all__ = ["LAST_LINES", "ServerProcess", "last_lines", "size_of", "telling_lines"]

LAST_LINES = 10
_CAUSES = (" ERROR ", " FATAL ", "Exception: ", "Error: ")
_GUARD = Path(__file__).with_name("guard.py")


class ServerProcess:
    """A running server; `close` ends it, and so does the death of this process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        out: Path,
        log: Path | None = None,
        grace: float = 15.0,
        kind: Child = Child.SERVER,
    ) -> None:
        self.name = name
        self.out = out
        self.log = log or out
        self._grace = grace
        # Logs are kept over restarts: what an earlier life said does not explain this one.
        self._log_starts = {path: size_of(path) for path in (self.log, self.out)}
        out.parent.mkdir(parents=True, exist_ok=True)
        # -I -S: the guard needs no site-packages, and nothing around it can change what it does.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(grace), str(out), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=child_environment(kind),  # of the guard and of the server, which inherits it
        )
        self.pid = 0
        self.pid = self._read_pid()

    def _read_pid(self) -> int:
        assert self._guard.stdout is not None
        with self._guard.stdout as pipe:
            line = pipe.readline().strip()
        if not line:
            self.close()
            raise self._startup_error(f"{self.name} could not be started")
        return int(line)

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._guard.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit code of the server; None while it runs."""
        return self._guard.poll()

    def wait_until(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Wait until `ready` says yes; raise with the last log lines if the server ends or is too slow."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.running:
                raise self._startup_error(f"{self.name} ended while starting, code {self._guard.returncode}")
            if ready():
                return
            time.sleep(0.05)
        raise self._startup_error(f"{self.name} was not ready within {timeout:.0f} s")

    def _startup_error(self, what: str) -> StartupError:
        said = [line for log, start in self._log_starts.items() for line in telling_lines(log, start)]
        return StartupError(
            what,
            where=str(self.log),
            why="last log lines:\n" + "\n".join(said[-2 * LAST_LINES :]),
            next="read the log; a slow machine may need a longer start-up time-out",
        )

    def close(self) -> None:
        """End the server, gently first, and wait until it is gone."""
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        try:
            self._guard.wait(timeout=self._grace + 5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._kill_server()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._kill_server()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def _kill_server(self) -> None:
        # A guard that ended by itself has seen its server's end: the id may be somebody else's by now.
        if self.pid and (self._guard.poll() is None or self._guard.returncode < 0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def size_of(log: Path) -> int:
    """Give the size of a file, 0 if it is not there."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def last_lines(log: Path, count: int, since: int = 0) -> list[str]:
    """Give the last lines of a log file that may not be there, or may be large; `since` is a position."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # A log that is shorter than it was has been rolled: all of it is new.
            file.seek(max(since if since <= end else 0, end - 256_000))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def telling_lines(log: Path, since: int = 0) -> list[str]:
    """Give the last lines that name a cause, then the last lines."""
    lines = last_lines(log, 2000, since)
    causes = [line for line in lines[:-LAST_LINES] if any(mark in line for mark in _CAUSES)]
    return [line[:300] for line in (*causes[-LAST_LINES // 2 :], *lines[-LAST_LINES:])]
