"""Many questions at once: few are under way, and one of another kind does not wait for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.brokers.pulsar.producer import AccessMode
from penstock.wire.pulsar import MessageId

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-pulsar-broker-entry-metadata-index: 7\r\n\r\n{}"


class Broker:
    """An admin API that answers about entries only when it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.under_way = 0
        self.most = 0
        self.answered = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                if b"/entry/" in request:
                    await self.let.wait()
                self.under_way -= 1
                self.answered += 1
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            return


@asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[Admin]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server, Admin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as admin:
        yield admin
    for writer in broker.writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in broker.writers), return_exceptions=True)


def test_entries_are_asked_for_a_few_at_a_time_and_nothing_else_waits_for_them() -> None:
    async def work() -> None:
        broker = Broker()
        async with admin_of(broker) as admin:
            asking = [
                asyncio.ensure_future(admin.entry_index("persistent://a/b/c", MessageId(1, number)))
                for number in range(300)
            ]
            async with asyncio.timeout(20):
                while broker.under_way < 16:
                    await asyncio.sleep(0.01)
                assert await admin.stats("persistent://a/b/c") == {}
                broker.let.set()
                answers = await asyncio.gather(*asking)
            assert {answer.last_index for answer in answers if answer} == {7}
            # One connection more for the other question.
            assert (broker.most, broker.answered) == (17, 301)

    asyncio.run(work())


def test_not_more_requests_are_under_way_than_the_pool_has_connections() -> None:
    async def work() -> None:
        broker = Broker()
        async with admin_of(broker) as admin, asyncio.timeout(30):
            await asyncio.gather(*(admin.stats(f"persistent://a/b/{number}") for number in range(500)))
            assert broker.answered == 500
            assert broker.most <= 64

    asyncio.run(work())


def test_shared_producers_open_some_at_a_time_and_an_exclusive_one_waits_for_none_of_them() -> None:
    async def work() -> None:
        client: Any = PulsarClient("pulsar://127.0.0.1:1")
        let, opening, most = asyncio.Event(), 0, 0

        async def opens(session: Any) -> Any:
            nonlocal opening, most
            if session.access is AccessMode.SHARED:
                opening += 1
                most = max(most, opening)
                await let.wait()
                opening -= 1
            return session

        client._open = opens
        crowd = [
            asyncio.ensure_future(client.producer(f"persistent://a/b/{number}")) for number in range(500)
        ]
        async with asyncio.timeout(10):
            while opening < 64:
                await asyncio.sleep(0)
            await client.producer("persistent://a/b/log", access=AccessMode.EXCLUSIVE_WITH_FENCING)
            let.set()
            assert len(await asyncio.gather(*crowd)) == 500
        assert most == 64
        await client.close()

    asyncio.run(work())
