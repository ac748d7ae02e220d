"""The cursor of a durable subscription: which entry is the first that is not read, and how much of it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.brokers.pulsar.message_ids import ack_set, first_unread, from_wire
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.pulsar_pb2 import ServerError
from simulator.pulsar_topic import Consuming, Refused, Stored

if TYPE_CHECKING:
    from simulator.pulsar_topic import Topic

__all__ = ["Cursor", "first_place", "join"]


@dataclass(eq=False)
class Cursor:
    """Where one subscription stands."""

    next: MessageId
    """The first entry that is not read whole."""
    done: int = 0
    """How many messages of it are acknowledged."""
    version: int = 0
    flow: int = 0

    def move(self, place: MessageId, done: int = 0) -> None:
        """Go somewhere."""
        self.next, self.done = place, done
        self.version += 1

    def acks(self, entry: Stored) -> tuple[int, ...]:
        """Give the ack set of an entry, for who is given it."""
        if self.done and entry.place[:2] == self.next[:2]:
            return tuple(ack_set(entry.messages, 0, self.done - 1))
        return ()

    def acknowledge(self, body: Any) -> None:
        """Take a cumulative acknowledgement, which may end inside of an entry."""
        for each in body.message_id:
            place = from_wire(each)
            if each.ack_set:
                self.move(MessageId(*place[:2]), first_unread(each.ack_set))
            else:
                self.move(MessageId(place.ledger_id, place.entry_id + 1))

    def offset(self, topic: Topic) -> int:
        """Give the offset of the first message that is not acknowledged."""
        for entry in topic.entries():
            if entry.place[:2] >= self.next[:2]:
                done = self.done if entry.place[:2] == self.next[:2] else 0
                return entry.index - entry.messages + 1 + done
        return topic.next_index

    def stats(self, topic: Topic) -> dict[str, Any]:
        """Give what the statistics of a topic say of it."""
        backlog = sum(1 for entry in topic.entries() if entry.place[:2] >= self.next[:2])
        consumers = [{} for consumer in topic.consumers if consumer.cursor is self]
        return {"consumers": consumers, "msgBacklog": backlog, "lastConsumedFlowTimestamp": self.flow}

    def internal_stats(self) -> dict[str, Any]:
        """Give what the statistics of the managed ledger say of it."""
        mark = f"{self.next.ledger_id}:{self.next.entry_id - 1}"
        return {"markDeletePosition": mark, "cursorLedger": 1, "cursorLedgerLastEntry": self.version}


def join(topic: Topic, consumer: Consuming, name: str, *, alone: bool = True) -> None:
    """Attach a consumer to a subscription, alone or, for failover, beside others; those ask for nothing."""
    if name not in topic.cursors:
        raise Refused(ServerError.SUBSCRIPTION_NOT_FOUND, f"there is no subscription {name}")
    cursor = topic.cursors[name]
    if alone and any(each.cursor is cursor for each in topic.consumers):
        raise Refused(ServerError.CONSUMER_BUSY, f"{name} has a consumer")
    consumer.cursor, consumer.next = cursor, cursor.next


def first_place(topic: Topic, place: MessageId) -> MessageId:
    """Give the entry that a place means; -1:-1 is the first one."""
    if place.ledger_id >= 0:
        return MessageId(*place[:2])
    first = next((ledger for ledger, entries in topic.ledgers.items() if entries), None)
    return MessageId(next(reversed(topic.ledgers)) if first is None else first, 0)
