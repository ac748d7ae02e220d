"""A listener with TLS: a handshake has a place among the connections, and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.embedded.certificates import make_certificates
from penstock.gateway.dispatch import advertised
from penstock.gateway.handler import Services
from penstock.gateway.security.certificates import ServerCertificate
from penstock.gateway.server import Limits, Server
from penstock.testing import MemoryStorage

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Scenario = Callable[[Server, Callable[..., Awaitable[Streams]]], Awaitable[None]]
API_VERSIONS = bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a server for localhost."""
    made = tmp_path_factory.mktemp("certificates")
    make_certificates(made)
    return made


@pytest.fixture
def run(folder: Path) -> Callable[..., None]:
    """Runs a scenario with a server; connections are without TLS unless they ask for it."""

    async def whole(scenario: Scenario, limits: Limits) -> None:
        each: Any = MemoryStorage()
        services = Services(topics=each, log=each, producers=each, cluster=each, versions=advertised())
        certificate = ServerCertificate(folder / "server.pem", folder / "server.key")
        server = Server(services, limits=limits, tls=certificate.context)
        host, port = await server.start("127.0.0.1", 0)
        writers: list[asyncio.StreamWriter] = []

        async def connect(*, secured: bool = False) -> Streams:
            context = ssl.create_default_context(cafile=str(folder / "ca.pem")) if secured else None
            name = "localhost" if secured else None
            streams = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
            writers.append(streams[1])
            return streams

        try:
            async with asyncio.timeout(20):
                await scenario(server, connect)
        finally:
            for writer in writers:
                writer.close()
            await server.drain(2.0)

    return lambda scenario, **limits: asyncio.run(whole(scenario, Limits(**limits)))


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection, whatever comes before it."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    return True


async def until(check: Callable[[], bool]) -> None:
    while not check():
        await asyncio.sleep(0.01)


async def is_served(streams: Streams) -> bool:
    reader, writer = streams
    writer.write(API_VERSIONS)
    return len(await reader.readexactly(4)) == 4


def test_handshakes_that_fail_give_their_places_back(run: Any) -> None:
    async def scenario(server: Server, connect: Callable[..., Awaitable[Streams]]) -> None:
        for _ in range(5):
            reader, writer = await connect()
            writer.write(b"this is no TLS at all\n" * 10)
            assert await is_ended(reader)
            await until(lambda: not server.clients)
        assert await is_served(await connect(secured=True))

    run(scenario, connections=2)


def test_a_handshake_that_never_begins_is_ended(run: Any) -> None:
    async def scenario(server: Server, connect: Callable[..., Awaitable[Streams]]) -> None:
        silent, _ = await connect()
        await until(lambda: len(server.clients) == 1)
        assert await is_ended(silent)
        await until(lambda: not server.clients)

    run(scenario, handshake_seconds=0.5)


def test_one_for_whom_there_is_no_room_is_not_kept_waiting(run: Any) -> None:
    async def scenario(server: Server, connect: Callable[..., Awaitable[Streams]]) -> None:
        _, holder = await connect()
        await until(lambda: len(server.clients) == 1)
        refused, _ = await connect()
        assert await is_ended(refused)
        holder.close()
        await until(lambda: not server.clients)
        assert await is_served(await connect(secured=True))

    run(scenario, connections=1)


def test_draining_gives_up_handshakes_and_keeps_what_is_served(run: Any) -> None:
    async def scenario(server: Server, connect: Callable[..., Awaitable[Streams]]) -> None:
        assert await is_served(await connect(secured=True))
        silent, _ = await connect()
        await until(lambda: len(server.clients) == 2)
        assert server._listener is not None
        await server._listener.close()
        assert await is_ended(silent)
        assert [client.is_open for client in server.clients] == [True]

    run(scenario)
