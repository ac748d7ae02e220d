"""penstock dev: servers that outlive their terminal, seen and stopped from another, and never orphans."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from penstock.cli import dev as dev_module
from penstock.cli.app import main
from penstock.cli.dev import _context
from penstock.config import DEV_FILE, load, write_context
from penstock.contract.connections import connect
from penstock.contract.servers import Server
from penstock.embedded import supervisor
from penstock.embedded.artifacts import Fetched, ensure
from penstock.embedded.home import penstock_home
from penstock.embedded.supervisor import ServerState, State

PENSTOCK = [sys.executable, "-c", "import sys; from penstock.cli.app import main; sys.exit(main())"]


class Dev:
    """A project folder in which `penstock dev` is called, each time as a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def begin(self, *words: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*PENSTOCK, "dev", *words], text=True, **pipes)

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        with self.begin(*words) as process:
            said, talk = process.communicate(timeout=240)
        assert process.returncode == code, talk
        return said, talk

    def processes(self) -> list[psutil.Process]:
        """Give every process that names our home or is its supervisor."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            words = process.cmdline()
            supervises = "penstock.embedded.supervisor" in words
            return str(self.home) in " ".join(words) or (
                supervises and process.environ().get("PENSTOCK_HOME") == str(self.home)
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False


@pytest.fixture
def dev(furnished_home: Path) -> Iterator[Dev]:
    ensure(["kafka", "pulsar", "registry"])
    made = Dev(furnished_home)
    yield made
    supervisor.down()
    for process in made.processes():
        process.kill()


def await_that(condition: Callable[[], object], within: float = 90.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_context_of_the_servers_says_that_they_have_no_tls(isolated_home: Path) -> None:
    kafka = ServerState(pid=1, addresses={"bootstrap": "127.0.0.1:9092"}, log="")
    write_context(isolated_home / "penstock.yaml", "dev", _context(State(pid=1, servers={"kafka": kafka})))
    context = load().context()
    secure = Server(host="kafka.example:9093", protocol="kafka-secure")
    assert connect("kafka", secure, (), context).protocol == "PLAINTEXT"


@pytest.mark.server
@pytest.mark.slow
def test_up_status_logs_and_down(dev: Dev, isolated_home: Path) -> None:
    said, talk = dev("up", "-o", "json")
    servers = {row["server"]: row for row in json.loads(said)}
    assert set(servers) == {"kafka", "pulsar", "registry", "gateway"}
    assert {row["state"] for row in servers.values()} == {"ready"}
    assert "penstock dev down" in talk

    # The servers live without the terminal that started them, and another one sees them.
    assert json.loads(dev("status", "-o", "json")[0]) == list(servers.values())
    assert dev("status")[0].splitlines()[0].split() == ["server", "state", "pid", "address", "log"]
    for row in servers.values():
        host, _, port = row["address"].split("//")[-1].split("/")[0].split(" ")[0].rpartition(":")
        socket.create_connection((host, int(port)), timeout=60).close()

    # A context for them is there and its servers are reached.
    found, _ = subprocess.Popen(
        [*PENSTOCK, "doctor", "-o", "json"], stdout=subprocess.PIPE, text=True
    ).communicate(timeout=60)
    checks = {check["name"]: check["ok"] for check in json.loads(found)}
    assert all(checks[name] for name in servers)

    _, talk = dev("up", code=2)
    assert "the development servers run already" in talk

    logs, _ = dev("logs", "kafka", "-n", "1000")
    assert "Kafka Server started" in logs
    assert len(dev("logs", "kafka", "pulsar", "-n", "3")[0].splitlines()) == 6

    os.kill(servers["registry"]["pid"], signal.SIGKILL)
    await_that(lambda: not supervisor.is_alive(servers["registry"]["pid"]))
    states = {row["server"]: row["state"] for row in json.loads(dev("status", "-o", "json", code=1)[0])}
    assert states == dict.fromkeys(servers, "ready") | {"registry": "ended"}

    assert dev("down")[1].endswith("the development servers are down\n")
    assert dev.processes() == []
    assert json.loads(dev("status", "-o", "json", code=1)[0]) == []
    assert main(["context", "show"]) == 2
    assert "no development servers were running" in dev("down")[1]
    assert (dev.home / "dev" / "data" / "kafka" / "data" / "meta.properties").exists()


@pytest.mark.server
@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_server(dev: Dev) -> None:
    dev("up", "kafka")
    state = supervisor.read_state()
    assert state is not None
    assert len(dev.processes()) == 3  # supervisor, guard, server
    os.kill(state.pid, signal.SIGKILL)
    await_that(lambda: dev.processes() == [])
    said, talk = dev("status", code=1)
    assert "no development servers run" in talk
    assert str(state.pid) not in said
    dev("up", "kafka")
    dev("down")


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.soak),
        (None, 1),
    ],
)
def test_a_start_that_is_interrupted_leaves_nothing(
    dev: Dev, end: signal.Signals | None, code: int, isolated_home: Path
) -> None:
    with dev.begin("up") as up:
        await_that(lambda: any("@" in word for p in dev.processes() for word in words_of(p)))
        if end is not None:
            up.send_signal(end)
        else:
            assert "are down" in dev("down")[1]
        _, talk = up.communicate(timeout=120)
    assert (up.returncode, "Traceback" in talk) == (code, False)
    assert dev.processes() == []
    assert not supervisor.is_running()
    assert not (isolated_home / ".penstock" / "dev.yaml").exists()


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.server
def test_a_taken_port_is_told_and_leaves_nothing(dev: Dev, isolated_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        said, talk = dev("up", "kafka", "--kafka-port", port, code=1)
    assert said == ""
    assert f"error[PK103] port {port} on 127.0.0.1 is taken" in talk
    assert "set kafka port to another port" in talk
    assert dev.processes() == []
    assert not (isolated_home / ".penstock" / "dev.yaml").exists()
    assert "no development servers run" in dev("status", code=1)[1]


# What needs no server


def test_a_server_that_is_not_known(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "up", "kafka", "zookeeper"]) == 2
    assert "there is no embedded server zookeeper" in capsys.readouterr().err
    assert not supervisor.home().exists()


@pytest.mark.parametrize("port", ["-1", "65536", "many"])
def test_a_port_that_is_none(isolated_home: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "up", "--kafka-port", port]) == 2
    assert "--kafka-port" in capsys.readouterr().err


def test_servers_that_no_context_can_name_are_ended(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def write(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 5)

    monkeypatch.setattr(dev_module, "fetch", lambda names: None)
    monkeypatch.setattr(supervisor, "up", lambda options: supervisor.State(pid=1, ready=True))
    monkeypatch.setattr(supervisor, "down", lambda: ended.append(True))
    monkeypatch.setattr(dev_module, "write_context", write)
    supervisor.home().mkdir(parents=True)  # as the real one does
    # Whatever another test has left: PySpark handles SIGINT, too.
    handlers = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        assert main(["dev", "up", "kafka"]) == 143
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended == [True]


def test_down_in_another_folder_removes_the_context_that_up_has_written(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_module, "fetch", lambda names: None)
    monkeypatch.setattr(supervisor, "up", lambda options: supervisor.State(pid=1, ready=True))
    monkeypatch.setattr(supervisor, "down", lambda: True)
    supervisor.home().mkdir(parents=True)  # as the real one does
    for name in ("one", "two"):
        (isolated_home / name / ".git").mkdir(parents=True)
    monkeypatch.chdir(isolated_home / "one")
    assert main(["dev", "up", "kafka"]) == 0
    written = isolated_home / "one" / DEV_FILE
    assert "dev:" in written.read_text()
    monkeypatch.chdir(isolated_home / "two")
    assert main(["dev", "down"]) == 0
    assert "dev:" not in written.read_text()
    assert main(["dev", "down"]) == 0


def test_logs_of_nothing(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "logs"]) == 2
    assert "there are no such logs" in capsys.readouterr().err


def test_status_of_nothing(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "status", "-o", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "penstock dev up" in captured.err


def test_no_network_ends_up_before_anything_starts(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    monkeypatch.setenv("PENSTOCK_MAVEN_MIRROR", nowhere)
    assert main(["dev", "up", "registry"]) == 1
    talk = capsys.readouterr().err
    assert "error[PK102] 1 jars could not be fetched: io.apicurio:apicurio-registry-app" in talk
    assert str(penstock_home() / "jars") in talk
    assert not supervisor.is_running()


def test_the_bar_counts_files_and_megabytes(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.fetching import fetch

    def ensure(_locks: object, progress: Callable[[Fetched], None]) -> None:
        for files in (1, 4):
            progress(Fetched(files=files, of_files=4, bytes=files * 10**7, of_bytes=4 * 10**7))

    monkeypatch.setattr("penstock.embedded.artifacts.ensure", ensure)
    fetch(["spark"])
    assert capsys.readouterr().err.startswith("fetching jars: 4 of 4 files, 40.0 of 40.0 MB: 0.")


def test_the_tools_of_kafka_are_listed(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", "dev", "kafka-tool"]) == 0
    assert "console-producer" in capsys.readouterr().out


def test_a_tool_that_kafka_has_not(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "kafka-tool", "no-such-tool", "--help"]) == 2
    assert "'no-such-tool' is no tool of Kafka" in capsys.readouterr().err


@pytest.mark.server
def test_a_tool_of_kafka_is_run_with_its_own_options() -> None:
    found = subprocess.run(
        [*PENSTOCK, "dev", "kafka-tool", "topics", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "4.3.1\n")
