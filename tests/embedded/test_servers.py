"""Every embedded server: loopback only, data that survives, ports that stay, faults that say their cause."""

from __future__ import annotations

import ipaddress
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import psutil
import pulsar as pulsar_client
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.kafka import Kafka
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.registry import Registry
from penstock.embedded.server import Server
from penstock.errors import MachineError, PortTaken

pytestmark = pytest.mark.server

TOPIC = "survives"


# How something is put into a server of each kind and everything is read back.


def put_into_kafka(server: Kafka, value: str) -> None:
    producer = confluent_kafka.Producer(server.client_options() | {"acks": "all"})
    failures: list[object] = []
    producer.produce(TOPIC, value, on_delivery=lambda err, _msg: failures.append(err))
    assert producer.flush(60) == 0
    assert failures == [None]


def read_kafka(server: Kafka) -> list[str]:
    if TOPIC not in AdminClient(server.client_options()).list_topics(timeout=60).topics:
        return []
    options = server.client_options() | {"group.id": "reads", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(options)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    values = []
    try:
        while (message := consumer.poll(60)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return values
            values.append(message.value().decode())
    finally:
        consumer.close()
    pytest.fail("no end of the partition within a minute")


def prepare_kafka(server: Kafka) -> None:
    admin = AdminClient(server.client_options())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)


def put_into_pulsar(server: Pulsar, value: str) -> None:
    client = pulsar_client.Client(server.service_url)
    client.create_producer(TOPIC).send(value.encode())
    client.close()


def read_pulsar(server: Pulsar) -> list[str]:
    client = pulsar_client.Client(server.service_url)
    reader = client.create_reader(TOPIC, pulsar_client.MessageId.earliest)
    values = []
    while reader.has_message_available():
        values.append(reader.read_next(60_000).data().decode())
    client.close()
    return values


def put_into_registry(server: Registry, value: str) -> None:
    schema = {"schema": json.dumps({"type": "record", "name": value, "fields": []})}
    request = urllib.request.Request(
        f"{server.url}/subjects/{value}-value/versions",
        data=json.dumps(schema).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert "id" in json.load(answer)


def read_registry(server: Registry) -> list[str]:
    with urllib.request.urlopen(f"{server.url}/subjects", timeout=60) as answer:
        return sorted(subject.removesuffix("-value") for subject in json.load(answer))


@dataclass(frozen=True)
class Kind:
    """What a test needs to know of a kind of server; `vital` is a file without which it cannot live."""

    make: Callable[..., Server]
    put: Callable[..., None]
    read: Callable[..., list[str]]
    vital: str
    prepare: Callable[..., None] = lambda server: None
    folder: str = "a 'folder'"


KINDS = {
    "kafka": Kind(Kafka, put_into_kafka, read_kafka, "meta.properties", prepare_kafka),
    "pulsar": Kind(Pulsar, put_into_pulsar, read_pulsar, "bookkeeper/current/VERSION", folder="plain"),
    "registry": Kind(Registry, put_into_registry, read_registry, "registry.mv.db"),
}


@pytest.fixture(params=["kafka", pytest.param("pulsar", marks=pytest.mark.soak), "registry"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.mark.slow
def test_data_and_ports_survive_a_stop_and_a_crash(kind: Kind, tmp_path: Path) -> None:
    with kind.make(data=tmp_path / kind.folder) as server:
        addresses = server.addresses
        kind.prepare(server)
        kind.put(server, "first")
        server.stop()
        server.start()
        assert server.addresses == addresses
        kind.put(server, "second")
        server.kill()
        server.start()
        assert server.addresses == addresses
        assert kind.read(server) == ["first", "second"]


@pytest.mark.slow
def test_a_broken_data_folder_says_so_and_wipe_mends_it(
    kind: Kind, tmp_path: Path, leftovers: Callable[[], set[int]]
) -> None:
    vital = tmp_path / "data" / kind.vital
    vital.parent.mkdir(parents=True)
    vital.write_bytes(b"\x00garbage\xff" * 1000)
    server = kind.make(data=tmp_path)
    with pytest.raises(MachineError) as caught:
        server.start()
    assert server.name in caught.value.what
    assert caught.value.where is not None
    assert str(tmp_path) in caught.value.where
    assert "Exception" in (caught.value.why or "")
    assert leftovers() == set()
    with kind.make(data=tmp_path, wipe=True) as mended:
        assert kind.read(mended) == []


def test_a_bookie_port_that_is_taken_names_what_helps(tmp_path: Path, taken: int) -> None:
    cookie = tmp_path / "data" / KINDS["pulsar"].vital
    cookie.parent.mkdir(parents=True)
    cookie.write_text(f'5\nbookieHost: "127.0.0.1:{taken}"\n')
    with pytest.raises(PortTaken, match=str(taken)) as caught:
        Pulsar(data=tmp_path).start()
    assert "start with wipe" in (caught.value.next or "")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_start_that_takes_too_long_leaves_nothing(
    kind: Kind, tmp_path: Path, leftovers: Callable[[], set[int]]
) -> None:
    server = kind.make(data=tmp_path, start_timeout=0.5)
    with pytest.raises(MachineError, match=rf"{server.name} was not ready within 0 s"):
        server.start()
    assert leftovers() == set()


@pytest.mark.parametrize("name", ["kafka", "pulsar", "registry", "secured_kafka", "secured_pulsar"])
def test_every_socket_is_on_loopback(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    sockets = psutil.Process(server.pid).net_connections(kind="tcp")
    listening = [opened.laddr for opened in sockets if opened.status == psutil.CONN_LISTEN]
    assert {server.port(name) for name in server._wanted_ports} <= {address.port for address in listening}
    assert [address for address in listening if not is_loopback(address.ip)] == []


def is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def test_a_running_server_keeps_its_port(kafka: Kafka, pulsar: Pulsar, registry: Registry) -> None:
    ports = (kafka.port("port"), pulsar.port("port"), pulsar.port("http-port"), registry.port("port"))
    others = (
        Kafka(port=ports[0]),
        Pulsar(port=ports[1]),
        Pulsar(http_port=ports[2]),
        Registry(port=ports[3]),
    )
    for port, other in zip(ports, others, strict=True):
        with pytest.raises(PortTaken, match=str(port)):
            other.start()


def test_readiness_asks_no_proxy(pulsar: Pulsar, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert pulsar._is_ready()
    assert registry._is_ready()


def test_no_server_fills_the_disk_with_its_log(kafka: Kafka, pulsar: Pulsar) -> None:
    for server in (kafka, pulsar):
        text = (server.data / "conf" / "log4j2.xml").read_text()
        assert 'size="20 MB"' in text
        assert 'max="2"' in text


def test_ctrl_c_while_a_stack_starts(
    leftovers: Callable[[], set[int]], eventually: Callable[..., None]
) -> None:
    code = "import sys; from penstock.cli.app import main; sys.exit(main(['demo']))"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as demo:
        # The command, and two guards each with its server.
        eventually(lambda: len(leftovers()) >= 5)
        started = leftovers()
        demo.send_signal(signal.SIGINT)
        _, talk = demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert "Traceback" not in talk
    # What was killed and has lost its parent is removed by the first process of the machine, in its own time.
    eventually(lambda: not [pid for pid in started if psutil.pid_exists(pid)])
