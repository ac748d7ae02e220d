"""The detached process that owns the servers of `penstock dev up`, and what others know of it.

It holds a lock on `dev/lock` while it lives, so that nobody trusts a stale process id, and writes
`dev/state.json` when it begins and when the servers are ready or have failed. SIGTERM ends it and them;
if it is killed, the guards end the servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from penstock import errors
from penstock.config import Child, child_environment
from penstock.embedded.home import penstock_home
from penstock.embedded.private import write_private
from penstock.embedded.stack import Stack
from penstock.errors import MachineError, PenstockError, StartupError, UsageError

__all__ = ["ServerState", "State", "down", "home", "is_alive", "is_running", "read_state", "up"]

_MODULE = "penstock.embedded.supervisor"
_PATIENCE = 2.0
"""Seconds a supervisor waits for the lock: who looks whether one runs takes it for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server as others find it."""

    pid: int
    addresses: dict[str, str]
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the supervisor says of itself: its servers once they are ready, or why there are none."""

    pid: int
    ready: bool = False
    servers: dict[str, ServerState] = field(default_factory=dict)
    failure: dict[str, str | None] | None = None


def home() -> Path:
    """Give the folder of the development servers."""
    return penstock_home() / "dev"


def is_running() -> bool:
    """Whether a supervisor lives: it holds the lock as long as it does."""
    try:
        with (home() / "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return pid > 0


def _is_supervisor(pid: int) -> bool:
    """Whether a process is a supervisor, by its command line: an id may be somebody else's by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        listed = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        words = subprocess.run(listed, capture_output=True, timeout=10, check=False).stdout.split()
    except OSError:
        return False
    return _MODULE.encode() in words


def read_state() -> State | None:
    """Give what the last supervisor said, or None if it has said nothing that can be read."""
    try:
        raw: dict[str, Any] = json.loads((home() / "state.json").read_bytes())
        servers = {name: ServerState(**server) for name, server in raw["servers"].items()}
        state = State(pid=raw["pid"], ready=raw["ready"], servers=servers, failure=raw["failure"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return state if isinstance(state.pid, int) and state.pid > 0 else None


def up(options: dict[str, Any], *, timeout: float = 240.0) -> State:
    """Start a supervisor with these options of `Stack` and wait until its servers are ready."""
    if is_running():
        raise UsageError(
            "the development servers run already", next="penstock dev status, or penstock dev down"
        )
    home().mkdir(parents=True, exist_ok=True)
    (home() / "state.json").unlink(missing_ok=True)
    process: subprocess.Popen[bytes] | None = None
    try:
        with (home() / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=child_environment(Child.PENSTOCK),
            )
        return _await_state(process, timeout)
    except BaseException:  # also KeyboardInterrupt: who asked for the servers is gone
        if process is not None:
            process.terminate()
            process.wait(timeout=60)
        raise


def _await_state(process: subprocess.Popen[bytes], timeout: float) -> State:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        state = read_state()
        if state is not None and state.pid == process.pid:
            if state.failure is not None:
                raise _failure(state.failure)
            if state.ready:
                return state
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise StartupError(
        "the development servers did not become ready",
        where=str(home() / "supervisor.log"),
        why="\n".join((home() / "supervisor.log").read_text(errors="replace").splitlines()[-10:]),
        next="penstock dev logs",
    )


def _told(exc: PenstockError) -> dict[str, str | None]:
    kind = type(exc).__name__
    return {"kind": kind, "what": exc.what, "where": exc.where, "why": exc.why, "next": exc.next}


def _failure(told: dict[str, str | None]) -> PenstockError:
    kind = getattr(errors, told["kind"] or "", None)
    if not (isinstance(kind, type) and issubclass(kind, MachineError)):
        kind = StartupError
    return kind(told["what"] or "", where=told["where"], why=told["why"], next=told["next"])


def down(*, timeout: float = 60.0) -> bool:
    """End the supervisor and its servers, also while they start; False if there was none."""
    if not is_running():
        return False
    deadline = time.monotonic() + timeout
    asked: State | None = None
    while is_running():
        state = read_state()
        late = time.monotonic() > deadline
        if state is not None and (late or asked is None) and _is_supervisor(state.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGKILL if late else signal.SIGTERM)
            asked = state
        elif late:
            raise MachineError(
                "the supervisor of the development servers does not say who it is",
                where=str(home() / "state.json"),
                next="end the process penstock.embedded.supervisor by hand; its servers end with it",
            )
        time.sleep(0.05)
    (home() / "state.json").unlink(missing_ok=True)
    return True


def _write_state(state: State) -> None:
    path = home() / "state.json"
    fresh = path.with_suffix(".fresh")
    write_private(fresh, json.dumps(asdict(state)).encode())
    fresh.replace(path)


def _supervise(arguments: Sequence[str]) -> int:
    options = json.loads(arguments[0])
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "lock").open("a") as lock:
        _hold(lock)
        try:
            _write_state(State(pid=os.getpid()))
            with Stack(**options, data=home() / "data") as stack:
                _write_state(_state_of(stack))
                while True:
                    signal.pause()
        except KeyboardInterrupt:
            return 0
        except PenstockError as exc:
            _write_state(State(pid=os.getpid(), failure=_told(exc)))
            return 1


def _hold(lock: IO[Any]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit("the development servers run already")
            time.sleep(0.02)


def _state_of(stack: Stack) -> State:
    servers = {
        name: ServerState(pid=server.pid or 0, addresses=server.addresses, log=str(server.log))
        for name, server in stack.servers.items()
    }
    return State(pid=os.getpid(), ready=True, servers=servers)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1:]))
