"""One connection as the options of each client; secrets stay masked until they are revealed."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config import Secret, Security
from penstock.contract.credentials import Client, Connection, options, reveal
from penstock.errors import ConfigError

SCRAM = Connection(
    address="host:9093",
    tls=True,
    mechanism="SCRAM-SHA-512",
    security=Security(username="me", password=Secret('p"w\\'), ca_file=Path("/ca.pem")),
)


def test_confluent_kafka() -> None:
    assert reveal(options(SCRAM, Client.CONFLUENT_KAFKA)) == {
        "bootstrap.servers": "host:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'p"w\\',
        "ssl.ca.location": "/ca.pem",
    }


def test_spark_writes_jaas_with_escapes() -> None:
    made = reveal(options(SCRAM, Client.SPARK_KAFKA))
    assert made["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="p\\"w\\\\";'
    )
    assert made["kafka.ssl.truststore.type"] == "PEM"
    assert made["kafka.ssl.truststore.location"] == "/ca.pem"


def test_spark_takes_certificate_and_key_as_text(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("CERT")
    (tmp_path / "key.pem").write_text("KEY")
    security = Security(cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
    made = options(Connection(address="h:1", tls=True, security=security), Client.SPARK_KAFKA)
    assert "KEY" not in repr(made)
    assert reveal(made)["kafka.ssl.keystore.key"] == "KEY"
    assert reveal(made)["kafka.ssl.keystore.certificate.chain"] == "CERT"
    missing = Security(cert_file=tmp_path / "none.pem")
    with pytest.raises(ConfigError):
        reveal(options(Connection(address="h:1", tls=True, security=missing), Client.SPARK_KAFKA))


def test_a_token_is_the_password_of_the_gateway() -> None:
    connection = Connection(
        address="h:1", mechanism="PLAIN", security=Security(username="public/default", token=Secret("jwt"))
    )
    assert reveal(options(connection, Client.CONFLUENT_KAFKA))["sasl.password"] == "token:jwt"


def test_pulsar_rest_has_bearer_or_basic() -> None:
    token = Connection(
        address="pulsar://h:6650,[::1]:6650", admin="http://h:8080", security=Security(token=Secret("jwt"))
    )
    assert reveal(options(token, Client.PULSAR_REST)) == {
        "url": "http://h:8080",
        "hosts": "h,::1",
        "authorization": "Bearer jwt",
    }
    basic = Connection(
        address="pulsar://h", admin="http://h:8080", security=Security(username="u", password=Secret("p"))
    )
    authorization = reveal(options(basic, Client.PULSAR_REST))["authorization"]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"u:p"


def test_schema_registry() -> None:
    basic = Connection(address="http://r", security=Security(username="u", password=Secret("p")))
    assert reveal(options(basic, Client.SCHEMA_REGISTRY)) == {
        "url": "http://r",
        "basic.auth.user.info": "u:p",
    }
    registry = pytest.importorskip("confluent_kafka.schema_registry")
    token = Connection(address="http://r", security=Security(token=Secret("jwt")))
    for connection in (basic, token):
        registry.SchemaRegistryClient(reveal(options(connection, Client.SCHEMA_REGISTRY)))


def test_no_credentials_without_sasl() -> None:
    connection = Connection(address="h:1", security=Security(username="u", password=Secret("p")))
    assert reveal(options(connection, Client.CONFLUENT_KAFKA)) == {
        "bootstrap.servers": "h:1",
        "security.protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize("client", Client)
def test_no_option_shows_a_secret(client: Client) -> None:
    security = Security(
        username="me", password=Secret("hunter2"), token=Secret("sesame"), key_password=Secret("swordfish")
    )
    shown = repr(options(Connection(address="h:1", mechanism="PLAIN", security=security), client))
    assert not any(secret in shown for secret in ("hunter2", "sesame", "swordfish"))


OAUTH = Connection(
    address="host:9093",
    tls=True,
    mechanism="OAUTHBEARER",
    token_url="https://login.example.com/token",
    security=Security(username="app", password=Secret("s3cret")),
)


def test_oauthbearer_is_the_flow_of_client_credentials() -> None:
    confluent, spark = options(OAUTH, Client.CONFLUENT_KAFKA), options(OAUTH, Client.SPARK_KAFKA)
    assert "s3cret" not in repr((confluent, spark))
    assert reveal(confluent) == {
        "bootstrap.servers": "host:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    }
    assert reveal(spark)["kafka.sasl.jaas.config"].endswith('clientId="app" clientSecret="s3cret";')
    assert reveal(spark)["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.example.com/token"


def test_librdkafka_knows_these_options() -> None:
    from confluent_kafka.admin import AdminClient

    AdminClient(dict(reveal(options(OAUTH, Client.CONFLUENT_KAFKA))))


def test_oauthbearer_without_a_token_endpoint_says_so() -> None:
    with pytest.raises(ConfigError, match="something is missing") as caught:
        options(replace(OAUTH, token_url=None), Client.CONFLUENT_KAFKA)
    assert "token_url" in str(caught.value.next)


@pytest.mark.parametrize("client", [Client.CONFLUENT_KAFKA, Client.SPARK_KAFKA])
@pytest.mark.parametrize("security", [Security(), Security(username="me"), Security(password=Secret("x"))])
def test_a_login_without_credentials_is_told_before_a_client_is_made(
    client: Client, security: Security
) -> None:
    with pytest.raises(ConfigError, match="h:1 wants a login by SCRAM-SHA-512") as refused:
        options(Connection(address="h:1", mechanism="SCRAM-SHA-512", security=security), client)
    assert "penstock dev up" in (refused.value.next or "")
