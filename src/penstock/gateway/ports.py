"""What the API handlers ask of the storage behind them: topics, their logs, and the nodes of the cluster.

Pulsar serves these ports in a gateway, a dictionary serves them in `penstock.testing`. A refusal is an
`ApiError` with one of Kafka's error codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from penstock.wire.buffer import Buffer
from penstock.wire.kafka import RecordBatch

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Appended",
    "Cluster",
    "Found",
    "Log",
    "NewTopic",
    "Node",
    "Producers",
    "Slice",
    "Topic",
    "TopicConfig",
    "Topics",
]

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""The timestamps of ListOffsets that stand for a place; 0 and more is a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as clients see it."""

    name: str
    topic_id: UUID
    partitions: int
    internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that a client wants."""

    name: str
    partitions: int
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The value of a topic's setting."""

    value: str
    is_set: bool
    """Whether it was set on the topic itself; otherwise it is the default that holds for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the cluster, at its advertised address."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where a batch went."""

    base_offset: int
    log_start_offset: int
    log_append_time: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a log holds from an offset on: whole batches, the first of which may begin below it."""

    batches: tuple[Buffer, ...]
    high_watermark: int
    log_start_offset: int
    next_offset: int
    """The offset behind the batches; what to wait for if they are too few."""
    is_limited: bool = False
    """Whether waiting brings no more: it is as much as is given at once, for the memory that there is."""
    is_cut: bool = False
    """Whether more has come than was asked for."""

    @property
    def size(self) -> int:
        """The bytes of the batches."""
        return sum(map(len, self.batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An offset found by time or place; -1 if there is none."""

    offset: int = -1
    timestamp: int = -1


class Topics(Protocol):
    """The topics and their settings."""

    async def all(self) -> Sequence[Topic]:
        """Give every topic that clients may see."""

    async def get(self, name: str) -> Topic | None:
        """Give one topic by name."""

    async def by_id(self, topic_id: UUID) -> Topic | None:
        """Give one topic by its id."""

    def known(self, topic_id: UUID) -> Topic | None:
        """Give one topic by its id, if nothing has to be looked up for it."""

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> Topic:
        """Make a topic."""

    async def delete(self, name: str) -> None:
        """Remove a topic with all it holds."""

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions."""

    async def configs(self, name: str) -> Mapping[str, TopicConfig]:
        """Give the effective settings by name."""

    async def configure(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings; None takes a setting back to its default."""


class Log(Protocol):
    """The logs of the partitions."""

    def append(self, topic: str, partition: int, batch: RecordBatch) -> Awaitable[Appended]:
        """Begin to append a batch, in the order of the calls; await where it went.

        The bytes of the batch are the caller's again when this returns. A caller that cancels gives the
        batch up if it has not been sent yet.
        """

    def refused(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Note a batch that was refused before it was appended: what its producer sent behind it waits."""

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Slice:
        """Give batches from an offset on, at least one if there is any, about `max_bytes` of them."""

    async def find(self, topic: str, partition: int, timestamp: int) -> Found:
        """Find an offset by time, or by LATEST, EARLIEST, MAX_TIMESTAMP."""

    async def arrival(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the log holds this offset."""

    async def trim(self, topic: str, partition: int, offset: int) -> int:
        """Remove what is before an offset; give the new start of the log."""


class Producers(Protocol):
    """The identities of idempotent producers."""

    async def new_producer(self) -> tuple[int, int]:
        """Give a producer id that nobody has, and its epoch."""


class Cluster(Protocol):
    """The nodes that serve the topics."""

    @property
    def cluster_id(self) -> str:
        """The name of the cluster."""

    @property
    def node_id(self) -> int:
        """This node."""

    def nodes(self, listener: str) -> Sequence[Node]:
        """Give the live nodes at the addresses that a listener advertises."""

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[str, Sequence[int]]:
        """Give, by topic, the node that serves each partition; -1 where there is none."""
