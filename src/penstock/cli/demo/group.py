"""A Kafka consumer group that reads a topic of Pulsar through the gateway: its lag is Pulsar's backlog."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.brokers.kafka_offsets import KafkaOffsets, Offsets
from penstock.brokers.pulsar_subscriptions import PulsarSubscriptions
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from penstock.embedded.stack import Stack

__all__ = ["GROUP", "Standing", "read_in_two_parts"]

GROUP: Final = "shop-shipping"
_PATIENCE: Final = 60.0
_CHUNK: Final = 1000
_WAIT: Final = 0.2
"""Seconds for which a chunk is waited for: the last one is never full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far the group has come, as each side counts it."""

    read: int
    lag: int
    """Records between what is committed and the end, by the Kafka protocol."""
    messages: int | None
    """What Pulsar's analyze-backlog counts for the subscription of the group's name."""
    entries: int
    """What Pulsar's statistics show: entries, each of which is a batch."""

    @property
    def right(self) -> bool:
        """Whether both sides agree."""
        return self.lag == self.messages

    def __str__(self) -> str:
        backlog = f"{self.messages} messages in {self.entries} entries"
        return f"{self.read} read, lag {self.lag}; Pulsar's backlog of it: {backlog}"


def read_in_two_parts(stack: Stack, topic: str) -> Iterator[Standing]:
    """Read the first half of the partitions, then the others; each time say where the group stands.

    Whole partitions, because inside an entry Pulsar's analyze-backlog counts what was read of it too.
    """
    options = {"bootstrap.servers": stack.gateway.bootstrap}
    admin = KafkaOffsets(options, name="gateway")
    begin, ends = admin.earliest(topic), admin.latest(topic)
    order, done = sorted(ends), 0
    for chosen in (order[: len(order) // 2], order[len(order) // 2 :]):
        positions = {**begin, **admin.committed(GROUP, topic)}
        done += _consume(options, topic, positions, {number: ends[number] for number in chosen})
        yield _standing(stack, admin, topic, done)


def _consume(options: dict[str, str], topic: str, positions: dict[int, int], ends: Offsets) -> int:
    """Read some partitions to their ends as a member of the group, and commit; give how many were read."""
    from confluent_kafka import Consumer, TopicPartition

    def only_these(consumer: Consumer, assigned: list[TopicPartition]) -> None:
        consumer.assign([part for part in assigned if part.partition in ends])

    settings = {"group.id": GROUP, "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, **settings, "log_level": "0"})
    consumer.subscribe([topic], on_assign=only_these)
    read, deadline = 0, time.monotonic() + _PATIENCE
    try:
        while any(positions[number] < end for number, end in ends.items()) and time.monotonic() < deadline:
            for message in consumer.consume(_CHUNK, timeout=_WAIT):
                if message.error() is None:
                    read += 1
                    positions[message.partition()] = message.offset() + 1
        places = [TopicPartition(topic, partition, offset) for partition, offset in positions.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()
    return read


def _standing(stack: Stack, admin: KafkaOffsets, topic: str, read: int) -> Standing:
    """Look at both sides; the gateway moves the cursor a few seconds after a commit."""
    pulsar = PulsarSubscriptions({"url": stack.pulsar.admin_url}, name="pulsar")
    try:
        end = time.monotonic() + _PATIENCE
        while not (found := _look(pulsar, admin, topic, read)).right and time.monotonic() < end:
            time.sleep(_WAIT)
        return found
    finally:
        pulsar.close()


def _look(pulsar: PulsarSubscriptions, admin: KafkaOffsets, topic: str, read: int) -> Standing:
    committed: Offsets = admin.committed(GROUP, topic)
    ends = admin.latest(topic)
    lag = sum(end - committed.get(partition, 0) for partition, end in ends.items())
    messages = _messages(pulsar, [f"{topic}-partition-{partition}" for partition in ends])
    # Behind the count of messages: what is counted later was moved at least as far.
    entries = pulsar.look([topic])[topic].backlogs().get(GROUP, 0)
    return Standing(read=read, lag=lag, messages=messages, entries=entries)


def _messages(pulsar: PulsarSubscriptions, partitions: Sequence[str]) -> int | None:
    try:
        found = [pulsar.messages_left(partition, GROUP) for partition in partitions]
    except ClusterError:  # the gateway has not made the cursor yet
        return None
    return None if None in found else sum(each or 0 for each in found)
