"""One listener of the gateway: its connections, what they have under way together, and its end.

`drain` lets what is under way finish. What one connection does is in `client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final

from penstock.gateway.budget import Budgets
from penstock.gateway.client import Client
from penstock.gateway.client_errors import ClientErrors
from penstock.gateway.connection import Slot
from penstock.gateway.handler import Services
from penstock.gateway.limits import Limits
from penstock.gateway.observer import Observer
from penstock.gateway.room import Room
from penstock.gateway.security.session import Door
from penstock.gateway.tls_listener import TlsListener

__all__ = ["Limits", "Server"]

_GOODBYE: Final = 1.0
_LOOK_AGAIN: Final = 0.01


class Server:
    """Listens on one address and serves every client that connects."""

    def __init__(
        self,
        services: Services,
        *,
        listener: str = "kafka",
        limits: Limits | None = None,
        observer: Observer | None = None,
        door: Door | None = None,
        tls: ssl.SSLContext | None = None,
        room: Room | None = None,
        budgets: Budgets | None = None,
        client_errors: ClientErrors | None = None,
    ) -> None:
        self.services = services
        """Of those who need not say who they are."""
        self.listener = listener
        self.limits = limits or Limits()
        self.door = door
        """Where clients say who they are; None if nobody is asked."""
        self.room = room or Room(
            connections=self.limits.connections, per_address=self.limits.connections_per_address
        )
        """Shared by listeners that count together."""
        self.budgets = budgets or Budgets.of(self.limits)
        """Of requests and answers; shared like the room."""
        self._tls = tls
        self.observer = observer or Observer()
        self.client_errors = client_errors or ClientErrors()
        self.clients: set[Client] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.producing = 0
        """Produce requests under way: they have no task."""
        self._quiet = asyncio.Event()
        self.draining = False
        self._server: asyncio.Server | None = None
        self._listener: TlsListener | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; give the address, with the port that was chosen for 0."""
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            self._listener = await TlsListener.open(self, self._tls, host, port)
            address = self._listener.sockets[0].getsockname()
        else:
            self._server = await loop.create_server(lambda: Client(self), host, port)
            address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def drain(self, timeout: float = 10.0) -> None:
        """Stop listening, let what is under way finish, close every connection."""
        if self._server is not None:
            self._server.close()
        self.draining = True
        if self._listener is not None:
            await self._listener.close()
        for client in self.clients:
            client.regulate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._finish()
        for client in list(self.clients):
            client.close()
        await self._see_off()
        # TLS ends when both sides have said so, and a client may be hung.
        for client in list(self.clients):
            client.abort()
        await self._see_off()
        if self._server is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), timeout)

    async def _see_off(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                while self.clients:
                    await asyncio.sleep(_LOOK_AGAIN)

    async def _finish(self) -> None:
        while self.tasks or self.producing:
            if self.tasks:
                await asyncio.wait(self.tasks)
            else:
                self._quiet.clear()
                await self._quiet.wait()

    def produced(self, slot: Slot) -> None:
        """Count a Produce request that has ended."""
        self.producing -= 1
        if not self.producing:
            self._quiet.set()
        slot.free()
