"""The detached process that owns the servers of `penstock dev up`, and what others know of it.

It holds a lock on `dev/lock` while it lives, so that nobody trusts a stale process id, and writes
`dev/state.json` when the servers are ready or have failed. SIGTERM ends it and them; if it is killed,
the guards end the servers.
"""

from __future__ import annotations

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
from typing import Any

from penstock.embedded.home import penstock_home
from penstock.embedded.stack import Stack
from penstock.errors import PenstockError, StartupError

__all__ = ["ServerState", "State", "down", "home", "is_running", "read_state", "up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One server as others find it."""

    pid: int
    addresses: dict[str, str]
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the supervisor says of itself: its servers, or why there are none."""

    pid: int
    servers: dict[str, ServerState] = field(default_factory=dict)
    failure: dict[str, str | None] | None = None


def home() -> Path:
    """Give the folder of the development servers."""
    return penstock_home() / "dev"


def is_running() -> bool:
    """Whether a supervisor lives: it holds the lock as long as it does."""
    lock = home() / "lock"
    if not lock.exists():
        return False
    with lock.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def read_state() -> State | None:
    """Give what the last supervisor said, or None if it has said nothing."""
    try:
        raw: dict[str, Any] = json.loads((home() / "state.json").read_text(encoding="utf-8"))
        servers = {name: ServerState(**server) for name, server in raw["servers"].items()}
        return State(pid=raw["pid"], servers=servers, failure=raw["failure"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def up(options: dict[str, Any], *, timeout: float = 240.0) -> State:
    """Start a supervisor with these options of `Stack` and wait until its servers are ready."""
    home().mkdir(parents=True, exist_ok=True)
    (home() / "state.json").unlink(missing_ok=True)
    with (home() / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.embedded.supervisor", json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        return _await_state(process, timeout)
    except BaseException:
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


def _failure(failure: dict[str, str | None]) -> PenstockError:
    exc = StartupError(
        failure["what"] or "", where=failure["where"], why=failure["why"], next=failure["next"]
    )
    return exc


def down(*, timeout: float = 60.0) -> bool:
    """End the supervisor and its servers; False if there was none."""
    state = read_state()
    if not is_running() or state is None:
        return False
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while is_running():
        if time.monotonic() > deadline:
            os.kill(state.pid, signal.SIGKILL)
        time.sleep(0.05)
    (home() / "state.json").unlink(missing_ok=True)
    return True


def _write_state(state: State) -> None:
    path = home() / "state.json"
    fresh = path.with_suffix(".fresh")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(asdict(state)), encoding="utf-8")
    fresh.replace(path)


def _supervise(arguments: Sequence[str]) -> int:
    options = json.loads(arguments[0])
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            with Stack(**options, data=home() / "data") as stack:
                _write_state(_state_of(stack))
                while True:
                    signal.pause()
        except KeyboardInterrupt:
            return 0
        except PenstockError as exc:
            failure = {"what": exc.what, "where": exc.where, "why": exc.why, "next": exc.next}
            _write_state(State(pid=os.getpid(), failure=failure))
            return 1


def _state_of(stack: Stack) -> State:
    servers = {
        name: ServerState(pid=server.pid or 0, addresses=server.addresses, log=str(server.log))
        for name, server in stack.servers.items()
    }
    return State(pid=os.getpid(), servers=servers)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(_supervise(sys.argv[1:]))
