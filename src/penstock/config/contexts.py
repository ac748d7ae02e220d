"""A context: the servers of one environment with their credentials, found by name.

Each server is put together when it is asked for, so that a missing password of one does not stop a
command that talks to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.config.keys import did_you_mean
from penstock.config.secret import Secret, mask_address
from penstock.config.values import Value
from penstock.errors import ConfigError

__all__ = ["Context", "Security", "Server"]

Values = Mapping[tuple[str, ...], Value]
"""The values of one part, by what is left of their path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Credentials and TLS files; None is not set."""

    protocol: str | None = None
    mechanism: str | None = None
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    token_url: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None

    @property
    def uses_tls(self) -> bool:
        """Say whether the protocol, or a certificate file when no protocol is named, asks for TLS."""
        if self.protocol is not None:
            return self.protocol.endswith("ssl")
        return self.ca_file is not None or self.cert_file is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One thing to connect to."""

    name: str
    kind: str
    """kafka, pulsar, registry or gateway."""
    address: str
    admin: str | None = None
    security: Security = Security()
    origin: str = ""
    """Where its address was set."""

    @property
    def says_tls(self) -> bool:
        """Say whether the address itself says if there is TLS: only Pulsar's schemes do."""
        return self.kind == "pulsar" and self.address.startswith(_PULSAR_SCHEMES)

    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Give host and port of every part of the address.

        >>> Server(name="k", kind="kafka", address="a:9093,[::1]").endpoints()
        (('a', 9093), ('::1', 9092))
        """
        scheme, _, rest = self.address.rpartition("://")
        hosts = rest.partition("/")[0].split(",")
        return tuple(self._endpoint(host.strip(), _DEFAULT_PORTS.get(scheme)) for host in hosts)

    def _endpoint(self, host: str, default_port: int | None) -> tuple[str, int]:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname, default_port if parts.port is None else parts.port
        except ValueError:
            name, port = None, None
        if not name or not port:
            what = f"'{mask_address('//' + host)[2:]}' is not an address"
            raise ConfigError(what, where=f"{self.origin}  {self.name}", next="write it as host:port")
        return name, port


@dataclass(frozen=True, slots=True)
class Context:
    """The servers of one environment."""

    name: str
    values: Values

    @property
    def server_names(self) -> tuple[str, ...]:
        """The names under `servers`, in the order of the file."""
        return tuple(dict.fromkeys(path[1] for path in self.values if path[0] == "servers"))

    def server(self, name: str) -> Server:
        """Give one broker; an unknown name is an error that lists the known ones."""
        values = _below(self.values, "servers", name)
        if not values:
            raise ConfigError(
                f"context {self.name} has no server '{name}'", next=did_you_mean(name, self.server_names)
            )
        return self._server(name, values)

    def registry(self) -> Server | None:
        """Give the schema registry, if the context has one."""
        return self._single("registry")

    def gateway(self) -> Server | None:
        """Give the gateway, if the context has one."""
        return self._single("gateway")

    def function_environment(self) -> dict[str, str]:
        """Give the environment variables that functions of pipelines are granted, references looked up."""
        granted = _below(self.values, "functions", "environment")
        return {path[0]: str(value.get()) for path, value in granted.items()}

    def _single(self, part: str) -> Server | None:
        values = _below(self.values, part)
        return self._server(part, values, kind=part) if values else None

    def _server(self, name: str, values: Values, kind: str | None = None) -> Server:
        given = {path[0]: value for path, value in values.items() if len(path) == 1}
        if "address" not in given or given["address"].text is None:
            raise ConfigError(
                f"{name} of context {self.name} has no address",
                where=str(next(iter(values.values())).origin),
                next="add `address: host:port`",
            )
        address = str(given["address"].get())
        kind = kind or _text(given, "kind") or _kind_of(address)
        if kind in _WITHOUT_SCHEME and "://" in address:
            raise ConfigError(
                f"'{mask_address(address)}' is not an address of Kafka: it has no scheme",
                where=f"{given['address'].origin}  {name}",
                next="write host:port, and what is encrypted with `security: {protocol: ...}`",
            )
        return Server(
            name=name,
            kind=kind,
            address=address,
            admin=_text(given, "admin"),
            origin=str(given["address"].origin),
            security=_security(_below(values, "security")),
        )


_DEFAULT_PORTS: Final[Mapping[str, int]] = {
    "": 9092,
    "pulsar": 6650,
    "pulsar+ssl": 6651,
    "http": 80,
    "https": 443,
}
_PULSAR_SCHEMES: Final = ("pulsar://", "pulsar+ssl://")
_WITHOUT_SCHEME: Final = ("kafka", "gateway")


def _kind_of(address: str) -> str:
    """Read the kind from the scheme: only Pulsar's addresses have one.

    >>> _kind_of("pulsar+ssl://host:6651"), _kind_of("host:9092")
    ('pulsar', 'kafka')
    """
    return "pulsar" if address.startswith(_PULSAR_SCHEMES) else "kafka"


def _security(values: Values) -> Security:
    given: dict[str, Any] = {path[0]: value.get() for path, value in values.items()}
    return Security(**{f.name: given[f.name] for f in fields(Security) if f.name in given})


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values[name].get() if name in values else None
    return None if value is None else str(value)


def _below(values: Values, *prefix: str) -> Values:
    depth = len(prefix)
    return {path[depth:]: value for path, value in values.items() if path[:depth] == prefix}
