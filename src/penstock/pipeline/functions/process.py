"""The process of a function, as the worker sees it: started once, asked batch by batch, killed if need be.

The wall time of a call is bounded, and so is the resident memory of the process: it is looked at every
50 ms of a call and after it (Linux; elsewhere only time is bounded). RLIMIT_AS would count what libraries
reserve and never use.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.config import Child, child_environment
from penstock.errors import MachineError, PipelineError, WireError
from penstock.pipeline.functions.frames import LENGTH, dump, length_of, load
from penstock.pipeline.functions.parcels import Parcel
from penstock.pipeline.functions.progress import NOWHERE, ProgressMark

__all__ = ["Bounds", "Failure", "FunctionProcess", "Settings", "process_of"]

_log = logging.getLogger(__name__)

MEMORY: Final = "function-memory"
_TICK: Final = 0.05
_CHUNK: Final = 1 << 20
_GRACE: Final = 5.0
_CLOSED: Final = -1
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the child loads; a value that travels."""

    route: str
    function: str | None = None
    key: str | None = None
    path: tuple[str, ...] = ()
    """Folders and archives in which modules are looked for before `sys.path`."""
    largest: int = 64 << 20
    """Bytes of one answer."""
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values of the variables that the context grants; there may be secrets among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a call may use."""

    seconds: float = 30.0
    megabytes: int = 512
    start_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no outcomes; `at` is the record that the function was at, NOWHERE if not known."""

    code: str
    reason: str
    at: int = NOWHERE


class FunctionProcess:
    """One child, started when it is first needed and again after it was killed."""

    def __init__(self, settings: Settings, bounds: Bounds) -> None:
        self._settings = settings
        self._bounds = bounds
        self._running: _Running | None = None
        self.starts = 0

    def call(self, parcels: Sequence[Parcel]) -> list[Any] | Failure:
        """Run one batch; PipelineError if the function cannot even be loaded."""
        frame, was_used = dump(list(parcels)), self._running is not None
        answer = self._asked(frame)
        if was_used and isinstance(answer, Failure) and answer.code == MEMORY:
            answer = self._asked(frame)  # it may be what earlier calls left behind: once more, afresh
        if isinstance(answer, Failure):
            return answer
        outcomes = _read(answer, len(parcels))
        if outcomes is None:
            self.close()  # whatever comes next through that pipe is no answer either
            return Failure("function-exit", "its answer cannot be read")
        return outcomes

    def _asked(self, frame: bytes) -> Any:
        if self._running is not None and (ended := self._running.end()) is not None:
            # Killed from outside, as by a system without memory: no record of this batch is to blame.
            _log.warning("route %s: between two calls %s; it is started again", self._settings.route, ended)
            self.close()
        running = self._running = self._running or self._started()
        answer = running.ask(frame, self._bounds.seconds)
        if isinstance(answer, Failure) or running.megabytes() > self._bounds.megabytes:
            self.close()
        return answer

    def check(self) -> None:
        """Load the function now; PipelineError if that fails."""
        self._running = self._running or self._started()

    def _started(self) -> _Running:
        self.starts += 1
        running = _Running(self._settings, self._bounds.megabytes)
        answer = running.ask(dump(asdict(self._settings)), self._bounds.start_seconds)
        if answer == ("ready",):
            return running
        running.kill()
        names = " and ".join(filter(None, (self._settings.function, self._settings.key)))
        raise PipelineError(
            f"route {self._settings.route}: {names} cannot be loaded",
            why=answer.reason if isinstance(answer, Failure) else str(answer[-1]),
            next="make the module importable where the pipeline file is, or on PYTHONPATH",
        )

    def close(self) -> None:
        """End the child, if it runs."""
        if self._running is not None:
            self._running.kill()
            self._running = None


class _Running:
    """A child that lives, and the pipes to it."""

    def __init__(self, settings: Settings, megabytes: int) -> None:
        self._largest = settings.largest
        self._megabytes = megabytes
        theirs_in, self._to = _pipe()
        self._from, theirs_out = _pipe()
        os.set_blocking(self._to, False)
        try:
            with tempfile.TemporaryFile() as shared:
                shared.truncate(ProgressMark.SIZE)
                self._mark = ProgressMark(shared.fileno())
                self._process = _popen((theirs_in, theirs_out, shared.fileno()), settings)
        except OSError as exc:
            os.close(self._to)
            os.close(self._from)
            raise MachineError(f"the process of a function cannot be started: {exc}") from exc
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def ask(self, frame: bytes, seconds: float) -> Any:
        """Send a frame and wait for the answer; a Failure, and the end of the child, if none comes."""
        deadline = time.monotonic() + seconds
        self._mark.write(NOWHERE)
        try:
            self._send(frame, deadline)
            return self._receive(deadline)
        except _Stopped as exc:
            failure = (exc.code, exc.reason)
        except WireError as exc:
            failure = ("function-exit", f"its answer cannot be read: {exc}")
        except OSError:
            failure = ("function-exit", self._last_words())
        at = self._mark.read()
        self.kill()
        return Failure(*failure, at)

    def _send(self, frame: bytes, deadline: float) -> None:
        view = memoryview(frame)
        while view:
            self._wait(self._to, select.POLLOUT, deadline)
            view = view[os.write(self._to, view[:_CHUNK]) :]

    def _receive(self, deadline: float) -> Any:
        length = length_of(self._exactly(LENGTH.size, deadline), self._largest)
        return load(self._exactly(length, deadline))

    def _exactly(self, count: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < count:
            self._wait(self._from, select.POLLIN, deadline)
            part = os.read(self._from, min(_CHUNK, count - len(received)))
            if not part:
                raise BrokenPipeError
            received += part
        return bytes(received)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        """Wait until a pipe is ready; _Stopped if the call is over its bounds or the child has ended."""
        poller = select.poll()
        poller.register(descriptor, event)
        while not poller.poll(max(0.0, min(_TICK, deadline - time.monotonic())) * 1000):
            if time.monotonic() >= deadline:
                raise _Stopped("function-timeout", "the call took longer than it may")
            if self._process.poll() is not None:  # what the function started may still hold the pipe
                raise BrokenPipeError
            if self.megabytes() > self._megabytes:
                reason = f"the process uses more than its {self._megabytes} megabytes"
                raise _Stopped(MEMORY, reason)

    def megabytes(self) -> int:
        """Give the resident memory of the child; 0 where the system does not tell."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * _PAGE >> 20

    def end(self) -> str | None:
        """Say how the child has ended; None while it lives."""
        status = self._process.poll()
        return None if status is None else _said_of(status)

    def _last_words(self) -> str:
        try:
            return _said_of(self._process.wait(timeout=_GRACE))
        except subprocess.TimeoutExpired:
            return "the process closed its pipe"

    def kill(self) -> None:
        """End the child and what it started; a second time it does nothing."""
        if self._to == _CLOSED:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._to = self._from = _CLOSED
        self._mark.close()


def _said_of(status: int) -> str:
    if status < 0:
        # Most real-time signals have no name.
        named = -status in {each.value for each in signal.Signals}
        return f"the process was ended by {signal.Signals(-status).name if named else f'signal {-status}'}"
    return f"the process ended with exit code {status}"


def _read(answer: Any, count: int) -> list[Any] | Failure | None:
    """Read an answer; None if it is none: a function may have written into our pipe itself."""
    match answer:
        case ("done", list(outcomes)) if len(outcomes) == count:
            return outcomes
        case ("failed", str(code), str(reason), int(at)):
            return Failure(code, reason, at)
        case _:
            return None


class _Stopped(Exception):
    """The call must end; never leaves this module."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


def _popen(given: tuple[int, ...], settings: Settings) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock.pipeline.functions.child", *map(str, given)],
        stdin=subprocess.DEVNULL,
        pass_fds=given,
        env=_environment(settings),
        start_new_session=True,  # not for it are signals to the worker's group; its own can be killed
    )


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _CHUNK)  # a batch at once: fewer switches between the two
    return reading, writing


def _environment(settings: Settings) -> dict[str, str]:
    own = child_environment(Child.FUNCTION, dict(settings.environment))
    # What the worker can import, the child can: on a cluster both Penstock and the module are in archives.
    return {**own, "PYTHONPATH": os.pathsep.join((*settings.path, *filter(None, sys.path)))}


_running: Final[dict[tuple[Settings, Bounds], FunctionProcess]] = {}
"""One child a route in this process."""


def process_of(settings: Settings, bounds: Bounds) -> FunctionProcess:
    """Give the process of a route; the same one every time."""
    if not _running:
        atexit.register(_close_all)
    return _running.setdefault((settings, bounds), FunctionProcess(settings, bounds))


def _close_all() -> None:
    for process in _running.values():
        process.close()
    _running.clear()
