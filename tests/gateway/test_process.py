"""A gateway as a process: what it says, how it ends, what operators see; on a real Pulsar."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.brokers.pulsar import Host
from penstock.embedded.gateway import Gateway as GatewayServer
from penstock.embedded.ports import choose_port
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.stack import Stack
from penstock.errors import MachineError, PortTaken, Unreachable, UsageError
from penstock.gateway.process import Gateway, Listener, Options, _listen, guess_admin

COMMAND = [sys.executable, "-m", "penstock.cli", "gateway"]
ALONE = {"group.id": "alone", "session.timeout.ms": 1000, "heartbeat.interval.ms": 300, "log_level": 0}


# Without a server


def test_the_admin_address_is_guessed() -> None:
    assert guess_admin("pulsar://h:1234") == "http://h:8080"
    assert guess_admin("pulsar+ssl://h") == "https://h:8443"


def test_a_taken_port_is_told() -> None:
    async def listen(port: int) -> None:
        async def start(host: str, port: int) -> tuple[str, int]:
            server = await asyncio.start_server(lambda *_: None, host, port)
            server.close()
            return server.sockets[0].getsockname()[:2]

        await _listen(start, Host("127.0.0.1", port))

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken, match="is taken"):
        asyncio.run(listen(taken.getsockname()[1]))


def test_an_address_of_another_machine() -> None:
    async def start(host: str, port: int) -> tuple[str, int]:
        await asyncio.start_server(lambda *_: None, host, port)
        raise AssertionError("192.0.2.1 is for documentation")

    with pytest.raises(MachineError, match=r"cannot listen on 192\.0\.2\.1:1"):
        asyncio.run(_listen(start, Host("192.0.2.1", 1)))


def test_a_stack_without_pulsar_has_no_gateway() -> None:
    with pytest.raises(UsageError, match="this stack has no pulsar"):
        Stack(servers=["kafka", "gateway"])


# On a real Pulsar


class Process:
    """`penstock gateway` as a child, its log in a file."""

    def __init__(self, pulsar: Pulsar, log: Path, *words: str) -> None:
        self.log = log
        where = ["--pulsar", pulsar.service_url, "--admin", pulsar.admin_url]
        with log.open("wb") as out:
            self._process = subprocess.Popen([*COMMAND, *where, *words], stderr=out, stdout=out)

    def said(self, pattern: str, within: float = 60.0) -> re.Match[str]:
        """Wait until the log matches."""
        deadline = time.monotonic() + within
        while (found := re.search(pattern, self.log.read_text())) is None:
            assert time.monotonic() < deadline, self.log.read_text()
            assert self._process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        return found

    def end(self, signum: signal.Signals) -> int:
        self._process.send_signal(signum)
        return self._process.wait(timeout=30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def start(pulsar: Pulsar, tmp_path: Path) -> Iterator[type]:
    started: list[Process] = []

    def begin(*words: str) -> Process:
        started.append(Process(pulsar, tmp_path / f"{len(started)}.log", *words))
        return started[-1]

    yield begin  # type: ignore[misc]
    for process in started:
        process.kill()


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


@pytest.mark.server
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_its_life(start: type, signum: signal.Signals, code: int) -> None:
    process = start("--listen", "127.0.0.1:0", "--metrics-listen", "0")
    greeting = process.said(
        r"Kafka clients on (\S+), metrics on (http://\S+)/metrics; pulsar://\S+ .* uvloop"
    )
    produce(greeting[1], f"life-{code}", b"one", b"two")
    assert page(f"{greeting[2]}/healthz") == (200, "ok\n")
    assert page(f"{greeting[2]}/readyz") == (200, "ready\n")
    metrics = page(f"{greeting[2]}/metrics")[1]
    assert re.search(
        r'^penstock_gateway_requests_total\{api="Produce",version="\d+"\} \d', metrics, re.MULTILINE
    )
    assert re.search(r'^penstock_gateway_offsets_total\{how="learnt"\} [1-9]', metrics, re.MULTILINE)
    assert re.search(r"^penstock_gateway_connections_opened_total [1-9]", metrics, re.MULTILINE)
    assert process.end(signum) == code
    said = process.log.read_text()
    assert "draining" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


def only_node(bootstrap: str) -> tuple[int, str, int]:
    """Ask with Metadata v1; a client library would already look for the host that it is told."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as link, link.makefile("rwb") as stream:
        stream.write(struct.pack(">ihhihi", 14, 3, 1, 1, -1, -1))
        stream.flush()
        answer = stream.read(int.from_bytes(stream.read(4), "big"))
    _, count, number, size = struct.unpack_from(">iiih", answer)
    assert count == 1
    return number, answer[14 : 14 + size].decode(), int.from_bytes(answer[14 + size : 18 + size], "big")


@pytest.mark.server
def test_each_listener_tells_its_own_address(start: type) -> None:
    process = start(
        *("--listen", "127.0.0.1:0", "--advertise", "first.example:19092"),
        *("--listen", "127.0.0.1:0", "--advertise", "second.example:0", "--node-id", "7"),
    )
    found = process.said(r"node 7: Kafka clients on (\S+) \(as (\S+)\), (\S+) \(as (\S+)\);")
    second_port = int(found[3].rpartition(":")[2])
    expected = {found[1]: ("first.example", 19092), found[3]: ("second.example", second_port)}
    for bootstrap, (host, port) in expected.items():
        assert only_node(bootstrap) == (7, host, port)


@pytest.mark.server
def test_requests_are_logged_at_debug(start: type) -> None:
    process = start("--listen", "127.0.0.1:0", "-v", "-v")
    bootstrap = process.said(r"Kafka clients on (\S+);")[1]
    AdminClient({"bootstrap.servers": bootstrap, "client.id": "me", "log_level": 0}).list_topics(timeout=20)
    process.said(
        r"DEBUG penstock.gateway.clients: request peer=\S+.* client=me id=\d+ api=Metadata version=\d+ in=\d+"
    )


@pytest.mark.server
def test_a_taken_port_ends_it(pulsar: Pulsar, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = Process(pulsar, tmp_path / "log", "--listen", f"127.0.0.1:{port}")
        assert process._process.wait(timeout=60) == 1
    assert f"error[PK103] 127.0.0.1:{port} is taken" in process.log.read_text()


@pytest.mark.server
def test_a_free_port_that_is_lost_is_replaced(pulsar: Pulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lost = [taken.getsockname()[1]]
        monkeypatch.setattr(
            "penstock.embedded.server.choose_port",
            lambda fixed, *, setting: lost.pop() if lost else choose_port(fixed, setting=setting),
        )
        with GatewayServer(pulsar) as gateway:
            admin = AdminClient({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
            assert admin.list_topics(timeout=20).brokers
    assert lost == []


@pytest.mark.server
def test_a_start_that_fails_leaves_nothing_open(pulsar: Pulsar) -> None:
    async def attempt(port: int) -> Gateway:
        listeners = tuple(Listener(address=Host("127.0.0.1", each)) for each in (0, port))
        options = Options(pulsar=pulsar.service_url, admin=pulsar.admin_url, listeners=listeners)
        gateway = Gateway(options)
        with pytest.raises(PortTaken):
            await gateway.start()
        return gateway

    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway = asyncio.run(attempt(taken.getsockname()[1]))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(gateway.addresses[0], timeout=5)


@pytest.mark.server
def test_an_admin_address_that_was_guessed_wrong(pulsar: Pulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr("penstock.gateway.process.guess_admin", lambda _: nowhere)

    async def attempt() -> None:
        await Gateway(Options(pulsar=pulsar.service_url)).start()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(attempt())
    assert "guessed from pulsar://" in (caught.value.why or "")
    assert caught.value.next == "give it by --admin URL"


@pytest.mark.server
def test_a_secured_pulsar_wants_a_token_and_its_authority(secured_pulsar: Pulsar, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("no token at all\n")
    trust = ("--pulsar-ca-file", str(secured_pulsar.ca_file), "--pulsar-token-file", str(token))
    refused = Process(secured_pulsar, tmp_path / "refused", "--listen", "127.0.0.1:0", *trust)
    assert refused._process.wait(timeout=60) == 1
    assert "error[PK407]" in refused.log.read_text()
    stranger = Process(secured_pulsar, tmp_path / "stranger", "--listen", "127.0.0.1:0", *trust[2:])
    assert stranger._process.wait(timeout=60) in (1, 5)
    assert "certificate" in stranger.log.read_text()
    token.write_text(secured_pulsar.token() + "\n")
    with GatewayServer(secured_pulsar) as gateway:
        produce(gateway.bootstrap, "secured", b"value")
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, **ALONE})
        consumer.assign([TopicPartition("secured", 0, 0)])
        message = consumer.poll(30)
        assert message is not None and message.value() == b"value"
        consumer.close()
        os.kill(gateway.pid or 0, signal.SIGTERM)
