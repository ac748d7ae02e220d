"""Who comes in through which listener, and as whom.

A SASL listener serves each client with the client's own rights. One without SASL does not ask: its clients
are nobody for Pulsar, which decides what nobody may do; only if the operator trusts them, or the gateway
itself has no token, they act as the gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from penstock.brokers.pulsar import Host, is_denied
from penstock.brokers.pulsar.tasks import Tasks
from penstock.config.secret import Secret
from penstock.errors import ClusterError, ConfigError
from penstock.gateway.budget import Budgets
from penstock.gateway.client_errors import ClientErrors
from penstock.gateway.groups.ports import NoGroups
from penstock.gateway.handler import Services
from penstock.gateway.observer import Observer
from penstock.gateway.pulsar.accounts import Accounts, Backend
from penstock.gateway.room import Room
from penstock.gateway.security.certificates import ServerCertificate
from penstock.gateway.security.protocols import SecurityProtocol
from penstock.gateway.server import Limits, Server

__all__ = ["Entrance", "Listener", "listener_names"]

log = logging.getLogger("penstock.gateway")

_NO_TOKEN: Final = "not.a.token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where to listen, and the address that clients are told for it; port 0 takes a free one."""

    address: Host
    advertised: Host | None = None
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    name: str = ""
    """Where the other gateways of a cluster have one of the same name, clients are told that; see below."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.address.name).is_loopback
        except ValueError:
            return self.address.name == "localhost"

    def __str__(self) -> str:
        """Write it as an operator does."""
        return f"{self.protocol}://{self.address}"


def listener_names(listeners: Iterable[Listener]) -> tuple[str, ...]:
    """Give the names of listeners: as written, else the protocol, with a number from the second of it on.

    >>> here = Host("h", 1)
    >>> listener_names([Listener(address=here), Listener(address=here, name="b"), Listener(address=here)])
    ('plaintext', 'b', 'plaintext-2')
    """
    names: list[str] = []
    protocols: Counter[SecurityProtocol] = Counter()
    for each in listeners:
        if not each.name:
            protocols[each.protocol] += 1
        number = protocols[each.protocol]
        names.append(each.name or (each.protocol.value if number == 1 else f"{each.protocol}-{number}"))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(
            f"two listeners have the name '{twice[0]}'",
            where="--listen",
            next="give each a name of its own: --listen NAME=PROTOCOL://HOST:PORT",
        )
    return tuple(names)


def _of_strangers(own: Services) -> Services:
    """Serve those who have not said who they are: what is served, and nothing behind it."""
    nothing: Any = None
    return replace(own, topics=nothing, log=nothing, producers=nothing, cluster=nothing, groups=NoGroups())


class Entrance:
    """Makes the servers of a gateway."""

    def __init__(
        self,
        listeners: Iterable[Listener],
        backend: Backend,
        accounts: Accounts,
        *,
        trusts_clients: bool,
        lends_token: bool = False,
        certificate: Path | None = None,
        key: Path | None = None,
        limits: Limits | None = None,
        observer: Observer | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        self._listeners = tuple(listeners)
        self._backend = backend
        self._accounts = accounts
        self._trusts_clients = trusts_clients
        self._lends_token = lends_token
        self._files = (certificate, key)
        self._limits = limits or Limits()
        self._observer = observer
        self._room = Room(
            connections=self._limits.connections, per_address=self._limits.connections_per_address
        )
        self.budgets = Budgets.of(self._limits)
        self.client_errors = ClientErrors()
        """Of all listeners together."""
        self._certificate: ServerCertificate | None = None
        self._nobody: Services | None = None
        self._supervisor = tasks or Tasks()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Read the certificate, look whether Pulsar asks as it must; raise if nobody could be served."""
        if any(each.protocol.has_tls for each in self._listeners):
            self._certificate = self._read_certificate()
            follow = self._certificate.follow
            self._tasks.append(self._supervisor.forever(follow, name="look for a new certificate"))
        if any(each.protocol.has_sasl for each in self._listeners):
            await self._check_that_tokens_matter()
            sweep = self._accounts.sweep
            self._tasks.append(self._supervisor.forever(sweep, name="close idle principals"))
        self._warn()
        unasked = [each for each in self._listeners if not each.protocol.has_sasl]
        if unasked and not self._trusts_clients:
            self._nobody = await self._serve_nobody(unasked[0])

    async def close(self) -> None:
        """End what runs beside the listeners."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._accounts.close()

    def server(self, listener: Listener, name: str, own: Services) -> Server:
        """Make the server of a listener; `own` is served with the rights of the gateway."""
        tls = self._certificate if listener.protocol.has_tls else None
        unasked = self._nobody or own
        return Server(
            _of_strangers(own) if listener.protocol.has_sasl else unasked,
            listener=name,
            limits=self._limits,
            observer=self._observer,
            door=self._accounts if listener.protocol.has_sasl else None,
            tls=None if tls is None else tls.context,
            room=self._room,
            budgets=self.budgets,
            client_errors=self.client_errors,
        )

    def _read_certificate(self) -> ServerCertificate:
        certificate, key = self._files
        if certificate is None:
            raise ConfigError(
                "a listener with TLS needs a certificate",
                next="give it by --tls-cert-file FILE and its key by --tls-key-file FILE",
            )
        return ServerCertificate(certificate, key)

    def _warn(self) -> None:
        for each in self._listeners:
            if each.protocol is SecurityProtocol.SASL_PLAINTEXT and not each.is_local:
                log.warning("tokens can be read on the way to %s; next: listen with sasl_ssl", each)
            if self._lends_token and not each.protocol.has_sasl:
                log.warning("who comes to %s acts with all rights of the gateway's token", each)

    async def _check_that_tokens_matter(self) -> None:
        """Refuse to ask for tokens that nobody looks at: it would seem safe and let everybody in."""
        try:
            async with self._backend.client(Secret(_NO_TOKEN)) as client:
                await client.check()
        except ClusterError as exc:
            if is_denied(exc):
                return
            raise
        raise ConfigError(
            "a SASL listener would let everybody in",
            why="this Pulsar takes every token, also one that is none",
            next="set authenticationEnabled=true in its configuration, or listen without SASL",
        )

    async def _serve_nobody(self, listener: Listener) -> Services:
        account = self._accounts.anonymous()
        try:
            await account.client.check()
        except ClusterError as exc:
            if not is_denied(exc):
                raise
            raise ConfigError(
                f"nobody could be served on {listener}",
                why="clients are not asked there who they are, and this Pulsar serves nobody without a token",
                next="listen with SASL (--listen sasl_ssl://HOST:PORT), or let these clients act with all "
                "rights of the gateway (--trust-clients)",
            ) from exc
        await account.know_rights()
        return account.services
