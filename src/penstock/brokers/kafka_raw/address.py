"""Where a broker is: host:port, several with commas (`bootstrap.servers`)."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.config.secret import MASK
from penstock.errors import ConfigError

__all__ = ["Address", "parse_addresses"]

_DEFAULT_PORT = 9092


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Read the addresses of a cluster; raise ConfigError if one is none.

    >>> [str(address) for address in parse_addresses("a:9093, [::1]")]
    ['a:9093', '[::1]:9092']
    """
    return tuple(_address(part.strip()) for part in text.split(","))


def _address(part: str) -> Address:
    try:
        found = urlsplit(f"//{part}")
        host, port = found.hostname, found.port
    except ValueError as exc:
        raise _wrong(part, str(exc)) from exc
    if not host or found.path or found.query or found.fragment or found.username is not None:
        raise _wrong(part, "an address is written host:port")
    return Address(host, port or _DEFAULT_PORT)


def _wrong(part: str, why: str) -> ConfigError:
    # Some put a user and a password into an address.
    _, at, host = part.rpartition("@")
    shown = f"{MASK}@{host}" if at else part
    return ConfigError(f"'{shown}' is not the address of a Kafka broker", why=why, next="write host:port")
