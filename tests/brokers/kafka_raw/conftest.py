"""A scripted broker for what real ones seldom say, and helpers for the real ones."""

from __future__ import annotations

import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetched, Fetcher, Wanted
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.topic_offsets import latest
from penstock.brokers.kafka_raw.visible import visible
from penstock.wire.kafka.apis import APIS
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kafka.record_batch import read_batches

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COORDINATOR, VERSIONS, INIT = 0, 1, 2, 3, 10, 18, 22
NO_WAIT = struct.pack(">i", 0)

Answering = Callable[[bytes], bytes | None]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def init_answer(body: bytes) -> bytes:
    """Give producer id 7; who has it already asks in v3, a flexible version, and gets the next epoch."""
    (size,) = struct.unpack_from(">h", body)
    if len(body) == 2 + max(size, 0) + 4:
        return NO_WAIT + struct.pack(">hqh", 0, 7, 0)
    *_, epoch = struct.unpack(">qh", body[-11:-1])
    return b"\0" + NO_WAIT + struct.pack(">hqh", 0, 7, epoch + 1) + b"\0"


class ScriptedBroker:
    """Speaks Kafka's frames on a real socket; each API answers what the test says, None hangs up.

    By itself it is broker 1 of one, leads partitions 0 and 1 of topic "t", and gives producer id 7.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.requests: list[tuple[int, float, bytes]] = []
        self.raw: Callable[[int, bytes], bytes] = lambda correlation, body: (
            struct.pack(">ii", 4 + len(body), correlation) + (body)
        )
        self.answers: dict[int, Answering] = {
            VERSIONS: lambda _: self.versions(),
            METADATA: lambda _: self.metadata(),
            COORDINATOR: lambda _: NO_WAIT + struct.pack(">hhi", 0, -1, 1) + self.address,
            INIT: init_answer,
        }
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> bytes:
        return text("127.0.0.1") + struct.pack(">i", self.port)

    def versions(self) -> bytes:
        rows = b"".join(struct.pack(">hhh", api.key, api.lowest, api.highest) for api in APIS.values())
        return struct.pack(">hi", 0, len(APIS)) + rows

    def metadata(self, leader: int = 1, code: int = 0) -> bytes:
        brokers = struct.pack(">ii", 1, 1) + self.address + struct.pack(">h", -1)
        lists = struct.pack(">iii", 0, 0, 0)
        parts = b"".join(struct.pack(">hiii", 0, number, leader, 0) + lists for number in range(2))
        topic = struct.pack(">h", code) + text("t") + b"\0" + struct.pack(">i", 2) + parts
        return NO_WAIT + brokers + text("cluster") + struct.pack(">ii", 1, 1) + topic

    def count(self, key: int) -> int:
        return sum(api == key for api, _, _ in self.requests)

    def close(self) -> None:
        # Only shutdown wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(*struct.unpack(">i", head))
                key, _, correlation, name = struct.unpack_from(">hhih", frame)
                body = frame[10 + name :]
                self.requests.append((key, time.monotonic(), body))
                answer = self.answers[key](body)
                if answer is None:
                    break
                sock.sendall(self.raw(correlation, answer))
        except OSError:
            pass  # the client hung up
        finally:
            stream.close()
            sock.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def open_cluster() -> Iterator[Callable[..., Cluster]]:
    """Opens clusters by options or by an address; all are closed after the test."""
    made: list[Cluster] = []

    def open_one(server: Any, **settings: Any) -> Cluster:
        options = server.client_options() if hasattr(server, "client_options") else None
        made.append(Cluster(Settings.of(options or {"bootstrap.servers": server.bootstrap}, **settings)))
        return made[-1]

    yield open_one
    for cluster in made:
        cluster.close()


@pytest.fixture
def keep() -> Iterator[Callable[[Any], Any]]:
    """Closes what it is given after the test."""
    with ExitStack() as stack:
        yield lambda made: stack.enter_context(closing(made))


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos


def _record(number: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(number) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


@pytest.fixture(scope="session")
def body_of() -> Callable[..., BatchBody]:
    """Makes the body of a batch of values."""

    def make(*values: bytes) -> BatchBody:
        now = time.time_ns() // 1_000_000
        records = b"".join(_record(number, value) for number, value in enumerate(values))
        return BatchBody(records, len(values), now, now)

    return make


def _values(records: memoryview, count: int) -> Iterator[bytes]:
    pos = 0
    for _ in range(count):
        size, pos = _read_varint(records, pos)
        end = pos + size
        pos += 1
        for _ in range(2):
            _, pos = _read_varint(records, pos)
        key, pos = _read_varint(records, pos)
        pos += max(key, 0)
        length, pos = _read_varint(records, pos)
        yield bytes(records[pos : pos + length])
        pos = end


@pytest.fixture(scope="session")
def values_of() -> Callable[[Fetched], list[bytes]]:
    """Gives the values of the visible records from the first offset asked for."""

    def read(fetched: Fetched) -> list[bytes]:
        found: list[bytes] = []
        for part in visible(fetched.data, fetched.aborted):
            for batch in read_batches(part):
                batch.check()
                values = list(_values(batch.records(1 << 26), batch.record_count))
                found += values[max(fetched.first - batch.base_offset, 0) :]
        return found

    return read


@pytest.fixture(scope="session")
def read_all(values_of: Callable[[Fetched], list[bytes]]) -> Callable[..., dict[int, list[bytes]]]:
    """Reads a topic from its beginning to its end."""

    def read(cluster: Cluster, topic: str, **options: Any) -> dict[int, list[bytes]]:
        until = time.monotonic() + 60
        # A commit is answered before its markers are in the logs.
        while (ends := latest(cluster, topic, read_committed=True)) != latest(cluster, topic):
            assert time.monotonic() < until, "a transaction stays open"
        fetcher = Fetcher(cluster, [Wanted(topic, part, 0, end) for part, end in ends.items()], **options)
        found: dict[int, list[bytes]] = {part: [] for part in ends}
        while fetcher.waiting:
            assert time.monotonic() < until, f"only {found} of {ends} after a minute"
            for fetched in fetcher.poll(1.0):
                found[fetched.partition] += values_of(fetched)
        fetcher.close()
        return found

    return read


@pytest.fixture(scope="session")
def new_topic() -> Callable[..., str]:
    """Makes a topic, by default with one partition, and waits for its leaders."""

    def make(
        server: Any,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"raw-{uuid.uuid4().hex}"
        options = {"bootstrap.servers": server.bootstrap}
        if hasattr(server, "client_options"):
            options = server.client_options()
        admin = AdminClient(options | {"log_level": 0})
        where = {"replica_assignment": assignment} if assignment else {"replication_factor": 1}
        topic = NewTopic(name, len(assignment or range(partitions)), config=dict(config or {}), **where)
        admin.create_topics([topic])[name].result(60)
        return name

    return make
