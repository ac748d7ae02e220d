"""A server as a child process: no orphan whatever happens to us, gentle end first, telling errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from penstock.embedded import process as module
from penstock.embedded.process import LAST_LINES, ServerProcess, last_lines, telling_lines
from penstock.errors import StartupError

Eventually = Callable[..., None]
Gone = Callable[[int], bool]

# Servers: each says `up` when it serves.
POLITE = "import signal; print('up', flush=True); signal.pause()"
TELLS = """
import signal, sys
def end(signum, frame):
    print('asked to end', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('up', flush=True)
signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
while True: signal.pause()
"""
PARENT_AND_CHILD = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(child.pid, flush=True)
while True: signal.pause()
"""


class Servers:
    """Starts small servers and ends what a failing test leaves."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "logs" / "test.out"
        self.started: list[ServerProcess] = []

    def start(self, code: str, *, grace: float = 15.0, ready: str | None = "up") -> ServerProcess:
        server = ServerProcess("test", [sys.executable, "-c", code], out=self.out, grace=grace)
        self.started.append(server)
        if ready is not None:
            server.wait_until(lambda: ready in self.said, timeout=60)
        return server

    @property
    def said(self) -> str:
        return self.out.read_text() if self.out.exists() else ""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for server in made.started:
        server.kill()
        server.close()


def test_a_clean_stop_asks_first(servers: Servers, gone: Gone) -> None:
    server = servers.start(TELLS)
    assert server.running
    server.close()
    assert not server.running
    assert gone(server.pid)
    assert servers.said == "up\nasked to end\n"


def test_one_that_does_not_listen_is_killed_after_the_grace(servers: Servers, gone: Gone) -> None:
    server = servers.start(STUBBORN, grace=0.5)
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began >= 0.5
    assert gone(server.pid)


def test_its_own_children_are_killed_with_it(servers: Servers, gone: Gone, eventually: Eventually) -> None:
    server = servers.start(PARENT_AND_CHILD, grace=0.2, ready="\n")
    child = int(servers.said)
    assert not gone(child)
    server.close()
    assert gone(server.pid)
    eventually(lambda: gone(child))


def test_kill_ends_at_once(servers: Servers, gone: Gone) -> None:
    server = servers.start(TELLS)
    server.kill()
    assert not server.running
    assert gone(server.pid)
    assert servers.said == "up\n"


def test_ending_twice_is_harmless(servers: Servers) -> None:
    server = servers.start(POLITE)
    server.close()
    server.close()
    server.kill()
    assert not server.running


def test_a_process_id_that_is_somebody_elses_by_now_is_left_alone(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.start("print('up', flush=True)", ready=None)
    server._guard.wait(timeout=60)
    signalled: list[tuple[int, int]] = []
    monkeypatch.setattr(module.os, "killpg", lambda *call: signalled.append(call))
    server.kill()
    server.close()
    assert signalled == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_guard_outlives_signals_meant_for_us(servers: Servers, signum: signal.Signals) -> None:
    server = servers.start(TELLS)
    server._guard.send_signal(signum)
    # It still does its work after the signal: the server is asked to end, and only then.
    assert servers.said == "up\n"
    server.close()
    assert server._guard.returncode == 0
    assert servers.said == "up\nasked to end\n"


def test_a_killed_guard_leaves_no_server_after_close(
    servers: Servers, gone: Gone, eventually: Eventually
) -> None:
    server = servers.start(POLITE)
    server._guard.kill()
    server._guard.wait()
    assert not gone(server.pid)
    server.close()
    eventually(lambda: gone(server.pid))


# Starts a server in a process that can be killed, and tells the server's id.
OWNER = """
import signal, sys
from pathlib import Path
from penstock.embedded.process import ServerProcess
server = ServerProcess('test', [sys.executable, '-c', sys.argv[2]], out=Path(sys.argv[1]), grace=0.5)
print(server.pid, server._guard.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGKILL, POLITE),
        (signal.SIGKILL, STUBBORN),
        (signal.SIGTERM, POLITE),
        (signal.SIGHUP, POLITE),
        (signal.SIGABRT, POLITE),
    ],
    ids=["SIGKILL", "SIGKILL, stubborn", "SIGTERM", "SIGHUP", "SIGABRT"],
)
def test_no_orphan_when_the_owner_is_killed(
    tmp_path: Path, gone: Gone, eventually: Eventually, signum: signal.Signals, code: str
) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "out"), code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        server, guard = map(int, owner.stdout.readline().split())
        eventually(lambda: "up" in (tmp_path / "out").read_text())
        assert not gone(server)
        owner.send_signal(signum)
    eventually(lambda: gone(server) and gone(guard))


# Errors


def test_a_server_that_ends_while_starting_says_its_last_lines(servers: Servers) -> None:
    talk = "[print(f'line {n}', flush=True) for n in range(50)]"
    code = f"import sys; {talk}; sys.exit('Error: the disk is made of cheese')"
    server = servers.start(code, ready=None)
    with pytest.raises(StartupError) as caught:
        server.wait_until(lambda: False, timeout=60)
    assert caught.value.what == "test ended while starting, code 1"
    assert caught.value.where == str(servers.out)
    lines = (caught.value.why or "").splitlines()
    assert lines[-1] == "Error: the disk is made of cheese"
    assert lines[-2] == "line 49"
    assert "line 10" not in lines


def test_what_an_earlier_life_said_explains_nothing(servers: Servers) -> None:
    servers.out.parent.mkdir()
    servers.out.write_text("Error: long ago\n" * 40)
    server = servers.start("print('Error: today')", ready=None)
    with pytest.raises(StartupError) as caught:
        server.wait_until(lambda: False, timeout=60)
    assert caught.value.why == "last log lines:\nError: today"


def test_a_server_that_is_too_slow_says_its_last_lines(servers: Servers) -> None:
    server = servers.start("import signal; print('still busy', flush=True); signal.pause()", ready="busy")
    with pytest.raises(StartupError, match="test was not ready within 0 s") as caught:
        server.wait_until(lambda: False, timeout=0.1)
    assert (caught.value.why or "").endswith("\nstill busy")


def test_a_command_that_cannot_run_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartupError, match="test could not be started") as caught:
        ServerProcess("test", [str(tmp_path / "no-such-program")], out=tmp_path / "out")
    assert "No such file or directory" in (caught.value.why or "")
    assert "no-such-program" in (caught.value.why or "")
    assert capfd.readouterr().err == ""


def test_last_lines_of_a_large_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe old\n" * 100_000 + b"\n\nlast but one\nlast \xe4\n")
    assert last_lines(log, 2) == ["last but one", "last \ufffd"]
    assert len(last_lines(log, 1_000_000)) < 100_000
    assert last_lines(tmp_path / "none", 5) == []
    assert last_lines(tmp_path, 5) == []


def test_telling_lines_name_the_cause_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cause = "2026-01-01 ERROR [main] the cause " + "x" * 1000
    log.write_text("\n".join([cause, *(f"   at frame {n}" for n in range(100))]))
    said = telling_lines(log)
    assert said[0] == cause[:300]
    assert said[1:] == [f"   at frame {n}" for n in range(100 - LAST_LINES, 100)]


def test_guard_and_server_get_no_variables_that_they_do_not_need(
    monkeypatch: pytest.MonkeyPatch, servers: Servers
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    server = psutil.Process(servers.start(POLITE).pid)
    guard = server.parent()
    assert guard is not None
    for process in (server, guard):
        environment = process.environ()
        assert environment["LC_ALL"] == "C.UTF-8"
        assert "hunter2" not in environment.values()


def test_the_environment_cannot_change_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Servers
) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('changed')")
    (tmp_path / "select.py").write_text("raise SystemExit('changed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ServerProcess("test", ["/bin/sh", "-c", "echo up; exec sleep 60"], out=servers.out)
    servers.started.append(server)
    server.wait_until(lambda: "up" in servers.said, timeout=60)
    assert os.getpgid(server.pid) == server.pid != os.getpgid(0)
