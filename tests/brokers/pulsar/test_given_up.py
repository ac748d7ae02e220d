"""A connection given up half way is closed, wherever it was; a client that is closed opens no other."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import tracemalloc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.brokers.outage import Outages
from penstock.brokers.pulsar import Admin, Host, Options, PulsarClient, pool
from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.service_url import Broker
from penstock.config.secret import Secret
from penstock.errors import PenstockError, Unreachable

Use = Callable[[str, ssl.SSLContext], Coroutine[Any, Any, None]]
SHORT = Options(connect_timeout=0.3)


class Mute:
    """A server that hears everything, says nothing, and sees when its visitors go."""

    def __init__(self) -> None:
        self.visits = 0
        self.heard = asyncio.Event()
        self.left = asyncio.Event()

    async def __aenter__(self) -> Mute:
        self._server = await asyncio.start_server(self._visit, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        while await reader.read(65_536):
            self.heard.set()
        writer.close()
        self.left.set()


async def check(address: str, tls: ssl.SSLContext) -> None:
    async with PulsarClient(f"pulsar://{address}", token=Secret("t")) as client:
        await client.check()


async def check_tls(address: str, tls: ssl.SSLContext) -> None:
    async with PulsarClient(f"pulsar+ssl://{address}", tls=tls) as client:
        await client.check()


async def ask(address: str, tls: ssl.SSLContext) -> None:
    async with Admin(f"http://{address}") as admin:
        await admin.topics("public/default")


async def ask_tls(address: str, tls: ssl.SSLContext) -> None:
    async with Admin(f"https://{address}", tls=tls) as admin:
        await admin.topics("public/default")


@pytest.mark.parametrize("use", [check, check_tls, ask, ask_tls])
def test_who_is_cancelled_while_it_connects_hangs_up(run: Any, use: Use) -> None:
    async def main() -> None:
        async with Mute() as server, asyncio.timeout(30):
            visit = asyncio.create_task(use(server.address, ssl.create_default_context()))
            await server.heard.wait()
            visit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await visit
            await server.left.wait()

    run(main)


@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_who_is_not_greeted_in_time_hangs_up(run: Any, scheme: str) -> None:
    async def main() -> None:
        async with Mute() as server, asyncio.timeout(30):
            client = PulsarClient(f"{scheme}://{server.address}", options=SHORT)
            with pytest.raises(Unreachable, match="did not greet"):
                await client.check()
            await server.left.wait()
            await client.close()

    run(main)


def test_what_is_closed_opens_nothing_more(run: Any) -> None:
    async def main() -> None:
        async with Mute() as server, asyncio.timeout(30):
            client, admin = PulsarClient(f"pulsar://{server.address}"), Admin(f"http://{server.address}")
            await client.close()
            await admin.close()
            for late in (client.check(), admin.topics("public/default")):
                with pytest.raises(PenstockError, match="closed"):
                    await late
            assert server.visits == 0

    run(main)


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_refused_connect_leaves_nothing_behind(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, uvloop: bool
) -> None:
    """Also where cycles are seldom looked for, as in a gateway: an outage is thousands of these."""
    made: list[weakref.ref[Connection]] = []

    class Watched(Connection):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(weakref.ref(self))

    async def main() -> None:
        async with PulsarClient(f"pulsar://127.0.0.1:{closed_port()}") as client:
            for _ in range(5):
                with pytest.raises(Unreachable):
                    await client.check()
                await asyncio.sleep(0)

    monkeypatch.setattr(pool, "Connection", Watched)
    gc.collect()
    gc.disable()
    try:
        run(main, uvloop=uvloop)
        assert len(made) == 5
        assert not [each for each in made if each() is not None]
    finally:
        gc.enable()


def test_a_broker_that_goes_and_comes_back_is_told(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture, fake: Any
) -> None:
    """Once each, however often and by however many clients; one that was never there is not lost."""
    fake.port = closed_port()

    async def fails(*clients: PulsarClient) -> None:
        for client in clients * 5:
            with pytest.raises(Unreachable):
                await client.check()

    async def main() -> None:
        outages = Outages(logging.getLogger("test"))
        url = f"pulsar://127.0.0.1:{fake.port}"
        async with PulsarClient(url, outages=outages) as first, PulsarClient(url, outages=outages) as second:
            await fails(first, second)
            assert not caplog.records
            for _ in range(2):
                async with fake:
                    await first.check()
                    await second.check()
                await until_lost(first, second)
                await fails(first, second)

    with caplog.at_level(logging.INFO):
        run(main)
    levels = [each.levelname for each in caplog.records if each.name == "test"]
    assert levels == ["WARNING", "INFO", "WARNING"]


async def until_lost(*clients: PulsarClient) -> None:
    async with asyncio.timeout(10):
        while any(each.error is None for client in clients for each in client._pool._open.values()):
            await asyncio.sleep(0.005)


def test_a_connection_reserves_memory_when_it_is_made() -> None:
    async def main() -> int:
        tracemalloc.start()
        try:
            kept = [Connection(Broker(Host("127.0.0.1", 1)), SHORT) for _ in range(20)]
            assert len(kept) == 20
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert asyncio.run(main()) < 1024 * 1024


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
