"""A consumer: a subscription whose place the broker keeps, moved by acknowledgements (durable).

One consumer reads it at a time (exclusive, or failover with others waiting). What was acknowledged is
known exactly: an acknowledgement returns when the broker has confirmed it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from penstock.brokers.pulsar.message_ids import ack_set, to_wire
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.pulsar.session import Cluster
from penstock.brokers.pulsar.subscription import Delivery, Subscription
from penstock.wire.pulsar import EARLIEST, MessageId
from penstock.wire.pulsar.pulsar_pb2 import CommandAck, CommandSubscribe, CommandUnsubscribe

__all__ = ["Consumer", "SilentConsumer", "SubscriptionType"]

T = TypeVar("T")


class SubscriptionType(IntEnum):
    """How consumers of a subscription share it; those with one reader at a time."""

    EXCLUSIVE = CommandSubscribe.EXCLUSIVE
    FAILOVER = CommandSubscribe.FAILOVER


class Consumer(Subscription[T]):
    """Made by `PulsarClient.consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        ids: Callable[[], int],
        subscription: str,
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        start: MessageId = EARLIEST,
        convert: Callable[[Delivery], T] | None = None,
    ) -> None:
        super().__init__(cluster, topic, ids=ids, convert=convert)
        self.subscription = subscription
        self.kind = kind
        self.acknowledged: MessageId | None = None
        """The highest cumulative acknowledgement that the broker has confirmed to us."""
        self._start = start

    async def acknowledge_up_to(self, message_id: MessageId, *, batch_size: int = 0) -> None:
        """Acknowledge a message and all before it.

        With a batch index and the size of the batch the place may be inside an entry; a broker without
        `acknowledgmentAtBatchIndexLevelEnabled` then takes the entries before it only.
        """
        index = message_id.batch_index
        words = ack_set(batch_size, range(index + 1)) if 0 <= index < batch_size else []
        await self._acknowledge(CommandAck.CUMULATIVE, [to_wire(message_id, acked=words)])
        if self.acknowledged is None or message_id > self.acknowledged:
            self.acknowledged = message_id

    async def acknowledge(self, message_id: MessageId, *, batch_size: int = 0) -> None:
        """Acknowledge one entry, or one message of a batch by its index and the size of the batch."""
        index = message_id.batch_index
        words = ack_set(batch_size, [index]) if 0 <= index < batch_size else []
        await self._acknowledge(CommandAck.INDIVIDUAL, [to_wire(message_id, acked=words)])

    async def seek(self, place: MessageId) -> None:
        """Move the subscription to an entry: it is the next one that is delivered."""
        await self._seek(message_id=to_wire(place))

    async def seek_to_time(self, publish_time: int) -> None:
        """Move the subscription to the first entry published at or after a time in milliseconds."""
        await self._seek(message_publish_time=publish_time)

    async def unsubscribe(self) -> None:
        """Delete the subscription, and end."""
        await self._ask(lambda: CommandUnsubscribe(consumer_id=self._consumer_id, request_id=0))
        await self.close()

    async def _acknowledge(self, kind: int, ids: list[Any]) -> None:
        answer = await self._ask(
            lambda: CommandAck(
                consumer_id=self._consumer_id,
                ack_type=CommandAck.AckType.Name(kind),
                message_id=ids,
                request_id=0,
            )
        )
        if answer.HasField("error"):
            what = f"subscription {self.subscription} of topic {self.topic} took no acknowledgement"
            raise refusal(answer.error, answer.message, what=what)

    def _command(self, consumer_id: int) -> Any:
        earliest = self._start == EARLIEST
        return CommandSubscribe(
            topic=self.topic,
            subscription=self.subscription,
            sub_type=CommandSubscribe.SubType.Name(self.kind),
            consumer_id=consumer_id,
            request_id=0,
            durable=True,
            initial_position=CommandSubscribe.EARLIEST if earliest else CommandSubscribe.LATEST,
        )


class SilentConsumer(Consumer[Delivery]):
    """Made by `PulsarClient.silent_consumer`: asks for no entries, and only acknowledges."""

    def _ask_for_more(self) -> None:
        return
