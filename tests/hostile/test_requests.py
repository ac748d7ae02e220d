"""Requests that are announced and do not come, come slowly, are huge or too many: others are served."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from penstock.gateway.handler import Settings
from penstock.gateway.server import Limits

Play = Callable[..., None]


def test_large_requests_that_are_only_announced_hold_nothing(play: Play, tools: Any) -> None:
    """Three sockets and 24 bytes: each announces 100 MiB, together more than the budget."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour("127.0.0.1")
        for _ in range(3):
            (await scene.connect()).write(bytes.fromhex("06400000 00000000"))
        await scene.until(lambda: scene.held == 24)
        await neighbour.is_served()
        await (await scene.neighbour("127.0.0.1")).is_served()
        # Nobody waits 18 minutes for them: they are ended when nothing has come for a while.
        await scene.until(lambda: len(scene.server.clients) == 2)

    play(scenario, limits=Limits(frame_seconds=3.0))


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.{}"], ids=["one address", "many addresses"])
def test_half_requests_that_fill_the_budget(play: Play, tools: Any, source: str) -> None:
    """They really send what they announce, all but the end of it."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        huge = tools.produce(size=6 * tools.MIB)[:-10]
        for number in range(8):
            (await scene.connect(source.format(number + 1))).write(huge)
        requests = scene.server.budgets.requests
        await scene.until(lambda: requests.waiting or requests.used >= requests.limit)
        assert requests.used < requests.limit + 7 * tools.MIB
        await neighbour.is_served()
        # One after another they are found to be slow, and none of them is borne with for long.
        await scene.until(lambda: len(scene.server.clients) == 1)
        await neighbour.is_served(1)

    limits = Limits(bytes_in_all=16 * 1024 * 1024, bytes_per_principal=12 * 1024 * 1024, frame_seconds=3.0)
    play(scenario, limits=limits)


def test_honest_large_requests_finish_although_together_they_do_not_fit(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        peers = [await scene.connect() for _ in range(6)]
        for peer in peers:
            peer.write(tools.produce(size=4 * tools.MIB))
        for peer in peers:
            await peer.answer(60)

    play(scenario, limits=Limits(bytes_in_all=6 * 1024 * 1024))


def test_requests_that_are_never_served(play: Play, tools: Any) -> None:
    """Whole requests of one address that wait for a storage that stands still."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        for _ in range(10):
            (await scene.connect()).write(
                b"".join(tools.produce("stuck", size=tools.MIB // 2) for _ in range(20))
            )
        share = scene.server.budgets.requests
        await scene.until(lambda: len(share.waiting) == 10)
        # The attackers' share is full, the budget is not.
        assert 12 * tools.MIB <= share.used < 20 * tools.MIB
        await neighbour.is_served()

    limits = Limits(bytes_in_all=32 * 1024 * 1024, bytes_per_principal=12 * 1024 * 1024)
    play(scenario, limits=limits)


def test_heartbeats_come_through_a_budget_that_is_full(play: Play, tools: Any) -> None:
    """Also for the principal that has filled it."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour("127.0.0.1")
        for _ in range(4):
            (await scene.connect()).write(
                b"".join(tools.produce("stuck", size=tools.MIB // 2) for _ in range(8))
            )
        budget = scene.server.budgets.requests
        await scene.until(lambda: budget.used >= budget.limit and len(budget.waiting) == 4)
        await neighbour.is_served()
        await (await scene.neighbour("127.0.0.1")).is_served()

    play(scenario, limits=Limits(bytes_in_all=4 * 1024 * 1024))


@pytest.mark.parametrize("kind", ["stored", "refused at once", "other"])
def test_a_flood_of_tiny_requests_in_one_write(play: Play, tools: Any, kind: str) -> None:
    """As many as fit the buffer of a connection: few are begun in one turn, all are answered in order."""
    count = 3000
    frames = {
        "stored": lambda number: tools.produce(number=number),
        "refused at once": lambda number: tools.produce(batch=b"", number=number),
        "other": lambda number: tools.request(tools.API_VERSIONS, 0, number=number),
    }

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        peer = await scene.connect()
        await scene.until(lambda: len(scene.server.clients) == 2)
        client = next(each for each in scene.server.clients if each.peer.startswith("('127.0.0.1'"))
        begun, most, limit = [], [], client._limits.small_requests_per_connection
        begin, take = client._begin, client._take_requests

        def counted_begin(slot: Any) -> None:
            begun.append(slot)
            begin(slot)
            most.append(client.under_way[0])

        def counted_take() -> None:
            before = len(begun)
            take()
            assert len(begun) - before <= limit

        client._begin, client._take_requests = counted_begin, counted_take
        peer.write(b"".join(frames[kind](number) for number in range(count)) + b"\0\0")
        served = asyncio.create_task(neighbour.is_served())
        numbers = [struct.unpack_from(">i", await peer.answer())[0] for _ in range(count)]
        assert numbers == list(range(count))
        assert max(most) <= limit
        await served
        # What is left is the beginning of a request, of which the rest may come.
        await scene.until(lambda: client._reading)
        assert (client.under_way, scene.held) == ((0, 0), 2)
        peer.write(tools.request(tools.API_VERSIONS, 0, number=7)[2:])
        assert struct.unpack_from(">i", await peer.answer())[0] == 7

    play(scenario)


def test_requests_that_wait_in_the_buffer_are_not_slow(play: Play, tools: Any) -> None:
    """They have come; that they were not begun is not their client's fault."""

    async def scenario(scene: Any) -> None:
        peer = await scene.connect()
        peer.write(b"".join(tools.produce("stuck", number=number) for number in range(900)))
        limit = Limits().small_requests_per_connection
        await scene.until(lambda: [each.under_way[0] for each in scene.server.clients] == [limit])
        await asyncio.sleep(2.0)  # longer than a request may take to come
        scene.storage.gate.set()
        numbers = [struct.unpack_from(">i", await peer.answer())[0] for _ in range(900)]
        assert numbers == list(range(900))

    play(scenario, limits=Limits(frame_seconds=1.0))


def test_a_connection_that_has_ended_begins_nothing_that_waits(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        peer = await scene.connect()
        unknown = tools.request(999, 0)
        peer.write(b"".join([unknown, *(tools.produce(number=number) for number in range(2000))]))
        assert await peer.is_closed()
        await scene.until(lambda: not scene.server.clients)
        assert scene.server.producing == 0
        end = await scene.storage.find("t", 0, -1)
        assert end.offset <= Limits().small_requests_per_connection

    play(scenario)


def test_single_bytes(play: Play, tools: Any) -> None:
    """A request that comes byte by byte for ever does not keep its connection for ever."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        peers = [await scene.connect() for _ in range(50)]
        for byte in tools.produce(size=1000)[:300]:
            for peer in peers:
                peer.write(bytes([byte]))
            await asyncio.sleep(0.02)
            if len(scene.server.clients) == 1:
                break
        await neighbour.is_served()
        await scene.until(lambda: len(scene.server.clients) == 1)

    play(scenario, limits=Limits(frame_seconds=1.0))


def test_half_open_connections(play: Play, tools: Any) -> None:
    """Hundreds that say nothing, or half a size: they cost their socket, and that for a bounded time."""

    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        for number in range(300):
            peer = await scene.connect()
            if number % 2:
                peer.write(b"\0\0")
        async with asyncio.timeout(30):
            while len(scene.server.clients) > 1:
                await neighbour.is_served(1)
                await asyncio.sleep(0.1)
        await neighbour.is_served(1)

    play(scenario, limits=Limits(frame_seconds=1.0, idle_seconds=2.0))


def test_a_flood_of_connections(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        peers = [await scene.connect() for _ in range(200)]
        await scene.until(lambda: len(scene.server.clients) == 51)
        closed = [peer for peer in peers[50:] if await peer.is_closed()]
        assert len(closed) == 150
        await neighbour.is_served()
        await (await scene.neighbour()).is_served()

    play(scenario, limits=Limits(connections_per_address=50))


def test_a_flood_of_small_requests(play: Play, tools: Any) -> None:
    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()

        async def flood() -> None:
            peer = await scene.connect()
            many = tools.request(tools.API_VERSIONS, 0) * 50
            while True:
                peer.write(many)
                for _ in range(50):
                    await peer.answer()

        floods = [asyncio.create_task(flood()) for _ in range(4)]
        await neighbour.is_served(10)
        for each in floods:
            each.cancel()
        assert all(isinstance(end, asyncio.CancelledError) for end in await gathered(floods))

    play(scenario)


async def gathered(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


NESTED = {
    # Each array says that it holds two thousand million of something.
    "arrays that lie": struct.pack(">i", 0x7FFFFFFF),
    "tagged fields without end": b"\x01" + b"\xff" * 64,
    "a megabyte of empty names": struct.pack(">i", 500_000) + bytes(1_000_000),
}


@pytest.mark.parametrize("body", NESTED.values(), ids=NESTED)
def test_requests_that_are_expensive_to_read(play: Play, tools: Any, body: bytes) -> None:
    async def scenario(scene: Any) -> None:
        neighbour = await scene.neighbour()
        for key, version in ((tools.METADATA, 1), (tools.METADATA, 12), (8, 2), (9, 1), (10, 4), (19, 2)):
            peer = await scene.connect()
            peer.write(tools.request(key, version, body))
            await neighbour.is_served(1)
            # Answered or closed, not left to wait.
            await asyncio.wait_for(peer.reader.read(1), 30)

    play(scenario, settings=Settings(max_names_per_request=1000), limits=Limits(frame_seconds=1.0))


def many_partitions(tools: Any, kind: str, count: int) -> bytes:
    """A request with so many partitions of one topic that do not exist."""
    one = struct.pack(">i", 1) + tools.text("t") + struct.pack(">i", count)
    numbers = range(3, 3 + count)
    rows: dict[str, tuple[int, int, bytes]] = {
        "produce": (
            *(0, 3),
            struct.pack(">hhi", -1, -1, 30_000) + one + b"".join(struct.pack(">ii", n, 0) for n in numbers),
        ),
        "fetch": (
            *(1, 4),
            struct.pack(">iiiib", -1, 0, 1, 1, 0)
            + one
            + b"".join(struct.pack(">iqi", number, 0, 1) for number in numbers),
        ),
        "list offsets": (
            *(2, 1),
            struct.pack(">i", -1) + one + b"".join(struct.pack(">iq", number, -1) for number in numbers),
        ),
        "delete records": (
            *(21, 0),
            one + b"".join(struct.pack(">iq", number, 0) for number in numbers) + struct.pack(">i", 1000),
        ),
        "offset fetch": (
            *(9, 1),
            tools.text("g") + one + b"".join(struct.pack(">i", number) for number in numbers),
        ),
        "offset fetch of groups": (
            *(9, 8),
            # KIP-482: a header with tags; lengths are one more than they are.
            b"\0\2\2g\2\2t"
            + bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7])
            + b"".join(struct.pack(">i", number) for number in numbers)
            + b"\0\0\0\0",
        ),
    }
    return bytes(tools.request(*rows[kind]))


KINDS = ("produce", "fetch", "list offsets", "delete records", "offset fetch", "offset fetch of groups")


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_partitions_in_one_request(
    play: Play, tools: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each costs work and maybe a question to Pulsar: they are bounded as names are."""

    async def scenario(scene: Any) -> None:
        assert len(await (await scene.connect()).ask(many_partitions(tools, kind, 1000))) > 4
        peer = await scene.connect()
        peer.write(many_partitions(tools, kind, 1001))
        assert await peer.is_closed()

    play(scenario, settings=Settings(max_names_per_request=1000))
    assert "1001 partitions, 1000 are taken" in caplog.text
