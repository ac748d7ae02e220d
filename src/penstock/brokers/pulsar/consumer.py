"""A consumer: a subscription whose place the broker keeps, moved by acknowledgements (durable).

One consumer reads it at a time (exclusive, or failover with others waiting). What was acknowledged is
known exactly: an acknowledgement returns when the broker has confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from penstock.brokers.pulsar.message_ids import LARGEST_BATCH, ack_set, first_unread, to_wire
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.pulsar.session import Cluster
from penstock.brokers.pulsar.subscription import Delivery, Subscription
from penstock.errors import ClusterError, WireError
from penstock.wire.pulsar import EARLIEST, Message, MessageId, encode_flow, read_entry
from penstock.wire.pulsar.pulsar_pb2 import CommandAck, CommandSubscribe, CommandUnsubscribe

__all__ = ["Consumer", "FirstUnread", "PeekingConsumer", "SubscriptionType"]

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
        repeats_acknowledgement: bool = False,
        create: bool = True,
    ) -> None:
        """With `repeats_acknowledgement` the last cumulative one is sent again after each reconnection.

        A broker confirms an acknowledgement before it is stored, and loses it if the topic is unloaded at
        that moment. Only for subscriptions that nobody else moves: it would undo a seek of an operator.
        """
        super().__init__(cluster, topic, ids=ids, convert=convert)
        self.subscription = subscription
        self.kind = kind
        self.acknowledged: MessageId | None = None
        """The highest cumulative acknowledgement that the broker has confirmed to us."""
        self._start = start
        self._create = create
        self._repeats_acknowledgement = repeats_acknowledgement
        self._confirmed: Any = None
        """The last cumulative acknowledgement that was confirmed, as it was sent."""

    async def acknowledge_up_to(self, message_id: MessageId, *, batch_size: int = 0) -> None:
        """Acknowledge a message and all before it.

        With a batch index and the size of the batch the place may be inside an entry; a broker without
        `acknowledgmentAtBatchIndexLevelEnabled` then takes the entries before it only. So it is with a batch
        that claims more messages than fit into an entry.
        """
        index = message_id.batch_index
        if 0 <= index < batch_size and batch_size > LARGEST_BATCH:
            if message_id.entry_id == 0:
                return
            message_id, index = MessageId(message_id.ledger_id, message_id.entry_id - 1), -1
        words = ack_set(batch_size, 0, index) if 0 <= index < batch_size else []
        sent = to_wire(message_id, acked=words)
        await self._acknowledge(CommandAck.CUMULATIVE, [sent])
        if self.acknowledged is None or message_id > self.acknowledged:
            self.acknowledged, self._confirmed = message_id, sent

    async def acknowledge(self, message_id: MessageId, *, batch_size: int = 0) -> None:
        """Acknowledge one entry, or one message of a batch by its index and the size of the batch.

        Nothing is acknowledged of a batch that claims more messages than fit into an entry.
        """
        index = message_id.batch_index
        if 0 <= index < batch_size and batch_size > LARGEST_BATCH:
            return
        words = ack_set(batch_size, index, index) if 0 <= index < batch_size else []
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

    def _resume(self) -> None:
        super()._resume()
        if self._repeats_acknowledgement and self._confirmed is not None:
            again = self._acknowledge(CommandAck.CUMULATIVE, [self._confirmed])
            self._tasks.start(again, name=f"acknowledgement of {self.subscription} on {self.topic}")

    def _command(self, consumer_id: int) -> Any:
        earliest = self._start == EARLIEST
        return CommandSubscribe(
            topic=self.topic,
            subscription=self.subscription,
            sub_type=CommandSubscribe.SubType.Name(self.kind),
            consumer_id=consumer_id,
            request_id=0,
            durable=True,
            force_topic_creation=self._create,
            initial_position=CommandSubscribe.EARLIEST if earliest else CommandSubscribe.LATEST,
        )


class FirstUnread(NamedTuple):
    """The first message that a subscription has not acknowledged, and how many its entry holds."""

    message_id: MessageId
    """With the index in the batch, 0 in an entry that is no batch."""
    batch_size: int


class PeekingConsumer(Consumer[Delivery]):
    """Made by `PulsarClient.peeking_consumer`: says where a subscription stands, within an entry too.

    It asks for nothing by itself, and may acknowledge.
    """

    _first: asyncio.Future[FirstUnread] | None = None

    async def first_unread(self, *, within: float) -> FirstUnread:
        """Ask for the first message that is not acknowledged; ClusterError if none comes in time.

        `within` is in seconds.
        """
        connection = await self._attached()
        self._first = asyncio.get_running_loop().create_future()
        connection.write(encode_flow(self._consumer_id, 1))
        try:
            return await asyncio.wait_for(self._first, within)
        except TimeoutError as exc:
            what = f"subscription {self.subscription} of topic {self.topic}"
            raise ClusterError(f"{what} was given nothing within {within:g} s") from exc

    def _ask_for_more(self) -> None:
        return

    def on_message(self, message: Message) -> None:
        """Note where it is; it is not acknowledged, so the next consumer is given it again."""
        if self._first is None or self._first.done():
            return
        try:
            size = max(read_entry(message.entry).num_messages, 1)
            place = message.message_id._replace(batch_index=first_unread(message.ack_set()))
        except WireError as exc:
            self._first.set_exception(exc)
        else:
            self._first.set_result(FirstUnread(place, size))
