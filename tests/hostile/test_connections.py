"""Connections that do not end, handshakes that do not begin, strangers: all are counted and bounded."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.embedded.certificates import make_certificates
from penstock.gateway.security.certificates import ServerCertificate
from penstock.gateway.server import Limits

Play = Callable[..., None]


def test_strangers_that_announce_large_requests(play: Play, tools: Any) -> None:
    """512 of them, 8 bytes each, on a listener with SASL."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        for _ in range(512):
            (await scene.connect()).write(struct.pack(">ii", 512 * 1024 - 4, 0))
        await scene.until(lambda: scene.held == 512 * 8)
        await neighbour.is_served()
        await (await scene.neighbour()).is_served()

    play(scenario, sasl=True)


def test_strangers_that_send_large_requests(play: Play, tools: Any) -> None:
    """They fill the budget of unauthenticated clients and no other; logins are small and come in."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        budgets = scene.server.budgets
        for _ in range(100):
            (await scene.connect()).write(struct.pack(">i", 512 * 1024) + bytes(400_000))
        await scene.until(lambda: len(budgets.unauthenticated.waiting) > 80)
        assert budgets.unauthenticated.used < 12 * tools.MIB
        assert budgets.requests.used == 0
        await neighbour.is_served()
        await (await scene.neighbour("127.0.0.1")).is_served()

    play(scenario, sasl=True)


@pytest.mark.parametrize("end", ["idle", "unauthenticated", "slow", "malformed"])
def test_a_connection_ends_although_its_client_does_not_read(play: Play, tools: Any, end: str) -> None:
    """Each has an answer that waits in the buffer below the mark at which asyncio says so."""

    async def scenario(scene: Any) -> None:
        peer = await scene.connect()
        if end == "unauthenticated":
            await peer.ask(tools.request(tools.API_VERSIONS, 0))
        await scene.until(lambda: len(scene.server.clients) == 1)
        [client] = scene.server.clients
        sock = peer.writer.get_extra_info("socket")
        await fill(client, sock)
        if end == "slow":
            peer.write(struct.pack(">i", 5000))
        if end == "malformed":
            peer.write(b"\xff" * 8)
        await scene.until(lambda: not scene.server.clients)

    limits = Limits(
        idle_seconds=1.0 if end == "idle" else 600.0,
        stranger_seconds=1.0,
        frame_seconds=1.0,
        close_seconds=0.5,
    )
    play(scenario, limits=limits, sasl=end == "unauthenticated")


async def fill(client: Any, sock: Any) -> None:
    """Write to a client that does not read until something stays in the buffer of the gateway."""
    transport = client._transport
    while transport.get_write_buffer_size() < 10_000:
        client._output.write([bytes(10_000)])
        await asyncio.sleep(0)
    assert client._output.is_writable


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def contexts(certificates: Any) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ServerCertificate(Path(certificates.certificate), Path(certificates.key)).context
    return server, ssl.create_default_context(cafile=str(certificates.authority))


def test_handshakes_that_do_not_begin(play: Play, tools: Any, certificates: Any) -> None:
    """They count as connections, of their address and in all, and end."""
    server, client = contexts(certificates)

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour(ssl=client)
        silent = [await scene.connect() for _ in range(30)]
        await scene.until(lambda: len(scene.server.clients) == 21)
        await neighbour.is_served()
        # The others are refused at once, and those that were let in when their time is over.
        assert [await peer.is_closed(10) for peer in silent] == [True] * 30
        assert len(scene.server.clients) == 1
        await (await scene.neighbour("127.0.0.1", ssl=client)).is_served()

    limits = Limits(connections_per_address=20, handshake_seconds=2.0)
    play(scenario, tls=server, limits=limits)


def test_what_comes_together_with_the_handshake_is_served(play: Play, tools: Any, certificates: Any) -> None:
    server, client = contexts(certificates)

    async def scenario(scene: Any) -> None:
        for _ in range(20):
            peer = await scene.connect(ssl=client)
            # The first request is on its way before the gateway has seen the end of the handshake.
            assert struct.unpack_from(">ih", await peer.ask(tools.request(tools.API_VERSIONS, 0))) == (1, 0)

    play(scenario, tls=server)


def test_garbage_instead_of_a_handshake(play: Play, tools: Any, certificates: Any) -> None:
    server, client = contexts(certificates)

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour(ssl=client)
        for _ in range(50):
            peer = await scene.connect()
            peer.write(tools.request(tools.API_VERSIONS, 0))
            assert await peer.is_closed()
        await neighbour.is_served()
        await scene.until(lambda: len(scene.server.clients) == 1)

    play(scenario, tls=server)
