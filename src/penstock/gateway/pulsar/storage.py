"""Pulsar as the ports of the gateway: topics, logs, producers and the cluster of one gateway."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence

from penstock.brokers.pulsar import Admin, PulsarClient
from penstock.errors import ApiError, ClusterError
from penstock.gateway.ports import Appended, Found, Node, Slice
from penstock.gateway.pulsar.names import Names
from penstock.gateway.pulsar.partition import Partition
from penstock.gateway.pulsar.topics import PulsarTopics
from penstock.wire.kafka import ErrorCode, RecordBatch

__all__ = ["PulsarStorage"]


class PulsarStorage:
    """Everything that the handlers ask for, served by one Pulsar cluster."""

    def __init__(
        self,
        client: PulsarClient,
        admin: Admin,
        *,
        names: Names,
        node_id: int = 1,
        advertised: Mapping[str, tuple[str, int]] | None = None,
        max_batch_bytes: int = 5 * 1024 * 1024,
        placeholders: bool = False,
    ) -> None:
        self.topics = PulsarTopics(client, admin, names)
        self.undecodable: Counter[str] = Counter()
        """Entries that could not be read, by reason."""
        self.advertised = dict(advertised or {})
        self.node_id = node_id
        self.cluster_id = names.cluster
        self._client = client
        self._admin = admin
        self._max_batch_bytes = max_batch_bytes
        self._placeholders = placeholders
        self._partitions: dict[tuple[str, int], Partition] = {}

    async def close(self) -> None:
        """Close every partition."""
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))

    def offsets(self) -> tuple[int, int]:
        """Tell how many offsets of produced batches were counted, and how many learnt from the index."""
        counters = [partition.counter for partition in self._partitions.values()]
        return sum(each.counted for each in counters), sum(each.learnt for each in counters)

    # Log

    def append(self, topic: str, partition: int, batch: RecordBatch) -> Awaitable[Appended]:
        """Take a batch; a partition that is open takes it at once, which keeps the order."""
        found = self._partitions.get((topic, partition))
        if found is None:
            return self._append_first(topic, partition, batch)
        return self._appended(found, found.writer.append(batch))

    async def _append_first(self, topic: str, partition: int, batch: RecordBatch) -> Appended:
        found = await self._partition(topic, partition)
        return await self._appended(found, found.writer.append(batch))

    async def _appended(self, partition: Partition, offset: Awaitable[int]) -> Appended:
        base = await offset
        return Appended(base_offset=base, log_start_offset=await partition.start())

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on."""
        found = await self._partition(topic, partition)
        try:
            return await found.read(offset, max_bytes)
        except ClusterError as exc:
            raise ApiError(str(exc), error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER) from exc

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        """Find an offset by place or time."""
        found = await self._partition(topic, partition)
        try:
            return await found.find(timestamp)
        except ClusterError as exc:
            raise ApiError(str(exc), error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER) from exc

    async def arrival(self, topic: str, partition: int, offset: int) -> None:
        """Wait for a record."""
        await (await self._partition(topic, partition)).arrival(offset)

    async def trim(self, topic: str, partition: int, offset: int) -> int:
        """Remove what a partition holds."""
        return await (await self._partition(topic, partition)).trim(offset)

    async def _partition(self, topic: str, index: int) -> Partition:
        place = await self.topics.place(topic)
        if not 0 <= index < place.topic.partitions:
            raise ApiError("there is no such partition", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = self._partitions.get((topic, index))
        if found is None:
            found = self._partitions[topic, index] = Partition(
                self._client,
                self._admin,
                place.partition(index),
                max_batch_bytes=self._max_batch_bytes,
                placeholders=self._placeholders,
                undecodable=self.undecodable,
            )
        return found

    # Producers

    async def new_producer(self) -> tuple[int, int]:
        """Give an id that no gateway gave before, by chance large enough."""
        return secrets.randbits(62), 0

    # Cluster

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give this gateway at the address that the listener advertises."""
        host, port = self.advertised[listener]
        return [Node(id=self.node_id, host=host, port=port)]

    async def leader(self, topic: str, partition: int) -> int:
        """Lead every partition: there is one gateway."""
        return self.node_id
