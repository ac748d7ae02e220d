"""How a cluster is reached and how patient the client is, read from options as librdkafka names them.

Passwords are fields without a repr: they travel in a pickle to a worker and are shown nowhere. One that came
from a file is read again for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.brokers.kafka_raw.address import Address, parse_addresses
from penstock.config import Revealed
from penstock.errors import ConfigError

__all__ = ["MECHANISMS", "OAUTHBEARER", "Settings"]

_MIB = 1024 * 1024
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
_PROTOCOLS: Final[Mapping[str, bool]] = {
    "PLAINTEXT": False,
    "SSL": True,
    "SASL_PLAINTEXT": False,
    "SASL_SSL": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses and credentials; times in seconds, sizes in bytes.

    >>> Settings.of({"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN",
    ...              "sasl.username": "me", "sasl.password": "hidden"}).username
    'me'
    """

    bootstrap: tuple[Address, ...]
    tls: bool = False
    mechanism: str | None = None
    username: str | None = None
    """With OAUTHBEARER the id of the client, whose secret is the password."""
    password: str | None = field(default=None, repr=False)
    token_url: str | None = None
    """Where OAUTHBEARER gets its tokens."""
    scope: str | None = None
    """What an access token shall be good for, as its endpoint calls it."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    client_id: str = "penstock"
    proven: bool = False
    """Whether these credentials have worked: a password that is refused later is being changed."""
    connect_timeout: float = 10.0
    """For TCP, TLS and the login together."""
    request_timeout: float = 30.0
    """For the answer to one request, on top of the time that the broker was allowed to wait."""
    deadline: float = 60.0
    """For what is asked, all attempts together, and for how long a partition may be without a leader."""
    stop_timeout: float = 10.0
    """For a broker that is away, from when the end was asked for."""
    topic_timeout: float = 15.0
    """For a topic to be known to the cluster: a new one takes a moment."""
    max_answer_bytes: int = 128 * _MIB
    """The largest answer taken from a broker."""

    @property
    def changes(self) -> bool:
        """Whether the password may change while a client lives."""
        return isinstance(self.password, Revealed)

    @classmethod
    def of(cls, options: Mapping[str, str], **more: Any) -> Self:
        """Read librdkafka's options; `more` are fields of this class. Raises ConfigError."""
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(f"the raw Kafka client has no option {unknown[0]}", next="leave it out")
        fields: dict[str, Any] = dict(_OPTIONS[name](value) for name, value in options.items())
        settings = cls(**fields | more)
        _check(settings)
        return settings


def _check(settings: Settings) -> None:
    if settings.mechanism is None:
        return
    if settings.mechanism not in MECHANISMS:
        raise ConfigError(
            f"the raw Kafka client cannot log in by {settings.mechanism}",
            why=f"it knows {', '.join(MECHANISMS)}",
            next="choose one of them, or another engine",
        )
    if settings.mechanism == OAUTHBEARER and not _is_url(settings.token_url):
        raise ConfigError("OAUTHBEARER needs the http(s) address of a token endpoint", next="give token_url")
    if settings.username is None or settings.password is None:
        raise ConfigError(f"{settings.mechanism} needs a username and a password", next="give both")


def _is_url(text: str | None) -> bool:
    return text is not None and text.lower().startswith(("https://", "http://"))


def _protocol(value: str) -> tuple[str, object]:
    if value.upper() not in _PROTOCOLS:
        raise ConfigError(f"'{value}' is no security.protocol", next=f"use one of {', '.join(_PROTOCOLS)}")
    return "tls", _PROTOCOLS[value.upper()]


def _oauth_method(value: str) -> tuple[str, object]:
    if value != "oidc":
        raise ConfigError(
            f"'{value}' is no way to get tokens that the raw Kafka client knows", next="use oidc"
        )
    return "mechanism", OAUTHBEARER


def _as(name: str) -> Callable[[str], tuple[str, object]]:
    return lambda value: (name, value)


_OPTIONS: Final[Mapping[str, Callable[[str], tuple[str, object]]]] = {
    "bootstrap.servers": lambda value: ("bootstrap", parse_addresses(value)),
    "security.protocol": _protocol,
    "sasl.mechanism": _as("mechanism"),
    "sasl.username": _as("username"),
    "sasl.password": _as("password"),
    "sasl.oauthbearer.method": _oauth_method,
    "sasl.oauthbearer.client.id": _as("username"),
    "sasl.oauthbearer.client.secret": _as("password"),
    "sasl.oauthbearer.token.endpoint.url": _as("token_url"),
    "sasl.oauthbearer.scope": _as("scope"),
    "ssl.ca.location": _as("ca_file"),
    "ssl.certificate.location": _as("cert_file"),
    "ssl.key.location": _as("key_file"),
    "ssl.key.password": _as("key_password"),
    "client.id": _as("client_id"),
}
