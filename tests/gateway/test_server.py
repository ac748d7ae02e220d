"""The bounds of the server: slow and idle clients, too much under way, an end in order."""

from __future__ import annotations

import asyncio
import gc
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.gateway.dispatch import advertised
from penstock.gateway.handler import Services, Settings
from penstock.gateway.ports import NewTopic, Slice
from penstock.gateway.server import Limits, Server
from penstock.testing import MemoryStorage
from penstock.wire.kafka import write_batch_head

API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GatedStorage(MemoryStorage):
    """Appends only when the gate is open; fetches give as much as is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.begun: list[int] = []
        self.reads = 0

    def append(self, topic: str, partition: int, batch: Any) -> Any:
        self.begun.append(batch.base_timestamp)
        return self._later(super().append(topic, partition, batch))

    async def _later(self, appended: Any) -> Any:
        await self.gate.wait()
        return await appended

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        self.reads += 1
        return Slice(batches=(bytes(1 << 20),), high_watermark=1, log_start_offset=0, next_offset=1)


@asynccontextmanager
async def serving(
    storage: MemoryStorage | None = None, limits: Limits | None = None, settings: Settings | None = None
) -> AsyncIterator[tuple[Server, Callable[[], Any]]]:
    storage = storage or MemoryStorage()
    services = Services(
        topics=storage,
        log=storage,
        producers=storage,
        cluster=storage,
        settings=settings or Settings(),
        versions=advertised(),
    )
    server = Server(services, limits=limits)
    host, port = await server.start("127.0.0.1", 0)
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        streams = await asyncio.open_connection(host, port)
        writers.append(streams[1])
        return streams

    try:
        yield server, connect
    finally:
        for writer in writers:
            writer.close()
        await server.drain(2.0)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.01)


def produce(number: int, *, size: int = 10, acks: int = -1) -> bytes:
    """A Produce request, version 3, to partition 0 of topic t."""
    value = bytes(size)
    length = _zigzag(size) + value
    record = b"\0\0\0\1" + length + b"\0"
    data = memoryview(bytearray(61) + _zigzag(len(record)) + record)
    write_batch_head(
        data, base_offset=0, last_offset_delta=0, base_timestamp=number, max_timestamp=number, record_count=1
    )
    head = struct.pack(">hhih", 0, 3, number, -1) + struct.pack(">hhi", -1, acks, 30_000)
    return framed(head + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(data)) + bytes(data))


def fetch(number: int) -> bytes:
    """A Fetch request, version 4, of partition 0 of topic t."""
    head = struct.pack(">hhih", 1, 4, number, -1) + struct.pack(">iiiib", -1, 0, 1, 1 << 26, 0)
    return framed(head + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iiqi", 1, 0, 0, 1 << 26))


def _zigzag(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def run(work: Any) -> None:
    asyncio.run(work)


def test_an_unknown_version_of_api_versions_is_answered_35() -> None:
    async def work() -> None:
        async with serving() as (_, connect):
            reader, writer = await connect()
            writer.write(framed(struct.pack(">hhih", 18, 77, 9, -1)) + framed(API_VERSIONS))
            assert struct.unpack_from(">ih", await answer(reader)) == (9, 35)
            assert struct.unpack_from(">ih", await answer(reader)) == (1, 0)

    run(work())


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 64, struct.pack(">i", 1 << 30), framed(b"abc"), framed(struct.pack(">hhih", 4711, 0, 1, -1))]
    + [framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\x07")],
    ids=["garbage", "oversized", "short", "unknown api", "a body that lies"],
)
def test_what_is_no_request_closes_the_connection(data: bytes) -> None:
    async def work() -> None:
        async with serving() as (server, connect):
            reader, writer = await connect()
            writer.write(data)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            await until(lambda: not server.clients)
            assert server.budgets.requests.used == 0

    run(work())


def test_a_frame_that_comes_in_single_bytes_is_served() -> None:
    async def work() -> None:
        async with serving() as (_, connect):
            reader, writer = await connect()
            for byte in framed(API_VERSIONS):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            assert struct.unpack_from(">ih", await answer(reader)) == (1, 0)

    run(work())


def test_an_idle_client_is_closed_and_a_busy_one_is_not() -> None:
    async def work() -> None:
        async with serving(limits=Limits(idle_seconds=0.3)) as (_, connect):
            idle, _ = await connect()
            busy, writer = await connect()
            async with asyncio.timeout(10):
                closed = asyncio.create_task(idle.read())
                while not closed.done():
                    writer.write(framed(API_VERSIONS))
                    await answer(busy)
                    await asyncio.sleep(0.05)
                assert closed.result() == b""
            writer.write(framed(API_VERSIONS))
            assert await answer(busy)

    run(work())


@pytest.mark.parametrize(("size", "most"), [(100, 40), (20_000, 25), (100_000, 10)])
def test_appends_begin_in_order_and_too_many_stop_the_reading(size: int, most: int) -> None:
    limits = Limits(
        requests_per_connection=10, small_requests_per_connection=40, small_requests_bytes=500_000
    )

    async def work() -> None:
        storage = GatedStorage()
        await storage.create(NewTopic(name="t", partitions=1))
        async with serving(storage, limits) as (server, connect):
            reader, writer = await connect()
            for number in range(400):
                writer.write(produce(number, size=size))
            await until(lambda: len(storage.begun) >= most)
            await asyncio.sleep(0.2)
            [client] = server.clients
            assert len(storage.begun) == most
            assert client.under_way[0] == most
            storage.gate.set()
            found = [struct.unpack_from(">i", await answer(reader))[0] for _ in range(400)]
            assert found == list(range(400))
            assert storage.begun == found
            await until(lambda: server.budgets.requests.used == 0)

    run(work())


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_all_connections_together_have_a_budget(size: int) -> None:
    async def work() -> None:
        storage = GatedStorage()
        await storage.create(NewTopic(name="t", partitions=1))
        async with serving(storage, Limits(bytes_in_all=2_000_000)) as (server, connect):
            streams = [await connect() for _ in range(5)]
            for _, writer in streams:
                for number in range(20):
                    writer.write(produce(number, size=size))
            await until(lambda: server.budgets.requests.used >= 2_000_000)
            await asyncio.sleep(0.2)
            # Each of them may have read one more buffer when the budget was reached.
            assert server.budgets.requests.used < 2_000_000 + 5 * max(500_000, size)
            storage.gate.set()
            for reader, _ in streams:
                assert len([await answer(reader) for _ in range(20)]) == 20
            await until(lambda: server.budgets.requests.used == 0)

    run(work())


def test_requests_that_never_end_take_no_more_than_the_budget() -> None:
    """Each of ten clients announces a large request and sends all but the last bytes of it."""

    async def work() -> None:
        storage, size = GatedStorage(), 4_000_000
        await storage.create(NewTopic(name="t", partitions=1))
        storage.gate.set()
        request = produce(7, size=size)
        async with serving(storage, Limits(bytes_in_all=2 * size)) as (server, connect):
            streams = [await connect() for _ in range(10)]
            for _, writer in streams:
                writer.write(request[:-10])
            await until(lambda: max(len(each._connection.input) for each in server.clients) > size)
            await asyncio.sleep(0.3)
            held = [len(client._connection.input) for client in server.clients]
            # When the budget was full, one of them could go on to the end, and the others could not.
            assert sorted(held)[-1] == len(request) - 10 > sorted(held)[-2]
            assert sum(held) == server.budgets.requests.used < 3 * size
            # Those that have begun are finished, and make room for the next.
            for _, writer in streams:
                writer.write(request[-10:])
            for reader, _ in streams:
                assert struct.unpack_from(">i", await answer(reader))[0] == 7
            await until(lambda: server.budgets.requests.used == 0)

    run(work())


def test_a_large_request_that_comes_too_slowly_is_ended() -> None:
    async def work() -> None:
        async with serving(None, Limits(frame_seconds=1.0)) as (server, connect):
            _, attacker = await connect()
            attacker.write(produce(1, size=5_000_000)[:300_000])
            await until(lambda: server.budgets.requests.used == 300_000)
            await until(lambda: not server.clients)
            assert server.budgets.requests.used == 0

    run(work())


def test_while_the_budget_is_full_a_request_that_does_not_come_is_ended_soon() -> None:
    async def work() -> None:
        # `until` waits for half of the time that it would have if there were room.
        async with serving(None, Limits(frame_seconds=20.0, bytes_in_all=200_000)) as (server, connect):
            _, attacker = await connect()
            attacker.write(produce(1, size=5_000_000)[:300_000])
            await until(lambda: server.budgets.requests.used == 300_000)
            await until(lambda: not server.clients)

    run(work())


def test_a_fetch_collects_no_more_than_half_of_the_room_for_answers() -> None:
    class Sized(GatedStorage):
        async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
            self.begun.append(max_bytes)
            return await super().read(topic, partition, offset, max_bytes)

    async def work() -> None:
        storage = Sized()
        async with serving(storage, Limits(answer_bytes_per_principal=4 << 20)) as (_, connect):
            reader, writer = await connect()
            writer.write(fetch(1))
            await answer(reader)
            assert storage.begun == [2 << 20]

    run(work())


def test_a_large_request_that_comes_fast_enough_is_served() -> None:
    async def work() -> None:
        storage = GatedStorage()
        await storage.create(NewTopic(name="t", partitions=1))
        storage.gate.set()
        request = produce(1, size=200_000)
        # Eight times as long as it may take without coming on: 2.4 s against 0.3 s.
        limits = Limits(frame_seconds=0.3, frame_bytes_per_second=10_000)
        async with serving(storage, limits) as (_, connect):
            reader, writer = await connect()
            for part in range(0, len(request), 10_000):
                writer.write(request[part : part + 10_000])
                await asyncio.sleep(0.12)
            assert struct.unpack_from(">i", await answer(reader))[0] == 1

    run(work())


def test_half_a_request_and_then_silence_is_idle() -> None:
    async def work() -> None:
        async with serving(None, Limits(idle_seconds=0.3)) as (server, connect):
            reader, writer = await connect()
            writer.write(framed(API_VERSIONS)[:-2])
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            assert not server.clients

    run(work())


def test_a_client_that_does_not_read_gets_no_more_answers_made() -> None:
    async def work() -> None:
        storage = GatedStorage()
        served = 0
        async with serving(storage) as (server, connect):
            reader, writer = await connect()
            for number in range(60):
                writer.write(fetch(number))
            await until(lambda: any(not client._output.is_writable for client in server.clients))
            await asyncio.sleep(0.2)
            [client] = server.clients
            # Of 60 MB only what was written before the socket was full exists.
            assert client._transport.get_write_buffer_size() < 4 << 20
            assert storage.reads < 20
            for number in range(60):
                found = await answer(reader)
                assert struct.unpack_from(">i", found)[0] == number
                served += len(found)
            assert served > 60 << 20

    run(work())


def test_a_client_that_never_reads_is_ended() -> None:
    async def work() -> None:
        # It has had its time: it is not waited for once more.
        limits = Limits(idle_seconds=0.5, close_seconds=60.0)
        async with serving(GatedStorage(), limits) as (server, connect):
            _, writer = await connect()
            for number in range(60):
                writer.write(fetch(number))
            await until(lambda: any(not client._output.is_writable for client in server.clients))
            await until(lambda: not server.clients)

    run(work())


def test_what_was_sent_with_acks_0_is_stored_although_the_client_has_left() -> None:
    async def work() -> None:
        storage = GatedStorage()
        await storage.create(NewTopic(name="t", partitions=1))
        async with serving(storage) as (server, connect):
            _, writer = await connect()
            writer.write(produce(1, acks=0) + produce(2, acks=0))
            await writer.drain()
            writer.close()
            await until(lambda: len(storage.begun) == 2)
            await until(lambda: not server.clients)
            storage.gate.set()
            await until(lambda: not server.tasks)
            assert (await storage.find("t", 0, -1)).offset == 2

    run(work())


def test_what_fails_unforeseen_ends_its_connection_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStorage):
        def append(self, topic: str, partition: int, batch: Any) -> Any:
            raise ZeroDivisionError("unforeseen")

        async def all(self) -> Any:
            return [object()]

    async def work() -> None:
        storage = Broken()
        await storage.create(NewTopic(name="t", partitions=1))
        metadata = framed(struct.pack(">hhihi", 3, 1, 1, -1, -1))
        async with serving(storage) as (server, connect):
            for data in (produce(1) * 50, metadata * 50):
                reader, writer = await connect()
                writer.write(data)
                async with asyncio.timeout(10):
                    assert await reader.read() == b""
            await until(lambda: not server.clients and not server.tasks)
            assert server.budgets.requests.used == 0

    run(work())
    # What the client sent behind it is neither served nor told.
    assert caplog.text.count("Traceback") == 2
    assert caplog.text.count("ZeroDivisionError: unforeseen") == 1


def test_an_error_with_acks_0_closes_the_connection() -> None:
    async def work() -> None:
        async with serving() as (_, connect):
            reader, writer = await connect()
            writer.write(produce(1, acks=0))
            async with asyncio.timeout(10):
                assert await reader.read() == b""

    run(work())


def test_draining_lets_what_is_under_way_finish_and_takes_nothing_new() -> None:
    async def work() -> None:
        storage = GatedStorage()
        await storage.create(NewTopic(name="t", partitions=1))
        async with serving(storage) as (server, connect):
            reader, writer = await connect()
            writer.write(produce(1))
            await until(lambda: bool(storage.begun))
            ended = asyncio.create_task(server.drain(10))
            await asyncio.sleep(0.1)
            writer.write(produce(2))
            await asyncio.sleep(0.1)
            storage.gate.set()
            assert struct.unpack_from(">i", await answer(reader))[0] == 1
            await ended
            assert storage.begun == [1]
            with pytest.raises(OSError):
                await connect()

    run(work())


def test_more_connections_than_there_is_room_for_are_refused() -> None:
    async def work() -> None:
        async with serving(limits=Limits(connections=1)) as (_, connect):
            first, writer = await connect()
            writer.write(framed(API_VERSIONS))
            await answer(first)
            second, _ = await connect()
            async with asyncio.timeout(10):
                assert await second.read() == b""

    run(work())


def test_connections_that_have_ended_take_no_memory() -> None:
    async def work() -> None:
        async with serving() as (server, connect):

            async def come_and_go(times: int) -> None:
                for _ in range(times):
                    reader, writer = await connect()
                    writer.write(framed(API_VERSIONS))
                    await answer(reader)
                    writer.close()
                await until(lambda: not server.clients)

            # The first request loads modules, which stay, and slowly so if each allocation is traced.
            await come_and_go(1)
            tracemalloc.start()
            await come_and_go(40)
            # Not what a collection would find: one that comes seldom is no bound.
            assert tracemalloc.get_traced_memory()[0] < 1_000_000

    gc.disable()
    try:
        run(work())
    finally:
        gc.enable()
        tracemalloc.stop()
