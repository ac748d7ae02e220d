"""The life of a server, shown on a tiny one: ports, folders, restarts, faults. No Java runs here."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.embedded import home
from penstock.embedded import stack as stack_module
from penstock.embedded.java import Java
from penstock.embedded.kafka import Kafka
from penstock.embedded.ports import LOOPBACK, choose_port, is_listening
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry
from penstock.embedded.server import Server
from penstock.embedded.stack import Stack
from penstock.errors import DiskSpaceError, MachineError, PortTaken, StartupError, UsageError

Eventually = Callable[..., None]
Gone = Callable[[int], bool]

# Stands for Java: takes the argument file and does what its last argument, a JSON object, says.
PROGRAM = """
import json, signal, socket, sys
arguments = [json.loads(line) for line in open(sys.argv[1].removeprefix("@"))]
order = json.loads(arguments[-1])
if order["mood"] == "broken":
    sys.exit("Error: broken on purpose")
if order["mood"] == "loses its port":
    sys.exit("java.net.BindException: Address already in use")
if order["mood"] == "slow":
    print("taking my time", flush=True)
    signal.pause()
if order["mood"] == "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
listener = socket.create_server(("127.0.0.1", order["port"]))
while True:
    signal.pause()
"""


class Tiny(Server):
    """A server that only listens."""

    name = "tiny"

    def __init__(
        self,
        *,
        data: Path | None = None,
        port: int = 0,
        wipe: bool = False,
        moods: list[str] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        super().__init__(data=data, wipe=wipe, ports={"port": port}, heap_mb=16, start_timeout=start_timeout)
        self.moods = moods or []
        self.tried: list[int] = []

    def _command(self, java: Java) -> list[str]:
        self.tried.append(self.port("port"))
        mood = self.moods.pop(0) if self.moods else "fine"
        return [json.dumps({"port": self.port("port"), "mood": mood})]

    def _is_ready(self) -> bool:
        return is_listening(self.port("port"))


@pytest.fixture(autouse=True)
def python_as_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    (tmp_path / "program.py").write_text(PROGRAM)
    program = shlex.join([sys.executable, str(tmp_path / "program.py")])
    java.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    java.chmod(0o755)
    (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(java.parent.parent))


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


# Folders


def test_a_temporary_folder_goes_with_the_server(gone: Gone) -> None:
    with Tiny() as server:
        folder, pid = server.data, server.pid
        assert server.running
        assert folder.is_dir()
    assert pid is not None
    assert gone(pid)
    assert not folder.exists()
    assert not server.running
    assert server.pid is None


def test_a_given_folder_stays_even_with_spaces_and_quotes_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / 'my "data" it\'s \\here'
    with Tiny(data=folder) as server:
        (server.data / "data" / "kept").touch()
    assert (folder / "data" / "kept").exists()
    with Tiny(data=folder):
        assert (folder / "data" / "kept").exists()


def test_wipe_empties_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    with Tiny(data=tmp_path / "d"):
        for part in ("data", "conf", "logs"):
            (tmp_path / "d" / part / "old").touch()
        (tmp_path / "d" / "thesis.txt").touch()
    with Tiny(data=tmp_path / "d", wipe=True) as server:
        assert not list((tmp_path / "d").glob("*/old"))
        assert (tmp_path / "d" / "thesis.txt").exists()
        (server.data / "data" / "new").touch()
        server.stop()
        server.start()
        assert (server.data / "data" / "new").exists()  # once only: a restart keeps the data


KINDS = pytest.mark.parametrize("make", [Tiny, Kafka, Pulsar, Registry], ids=lambda kind: kind.__name__)


@KINDS
def test_a_folder_that_is_a_file(make: type[Tiny], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I am a file")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        server = make(data=folder, wipe=True)
        with pytest.raises(MachineError, match=f"the data folder of {server.name} cannot be used") as caught:
            server.start()
        assert caught.value.where == str(folder)
        assert not server.running
    assert (tmp_path / "file").read_text() == "I am a file"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Pulsar, "a folder"),
        (Pulsar, "100%"),
        (Pulsar, "f#1"),
        (Kafka, "one,two"),
        (Kafka, "back\\slash"),
        (Registry, "a;b"),
        *((kind, "größe") for kind in (Tiny, Kafka, Pulsar, Registry)),
    ],
)
def test_a_folder_whose_name_the_server_cannot_have(make: type[Tiny], name: str, tmp_path: Path) -> None:
    server = make(data=tmp_path / name)
    with pytest.raises(MachineError, match=f"{server.name} cannot keep data below a folder with"):
        server.start()
    assert not (tmp_path / name).exists()


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Root may write everywhere: be somebody else for a moment."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@KINDS
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["unwritable", "unreadable"])
def test_a_folder_that_may_not_be_used(make: type[Tiny], mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        server = make(data=Path(folder, "below"))
        with not_root(), pytest.raises(MachineError, match="cannot be used: Permission denied"):
            server.start()
        assert not server.running
        os.chmod(folder, 0o755)


def test_the_arguments_are_private() -> None:
    with Tiny() as server:
        file = server.data / "conf" / "tiny.args"
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [Tiny, Kafka, Pulsar, Registry, Stack], ids=lambda kind: kind.__name__)
def test_under_one_gigabyte_of_disk_is_refused(
    make: type[Tiny], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "ensure", lambda *_args: {})
    usage = home.shutil.disk_usage(tmp_path)._replace(free=999_999_999)
    monkeypatch.setattr(home.shutil, "disk_usage", lambda _path: usage)
    for server in (make(data=tmp_path / "data"), make()):
        with pytest.raises(DiskSpaceError, match="only 999 MB of disk are free, 1000 MB are needed"):
            server.start()
    assert not (tmp_path / "data").exists()


# Restarts


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_started_again_is_found_where_it_was(end: str, tmp_path: Path) -> None:
    with Tiny(data=tmp_path / "d") as server:
        port, pid = server.port("port"), server.pid
        getattr(server, end)()
        assert not server.running
        assert not is_listening(port)
        server.start()
        assert server.port("port") == port
        assert is_listening(port)
        assert server.pid != pid


def test_starting_twice_starts_once() -> None:
    with Tiny() as server:
        pid = server.pid
        server.start()
        assert server.pid == pid


def test_a_closed_server_can_be_started_again() -> None:
    server = Tiny()
    for _ in range(2):
        with server:
            assert is_listening(server.port("port"))


# Ports


def test_a_fixed_port_is_used() -> None:
    port = choose_port(0, setting="test")
    with Tiny(port=port) as server:
        assert server.port("port") == port
        assert is_listening(port)


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda port: Tiny(port=port), "tiny port"),
        (lambda port: Kafka(port=port), "kafka port"),
        (lambda port: Pulsar(port=port), "pulsar port"),
        (lambda port: Pulsar(http_port=port), "pulsar http-port"),
        (lambda port: Registry(port=port), "registry port"),
    ],
)
def test_a_taken_port_names_the_setting(make: Callable[[int], Server], setting: str, taken: int) -> None:
    server = make(taken)
    with pytest.raises(PortTaken, match=f"port {taken} on {LOOPBACK} is taken") as caught:
        server.start()
    assert caught.value.where == setting
    assert f"set {setting} to another port" in (caught.value.next or "")
    assert not server.running


def test_a_port_taken_on_every_interface_is_taken() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, pytest.raises(PortTaken):
        choose_port(listener.getsockname()[1], setting="test")


def test_a_free_port_is_none_that_a_connection_may_get() -> None:
    found = {choose_port(0, setting="test") for _ in range(100)}
    assert len(found) > 90, "not one after the other: others look at the same time"
    assert max(found) < 32768


def test_where_no_quiet_port_is_free(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.embedded.ports._QUIET", [taken] * 50)
    assert choose_port(0, setting="test") not in (0, taken)


def test_a_port_of_our_own_that_was_taken_meanwhile() -> None:
    with Tiny() as server:
        port = server.port("port")
        server.stop()
        with socket.create_server((LOOPBACK, port)), pytest.raises(PortTaken, match=str(port)):
            server.start()
        server.start()
        assert is_listening(port)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_number_that_is_no_port(port: int) -> None:
    with pytest.raises(UsageError, match="tiny port"):
        Tiny(port=port).start()


def test_a_free_port_that_is_lost_is_replaced() -> None:
    with Tiny(moods=["loses its port", "loses its port"]) as server:
        assert len(set(server.tried)) == 3
        assert is_listening(server.tried[-1])


def test_ports_are_not_looked_for_without_end() -> None:
    server = Tiny(moods=["loses its port"] * 9)
    with pytest.raises(StartupError, match="ended while starting"):
        server.start()
    assert len(server.tried) == 3


# Faults while starting


def test_another_failure_is_not_tried_again(gone: Gone) -> None:
    server = Tiny(moods=["broken"])
    with pytest.raises(StartupError) as caught:
        server.start()
    assert "Error: broken on purpose" in (caught.value.why or "")
    assert len(server.tried) == 1


def test_a_port_lost_in_an_earlier_life_is_no_reason_to_try_again(tmp_path: Path) -> None:
    (tmp_path / "d" / "logs").mkdir(parents=True)
    (tmp_path / "d" / "logs" / "tiny.log").write_text("Address already in use\n" + "fine since then\n" * 50)
    server = Tiny(data=tmp_path / "d", moods=["broken"])
    with pytest.raises(StartupError, match="ended while starting"):
        server.start()
    assert len(server.tried) == 1


def test_a_start_that_takes_too_long(tmp_path: Path, gone: Gone) -> None:
    server = Tiny(data=tmp_path / "d", moods=["slow"], start_timeout=2)
    with pytest.raises(StartupError, match="tiny was not ready within 2 s") as caught:
        server.start()
    assert (caught.value.why or "").endswith("taking my time")
    assert not server.running
    server.start()  # in another mood it starts
    server.close()


def test_a_start_can_be_given_up_from_another_thread(gone: Gone, eventually: Eventually) -> None:
    server = Tiny(moods=["slow"])
    caught: list[BaseException] = []

    def start() -> None:
        try:
            server.start()
        except StartupError as exc:
            caught.append(exc)

    thread = threading.Thread(target=start)
    thread.start()
    eventually(lambda: server.pid)
    pid = server.pid
    assert pid is not None
    server.abandon()
    thread.join(timeout=60)
    assert [str(exc) for exc in caught] == ["the start of tiny was given up"]
    assert gone(pid)
    with server:  # given up once is not given up for ever
        assert server.running


def test_a_start_that_is_given_up_records_no_classes(
    eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the note that this Java cannot write them, which would be for ever."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    server = Tiny(moods=["slow"])
    server.records_classes = True
    thread = threading.Thread(target=lambda: pytest.raises(StartupError, server.start))
    thread.start()
    eventually(lambda: server.pid)
    server.abandon()
    thread.join(timeout=60)
    assert list((tmp_path / "home" / "classes").iterdir()) == []


def test_a_server_that_takes_its_time_to_end_can_be_killed(gone: Gone, eventually: Eventually) -> None:
    server = Tiny(moods=["stubborn"]).start()
    pid = server.pid
    assert pid is not None
    closing = threading.Thread(target=server.close)
    closing.start()
    out = server.log.with_suffix(".out")
    eventually(lambda: "not yet" in out.read_text())
    server.kill()
    closing.join(10)
    assert not closing.is_alive()
    assert gone(pid)


def test_what_java_unpacks_is_in_the_folder_of_the_server(tmp_path: Path) -> None:
    left = tmp_path / "data" / "java-tmp" / "left.so"
    left.parent.mkdir(parents=True)
    left.touch()
    with Tiny(data=tmp_path / "data") as server:
        assert not left.exists()
        arguments = (server.data / "conf" / "tiny.args").read_text()
    assert f"-Djava.io.tmpdir={left.parent}" in arguments


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_an_exception_while_starting_leaves_nothing_running(kind: type[BaseException], gone: Gone) -> None:
    pids: list[int | None] = []

    class Interrupted(Tiny):
        def _is_ready(self) -> bool:
            pids.append(self.pid)
            raise kind

    server = Interrupted()
    folder = server.data
    with pytest.raises(kind):
        server.start()
    assert pids[0] is not None
    assert gone(pids[0])
    assert not folder.exists()


# Stacks


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(UsageError, match="there is no embedded server zookeeper") as caught:
        Stack(["kafka", "zookeeper"])
    assert caught.value.next == f"choose from {', '.join(stack_module.SERVERS)}"


def test_a_server_that_the_stack_does_not_have() -> None:
    with pytest.raises(UsageError, match="this stack has no pulsar"):
        _ = Stack(["kafka"]).pulsar


@pytest.fixture
def make_stack(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stack]:
    def make(*servers: Tiny) -> Stack:
        stack = Stack([])
        stack.servers = {f"tiny-{number}": server for number, server in enumerate(servers)}
        return stack

    monkeypatch.setattr(stack_module, "ensure", lambda *_args: {})
    return make


def test_a_stack_starts_side_by_side(make_stack: Callable[..., Stack], gone: Gone) -> None:
    together = threading.Barrier(3)

    class Together(Tiny):
        def _command(self, java: Java) -> list[str]:
            together.wait(timeout=60)  # breaks unless all three come
            return super()._command(java)

    with make_stack(Together(), Together(), Together()) as stack:
        pids = [server.pid for server in stack.servers.values()]
        assert all(server.running for server in stack.servers.values())
    assert all(pid is not None and gone(pid) for pid in pids)


def test_one_failing_server_leaves_none_running(
    make_stack: Callable[..., Stack], gone: Gone, eventually: Eventually
) -> None:
    ready, slow = Tiny(), Tiny(moods=["slow"])
    pids: list[int | None] = []

    class FailsLast(Tiny):
        def _command(self, java: Java) -> list[str]:
            eventually(lambda: is_listening(ready.port("port")) and slow.pid)
            pids.extend([ready.pid, slow.pid])
            return super()._command(java)

    stack = make_stack(ready, FailsLast(moods=["broken"]), slow)
    with pytest.raises(StartupError) as caught:
        stack.start()
    assert "Error: broken on purpose" in (caught.value.why or "")  # the cause, not "was given up"
    assert len(pids) == 2
    assert all(pid is not None and gone(pid) for pid in pids)
    with stack:  # and it can be tried again
        assert all(server.running for server in stack.servers.values())


def test_the_gateway_waits_for_pulsar_and_for_nothing_else(make_stack: Callable[..., Stack]) -> None:
    gateway_is_up = threading.Event()
    ready: list[str] = []

    class AfterTheGateway(Tiny):
        def _command(self, java: Java) -> list[str]:
            assert gateway_is_up.wait(timeout=60)
            return super()._command(java)

    class AfterPulsar(Tiny):
        def _command(self, java: Java) -> list[str]:
            assert ready == ["pulsar"]
            return super()._command(java)

    def on_ready(name: str) -> None:
        ready.append(name)
        if name == "gateway":
            gateway_is_up.set()

    stack = make_stack()
    stack.servers = {"kafka": AfterTheGateway(), "pulsar": Tiny(), "gateway": AfterPulsar()}
    try:
        stack.start(on_ready=on_ready)
        assert ready == ["pulsar", "gateway", "kafka"]
    finally:
        stack.close()


def test_a_stack_that_is_killed_leaves_nothing(make_stack: Callable[..., Stack], gone: Gone) -> None:
    stack = make_stack(Tiny(), Tiny())
    stack.start()
    servers = list(stack.servers.values())
    left = [(server.pid, server.data) for server in servers]
    stack.kill()
    assert all(pid is not None and gone(pid) and not data.exists() for pid, data in left)


def test_a_gateway_whose_pulsar_fails_is_not_started(make_stack: Callable[..., Stack]) -> None:
    stack, gateway = make_stack(), Tiny()
    stack.servers = {"pulsar": Tiny(moods=["broken"]), "gateway": gateway}
    with pytest.raises(StartupError, match="tiny ended while starting"):
        stack.start()
    assert not gateway.tried


def test_ports_of_one_server_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([21_000, 21_000, 21_001])
    monkeypatch.setattr("penstock.embedded.server.choose_port", lambda fixed, setting: next(found))
    server = Kafka()
    assert (server.port("port"), server.port("controller-port")) == (21_000, 21_001)
