"""The secured servers: who has credentials comes in, nobody else does, and secrets stay where they belong."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import psutil
import pulsar as pulsar_client
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.embedded.certificates import make_certificates
from penstock.embedded.kafka import Kafka
from penstock.embedded.private import write_private
from penstock.embedded.pulsar import Pulsar
from penstock.embedded.server import Server
from penstock.wire.pulsar.pulsar_pb2 import AUTHENTICATION_ERROR, BaseCommand, CommandConnect

KafkaError = Callable[[dict[str, object]], confluent_kafka.KafkaError]

# Kafka


@pytest.fixture
def kafka_error(eventually: Callable[..., None]) -> KafkaError:
    """Give the first error of a client that is turned away."""

    def first(options: dict[str, object]) -> confluent_kafka.KafkaError:
        errors: list[confluent_kafka.KafkaError] = []
        admin = AdminClient(options | {"error_cb": errors.append})
        eventually(lambda: admin.poll(0.05) or errors)
        return errors[0]

    return first


@pytest.mark.server
def test_kafka_lets_the_admin_in(secured_kafka: Kafka) -> None:
    topic = f"secured-{uuid.uuid4().hex}"
    admin = AdminClient(secured_kafka.client_options())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    producer = confluent_kafka.Producer(secured_kafka.client_options())
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0


@pytest.mark.server
def test_kafka_refuses_a_wrong_password(secured_kafka: Kafka, kafka_error: KafkaError) -> None:
    options = secured_kafka.client_options() | {"sasl.password": "wrong"}
    assert kafka_error(options).code() == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.server
def test_kafka_refuses_an_unknown_user(secured_kafka: Kafka, kafka_error: KafkaError) -> None:
    options = secured_kafka.client_options() | {"sasl.username": "nobody"}
    assert kafka_error(options).code() == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.server
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_kafka_refuses_who_has_no_credentials(
    secured_kafka: Kafka, protocol: str, kafka_error: KafkaError
) -> None:
    options = {
        "bootstrap.servers": secured_kafka.bootstrap,
        "security.protocol": protocol,
        "ssl.ca.location": str(secured_kafka.ca_file),
    }
    assert kafka_error(options)


@pytest.mark.server
def test_kafka_is_who_it_says(secured_kafka: Kafka, tmp_path: Path, kafka_error: KafkaError) -> None:
    other = make_certificates(tmp_path).authority
    options = secured_kafka.client_options() | {"ssl.ca.location": str(other)}
    assert "certificate verify failed" in kafka_error(options).str()


@pytest.mark.server
def test_kafka_asks_its_authorizer(secured_kafka: Kafka) -> None:
    guest = AdminClient(secured_kafka.client_options("guest"))
    topic = f"secured-{uuid.uuid4().hex}"
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        guest.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    assert caught.value.args[0].code() in (
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )


# Pulsar


def produce(server: Pulsar, authentication: object = None, ca_file: Path | None = None) -> None:
    client = pulsar_client.Client(
        server.service_url,
        authentication=authentication,
        tls_trust_certs_file_path=str(ca_file or server.ca_file),
        tls_validate_hostname=True,
        operation_timeout_seconds=20,
        connection_timeout_ms=10_000,
    )
    try:
        client.create_producer(f"public/default/secured-{uuid.uuid4().hex}").send(b"value")
    finally:
        client.close()


def with_token(token: str) -> object:
    return pulsar_client.AuthenticationToken(token)


@pytest.mark.server
def test_pulsar_lets_the_admin_in(secured_pulsar: Pulsar) -> None:
    produce(secured_pulsar, with_token(secured_pulsar.token()))


def handshake(server: Pulsar, token: str | None) -> BaseCommand:
    """Give Pulsar's answer to CONNECT; its own client hides a refusal behind tries until a time-out."""
    method = {"auth_method_name": "token", "auth_data": token.encode()} if token is not None else {}
    connect = CommandConnect(client_version="test", protocol_version=21, **method)
    command = BaseCommand(type=BaseCommand.CONNECT, connect=connect).SerializeToString()
    context = ssl.create_default_context(cafile=str(server.ca_file))
    with (
        socket.create_connection(("127.0.0.1", server.port("port")), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        tls.makefile("rb") as answers,
    ):
        tls.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
        _total, size = struct.unpack(">II", answers.read(8))
        return BaseCommand.FromString(answers.read(size))


@pytest.mark.server
def test_pulsar_takes_a_token(secured_pulsar: Pulsar) -> None:
    assert handshake(secured_pulsar, secured_pulsar.token()).type == BaseCommand.CONNECTED


@pytest.mark.server
def test_pulsar_refuses_who_has_no_token(secured_pulsar: Pulsar) -> None:
    assert handshake(secured_pulsar, None).error.error == AUTHENTICATION_ERROR


def forged(server: Pulsar) -> str:
    head, body, _ = server.token().split(".")
    return f"{head}.{body}.{base64.urlsafe_b64encode(bytes(32)).decode().rstrip('=')}"


def unsigned(server: Pulsar) -> str:
    _, body, _ = server.token().split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
    return f"{head}.{body}."


@pytest.mark.server
@pytest.mark.parametrize("make", [forged, unsigned, lambda _server: "no token"])
def test_pulsar_refuses_a_wrong_token(secured_pulsar: Pulsar, make: Callable[[Pulsar], str]) -> None:
    assert handshake(secured_pulsar, make(secured_pulsar)).error.error == AUTHENTICATION_ERROR


@pytest.mark.server
def test_pulsar_refuses_a_role_without_rights(secured_pulsar: Pulsar) -> None:
    with pytest.raises(pulsar_client.PulsarException, match="Authorization"):
        produce(secured_pulsar, with_token(secured_pulsar.token("guest")))


@pytest.mark.server
def test_pulsar_is_who_it_says(secured_pulsar: Pulsar, tmp_path: Path) -> None:
    other = make_certificates(tmp_path).authority
    with pytest.raises(pulsar_client.PulsarException):
        produce(secured_pulsar, with_token(secured_pulsar.token()), other)


@pytest.mark.server
@pytest.mark.parametrize(
    ("role", "code"), [("admin", 200), ("guest", 401), (None, 401)], ids=["admin", "guest", "nobody"]
)
def test_pulsars_admin_api(secured_pulsar: Pulsar, role: str | None, code: int) -> None:
    request = urllib.request.Request(f"{secured_pulsar.admin_url}/admin/v2/tenants")
    if role:
        request.add_header("Authorization", f"Bearer {secured_pulsar.token(role)}")
    context = ssl.create_default_context(cafile=str(secured_pulsar.ca_file))
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            got = answer.status
    except urllib.error.HTTPError as exc:
        got = exc.code
        exc.close()
    assert got == code


# Secrets


def secrets_of(server: Server) -> list[bytes]:
    conf = server.data / "conf"
    if isinstance(server, Kafka):
        words = [server.password("admin").encode(), server.password("guest").encode()]
    else:
        assert isinstance(server, Pulsar)
        key = (conf / "token.key").read_bytes()
        words = [key, key.hex().encode(), base64.b64encode(key), server.token().encode()]
    pem = (conf / "server.key").read_bytes().splitlines()
    return [*words, pem[1]]


@pytest.mark.server
@pytest.mark.parametrize("name", ["secured_kafka", "secured_pulsar"])
def test_secrets_are_in_files_of_their_owner_only(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    secrets = secrets_of(server)
    holders = set()
    for path in server.data.rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if any(secret in content for secret in secrets):
            assert path.stat().st_mode & 0o077 == 0, path
            assert path.suffix not in (".log", ".out"), path
            holders.add(path.name)
    assert {"server.key"} < holders


@pytest.mark.server
@pytest.mark.parametrize("name", ["secured_kafka", "secured_pulsar"])
def test_secrets_are_in_no_command_line_and_no_environment(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    process = psutil.Process(server.pid)
    for each in (process, *process.parents()[:1]):
        shown = (
            Path(f"/proc/{each.pid}/cmdline").read_bytes() + Path(f"/proc/{each.pid}/environ").read_bytes()
        )
        assert b"java" in shown
        assert not [secret for secret in secrets_of(server) if secret in shown]


def test_a_private_file_is_private_even_if_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o666)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_certificates_are_made_once(tmp_path: Path) -> None:
    first = make_certificates(tmp_path)
    content = first.chain.read_bytes()
    assert make_certificates(tmp_path) == first
    assert first.chain.read_bytes() == content
    assert first.key.stat().st_mode & 0o777 == first.chain.stat().st_mode & 0o777 == 0o600
