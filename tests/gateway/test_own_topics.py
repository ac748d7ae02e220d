"""The topics in which gateways keep their state: clients can read them, and change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.errors import ApiError
from penstock.gateway.ports import NewTopic
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.packed_partition import PackedPartition
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.storage import PulsarStorage
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches

OWN = [
    "public/__kafka/__consumer_offsets",
    "persistent://public/__kafka/__consumer_offsets",
    "persistent://public/__kafka/__consumer_offsets-partition-3",
    "public/__kafka/__gateways",
    "public/__kafka/anything",
    "acme/state/__consumer_offsets",
]
OTHERS = ["acme/state/orders", "__x", "public/default/__consumer_offsets", "acme/__kafka/x"]
CHANGES = ("create_topic", "delete_topic", "add_partitions", "set_policy", "remove_policy", "truncate")


def batch() -> RecordBatch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    builder.append(0, timestamp=1, key=b"k", value=b"v", headers=[])
    [made] = read_batches(bytes(builder.build()))
    return made


WAYS: dict[str, Callable[[PulsarStorage, str], Awaitable[Any]]] = {
    "create": lambda storage, name: storage.topics.create(NewTopic(name=name, partitions=1)),
    "delete": lambda storage, name: storage.topics.delete(name),
    "grow": lambda storage, name: storage.topics.grow(name, 20),
    "configure": lambda storage, name: storage.topics.configure(name, {"retention.ms": "60000"}),
    "trim": lambda storage, name: storage.trim(name, 0, -1),
    "append": lambda storage, name: storage.append(name, 0, batch()),
}


def storage_on(pulsar: Any, **more: Any) -> PulsarStorage:
    own = frozenset({"public/__kafka", "acme/state"})
    return PulsarStorage(pulsar, pulsar, names=Names(own_namespaces=own), **more)


@pytest.fixture
def run(fake_pulsar: Any) -> Any:
    def runs(work: Any, **more: Any) -> None:
        async def inside() -> None:
            pulsar = fake_pulsar()
            pulsar.changed = []

            def noted(name: str) -> Any:
                async def change(*_: Any, **__: Any) -> None:
                    pulsar.changed.append(name)

                return change

            async def without_partitions(topic: str) -> int:
                return 0

            for name in CHANGES:
                setattr(pulsar, name, noted(name))
            pulsar.partitions = without_partitions
            storage = storage_on(pulsar, **more)
            try:
                await work(pulsar, storage)
            finally:
                await storage.close()

        asyncio.run(inside())

    return runs


@pytest.mark.parametrize("kind", [Partition, PackedPartition])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OWN)
def test_clients_change_nothing_of_the_gateways_own(
    run: Any, name: str, way: str, kind: type[Partition]
) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                await WAYS[way](storage, name)
            assert caught.value.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            # The second time the partition is open already, by a consumer.
            await storage._partition(name, 0)
        assert pulsar.changed == []
        assert pulsar.entries == {}

    run(work, partitions=kind)


@pytest.mark.parametrize("name", OTHERS)
def test_topics_of_others_are_as_before(run: Any, name: str) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        await asyncio.wait_for(storage.append(name, 0, batch()), 10)
        await storage.topics.delete(name)
        assert pulsar.changed == ["delete_topic"]
        assert len(pulsar.entries) == 1

    run(work)


def test_they_can_be_read_and_are_told_to_be_internal(run: Any) -> None:
    async def work(pulsar: Any, storage: PulsarStorage) -> None:
        for name in OWN:
            found = await storage.topics.get(name)
            assert found is not None and found.internal
            assert not (await storage._partition(name, 0)).compacted
        other = await storage.topics.get("orders")
        assert other is not None and not other.internal

    run(work)
