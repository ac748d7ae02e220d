"""Where a cluster is: pulsar://host:port or pulsar+ssl://host:port, several hosts with commas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from penstock.config.secret import mask_address
from penstock.errors import ConfigError

__all__ = ["Broker", "Host", "ServiceUrl"]

_ADMIN_PORTS: Final = {False: ("http", 8080), True: ("https", 8443)}
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"pulsar": 6650, "pulsar+ssl": 6651}


class Host(NamedTuple):
    """A host and a port."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Broker(NamedTuple):
    """A broker: the host to connect to, and what a proxy there must be told to reach it."""

    host: Host
    behind: Host | None = None

    @property
    def address(self) -> Host:
        """Where the broker itself is."""
        return self.behind or self.host


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A parsed service URL.

    >>> ServiceUrl.parse("pulsar+ssl://a,b:7000").hosts
    (Host(name='a', port=6651), Host(name='b', port=7000))
    """

    tls: bool
    hosts: tuple[Host, ...]

    @property
    def usual_admin(self) -> str:
        """The admin address that a broker at the first host usually has.

        >>> ServiceUrl.parse("pulsar://a:6650,b:6650").usual_admin
        'http://a:8080'
        """
        scheme, port = _ADMIN_PORTS[self.tls]
        return f"{scheme}://{Host(self.hosts[0].name, port)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a service URL; raise ConfigError if it is none."""
        scheme, separator, rest = text.strip().partition("://")
        port = _DEFAULT_PORTS.get(scheme)
        if port is None or not separator:
            raise _wrong(text, "it does not begin with pulsar:// or pulsar+ssl://")
        hosts = tuple(_host(part, port, text) for part in rest.rstrip("/").split(","))
        return cls(tls=scheme == "pulsar+ssl", hosts=hosts)


def _host(part: str, port: int, text: str) -> Host:
    try:
        found = urlsplit(f"//{part.strip()}")
        name, given = found.hostname, found.port
    except ValueError as exc:
        raise _wrong(text, str(exc)) from exc
    if not name or found.path or found.query or found.fragment or found.username is not None:
        raise _wrong(text, "each host is written host:port")
    return Host(name, given or port)


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"'{mask_address(text)}' is not the address of a Pulsar", why=why, next="write pulsar://host:6650"
    )
