"""A Kafka in memory for tests: the gateway's own protocol code over a dictionary, on a loopback port.

    with MemoryKafka() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

Every client that works with the gateway works with it. Nothing is stored and nothing survives it.

And a pipeline in memory, for tests of routes and functions:

    result = run_route("pipeline.yaml", [event], route="large-orders")
    assert result.events("ordersLarge")[0].subject == "ada"
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from bisect import bisect_right
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.errors import ApiError, InternalError
from penstock.gateway.cluster_id import new_cluster_id
from penstock.gateway.dispatch import advertised
from penstock.gateway.groups.group import Limits as GroupLimits
from penstock.gateway.groups.solo import SoloGroups
from penstock.gateway.handler import Services, Settings
from penstock.gateway.ports import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Appended,
    Found,
    NewTopic,
    Node,
    Slice,
    Topic,
    TopicConfig,
)
from penstock.gateway.scan import first_at
from penstock.gateway.server import Server
from penstock.gateway.topic_settings import TOPIC_SETTINGS, check_setting
from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches

if TYPE_CHECKING:
    from penstock.pipeline.trial import Sample, Trial

__all__ = ["MemoryKafka", "MemoryStorage", "run_route"]

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 249
_WRAP = 1 << 31
_INFLATED = 64 * 1024 * 1024
_REMEMBERED = 5
"""Kafka remembers the last five batches of an idempotent producer."""


@dataclass(slots=True)
class _Producer:
    """What a partition knows of an idempotent producer."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last sequence, and base offset, of the newest batches."""


@dataclass(slots=True)
class _Partition:
    batches: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """The base offset of each batch."""
    times: list[int] = field(default_factory=list)
    end: int = 0
    start: int = 0
    producers: dict[int, _Producer] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryStorage:
    """Topics, logs, producers and one node, in memory; serves all ports of the gateway."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._logs: dict[tuple[str, int], _Partition] = {}
        self._producer_ids = itertools.count(1000)
        self._cluster_id = new_cluster_id()
        self.address = Node(id=1, host="127.0.0.1", port=0)

    # Topics

    async def all(self) -> Sequence[Topic]:
        """Give every topic."""
        return list(self._topics.values())

    async def get(self, name: str) -> Topic | None:
        """Give one topic by name."""
        return self._topics.get(name)

    async def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Give one topic by its id."""
        return self.known(topic_id)

    def known(self, topic_id: uuid.UUID) -> Topic | None:
        """Give one topic by its id, at once."""
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> Topic:
        """Make a topic."""
        legal = set(topic.name) <= _LEGAL and 0 < len(topic.name) <= _LONGEST_NAME
        if not legal or topic.name in (".", ".."):
            raise ApiError("the name is not legal", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        if topic.name in self._topics:
            raise ApiError("the topic exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
        self._check(topic.configs)
        made = Topic(name=topic.name, topic_id=uuid.uuid4(), partitions=topic.partitions)
        if not validate_only:
            self._topics[topic.name] = made
            given = {name: value for name, value in topic.configs.items() if value is not None}
            self._configs[topic.name] = given
            for index in range(topic.partitions):
                self._logs[topic.name, index] = _Partition()
        return made

    async def delete(self, name: str) -> None:
        """Remove a topic."""
        topic = self._known(name)
        del self._topics[name], self._configs[name]
        for index in range(topic.partitions):
            self._logs.pop((name, index)).grown.set()

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions."""
        topic = self._known(name)
        if partitions <= topic.partitions:
            raise ApiError("partitions only grow", error_code=ErrorCode.INVALID_PARTITIONS)
        if not validate_only:
            for index in range(topic.partitions, partitions):
                self._logs[name, index] = _Partition()
            self._topics[name] = replace(topic, partitions=partitions)

    async def configs(self, name: str) -> Mapping[str, TopicConfig]:
        """Give the settings of a topic."""
        self._known(name)
        given = self._configs[name]
        return {
            key: TopicConfig(given.get(key, setting.default), key in given)
            for key, setting in TOPIC_SETTINGS.items()
            if key in given or not setting.is_former
        }

    async def configure(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a topic."""
        self._known(name)
        self._check(changes)
        if not validate_only:
            changed = self._configs[name] | dict(changes)
            self._configs[name] = {key: value for key, value in changed.items() if value is not None}

    def _check(self, configs: Mapping[str, str | None]) -> None:
        for name, value in configs.items():
            check_setting(name, value)

    def _max_message_bytes(self, topic: str) -> int:
        name = "max.message.bytes"
        return int(self._configs[topic].get(name, TOPIC_SETTINGS[name].default))

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise ApiError("no such topic", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _log(self, topic: str, partition: int) -> _Partition:
        log = self._logs.get((topic, partition))
        if log is None:
            raise ApiError("no such partition", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log

    # Log

    def append(self, topic: str, partition: int, batch: RecordBatch) -> Awaitable[Appended]:
        """Append a batch at once; there is nothing to wait for."""
        log = self._log(topic, partition)
        if len(batch.data) > self._max_message_bytes(topic):
            raise ApiError("the batch is too large", error_code=ErrorCode.MESSAGE_TOO_LARGE)
        batch.check()
        base = _known_batch(log, batch)
        if base is None:
            base = log.end
            stored = bytearray(batch.data)
            stored[0:8] = base.to_bytes(8, "big")
            stored[12:16] = (0).to_bytes(4, "big")
            log.batches.append(bytes(stored))
            log.offsets.append(base)
            log.times.append(batch.max_timestamp)
            log.end += batch.last_offset_delta + 1
            log.grown.set()
            log.grown = asyncio.Event()
        return _done(Appended(base_offset=base, log_start_offset=log.start))

    def refused(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Nothing waits here: a batch is stored at once or not at all."""

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on."""
        log = self._log(topic, partition)
        if not log.start <= offset <= log.end:
            raise ApiError("outside of the log", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        taken: list[bytes] = []
        if offset < log.end:
            for batch in log.batches[bisect_right(log.offsets, offset) - 1 :]:
                if taken and sum(map(len, taken)) + len(batch) > max_bytes:
                    break
                taken.append(batch)
        following = _end_of(taken[-1]) if taken else offset
        return Slice(
            batches=tuple(taken),
            high_watermark=log.end,
            log_start_offset=log.start,
            next_offset=following,
            is_cut=following < log.end,
        )

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        """Find an offset by place, or the batch that reaches a time."""
        log = self._log(topic, partition)
        if timestamp in (LATEST, EARLIEST):
            return Found(offset=log.end if timestamp == LATEST else log.start)
        if timestamp == MAX_TIMESTAMP:
            newest = max(log.times, default=-1)
            found = self._at(log, log.times.index(newest), newest) if newest >= 0 else None
            return found or Found()
        for number, newest in enumerate(log.times):
            if newest >= timestamp and (found := self._at(log, number, timestamp)) is not None:
                return found
        return Found()

    def _at(self, log: _Partition, number: int, timestamp: int) -> Found | None:
        [batch] = read_batches(log.batches[number])
        return first_at(batch, timestamp, limit=_INFLATED, start=log.start)

    async def arrival(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the log holds this offset."""
        log = self._log(topic, partition)
        while log.end <= offset:
            await log.grown.wait()
            log = self._log(topic, partition)

    async def trim(self, topic: str, partition: int, offset: int) -> int:
        """Move the start of the log."""
        log = self._log(topic, partition)
        wanted = log.end if offset == -1 else offset
        if not 0 <= wanted <= log.end:
            raise ApiError("outside of the log", error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        log.start = max(log.start, wanted)
        return log.start

    # Producers and the cluster

    async def new_producer(self) -> tuple[int, int]:
        """Give the next producer id."""
        return next(self._producer_ids), 0

    @property
    def cluster_id(self) -> str:
        """The name of the cluster: each one in memory has its own."""
        return self._cluster_id

    @property
    def node_id(self) -> int:
        """The only node."""
        return self.address.id

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give the only node."""
        return [self.address]

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[str, Sequence[int]]:
        """Give the only node."""
        return {topic.name: [self.address.id] * topic.partitions for topic in topics}


def _end_of(batch: bytes) -> int:
    return int.from_bytes(batch[0:8], "big") + int.from_bytes(batch[23:27], "big") + 1


async def _done(appended: Appended) -> Appended:
    return appended


def _known_batch(log: _Partition, batch: RecordBatch) -> int | None:
    """Check an idempotent batch: its offset if it is a repetition, None if it is the next one."""
    if batch.producer_id < 0:
        return None
    known = log.producers.get(batch.producer_id)
    if known is None or batch.producer_epoch > known.epoch:
        known = log.producers[batch.producer_id] = _Producer(batch.producer_epoch)
    if batch.producer_epoch < known.epoch:
        raise ApiError("an older epoch", error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    first, last = batch.base_sequence, (batch.base_sequence + batch.last_offset_delta) % _WRAP
    for seen_first, seen_last, offset in known.batches:
        if (first, last) == (seen_first, seen_last):
            return offset
    if known.batches and first != (known.batches[-1][1] + 1) % _WRAP:
        raise ApiError("a sequence out of order", error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    known.batches = [*known.batches, (first, last, log.end)][-_REMEMBERED:]
    return None


class MemoryKafka:
    """A Kafka on a loopback port, in a thread of its own."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.storage = MemoryStorage()
        self._settings = settings or Settings()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="memory-kafka", daemon=True)
        self._server: Server | None = None
        self._groups: SoloGroups | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients: host:port."""
        return f"{self.storage.address.host}:{self.storage.address.port}"

    def start(self) -> Self:
        """Start to listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return self

    async def _listen(self) -> None:
        storage = self.storage
        # As in a Kafka for tests: an empty group does not wait for more members.
        self._groups = SoloGroups(storage.node_id, GroupLimits(initial_delay=0.0))
        services = Services(
            topics=storage,
            log=storage,
            producers=storage,
            cluster=storage,
            groups=self._groups,
            settings=self._settings,
            versions=advertised(),
        )
        self._server = Server(services)
        _, port = await self._server.start("127.0.0.1", 0)
        storage.address = replace(storage.address, port=port)

    def close(self) -> None:
        """Stop listening and end the thread."""
        if self._server is None or self._groups is None:
            raise InternalError("it was not started")
        self._loop.call_soon_threadsafe(self._groups.close)
        asyncio.run_coroutine_threadsafe(self._server.drain(1.0), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_route(
    pipeline: str | Path, events: Iterable[Sample], *, route: str | None = None, receive: str | None = None
) -> Trial:
    """Give events to a route of a pipeline file, its function included, without Spark and without a broker.

    Without `route` all routes run that receive by `receive`, which may be left out if there is one source.
    The result has the events by channel, the dead letters, the receipts and the counts.
    """
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.trial import try_out

    return try_out(load_pipeline(pipeline), list(events), route=route, receive=receive)
