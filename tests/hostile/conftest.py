"""A gateway on its own protocol code and loop, clients that mean harm, and one that does not beside them."""

from __future__ import annotations

import asyncio
import ssl
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from penstock.errors import ApiError
from penstock.gateway.dispatch import advertised
from penstock.gateway.handler import Services, Settings
from penstock.gateway.ports import NewTopic, Slice
from penstock.gateway.security.mechanisms import Credentials
from penstock.gateway.server import Limits, Server
from penstock.mapping import batch_to_entry
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode, write_batch_head

PRODUCE, FETCH, METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 1, 3, 17, 18, 36
MIB = 1024 * 1024
SERVED_WITHIN = 1.0
"""Seconds for an honest request while others attack..."""
TICK = 0.01
BASELINES = 20
"""...and so many times what it takes without them: the machine may be busy with something else."""

BATCHES = {"huge": MIB, "boulder": 24 * MIB}


class HugeLog(MemoryStorage):
    """Topic `huge` has as much as a fetch may take, `boulder` batches of 24 MiB; appends to `stuck` wait.

    What is appended to `mapped` is made an entry first, as for Pulsar.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.reads: list[int] = []

    def append(self, topic: str, partition: int, batch: Any) -> Awaitable[Any]:
        if topic == "mapped":
            batch_to_entry(batch, now=1, limit=Settings().max_batch_bytes)
        appended = super().append(topic, partition, batch)
        return self._later(appended) if topic == "stuck" else appended

    async def _later(self, appended: Awaitable[Any]) -> Any:
        await self.gate.wait()
        return await appended

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        if topic not in BATCHES:
            return await super().read(topic, partition, offset, max_bytes)
        self.reads.append(max_bytes)
        size = BATCHES[topic]
        batches = tuple(bytes(size) for _ in range(max(1, max_bytes // size)))
        return Slice(batches=batches, high_watermark=1 << 40, log_start_offset=0, next_offset=offset + 1)


@dataclass
class Guest:
    """Whom the gateway has admitted."""

    name: str
    namespace: str
    services: Services
    expires_at: float | None = None

    @property
    def principal(self) -> str:
        return self.name or ""

    def release(self) -> None:
        return None


class Door:
    """Admits the token `good`; each user name is a principal of its own, all on one storage."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._principals: dict[str, Services] = {}

    async def admit(self, credentials: Credentials) -> Guest:
        if credentials.token.reveal() != "good":
            raise ApiError("not this one", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        name = credentials.namespace or ""
        own = self._principals.setdefault(name, Services(**vars_of(self.services)))
        return Guest(name, name, own)


def vars_of(services: Services) -> dict[str, Any]:
    return {name: getattr(services, name) for name in Services.__dataclass_fields__}


class Peer:
    """A client at the level of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def write(self, data: bytes) -> None:
        # uvloop refuses to write to a connection that the server has ended; a real client would go on.
        if not self.writer.is_closing():
            self.writer.write(data)

    async def answer(self, within: float = 30.0) -> bytes:
        async with asyncio.timeout(within):
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)

    async def ask(self, data: bytes, within: float = 30.0) -> bytes:
        self.write(data)
        return await self.answer(within)

    async def authenticate(self, user: str = "acme/shop", token: str = "good") -> int:
        await self.ask(request(HANDSHAKE, 1, text("PLAIN")))
        message = f"\0{user}\0token:{token}".encode()
        found = await self.ask(request(AUTHENTICATE, 0, struct.pack(">i", len(message)) + message))
        return int(struct.unpack_from(">h", found, 4)[0])

    async def is_closed(self, within: float = 30.0) -> bool:
        async with asyncio.timeout(within):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
            return True


def text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def request(key: int, version: int, body: bytes = b"", number: int = 1) -> bytes:
    return framed(struct.pack(">hhih", key, version, number, -1) + body)


def batch_of(records: bytes, *, count: int = 1, attributes: int = 0) -> bytes:
    """A record batch around records as they are, compressed or not."""
    data = memoryview(bytearray(61) + records)
    write_batch_head(
        data,
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=1,
        max_timestamp=1,
        record_count=count,
        attributes=attributes,
    )
    return bytes(data)


def record(size: int) -> bytes:
    body = b"\0\0\0\1" + varint(size) + bytes(size) + b"\0"
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def produce(topic: str = "t", batch: bytes | None = None, *, size: int = 10, number: int = 1) -> bytes:
    batch = batch_of(record(size)) if batch is None else batch
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + text(topic)
    return request(PRODUCE, 3, body + struct.pack(">iii", 1, 0, len(batch)) + batch, number)


def fetch(topic: str = "t", *, size: int = 1 << 26, wait_ms: int = 0, number: int = 1) -> bytes:
    body = struct.pack(">iiiib", -1, wait_ms, 1, size, 0) + struct.pack(">i", 1) + text(topic)
    return request(FETCH, 4, body + struct.pack(">iiqi", 1, 0, 0, size), number)


class Scene:
    """One gateway, and everybody who comes to it."""

    def __init__(self, server: Server, storage: HugeLog, address: tuple[str, int]) -> None:
        self.server, self.storage, self._address = server, storage, address
        self._peers: list[Peer] = []
        self.stolen = 0.0
        """Seconds that the machine has given to others: the loop was late, and not by its own work."""
        self._clock = asyncio.create_task(self._watch_clock())

    async def _watch_clock(self) -> None:
        while True:
            wall, cpu = time.monotonic(), time.process_time()
            await asyncio.sleep(TICK)
            late = time.monotonic() - wall - TICK
            self.stolen += max(0.0, late - (time.process_time() - cpu))

    async def connect(self, source: str = "127.0.0.1", **tls: Any) -> Peer:
        """Connect from an address: all of 127/8 are this machine's."""
        self._peers.append(
            Peer(*await asyncio.open_connection(*self._address, local_addr=(source, 0), **tls))
        )
        return self._peers[-1]

    async def neighbour(self, source: str = "127.0.0.99", **tls: Any) -> Neighbour:
        """Give an honest client, with a measure of what its requests take."""
        peer = await self.connect(source, **tls)
        if self.server.door is not None:
            assert await peer.authenticate("honest/client") == 0
        found = Neighbour(self, peer)
        await found.measure()
        return found

    async def until(self, check: Callable[[], bool], within: float = 30.0) -> None:
        async with asyncio.timeout(within):
            while not check():
                await asyncio.sleep(0.01)

    @property
    def held(self) -> int:
        """Bytes of requests in all budgets."""
        return self.server.budgets.requests.used + self.server.budgets.unauthenticated.used

    def leave(self) -> None:
        self._clock.cancel()
        for peer in self._peers:
            peer.writer.close()


class Neighbour:
    """An honest client: what it asks for again and again is answered in time."""

    def __init__(self, scene: Scene, peer: Peer) -> None:
        self.scene, self.peer = scene, peer
        self.bound = SERVED_WITHIN

    async def measure(self) -> None:
        times = [sum(await self._round()) / 3 for _ in range(5)]
        self.bound = SERVED_WITHIN + BASELINES * statistics.median(times)

    async def is_served(self, rounds: int = 5) -> None:
        """Ask for metadata, produce and fetch; each answer comes within the bound."""
        for _ in range(rounds):
            took = await self._round()
            assert max(took) <= self.bound, f"served after {max(took):.2f} s, not {self.bound:.2f} s"

    async def _round(self) -> list[float]:
        """Give the seconds that each answer took, without those that the machine was busy elsewhere."""
        took = []
        for asked in (request(METADATA, 1, struct.pack(">i", -1)), produce(), fetch(size=MIB)):
            began, stolen = time.monotonic(), self.scene.stolen
            await self.peer.ask(asked)
            # The clock may be in the middle of a tick.
            await asyncio.sleep(TICK)
            took.append(time.monotonic() - began - (self.scene.stolen - stolen) - TICK)
        return took


@asynccontextmanager
async def playing(
    *,
    limits: Limits | None = None,
    sasl: bool = False,
    settings: Settings | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Scene]:
    storage = HugeLog()
    for topic in ("t", "stuck", "mapped", *BATCHES):
        await storage.create(NewTopic(name=topic, partitions=1))
    services = Services(
        topics=storage,
        log=storage,
        producers=storage,
        cluster=storage,
        settings=settings or Settings(),
        versions=advertised(),
    )
    server = Server(services, limits=limits, door=Door(services) if sasl else None, tls=tls)
    scene = Scene(server, storage, await server.start("127.0.0.1", 0))
    try:
        yield scene
    finally:
        storage.gate.set()
        scene.leave()
        await server.drain(2.0)
    # Whatever was attempted: nothing of it is counted when everybody is gone.
    budgets = server.budgets
    for budget in (budgets.requests, budgets.unauthenticated, budgets.answers):
        assert (budget.used, budget.partial, len(budget), len(budget.waiting)) == (0, 0, 0, 0)
        assert budget.finisher is None
    assert not budgets.answers.holders


class Tools:
    """What the tests of this folder build requests with."""

    MIB = MIB
    request, produce, fetch, framed = map(staticmethod, (request, produce, fetch, framed))
    batch_of, record, text = map(staticmethod, (batch_of, record, text))
    METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE = METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE


@pytest.fixture
def tools() -> type[Tools]:
    return Tools


@pytest.fixture
def play() -> Callable[..., None]:
    """Run a scenario on the loop of the gateway's process, with these options of the server."""

    def run(scenario: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
        async def whole() -> None:
            async with playing(**options) as scene:
                await scenario(scene)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())

    return run
