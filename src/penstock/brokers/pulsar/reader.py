"""A reader: a subscription that the broker forgets, from a place that the reader knows (non-durable)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.message_ids import from_wire, to_wire
from penstock.brokers.pulsar.session import Cluster
from penstock.brokers.pulsar.subscription import Delivery, Subscription
from penstock.errors import Unreachable
from penstock.wire.pulsar import EARLIEST, LATEST, MessageId, encode_command
from penstock.wire.pulsar.pulsar_pb2 import CommandAck, CommandGetLastMessageId, CommandSubscribe

__all__ = ["Reader"]

T = TypeVar("T")
_ATTEMPTS = 10
"""How often a reader is moved to a time before that is given up."""


class Reader(Subscription[T]):
    """Made by `PulsarClient.reader`. Entries come whole and in order, beginning with the one at `start`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        ids: Callable[[], int],
        start: MessageId = EARLIEST,
        read_compacted: bool = False,
        convert: Callable[[Delivery], T] | None = None,
        size_of: Callable[[T], int] | None = None,
        read_bytes: int | None = None,
        create: bool = True,
    ) -> None:
        super().__init__(cluster, topic, ids=ids, convert=convert, size_of=size_of, read_bytes=read_bytes)
        self._create = create
        self._start = _at(start)
        self._read_compacted = read_compacted
        self._name = f"penstock-{secrets.token_hex(8)}"
        self._lives = count()
        self._life = 0
        self._moved = False
        self._is_placed = True
        """Whether it is known where to go on; until then nothing is asked for."""

    async def seek(self, start: MessageId) -> None:
        """Go on with the entry at `start`; what waits in the queue is dropped."""
        connection = await self._attached()
        self._forget()
        self._start = _at(start)
        self._moved, self._is_placed = False, True
        connection.consumers.pop(self._consumer_id, None)
        self._useful = True
        self.on_lost(connection, Unreachable("the reader was moved"))
        await self._attached()

    async def seek_to_time(self, publish_time: int) -> None:
        """Go on with the first entry published at or after a time in milliseconds.

        After an error the place is not known, and it may be that nothing comes: seek once more.
        """
        for _ in range(_ATTEMPTS):
            await self._attached()
            # The broker moves the cursor of our subscription, which then is joined once more. If that fails
            # the cursor is gone, because nobody else has it, and with it the place.
            self._moved, self._is_placed = True, False
            self._start = EARLIEST
            await self._seek(message_publish_time=publish_time)
            await self._attached()
            if self._is_placed:
                return
        raise Unreachable(f"the broker did not move a reader of topic {self.topic}", next="try once more")

    async def _attach(self, connection: Connection) -> None:
        await super()._attach(connection)
        moved, self._moved = self._moved, False
        if self.received is None and (moved or self._start == LATEST):
            await self._fix_start(connection, moved)
        self._is_placed = self._is_placed or moved

    def _ask_for_more(self) -> None:
        if self._is_placed:
            super()._ask_for_more()

    async def _fix_start(self, connection: Connection, moved: bool) -> None:
        """Learn the place we are at, so that nothing is missed if we are lost before the first entry."""
        command = CommandGetLastMessageId(consumer_id=self._consumer_id, request_id=0)
        answer = await connection.request(command)
        place = from_wire(answer.consumer_mark_delete_position if moved else answer.last_message_id)
        self._start = _behind(place) if place.ledger_id >= 0 else EARLIEST

    def _on_grant(self, connection: Connection) -> None:
        """Tell the broker how far we are whenever we ask for more: it shows the rest as backlog."""
        if self.received is not None:
            done = [to_wire(self.received)]
            command = CommandAck(
                consumer_id=self._consumer_id, ack_type=CommandAck.CUMULATIVE, message_id=done
            )
            connection.write(encode_command(command))

    def _command(self, consumer_id: int) -> Any:
        if not self._moved:
            self._life = next(self._lives)
        return CommandSubscribe(
            topic=self.topic,
            # A new name each time: the cursor of a former one may live on for a moment.
            subscription=f"{self._name}-{self._life}",
            sub_type=CommandSubscribe.EXCLUSIVE,
            consumer_id=consumer_id,
            request_id=0,
            durable=False,
            read_compacted=self._read_compacted,
            force_topic_creation=self._create,
            start_message_id=to_wire(self._start if self.received is None else _behind(self.received)),
        )


def _at(message_id: MessageId) -> MessageId:
    """A place with a batch index begins at its entry, one without begins behind it."""
    return message_id if message_id in {EARLIEST, LATEST} else message_id._replace(batch_index=0)


def _behind(message_id: MessageId) -> MessageId:
    return message_id._replace(batch_index=-1)
