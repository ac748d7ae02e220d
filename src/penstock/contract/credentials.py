"""How to reach a server, and the one table that writes it as options of each client.

The contract says where, by which mechanism and whether with TLS; the context (penstock.yaml) says with what,
and may override all of it. Secrets stay masked until `reveal`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.config import Secret, Security
from penstock.errors import ConfigError

__all__ = ["Client", "Connection", "options", "reveal"]

Option = str | Secret
Options = Mapping[str, Option]


class Client(StrEnum):
    """The programs that need options."""

    CONFLUENT_KAFKA = "confluent-kafka"
    SPARK_KAFKA = "spark-kafka"
    PULSAR_REST = "pulsar-rest"
    SCHEMA_REGISTRY = "schema-registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a server is and how to prove who we are."""

    address: str
    """host:port for Kafka, a URL for the others."""
    admin: str | None = None
    """The URL of Pulsar's admin REST API."""
    tls: bool = False
    mechanism: str | None = None
    """The SASL mechanism; None without SASL."""
    token_url: str | None = None
    """Where OAUTHBEARER gets its tokens, by the flow of client credentials."""
    security: Security = Security()

    @property
    def protocol(self) -> str:
        """Kafka's security.protocol."""
        return _PROTOCOLS[self.mechanism is not None, self.tls]


_PROTOCOLS: Final = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


def options(connection: Connection, client: Client) -> Options:
    """Write a connection as the options of a client; options without a value are left out."""
    if _is_oauth(connection) and not all(_oauth_parts(connection)):
        raise ConfigError(
            f"{connection.address} wants OAUTHBEARER, and something is missing for it",
            next="give username (client id), password (client secret) and token_url in penstock.yaml",
        )
    if client in _KAFKA_CLIENTS and connection.mechanism in _LOGIN_MODULES and not _has_login(connection):
        raise ConfigError(
            f"{connection.address} wants a login by {connection.mechanism}, and there are no credentials",
            next="give username and password of this server in a context of penstock.yaml; "
            "for development: penstock dev up",
        )
    made = ((name, make(connection)) for name, make in _TABLE[client].items())
    return {name: value for name, value in made if value is not None}


def reveal(masked: Options) -> dict[str, str]:
    """Give the options with their secrets, to be handed to the client and to nobody else."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in masked.items()}


_KAFKA_CLIENTS: Final = (Client.CONFLUENT_KAFKA, Client.SPARK_KAFKA)
_Maker = Callable[[Connection], Option | None]


def _path(name: str) -> _Maker:
    def make(connection: Connection) -> str | None:
        path: Path | None = getattr(connection.security, name)
        return None if path is None else str(path)

    return make


def _content(name: str) -> _Maker:
    """The file's text: Java takes key and certificate from separate PEM texts, not from two files."""

    def make(connection: Connection) -> Secret | None:
        path: Path | None = getattr(connection.security, name)
        return None if path is None else Secret(lambda: _read(path))

    return make


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot read {path}", next="correct the path in penstock.yaml") from exc


def _only_if(condition: Callable[[Connection], object], value: str) -> _Maker:
    return lambda connection: value if condition(connection) else None


def _key_password(connection: Connection) -> Secret | None:
    return connection.security.key_password


def _is_oauth(connection: Connection) -> bool:
    return connection.mechanism == "OAUTHBEARER"


def _oauth_parts(connection: Connection) -> tuple[object, ...]:
    return connection.security.username, connection.security.password, connection.token_url


def _has_login(connection: Connection) -> bool:
    return connection.security.username is not None and _password(connection) is not None


def _if_oauth(make: _Maker) -> _Maker:
    return lambda connection: make(connection) if _is_oauth(connection) else None


def _username(connection: Connection) -> str | None:
    return connection.security.username if connection.mechanism and not _is_oauth(connection) else None


def _password(connection: Connection) -> Secret | None:
    """The password; a token takes its place as KoP and our gateway read it: `token:<jwt>`."""
    security = connection.security
    if connection.mechanism is None or _is_oauth(connection):
        return None
    if security.password is None and security.token is not None:
        return security.token.prefixed("token:")
    return security.password


# Kafka's login modules, by SASL mechanism.
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


_OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def _oauth_jaas(connection: Connection) -> Secret | None:
    client, secret = _escape(connection.security.username or ""), connection.security.password
    if secret is None:
        return None
    return Secret(
        lambda: f'{_OAUTH_MODULE} required clientId="{client}" clientSecret="{_escape(secret.reveal())}";'
    )


def _jaas(connection: Connection) -> Secret | None:
    if _is_oauth(connection):
        return _oauth_jaas(connection)
    module = _LOGIN_MODULES.get(connection.mechanism or "")
    password = _password(connection)
    if module is None or password is None:
        return None
    username = _escape(connection.security.username or "")
    return Secret(lambda: f'{module} required username="{username}" password="{_escape(password.reveal())}";')


def _escape(text: str) -> str:
    """Write a text inside the quotes of a JAAS option.

    >>> _escape('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _authorization(connection: Connection) -> Secret | None:
    security = connection.security
    if security.token is not None:
        token = security.token
        return Secret(lambda: f"Bearer {token.reveal()}")
    pair = _user_info(connection)
    return None if pair is None else Secret(lambda: f"Basic {_base64(pair.reveal())}")


def _user_info(connection: Connection) -> Secret | None:
    username, password = connection.security.username, connection.security.password
    if username is None or password is None:
        return None
    return Secret(lambda: f"{username}:{password.reveal()}")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _address(connection: Connection) -> str:
    return connection.address


def _hosts(connection: Connection) -> str:
    """Name the hosts of a service address such as pulsar://a:6650,b:6650, between commas."""
    hosts = connection.address.rpartition("//")[2].partition("/")[0].split(",")
    try:
        return ",".join(name for host in hosts if (name := urlsplit(f"//{host}").hostname))
    except ValueError:  # no address: the client that uses it says so
        return ""


def _has_ca(connection: Connection) -> bool:
    return connection.security.ca_file is not None


def _has_certificate(connection: Connection) -> bool:
    return connection.security.cert_file is not None


def _has_token(connection: Connection) -> bool:
    return connection.security.token is not None


_TABLE: Final[Mapping[Client, Mapping[str, _Maker]]] = {
    Client.CONFLUENT_KAFKA: {
        "bootstrap.servers": _address,
        "security.protocol": lambda connection: connection.protocol,
        "sasl.mechanism": lambda connection: connection.mechanism,
        "sasl.username": _username,
        "sasl.password": _password,
        "sasl.oauthbearer.method": _only_if(_is_oauth, "oidc"),
        "sasl.oauthbearer.client.id": _if_oauth(lambda connection: connection.security.username),
        "sasl.oauthbearer.client.secret": _if_oauth(lambda connection: connection.security.password),
        "sasl.oauthbearer.token.endpoint.url": _if_oauth(lambda connection: connection.token_url),
        "ssl.ca.location": _path("ca_file"),
        "ssl.certificate.location": _path("cert_file"),
        "ssl.key.location": _path("key_file"),
        "ssl.key.password": _key_password,
    },
    Client.SPARK_KAFKA: {
        "kafka.bootstrap.servers": _address,
        "kafka.security.protocol": lambda connection: connection.protocol,
        "kafka.sasl.mechanism": lambda connection: connection.mechanism,
        "kafka.sasl.jaas.config": _jaas,
        "kafka.sasl.login.callback.handler.class": _only_if(_is_oauth, _OAUTH_LOGIN),
        "kafka.sasl.oauthbearer.token.endpoint.url": _if_oauth(lambda connection: connection.token_url),
        "kafka.ssl.truststore.type": _only_if(_has_ca, "PEM"),
        "kafka.ssl.truststore.location": _path("ca_file"),
        "kafka.ssl.keystore.type": _only_if(_has_certificate, "PEM"),
        "kafka.ssl.keystore.certificate.chain": _content("cert_file"),
        "kafka.ssl.keystore.key": _content("key_file"),
        "kafka.ssl.key.password": _key_password,
    },
    Client.PULSAR_REST: {
        "url": lambda connection: connection.admin,
        "hosts": _hosts,
        "authorization": _authorization,
        "ca_file": _path("ca_file"),
        "cert_file": _path("cert_file"),
        "key_file": _path("key_file"),
        "key_password": _key_password,
    },
    Client.SCHEMA_REGISTRY: {
        "url": _address,
        "basic.auth.user.info": _user_info,
        "bearer.auth.credentials.source": _only_if(_has_token, "STATIC_TOKEN"),
        "bearer.auth.token": lambda connection: connection.security.token,
        # Confluent's client asks for it with every token; registries that are not its cloud ignore it.
        "bearer.auth.logical.cluster": _only_if(_has_token, "default"),
        "ssl.ca.location": _path("ca_file"),
        "ssl.certificate.location": _path("cert_file"),
        "ssl.key.location": _path("key_file"),
        "ssl.key.password": _key_password,
    },
}
