"""What the supervisor leaves for others to read: hostile files, locks, failures. No server runs here."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.embedded import supervisor
from penstock.embedded.supervisor import ServerState, State
from penstock.errors import MachineError, PortTaken, StartupError, UsageError


@pytest.fixture(autouse=True)
def home(isolated_home: Path) -> Path:
    supervisor.home().mkdir(parents=True)
    return supervisor.home()


@pytest.fixture
def held(home: Path) -> Iterator[None]:
    """As if a supervisor lived."""
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_state_reads_back_as_it_was_and_is_private(home: Path) -> None:
    server = ServerState(pid=5, addresses={"bootstrap": "127.0.0.1:1"}, log="kafka.log")
    state = State(pid=4, ready=True, servers={"kafka": server})
    supervisor._write_state(state)
    assert supervisor.read_state() == state
    assert (home / "state.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"pid": 1}',
        b'{"pid": "1", "ready": true, "servers": {}, "failure": null}',
        b'{"pid": -1, "ready": true, "servers": {}, "failure": null}',
        b'{"pid": 1, "ready": true, "servers": [], "failure": null}',
        b'{"pid": 1, "ready": true, "servers": {"kafka": []}, "failure": null}',
        b'{"pid": 1, "ready": true, "servers": {"kafka": {"pid": 1}}, "failure": null}',
        b'{"pid": 1, "ready": true, "servers": {"kafka": {"pid": 1, "addresses": {}, "x": 1}}, "failure": 0}',
        b"[" * 100_000,
    ],
)
def test_a_state_that_cannot_be_read_is_no_state(home: Path, content: bytes) -> None:
    (home / "state.json").write_bytes(content)
    assert supervisor.read_state() is None
    assert supervisor.down() is False


def test_nobody_runs_where_nothing_is(home: Path) -> None:
    assert not supervisor.is_running()
    (home / "lock").touch()
    assert not supervisor.is_running()
    assert supervisor.down() is False


def test_who_holds_the_lock_runs(held: None) -> None:
    assert supervisor.is_running()


def test_a_stale_process_id_is_not_trusted(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        supervisor._write_state(State(pid=innocent.pid, ready=True))
        assert supervisor.down() is False
        assert innocent.poll() is None
        innocent.communicate(b"\n", timeout=60)
    assert innocent.returncode == 0


def test_a_stale_process_id_is_not_trusted_while_the_lock_is_held(home: Path, held: None) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        supervisor._write_state(State(pid=innocent.pid, ready=True))
        with pytest.raises(MachineError, match="does not say who it is"):
            supervisor.down(timeout=0.2)
        assert innocent.poll() is None
        innocent.communicate(b"\n", timeout=60)
    assert innocent.returncode == 0


def test_a_supervisor_is_known_by_its_command_line(home: Path, eventually: Callable[..., None]) -> None:
    assert not supervisor._is_supervisor(os.getpid())
    command = [sys.executable, "-m", "penstock.embedded.supervisor", '{"servers": []}']
    with subprocess.Popen(command) as process:
        eventually(lambda: (state := supervisor.read_state()) is not None and state.ready)
        assert supervisor._is_supervisor(process.pid)
        assert supervisor.down() is True
        assert process.wait(timeout=60) == 0


def test_a_process_of_another_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, signum: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill)
    assert supervisor.is_alive(4)


def test_up_is_refused_while_a_supervisor_lives(home: Path, held: None) -> None:
    supervisor._write_state(State(pid=os.getpid(), ready=True))
    with pytest.raises(UsageError, match="run already"):
        supervisor.up({"servers": ["kafka"]})
    assert supervisor.read_state() is not None  # the state of the one that lives is untouched


def test_down_ends_even_if_nobody_says_who_runs(held: None) -> None:
    with pytest.raises(MachineError, match="does not say who it is"):
        supervisor.down(timeout=0.1)


def test_a_second_supervisor_gives_up(held: None) -> None:
    command = [sys.executable, "-m", "penstock.embedded.supervisor", '{"servers": []}']
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (said.returncode, said.stderr) == (1, "the development servers run already\n")
    assert supervisor.read_state() is None


def test_a_supervisor_waits_for_who_only_looks(home: Path, eventually: Callable[..., None]) -> None:
    with (home / "lock").open("a") as looker, (home / "lock").open("a") as lock:
        fcntl.flock(looker, fcntl.LOCK_SH)
        waiting = threading.Thread(target=supervisor._hold, args=(lock,))
        waiting.start()
        fcntl.flock(looker, fcntl.LOCK_UN)
        waiting.join(timeout=60)
        assert supervisor.is_running()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PortTaken("a port", where="kafka port", next="another"), PortTaken), (StartupError("x"), StartupError)],
)
def test_a_failure_comes_back_as_it_was(error: PortTaken, kind: type[Exception]) -> None:
    again = supervisor._failure(supervisor._told(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.code == error.code


def test_a_failure_of_a_kind_that_is_not_known() -> None:
    told = {"kind": "os", "what": "what", "where": None, "why": None, "next": None}
    assert type(supervisor._failure(told)) is StartupError


def test_whether_a_process_lives() -> None:
    assert supervisor.is_alive(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(timeout=60)
    assert not supervisor.is_alive(ended.pid)
    assert not supervisor.is_alive(0)
