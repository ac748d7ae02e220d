"""A server that asks clients who they are: what strangers get, limits, the end of a session; TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.brokers.pulsar import Host
from penstock.embedded.certificates import make_certificates
from penstock.errors import ApiError, ConfigError
from penstock.gateway.dispatch import advertised
from penstock.gateway.entrance import Entrance, Listener
from penstock.gateway.handler import Services, Settings
from penstock.gateway.ports import NewTopic
from penstock.gateway.security.certificates import ServerCertificate
from penstock.gateway.security.logins import Crowded
from penstock.gateway.security.mechanisms import Credentials
from penstock.gateway.security.protocols import SecurityProtocol
from penstock.gateway.server import Limits, Server
from penstock.testing import MemoryStorage
from penstock.wire.kafka import ErrorCode

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE, PRODUCE, LIST_OFFSETS = 3, 17, 18, 36, 0, 2


def services(storage: MemoryStorage, **settings: Any) -> Services:
    return Services(
        topics=storage,
        log=storage,
        producers=storage,
        cluster=storage,
        settings=Settings(**settings),
        versions=advertised(),
    )


@dataclass
class Guest:
    name: str
    namespace: str
    services: Services
    expires_at: float | None
    held: bool = True

    @property
    def principal(self) -> str:
        return self.name or ""

    def release(self) -> None:
        self.held = False


class Doorkeeper:
    """Gives each namespace a storage of its own."""

    def __init__(self, seconds: float | None = None) -> None:
        self.storages: dict[str, MemoryStorage] = {}
        self.guests: list[Guest] = []
        self.seconds = seconds

    async def admit(self, credentials: Credentials) -> Guest:
        if credentials.token.reveal() != "good":
            raise ApiError("not this one", error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        namespace = credentials.namespace or "public/default"
        storage = self.storages.setdefault(namespace, MemoryStorage())
        ends = None if self.seconds is None else time.time() + self.seconds
        self.guests.append(Guest("ann", namespace, services(storage), ends))
        return self.guests[-1]


class Peer:
    """A client at the level of frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def ask(self, key: int, version: int, body: bytes = b"") -> bytes:
        frame = struct.pack(">hhih", key, version, 7, -1) + body
        return (await self.send(struct.pack(">i", len(frame)) + frame))[4:]

    async def send(self, data: bytes) -> bytes:
        self.writer.write(data)
        async with asyncio.timeout(10):
            size = struct.unpack(">i", await self._reader.readexactly(4))[0]
            return await self._reader.readexactly(size)

    async def choose(self, mechanism: str = "PLAIN") -> int:
        answer = await self.ask(HANDSHAKE, 1, text(mechanism))
        return int(struct.unpack_from(">h", answer)[0])

    async def prove(self, message: bytes = b"\0acme/shop\0token:good") -> tuple[int, int]:
        """Give the error and the milliseconds of the session."""
        answer = await self.ask(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message)
        return struct.unpack_from(">h", answer)[0], struct.unpack(">q", answer[-8:])[0]

    async def topics(self) -> bytes:
        return await self.ask(METADATA, 1, struct.pack(">i", -1))

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True


def text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(services(MemoryStorage()), **options)
    host, port = await server.start("127.0.0.1", 0)
    peers: list[Peer] = []

    async def connect(**tls: Any) -> Peer:
        peers.append(Peer(*await asyncio.open_connection(host, port, **tls)))
        return peers[-1]

    try:
        yield server, connect
    finally:
        for peer in peers:
            peer.writer.close()
        await server.drain(2.0)


async def until(check: Any) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.01)


def run(work: Any) -> None:
    asyncio.run(work)


def test_a_principal_is_served_from_its_own_services() -> None:
    async def scenario() -> None:
        door = Doorkeeper()
        async with serving(door=door) as (server, connect):
            peer = await connect()
            assert struct.unpack_from(">h", await peer.ask(API_VERSIONS, 0)) == (0,)
            assert await peer.choose() == 0
            assert await peer.prove() == (0, 0)
            await door.storages["acme/shop"].create(NewTopic(name="mine", partitions=1))
            await server.services.topics.create(NewTopic(name="not-mine", partitions=1))
            assert b"mine" in (seen := await peer.topics()) and b"not-mine" not in seen
            other = await connect()
            assert (await other.choose(), await other.prove(b"\0beta\0token:good")) == (0, (0, 0))
            assert b"mine" not in await other.topics()
            peer.writer.close()
            await until(lambda: not door.guests[0].held)
            assert door.guests[1].held

    run(scenario())


@pytest.mark.parametrize(("key", "version"), [(METADATA, 1), (PRODUCE, 3), (1, 4), (10, 0), (19, 2), (16, 0)])
def test_strangers_get_nothing(key: int, version: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(door=Doorkeeper()) as (_, connect):
            for steps in (0, 1):
                peer = await connect()
                if steps:
                    assert await peer.choose() == 0
                frame = struct.pack(">hhih", key, version, 1, -1) + bytes(4)
                peer.writer.write(struct.pack(">i", len(frame)) + frame)
                assert await peer.is_closed()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert caplog.text.count("unauthenticated") == 2


def test_who_is_refused_is_answered_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(door=Doorkeeper()) as (_, connect):
            peer = await connect()
            assert await peer.choose() == 0
            begun = time.monotonic()
            assert (await peer.prove(b"\0acme\0token:hunter2"))[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert time.monotonic() - begun > 0.3
            assert await peer.is_closed()
            wrong = await connect()
            assert await wrong.choose("GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert await wrong.is_closed()

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    assert "not this one" in caplog.text
    assert "hunter2" not in caplog.text


def test_older_clients_send_the_message_by_itself() -> None:
    async def scenario() -> None:
        async with serving(door=Doorkeeper()) as (_, connect):
            peer = await connect()
            for _ in range(2):
                assert struct.unpack_from(">h", await peer.ask(HANDSHAKE, 0, text("PLAIN"))) == (0,)
                message = b"\0acme/shop\0token:good"
                assert await peer.send(struct.pack(">i", len(message)) + message) == b""
                assert await peer.topics()
            wrong = await connect()
            await wrong.ask(HANDSHAKE, 0, text("PLAIN"))
            wrong.writer.write(struct.pack(">i", 3) + b"bad")
            assert await wrong.is_closed()

    run(scenario())


def test_a_listener_without_sasl_says_so() -> None:
    async def scenario() -> None:
        async with serving() as (_, connect):
            peer = await connect()
            assert await peer.choose() == ErrorCode.ILLEGAL_SASL_STATE
            assert (await peer.prove())[0] == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.topics()

    run(scenario())


def test_a_session_ends_unless_it_is_renewed() -> None:
    async def scenario() -> None:
        door = Doorkeeper(seconds=2.0)
        async with serving(door=door) as (_, connect):
            peer, lazy = await connect(), await connect()
            for each in (lazy, peer):
                assert await each.choose() == 0
                error, lifetime = await each.prove()
                assert error == 0 and 0 < lifetime <= 2000
            door.seconds = 30.0
            assert (await peer.choose(), (await peer.prove())[0]) == (0, 0)
            assert await lazy.is_closed()
            assert await peer.topics()

    run(scenario())


def test_a_stranger_has_little_time() -> None:
    async def scenario() -> None:
        async with serving(door=Doorkeeper(), limits=Limits(stranger_seconds=0.1)) as (_, connect):
            assert await (await connect()).is_closed()

    run(scenario())


def test_a_stranger_has_little_room() -> None:
    async def scenario() -> None:
        limits = Limits(stranger_bytes=1000)
        async with serving(door=Doorkeeper(), limits=limits) as (server, connect):
            loud = await connect()
            loud.writer.write(struct.pack(">i", 2000))
            assert await loud.is_closed()
            known = await connect()
            assert (await known.choose(), (await known.prove())[0]) == (0, 0)
            asked = struct.pack(">i", 300) + text("x" * 10) * 300
            assert len(asked) > limits.stranger_bytes
            assert await known.ask(METADATA, 1, asked)
            # Its time to say who it is does not run any more.
            assert [client._believed for client in server.clients] == [None]

    run(scenario())


def test_connections_from_one_address_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(limits=Limits(connections_per_address=2)) as (server, connect):
            first, second = await connect(), await connect()
            await until(lambda: len(server.clients) == 2)
            assert await (await connect()).is_closed()
            first.writer.close()
            await until(lambda: len(server.clients) == 1)
            assert await (await connect()).topics()
            assert await second.topics()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "2 connections from this address are open" in caplog.text


def test_a_principal_is_counted_once_whatever_namespaces_it_names() -> None:
    async def scenario() -> None:
        async with serving(door=Doorkeeper()) as (server, connect):
            for number in range(3):
                peer = await connect()
                assert await peer.choose() == 0
                assert (await peer.prove(f"\0acme/{number}\0token:good".encode()))[0] == 0
                assert await peer.topics() is not None
            assert len(server.budgets.requests) == len(server.budgets.answers) == 1

    run(scenario())


def test_half_a_request_that_came_with_the_login_is_counted_for_the_principal() -> None:
    async def scenario() -> None:
        message = b"\0acme/shop\0token:good"
        frame = struct.pack(">hhih", AUTHENTICATE, 1, 7, -1) + struct.pack(">i", len(message)) + message
        half = struct.pack(">i", 1000) + bytes(496)
        async with serving(door=Doorkeeper()) as (server, connect):
            peer = await connect()
            assert await peer.choose() == 0
            await peer.send(struct.pack(">i", len(frame)) + frame + half)
            budgets = server.budgets
            await until(lambda: budgets.requests.used == 500)
            assert (budgets.requests.partial, budgets.unauthenticated.used) == (500, 0)
            peer.writer.close()
            await until(lambda: not server.clients)
            assert (budgets.requests.used, budgets.requests.partial, len(budgets.requests)) == (0, 0, 0)

    run(scenario())


def test_a_door_that_is_crowded_tells_no_failure() -> None:
    """Clients give up after a failed authentication; a connection that ends is tried again."""

    class Crowd(Doorkeeper):
        async def admit(self, credentials: Credentials) -> Guest:
            raise Crowded("too many principals")

    async def scenario() -> None:
        async with serving(door=Crowd()) as (_, connect):
            peer = await connect()
            assert await peer.choose() == 0
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await peer.prove()
            assert caught.value.partial == b""

    run(scenario())


def _topics_of_metadata(count: int) -> bytes:
    return struct.pack(">i", count) + text("x") * count


def _partitions_of_list_offsets(count: int) -> bytes:
    rows = b"".join(struct.pack(">iq", index, -1) for index in range(count))
    return struct.pack(">ii", -1, 1) + text("x") + struct.pack(">i", count) + rows


@pytest.mark.parametrize(
    ("key", "body", "told"),
    [
        (METADATA, _topics_of_metadata, "Metadata names 4 topics, 3 are taken"),
        (LIST_OFFSETS, _partitions_of_list_offsets, "ListOffsets names 4 partitions, 3 are taken"),
    ],
)
def test_too_many_names_in_a_request_end_it(
    key: int, body: Callable[[int], bytes], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = Server(services(MemoryStorage(), max_names_per_request=3))
        host, port = await server.start("127.0.0.1", 0)
        peer = Peer(*await asyncio.open_connection(host, port))
        assert await peer.ask(key, 1, body(3))
        frame = struct.pack(">hhih", key, 1, 1, -1) + body(4)
        peer.writer.write(struct.pack(">i", len(frame)) + frame)
        assert await peer.is_closed()
        peer.writer.close()
        await server.drain(2.0)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert told in caplog.text


# TLS


def test_what_an_operator_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    addresses = {
        "0.0.0.0": SecurityProtocol.SASL_PLAINTEXT,
        "::1": SecurityProtocol.SASL_PLAINTEXT,
        "localhost": SecurityProtocol.SASL_PLAINTEXT,
        "kafka": SecurityProtocol.PLAINTEXT,
    }
    listeners = [Listener(address=Host(name, 1), protocol=each) for name, each in addresses.items()]
    nothing: Any = None
    for lends in (True, False):
        Entrance(listeners, nothing, nothing, trusts_clients=True, lends_token=lends)._warn()
    said = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert said == [
        "tokens can be read on the way to sasl_plaintext://0.0.0.0:1",
        "who comes to plaintext://kafka:1 acts with all rights of the gateway's token",
        "tokens can be read on the way to sasl_plaintext://0.0.0.0:1",
    ]


def test_a_listener_with_tls_needs_a_certificate() -> None:
    listener = Listener(address=Host("127.0.0.1", 0), protocol=SecurityProtocol.SSL)
    nothing: Any = None
    entrance = Entrance([listener], nothing, nothing, trusts_clients=True)
    with pytest.raises(ConfigError, match="a listener with TLS needs a certificate"):
        run(entrance.open())


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


def test_a_certificate_that_is_renewed_serves_new_connections(tmp_path: Path) -> None:
    old, new, used = tmp_path / "old", tmp_path / "new", tmp_path / "used"
    for folder in (old, new):
        make_certificates(folder)
    used.mkdir()

    def take(folder: Path) -> None:
        for name in ("server.pem", "server.key"):
            (used / name).write_bytes((folder / name).read_bytes())

    async def scenario() -> None:
        take(old)
        certificate = ServerCertificate(used / "server.pem", used / "server.key")
        async with serving(tls=certificate.context) as (_, connect):
            before = await connect(ssl=trusting(old), server_hostname="localhost")
            assert not certificate.refresh()
            (used / "server.pem").write_text("broken")
            assert not certificate.refresh()
            assert await (await connect(ssl=trusting(old), server_hostname="localhost")).topics()
            take(new)
            assert certificate.refresh()
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(ssl=trusting(old), server_hostname="localhost")
            assert await (await connect(ssl=trusting(new), server_hostname="localhost")).topics()
            assert await before.topics()

    run(scenario())


def test_a_client_that_hangs_in_tls_is_cut_off_in_the_end(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    certificate = ServerCertificate(tmp_path / "server.pem", tmp_path / "server.key")

    def connect(where: tuple[str, int]) -> ssl.SSLSocket:
        return trusting(tmp_path).wrap_socket(socket.create_connection(where), server_hostname="localhost")

    async def scenario() -> None:
        server = Server(services(MemoryStorage()), tls=certificate.context)
        # It never reads: so it does not answer when TLS is ended.
        with await asyncio.to_thread(connect, await server.start("127.0.0.1", 0)):
            await until(lambda: server.clients)
            await server.drain(0.1)
            assert not server.clients

    run(scenario())


@pytest.mark.parametrize("content", [None, "", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
def test_a_certificate_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"the certificate in .*server\.pem cannot be used"):
        ServerCertificate(path)
