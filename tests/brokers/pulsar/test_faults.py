"""Topics move and brokers die under load: nothing acknowledged is lost, nothing is twice, order stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.brokers.pulsar import Admin, Options, Producer, PulsarClient, Reader, Receipt
from penstock.embedded.pulsar import Pulsar
from penstock.wire.pulsar import Entry

pytestmark = [pytest.mark.server, pytest.mark.slow]

SIZE = 12
PATIENT = Options(send_timeout=120, open_timeout=60, longest_delay=1.0, window_entries=200)


def number(delivery: Any) -> int:
    """Give the number that an entry of `pump` carries."""
    assert isinstance(delivery.entry, Entry) and delivery.entry.is_intact
    return int(bytes(delivery.entry.payload[-SIZE:]))


class Pump:
    """Sends numbers, as fast as the window allows, until it is told to stop."""

    def __init__(self, producer: Producer, send: Any) -> None:
        self.producer = producer
        self.receipts: list[Receipt] = []
        self._send = send
        self._stop = asyncio.Event()

    async def run(self) -> None:
        waiting: list[asyncio.Future[Receipt]] = []
        while not self._stop.is_set():
            waiting.append(await self._send(self.producer, b"%0*d" % (SIZE, len(waiting))))
            if len(waiting) % 50 == 0:
                await asyncio.sleep(0)
        self.receipts = await asyncio.gather(*waiting)

    def stop(self) -> None:
        self._stop.set()


async def read_all(client: PulsarClient, topic: str) -> list[int]:
    """Read what is in a topic now, to its end."""
    reader: Reader[int] = await client.reader(topic, convert=number)
    last = await reader.last_message_id()
    found: list[int] = []
    while reader.received is None or reader.received[:2] < last[:2] or len(reader):
        found.append(await reader.read())
    await reader.close()
    return found


async def under_load(
    client: PulsarClient, topic: str, send: Any, trouble: Callable[[], Any]
) -> tuple[Pump, list[int]]:
    """Make trouble while a pump sends and a reader follows; give what the reader has seen."""
    pump = Pump(await client.producer(topic, name="pump"), send)
    reader = await client.reader(topic, convert=number)
    sending = asyncio.create_task(pump.run())
    seen: list[int] = []

    async def follow() -> None:
        while True:
            seen.append(await reader.read())

    following = asyncio.create_task(follow())
    try:
        await trouble()
        await asyncio.sleep(0.3)
        pump.stop()
        await sending
        async with asyncio.timeout(30):
            while len(seen) < len(pump.receipts):
                await asyncio.sleep(0.01)
    finally:
        sending.cancel()
        following.cancel()
        await asyncio.gather(sending, following, return_exceptions=True)
    return pump, seen


@pytest.mark.parametrize("deduplication", [True, False])
def test_a_topic_is_unloaded_under_load(
    pulsar: Pulsar, run: Any, topic: str, send: Any, deduplication: bool
) -> None:
    """Without deduplication, too: what is late is heard before anything is sent again."""

    async def main() -> None:
        async with (
            PulsarClient(pulsar.service_url, options=PATIENT) as client,
            Admin(pulsar.admin_url) as admin,
        ):
            await admin.create_topic(topic)
            await admin.set_policy(topic, "deduplicationEnabled", deduplication)

            async def trouble() -> None:
                for _ in range(6):
                    await asyncio.sleep(0.3)
                    await admin.unload(topic)

            pump, seen = await under_load(client, topic, send, trouble)
            expected = list(range(len(pump.receipts)))
            assert pump.producer.reconnects >= 3
            assert seen == expected
            assert await read_all(client, topic) == expected

    run(main, uvloop=deduplication)


def test_connections_break_under_load(pulsar: Pulsar, run: Any, topic: str, send: Any) -> None:
    async def main() -> None:
        async with PulsarClient(pulsar.service_url, options=PATIENT) as client:

            async def trouble() -> None:
                for _ in range(10):
                    await asyncio.sleep(0.15)
                    for connection in list(client._pool._open.values()):
                        connection._transport.abort()

            pump, seen = await under_load(client, topic, send, trouble)
            expected = list(range(len(pump.receipts)))
            assert any(receipt.attempts > 1 for receipt in pump.receipts)
            assert seen == expected
            assert await read_all(client, topic) == expected

    run(main)


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.soak), "kill"])
def test_the_broker_goes_away_under_load(run: Any, topic: str, send: Any, end: str) -> None:
    with Pulsar(durable=False) as server:

        async def main() -> None:
            async with PulsarClient(server.service_url, options=PATIENT) as client:

                async def trouble() -> None:
                    await asyncio.sleep(0.5)
                    await asyncio.to_thread(getattr(server, end))
                    await asyncio.to_thread(server.start)

                pump, seen = await under_load(client, topic, send, trouble)
                expected = list(range(len(pump.receipts)))
                assert pump.producer.reconnects >= 1
                assert seen == expected
                assert await read_all(client, topic) == expected

        run(main, timeout=240, uvloop=True)


def test_a_consumer_over_unloads_acknowledges_exactly(
    pulsar: Pulsar, run: Any, topic: str, send: Any
) -> None:
    async def main() -> None:
        async with (
            PulsarClient(pulsar.service_url, options=PATIENT) as client,
            Admin(pulsar.admin_url) as admin,
        ):
            producer = await client.producer(topic)
            places = [(await (await send(producer, b"%0*d" % (SIZE, i)))).message_id for i in range(200)]
            consumer = await client.consumer(topic, "s", convert=lambda one: (one.message_id, number(one)))
            found = []
            for i in range(200):
                place, value = await consumer.read()
                found.append(value)
                if i % 10 == 9:
                    await consumer.acknowledge_up_to(place)
                if i % 50 == 24:
                    await admin.unload(topic)
            assert found == list(range(200))
            assert consumer.acknowledged == places[-1]
            assert consumer.reconnects >= 3
            await consumer.close()
            stats = await admin.stats(topic)
            assert stats["subscriptions"]["s"]["msgBacklog"] == 0

    run(main)
