"""Two gateways on one Pulsar: one cluster id, and topics by their ids whichever gateway is asked."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.brokers.pulsar import Host
from penstock.gateway.entrance import Listener
from penstock.gateway.process import Gateway, Options

pytestmark = pytest.mark.server

METADATA, FETCH, CREATE, DELETE, DESCRIBE_CLUSTER = 3, 1, 19, 20, 60
NAMESPACE = f"public/ids-{uuid.uuid4().hex[:8]}"
NOBODY = uuid.UUID(int=0)


class Gateways:
    """`count` gateways of one installation, in a loop of their own."""

    def __init__(self, pulsar: Any, loop: Any, count: int = 2) -> None:
        self.loop = loop
        options = [
            Options(
                pulsar=pulsar.service_url,
                admin=pulsar.admin_url,
                listeners=(Listener(address=Host("127.0.0.1", 0)),),
                groups_namespace="public/__kafka_ids",
            )
            for _ in range(count)
        ]
        self.all = self.run(self._start(options))

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def _start(self, options: list[Options]) -> list[Gateway]:
        gateways = [Gateway(each) for each in options]
        # Together: of those that start at the same time one chooses the id of the cluster.
        await asyncio.gather(*(each.start() for each in gateways))
        return gateways

    @property
    def addresses(self) -> list[str]:
        return [str(gateway.addresses[0]) for gateway in self.all]

    async def _stop(self) -> None:
        await asyncio.gather(*(gateway.drain(1.0) for gateway in self.all))

    def close(self) -> None:
        self.run(self._stop())


@pytest.fixture
def wires(pulsar: Any, gateway: Any, connect: Any) -> Iterator[list[Any]]:
    """A connection to each of two gateways that know of each other, and a namespace besides the default."""
    gateway.run(gateway.admin.create_namespace(NAMESPACE))
    both = Gateways(pulsar, gateway.loop)
    wires = [connect(address) for address in both.addresses]
    assert settled(lambda: all(len(cluster(wire).brokers) == 2 for wire in wires))
    yield wires
    for wire in wires:
        wire.close()
    both.close()


def settled(check: Any) -> Any:
    deadline = time.monotonic() + 30
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def cluster(wire: Any) -> Any:
    return wire.ask(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)


def create(wire: Any, name: str) -> uuid.UUID:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    [made] = wire.ask(CREATE, 7, topics=[topic], timeout=30_000).topics
    assert made.error_code == 0, made
    found: uuid.UUID = made.topic_id
    return found


def by_id(wire: Any, topic_id: uuid.UUID) -> Any:
    [found] = wire.ask(METADATA, 12, topics=[{"topic_id": topic_id, "name": None}]).topics
    return found


def fetch_code(wire: Any, topic_id: uuid.UUID) -> int:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic_id": topic_id, "partitions": [row]}]
    wanted = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_id": 0, "session_epoch": -1}
    found = wire.ask(FETCH, 13, topics=topics, rack_id="", **wanted)
    return int(found.responses[0].partitions[0].error_code)


def test_topics_by_id_on_every_gateway(wires: list[Any]) -> None:
    one, other = wires
    assert cluster(one).cluster_id == cluster(other).cluster_id != "penstock"
    name = f"{NAMESPACE}/orders"
    first = create(one, name)
    # The other has never heard of the topic by its name: it leads it, or knows that another one does.
    assert all(fetch_code(wire, first) in (0, 6) for wire in wires)
    assert settled(lambda: {fetch_code(wire, first) for wire in wires} == {0, 6})
    assert by_id(other, first).name == name
    deleted = one.ask(DELETE, 6, topics=[{"name": None, "topic_id": first}], timeout=30_000)
    assert deleted.responses[0].error_code == 0
    second = create(one, name)
    assert second != first
    assert settled(lambda: all(by_id(wire, second).name == name for wire in wires))
    assert settled(lambda: {fetch_code(wire, second) for wire in wires} == {0, 6})
    # UNKNOWN_TOPIC_ID, upon which clients read their metadata again.
    assert settled(lambda: {fetch_code(wire, first) for wire in wires} == {100})
    asked = [{"topic_id": NOBODY, "name": name}]
    assert [wire.ask(METADATA, 12, topics=asked).topics[0].topic_id for wire in wires] == [second, second]
