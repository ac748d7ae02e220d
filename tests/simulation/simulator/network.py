"""Connections between clients and servers in one process: bytes come late, in order, or never.

A connection breaks in one of these ways: it is cut (what was on its way may or may not arrive, and both ends
hear of it, each in its own time), or it goes silent (nobody hears anything any more until a time-out).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

from simulator.loop import NODE, VirtualLoop

__all__ = ["Delays", "Link", "Network", "Server"]

_QUANTUM: Final = 1e-7
"""Seconds between two arrivals on one connection, so that they keep their order."""
_NOTICED_WITHIN: Final = 4.0
"""Seconds after which both ends of a connection that was cut know of it."""


_SERVER_NOTICES: Final = (5.0, 60.0)
"""Seconds after which a server gives up a client that it hears nothing of."""


class Delays:
    """How long things take in one history: mostly short, sometimes long."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._random = loop.random
        self._typical = self._random.choice((0.0002, 0.002, 0.02))
        self._rare = self._random.choice((0.0, 0.0, 0.01, 0.05))
        self._long = self._random.choice((0.2, 1.0, 3.0))

    def next(self) -> float:
        """Give the next delay in seconds."""
        if self._rare and self._random.random() < self._rare:
            return self._random.uniform(0, self._long)
        return self._random.uniform(0, self._typical)


class Server(Protocol):
    """The server's end of a connection."""

    def on_bytes(self, data: bytes) -> None:
        """Take what has come."""

    def on_closed(self) -> None:
        """Hear that the connection is gone."""


class Link(asyncio.Transport):
    """A connection; to the client it is a transport, the server uses `send` and `close_from_server`."""

    def __init__(self, network: Network, protocol: Any, address: str) -> None:
        super().__init__()
        self.node = NODE.get()
        self.address = address
        self.is_open = True
        self.server: Server | None = None
        self._network = network
        self._loop = network.loop
        self._protocol = protocol
        self._client_context = copy_context()
        self._silent = False
        self._arrivals = {True: 0.0, False: 0.0}
        self._under_way: dict[bool, list[asyncio.TimerHandle]] = {True: [], False: []}

    @property
    def hears(self) -> bool:
        """Whether the client would answer now."""
        return self.is_open and not self._silent and not self._loop.is_asleep(self.node)

    # The client's end

    def write(self, data: Any) -> None:
        if self.is_open:
            self._carry(bytes(data), to_server=True)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(each) for each in list_of_data))

    def abort(self) -> None:
        """Close as a client does: what it has written before still arrives."""
        if self.is_open:
            self.is_open = False
            self._network.links.discard(self)
            self._loop.call_soon(self._client_lost, context=self._client_context)
            self._at_server(self._server_lost)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return not self.is_open

    # The server's end

    def send(self, data: bytes) -> None:
        """Carry bytes to the client."""
        if self.is_open:
            self._carry(data, to_server=False)

    def close_from_server(self) -> None:
        """Close as a server does: what it has written before still arrives."""
        self.cut(lose=False)

    def give_up(self) -> None:
        """Close as a server does that hears nothing of its client, who may not hear of it either."""
        if self._silent:
            self._server_lost()
        else:
            self.close_from_server()

    # Faults

    def cut(self, *, lose: bool = True) -> None:
        """Break it; of what is on its way a first part arrives, in each direction."""
        if not self.is_open:
            return
        self.is_open = False
        self._network.links.discard(self)
        for direction in (True, False):
            waiting = [each for each in self._under_way[direction] if not each.cancelled()]
            kept = self._loop.random.randint(0, len(waiting)) if lose else len(waiting)
            for handle in waiting[kept:]:
                handle.cancel()
        delay = self._loop.random.uniform(0, _NOTICED_WITHIN) if lose else 0.0
        at = max(self._loop.time() + delay, self._arrivals[False] + _QUANTUM)
        self._loop.call_at(at, self._client_lost, context=self._client_context)
        self._at_server(self._server_lost, delay=self._loop.random.uniform(0, _NOTICED_WITHIN))

    def fall_silent(self) -> None:
        """Let nothing arrive any more; either end gives the other up in its own time."""
        if not self._silent:
            self._silent = True
            delay = self._loop.random.uniform(*_SERVER_NOTICES)
            self._loop.call_later(delay, self._server_lost, context=self._network.context)

    # How it works

    def _carry(self, data: bytes, *, to_server: bool) -> None:
        if self._silent:
            return
        at = max(self._loop.time() + self._network.delays.next(), self._arrivals[to_server] + _QUANTUM)
        self._arrivals[to_server] = at
        receive = self._to_server if to_server else self._to_client
        context = self._network.context if to_server else self._client_context
        handle = self._loop.call_at(at, receive, data, context=context)
        waiting = self._under_way[to_server]
        waiting.append(handle)
        if len(waiting) > 64:
            waiting[:] = [each for each in waiting if each.when() >= self._loop.time()]

    def _to_server(self, data: bytes) -> None:
        if self.server is not None:
            self.server.on_bytes(data)

    def _to_client(self, data: bytes) -> None:
        view = self._protocol.get_buffer(len(data))
        while data:
            size = min(len(view), len(data))
            view[:size] = data[:size]
            self._protocol.buffer_updated(size)
            data = data[size:]
            view = self._protocol.get_buffer(len(data)) if data else view

    def _at_server(self, work: Callable[[], None], *, delay: float = 0.0) -> None:
        if self._silent:
            # The server does not hear of it, and gives the client up by itself.
            return
        at = max(self._loop.time() + delay, self._arrivals[True] + _QUANTUM)
        self._loop.call_at(at, work, context=self._network.context)

    def _client_lost(self) -> None:
        protocol, self._protocol = self._protocol, _Nobody()
        protocol.connection_lost(None)

    def _server_lost(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.on_closed()


class _Nobody:
    """The end of a connection that is gone."""

    def get_buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(max(size, 1)))

    def buffer_updated(self, size: int) -> None:
        return

    def connection_lost(self, error: Exception | None) -> None:
        return


class Network:
    """All connections of one history."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.delays = Delays(loop)
        self.links = _Links()
        self.context: Context = loop.context_of("")
        self.servers: dict[str, Callable[[Link], Server] | None] = {}
        """Who listens at an address; None while nobody does."""
        loop.create_connection = self._connect

    async def _connect(self, factory: Callable[[], Any], host: str, port: int, **_: Any) -> tuple[Any, Any]:
        await asyncio.sleep(self.delays.next())
        listener = self.servers.get(host)
        if listener is None:
            raise ConnectionRefusedError(111, f"nobody listens at {host}")
        protocol = factory()
        link = Link(self, protocol, host)
        link.server = listener(link)
        self.links.add(link)
        protocol.connection_made(link)
        return link, protocol

    def stop_node(self, node: str) -> None:
        """Kill the process of a node: its code stops here, and its connections break."""
        self.loop.stop_node(node)
        for link in [each for each in self.links if each.node == node]:
            link.cut()


class _Links(dict[Link, None]):
    """A set that keeps the order of coming, so that a seed gives the same history each time."""

    def add(self, link: Link) -> None:
        self[link] = None

    def discard(self, link: Link) -> None:
        self.pop(link, None)
