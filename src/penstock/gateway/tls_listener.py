"""A listener with TLS that counts connections from the moment they are accepted.

asyncio calls `connection_made` of a TLS server's protocol after the handshake, so handshakes that never end
would be neither counted nor bounded. Here a connection has its place in the limits before its handshake, and
the handshake a bound in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.brokers.pulsar.tasks import Tasks, watched
from penstock.gateway.client import Client
from penstock.gateway.client_log import log

if TYPE_CHECKING:
    from penstock.gateway.server import Server

__all__ = ["TlsListener"]

_BACKLOG: Final = 100
_ACCEPT_AGAIN: Final = 0.5
"""Seconds after an accept that failed, for instance because there are too many open files."""


class TlsListener:
    """Listens on every address of a host name; made by `open`."""

    def __init__(self, server: Server, tls: ssl.SSLContext, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self._server = server
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], Client] = {}
        self._tasks = Tasks()
        for each in sockets:
            self._tasks.forever(partial(self._accept_all, each), name=f"accept {each.getsockname()}")

    @classmethod
    async def open(cls, server: Server, tls: ssl.SSLContext, host: str, port: int) -> TlsListener:
        """Bind and listen; OSError if that cannot be."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((row[0], row[4]) for row in found):
                sockets.append(_listening(family, address))
        except BaseException:
            for each in sockets:
                each.close()
            raise
        return cls(server, tls, sockets)

    async def close(self) -> None:
        """Accept no more, and give up the handshakes under way."""
        # One that is open belongs to the server, which ends it in order.
        unsecured = [task for task, client in self._handshakes.items() if not client.is_open]
        for task in unsecured:
            task.cancel()
        await asyncio.gather(self._tasks.close(), *unsecured, return_exceptions=True)
        for each in self.sockets:
            each.close()

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as exc:
                log.warning("cannot accept connections on %s for now: %s", listening.getsockname(), exc)
                await asyncio.sleep(_ACCEPT_AGAIN)
                continue
            client = Client(self._server)
            if not client.accept(address):
                connection.close()
                continue
            task = watched(loop.create_task(self._secure(client, connection)))
            self._handshakes[task] = client
            task.add_done_callback(self._handshakes.pop)

    async def _secure(self, client: Client, connection: socket.socket) -> None:
        limits = self._server.limits
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: client,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_seconds,
                ssl_shutdown_timeout=limits.close_seconds,
            )
        except (OSError, TimeoutError) as exc:
            log.debug("no TLS with %s: %r", client.peer, exc)
            self._server.observer.closed("handshake")
        finally:
            if not client.is_open:
                client.connection_lost(None)
                connection.close()


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
