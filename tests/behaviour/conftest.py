"""One suite on three clusters: the twin in memory, a real Kafka, and the gateway on a real Pulsar.

`wire` speaks the protocol by kio and makes batches by aiokafka, so that neither end of a test is ours.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.gateway.entities import entity
from penstock.testing import MemoryKafka
from penstock.wire.kafka.apis import is_flexible, response_header_tags

DIFFERENCES = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text(encoding="utf-8"))
PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER = 0, 1, 2, 3, 19, 22
_SESSION = uuid.uuid4().hex[:6]
_names = itertools.count()


def body_of(key: int, version: int, fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    request = entity(load_request_schema(key, version), fields)
    entity_writer(type(request))(out, request)
    return out.getvalue()


@dataclass
class Wire:
    """One connection to a cluster, at the level of requests and answers."""

    address: tuple[str, int]
    correlation: int = 0
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=30)

    def close(self) -> None:
        self.socket.close()

    def send(self, key: int, version: int, /, **fields: Any) -> int:
        self.correlation += 1
        head = struct.pack(">hhih", key, version, self.correlation, 4) + b"test"
        tags = b"\0" if is_flexible(key, version) else b""
        frame = head + tags + body_of(key, version, fields)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._asked[self.correlation] = (key, version)
        return self.correlation

    def bytes(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self.socket.recv(count - len(got))
            if not piece:
                raise ConnectionError("closed")
            got += piece
        return got

    def answer(self) -> tuple[int, Any]:
        frame = self.bytes(struct.unpack(">i", self.bytes(4))[0])
        correlation = struct.unpack_from(">i", frame)[0]
        key, version = self._asked.pop(correlation)
        begin = 4 + len(response_header_tags(key, version))
        found, _ = entity_reader(load_response_schema(key, version))(frame, begin)
        return correlation, found

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        asked = self.send(key, version, **fields)
        correlation, found = self.answer()
        assert correlation == asked
        return found

    # What most tests want

    def create(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        name = name or f"behaviour-{_SESSION}-{next(_names)}"
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        found = self.ask(CREATE_TOPICS, 5, topics=[topic], timeout=30_000)
        assert found.topics[0].error_code == 0, found.topics[0]
        # Kafka tells that a topic exists before its partitions have a leader.
        deadline = time.monotonic() + 20
        while any(self.find(name, -1, partition)[0] for partition in range(partitions)):
            assert time.monotonic() < deadline, name
        return name

    def produce(self, topic: str, records: bytes, **options: Any) -> Any:
        return (
            self.ask(PRODUCE, 9, **produce_fields(topic, records, **options))
            .responses[0]
            .partition_responses[0]
        )

    def fetch(self, topic: str, offset: int, **options: Any) -> Any:
        return self.ask(FETCH, 12, **fetch_fields(topic, offset, **options)).responses[0].partitions[0]

    def find(self, topic: str, timestamp: int, partition: int = 0) -> tuple[int, int, int]:
        row = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        found = self.ask(
            LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [row]}]
        )
        one = found.topics[0].partitions[0]
        return one.error_code, one.offset, one.timestamp

    def producer_id(self) -> tuple[int, int]:
        deadline = time.monotonic() + 20
        while (
            found := self.ask(INIT_PRODUCER, 1, transactional_id=None, transaction_timeout=60_000)
        ).error_code:
            # Kafka asks its controller for a range of ids when the first is wanted.
            assert time.monotonic() < deadline, found
        return found.producer_id, found.producer_epoch


def produce_fields(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1, timeout: int = 20_000
) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": timeout, "topic_data": data}


def fetch_fields(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait: int = 5_000,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 50_000_000,
) -> dict[str, Any]:
    row = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": partition_max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def make_batch(
    rows: list[dict[str, Any]],
    *,
    compression: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=100_000_000,
    )
    for number, row in enumerate(rows):
        full = {"timestamp": 1_700_000_000_000, "key": None, "value": b"v", "headers": []} | row
        assert builder.append(number, **full) is not None
    return bytes(builder.build())


def read_records(answer: Any) -> list[Any]:
    """Give every record of a fetched partition, the whole batches as they came."""
    memory = MemoryRecords(bytes(answer.records or b""))
    found = []
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        found += list(batch)
    return found


@dataclass(frozen=True)
class Cluster:
    """What a test talks to."""

    name: str
    bootstrap: str
    auto_creates: bool

    def connect(self) -> Wire:
        host, port = self.bootstrap.rsplit(":", 1)
        return Wire((host, int(port)))

    def expects(self, difference: str) -> Any:
        """Give what this cluster answers where the table says that they differ."""
        row = next(row for row in DIFFERENCES if row["id"] == difference)
        return row.get(self.name, row["kafka"])["value"]


GROUPS_NAMESPACE = "public/__kafka_behaviour"


class GatewayThread:
    """The gateway in this process, on a loop of its own; with groups it is one of a cluster of gateways."""

    def __init__(
        self,
        service_url: str,
        admin_url: str,
        *,
        port: int = 0,
        settings: Any = None,
        groups: bool = False,
        patience: float = 30.0,
        **storage: Any,
    ) -> None:
        self._patience = patience
        self._settings = settings
        self._has_groups = groups
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        self.bootstrap = self.run(self._start(service_url, admin_url, port, storage))

    def run(self, work: Any, timeout: float = 60) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    async def _start(self, service_url: str, admin_url: str, port: int, options: dict[str, Any]) -> str:
        from penstock.brokers.pulsar import Admin, Host, PulsarClient
        from penstock.brokers.pulsar.options import Options as Patience
        from penstock.gateway.dispatch import advertised
        from penstock.gateway.groups.group import Limits
        from penstock.gateway.groups.ports import NoGroups
        from penstock.gateway.handler import Services, Settings
        from penstock.gateway.pulsar.cluster import GatewayCluster, derived_node_id
        from penstock.gateway.pulsar.coordinators import PulsarGroups
        from penstock.gateway.pulsar.leaders import Leaders
        from penstock.gateway.pulsar.names import Names
        from penstock.gateway.pulsar.ownership import Ownership
        from penstock.gateway.pulsar.storage import PulsarStorage
        from penstock.gateway.server import Server

        patience = Patience(send_timeout=self._patience, open_timeout=self._patience)
        self.client, self.admin = PulsarClient(service_url, options=patience), Admin(admin_url)
        self.storage = storage = PulsarStorage(self.client, self.admin, names=Names(), **options)
        # A cluster of its own: other tests run gateways on the same Pulsar, and would share its partitions.
        self.groups = PulsarGroups(
            self.client,
            self.admin,
            namespace=GROUPS_NAMESPACE,
            limits=Limits(initial_delay=0.0),
            keeps_cursors=True,
        )
        leaders = Leaders(lambda: self.groups.node_id, Ownership(self.groups.membership.tell))
        self.server = Server(
            Services(
                topics=storage.topics,
                log=storage,
                producers=storage,
                cluster=GatewayCluster(
                    storage, self.groups.membership, lambda listener: 0, leaders, storage.topics
                ),
                groups=self.groups if self._has_groups else NoGroups(),
                settings=self._settings or Settings(),
                versions=advertised(),
            )
        )
        host, bound = await self.server.start("127.0.0.1", port)
        storage.advertised["kafka"] = (host, bound)
        if self._has_groups:
            storage.node_id = derived_node_id(Host(host, bound))
            await self.groups.start(storage.node_id, [Host(host, bound)])
        return f"{host}:{bound}"

    def close(self) -> None:
        self.run(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _stop(self) -> None:
        if self._has_groups:
            await self.groups.close()
        await self.server.drain(2.0)
        await self.storage.close()
        await self.client.close()
        await self.admin.close()


@pytest.fixture(scope="session")
def gateway(pulsar: Any) -> Iterator[GatewayThread]:
    thread = GatewayThread(pulsar.service_url, pulsar.admin_url, groups=True)
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def start_gateway() -> Callable[..., GatewayThread]:
    return GatewayThread


@pytest.fixture(scope="session")
def connect() -> Callable[[str], Wire]:
    def to(bootstrap: str) -> Wire:
        return Cluster("gateway", bootstrap, auto_creates=True).connect()

    return to


@pytest.fixture(scope="module")
def small_ledgers() -> Iterator[Any]:
    """A Pulsar that begins a new ledger after a few entries."""
    from penstock.embedded.pulsar import Pulsar

    settings = {"managedLedgerMaxEntriesPerLedger": "20", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
    with Pulsar(durable=False, settings=settings) as server:
        yield server


@pytest.fixture(scope="session")
def memory() -> Iterator[MemoryKafka]:
    with MemoryKafka() as server:
        yield server


@pytest.fixture(
    params=[
        "memory",
        pytest.param("kafka", marks=pytest.mark.server),
        pytest.param("gateway", marks=pytest.mark.server),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    server = request.getfixturevalue(request.param)
    return Cluster(request.param, server.bootstrap, auto_creates=request.param != "kafka")


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    connection = cluster.connect()
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture(scope="session")
def records() -> Callable[[Any], list[Any]]:
    return read_records


@pytest.fixture
def fields() -> dict[str, Callable[..., dict[str, Any]]]:
    return {"produce": produce_fields, "fetch": fetch_fields}


@pytest.fixture
def differences() -> list[dict[str, Any]]:
    return DIFFERENCES
