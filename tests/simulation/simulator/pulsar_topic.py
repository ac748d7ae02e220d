"""One Pulsar topic as its broker keeps it: ledgers, deduplication, exclusive producers, readers, compaction.

What a broker has begun to store ("pushed") and what is stored ("persisted") differ for a while. Deduplication
counts by the former, readers are given the latter; of the rest a first part survives when the topic moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.wire.kernels import crc32c
from penstock.wire.pulsar import EARLIEST, LATEST, MessageId, read_entry
from penstock.wire.pulsar.pulsar_pb2 import (
    BrokerEntryMetadata,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
)

if TYPE_CHECKING:
    from simulator.pulsar import Pulsar, Session

__all__ = ["Attached", "Consuming", "Refused", "Stored", "Topic", "messages_of"]

_BROKER_MAGIC: Final = b"\x0e\x02"
_MAGIC: Final = b"\x0e\x01"
NOWHERE: Final = MessageId(-1, -1)


class Refused(Exception):
    """What the broker answers instead; `code` is a ServerError."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, eq=False)
class Stored:
    """One entry."""

    place: MessageId
    index: int
    """Of its last message."""
    messages: int
    data: bytes
    producer: str
    first: int
    last: int
    published: int
    stored_at: float


@dataclass(eq=False)
class Attached:
    """A producer of the topic, on its connection."""

    session: Session
    producer_id: int
    name: str
    epoch: int
    exclusive: bool
    pending: int = 0
    leaving: Any = None
    """What to answer when nothing is pending any more."""


@dataclass(eq=False)
class Consuming:
    """A consumer of the topic, on its connection; a reader has no cursor."""

    session: Session
    consumer_id: int
    next: MessageId
    compacted: bool = False
    cursor: Any = None
    permits: int = 0


@dataclass(eq=False)
class _Pending:
    producer: Attached | None
    first: int
    last: int
    messages: int
    entry: bytes


@dataclass(eq=False)
class Topic:
    """What is known of a topic; the methods are what a broker does with it."""

    pulsar: Pulsar
    name: str
    roll_after: int
    """Entries after which a ledger is closed."""
    owner: str | None = None
    """The broker that serves it; None while nobody does."""
    ledgers: dict[int, list[Stored]] = field(default_factory=dict)
    everything: list[Stored] = field(default_factory=list)
    """All that was ever stored, also what was trimmed since."""
    properties: dict[str, str] = field(default_factory=dict)
    producers: dict[str, Attached] = field(default_factory=dict)
    consumers: list[Consuming] = field(default_factory=list)
    cursors: dict[str, Any] = field(default_factory=dict)
    epoch: int = -1
    owners: list[str] = field(default_factory=list)
    """The nodes that have had it for themselves, in their order."""
    compacted: list[Stored] = field(default_factory=list)
    horizon: MessageId = NOWHERE
    """The last entry that compaction has seen."""
    next_index: int = 0
    """Of the next message."""
    refusing: dict[int, int] = field(default_factory=dict)
    """How many of the next entries are refused, and with which code."""
    on_pushed: Callable[[], None] | None = None
    """Called once, when the next entry has been begun."""
    _is_fenced: bool = False
    """Whether it failed to store, and takes nothing for a while."""
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Of names that the broker has forgotten, how many entries there were then."""
    _left: dict[str, float] = field(default_factory=dict)
    """When producers have gone."""
    _users: dict[str, set[str]] = field(default_factory=dict)
    """The nodes that have had a name."""
    _pushed: dict[str, int] = field(default_factory=dict)
    _persisted: dict[str, int] = field(default_factory=dict)
    _queue: deque[_Pending] = field(default_factory=deque)
    _load: int = 0
    _stored_until: float = 0.0

    # Coming and going

    def load(self, broker: str) -> None:
        """Serve the topic: a new ledger, and of deduplication what the log says."""
        self.owner = broker
        self._load += 1
        self._is_fenced = False
        self._roll()
        self._persisted.clear()
        for number, entry in enumerate(self.everything):
            if number < self._forgotten.get(entry.producer, 0):
                continue
            known = self._persisted.get(entry.producer, -1)
            self._persisted[entry.producer] = max(known, entry.last)
        self._pushed = dict(self._persisted)

    def unload(self) -> None:
        """Stop serving it: a first part of what was begun is stored, and clients hear that it is gone."""
        if self.owner is None:
            return
        for _ in range(self.pulsar.random.randint(0, len(self._queue))):
            self._store_head(self._load)
        self._queue.clear()
        self.owner = None
        self._load += 1
        producers, consumers = list(self.producers.values()), self.consumers
        self.producers, self.consumers = {}, []
        for producer in producers:
            self._left[producer.name] = self.pulsar.loop.time()
            producer.session.close_producer(producer.producer_id)
        for consumer in consumers:
            consumer.session.close_consumer(consumer.consumer_id)

    def fail_writes(self) -> None:
        """Let the bookies fail: what was begun is refused, and the topic is loaded anew."""
        for _ in range(self.pulsar.random.randint(0, len(self._queue))):
            self._store_head(self._load)
        for pending in self._queue:
            producer = pending.producer
            if producer is not None and self.producers.get(producer.name) is producer:
                producer.session.send_error(producer.producer_id, pending.last, ServerError.PERSISTENCE_ERROR)
        self._queue.clear()
        if self.pulsar.lingering and self.pulsar.random.random() < 0.8:
            self._disconnect()
            self._is_fenced = True
            delay = self.pulsar.random.uniform(0, self.pulsar.lingering)
            self.pulsar.loop.call_later(delay, self._take_back, self._load, context=self.pulsar.context)
        else:
            self.pulsar.move(self)

    def _disconnect(self) -> None:
        """Let all producers go, as a broker does when it failed to store."""
        for producer in list(self.producers.values()):
            self.detach(producer)
            producer.session.close_producer(producer.producer_id)

    def _take_back(self, load: int) -> None:
        """Tell no more of ids that were pushed and not stored, and store again."""
        if load == self._load:
            self._pushed = dict(self._persisted)
            self._is_fenced = False

    def forget_names(self, is_over: Callable[[float, set[str]], bool]) -> int:
        """Forget producers by when they have gone, and who they were; give how many."""
        gone = [name for name in self._pushed if name not in self.producers]
        gone = [name for name in gone if is_over(self._left.get(name, 0.0), self._users.get(name, set()))]
        for name in gone:
            del self._pushed[name]
            self._persisted.pop(name, None)
            self._forgotten[name] = len(self.everything)
        return len(gone)

    def _roll(self) -> None:
        self.ledgers[self.pulsar.new_ledger()] = []

    def trim(self, older_than: float) -> int:
        """Remove whole ledgers at the start, but never the open one; give how many entries went."""
        gone = 0
        for ledger, entries in list(self.ledgers.items())[:-1]:
            if entries and entries[-1].stored_at > older_than:
                break
            gone += len(self.ledgers.pop(ledger))
        return gone

    def trim_compacted(self) -> None:
        """Remove the ledgers that compaction has seen whole."""
        for ledger, entries in list(self.ledgers.items())[:-1]:
            if entries and entries[-1].place[:2] > self.horizon[:2]:
                break
            del self.ledgers[ledger]

    # Producers

    def attach(self, producer: Attached, access: int, topic_epoch: int | None) -> None:
        """Take a producer, or raise Refused."""
        former = self.producers.get(producer.name)
        if former is not None:
            ours = former.session is producer.session and former.producer_id == producer.producer_id
            if not ours or former.epoch >= producer.epoch:
                former.session.look_alive()
                raise Refused(ServerError.PRODUCER_BUSY, f"{producer.name} is already connected")
            del self.producers[producer.name]
        if producer.exclusive:
            self._take(producer, access, topic_epoch)
        elif any(each.exclusive for each in self.producers.values()):
            raise Refused(ServerError.PRODUCER_BUSY, "the topic has an exclusive producer")
        self.producers[producer.name] = producer
        self._users.setdefault(producer.name, set()).add(producer.session.link.node)

    def _take(self, producer: Attached, access: int, topic_epoch: int | None) -> None:
        if topic_epoch is not None and topic_epoch < self.epoch:
            raise Refused(ServerError.PRODUCER_FENCED, f"epoch {topic_epoch} is over, it is {self.epoch}")
        others = list(self.producers.values())
        if others and access != self.pulsar.WITH_FENCING:
            raise Refused(ServerError.PRODUCER_FENCED, "the topic has other producers")
        for other in others:
            del self.producers[other.name]
            other.session.close_producer(other.producer_id)
        if topic_epoch is None:
            self.epoch += 1
            self.owners.append(producer.session.link.node)
        else:
            self.epoch = topic_epoch

    def detach(self, producer: Attached) -> None:
        """Let a producer go; what it has begun to store is stored."""
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self._left[producer.name] = self.pulsar.loop.time()

    def last_sequence(self, name: str) -> int:
        """Give the highest sequence that the broker has begun to store."""
        return self._pushed.get(name, -1)

    def publish(self, producer: Attached, first: int, last: int, messages: int, entry: bytes) -> None:
        """Begin to store an entry, or answer at once."""
        if self.producers.get(producer.name) is not producer:
            return
        if self._is_fenced:
            return producer.session.send_error(producer.producer_id, last, ServerError.PERSISTENCE_ERROR)
        if first <= self._pushed.get(producer.name, -1):
            if first <= self._persisted.get(producer.name, -1):
                return producer.session.receipt(producer.producer_id, first, last, NOWHERE)
            # Begun and not stored yet: the broker cannot tell.
            return producer.session.send_error(producer.producer_id, last, ServerError.PERSISTENCE_ERROR)
        # Behind the check: what was once taken is not refused for what it is.
        for code in list(self.refusing):
            self.refusing[code] -= 1
            if self.refusing[code] <= 0:
                del self.refusing[code]
            return producer.session.send_error(producer.producer_id, last, code)
        self._pushed[producer.name] = last
        self._queue.append(_Pending(producer, first, last, messages, entry))
        producer.pending += 1
        loop = self.pulsar.loop
        self._stored_until = max(self._stored_until, loop.time() + self.pulsar.write_delay())
        loop.call_at(self._stored_until, self._store_head, self._load, context=self.pulsar.context)
        hook, self.on_pushed = self.on_pushed, None
        if hook is not None:
            loop.call_soon(hook, context=self.pulsar.context)

    def write_foreign(self, count: int, messages: int = 1, publish_time: int = 1) -> None:
        """Store entries of a producer that is not ours."""
        message = (SingleMessageMetadata(), b"foreign")
        for _ in range(count if self.owner is not None else 0):
            self.write_batch([message] * messages, publish_time)

    def write_batch(self, messages: Sequence[tuple[Any, bytes]], publish_time: int = 1) -> None:
        """Store an entry of a producer that is not ours, with messages of metadata and payload."""
        payload = b""
        for head, value in messages:
            head.payload_size = len(value)
            written = head.SerializeToString()
            payload += len(written).to_bytes(4, "big") + written + value
        metadata = MessageMetadata(
            producer_name="foreign",
            sequence_id=0,
            publish_time=publish_time,
            num_messages_in_batch=len(messages),
        ).SerializeToString()
        inner = len(metadata).to_bytes(4, "big") + metadata + payload
        self._append(_Pending(None, 0, 0, len(messages), _MAGIC + crc32c(inner).to_bytes(4, "big") + inner))
        self.deliver()

    def _store_head(self, load: int) -> None:
        if load != self._load or not self._queue:
            return
        pending = self._queue.popleft()
        place = self._append(pending)
        producer = pending.producer
        assert producer is not None
        name = producer.name
        self._persisted[name] = max(self._persisted.get(name, -1), pending.last)
        producer.pending -= 1
        if self.producers.get(name) is producer or producer.leaving is not None:
            producer.session.receipt(producer.producer_id, pending.first, pending.last, place)
        if producer.leaving is not None and not producer.pending:
            producer.leaving()
        self.deliver()

    def _append(self, pending: _Pending) -> MessageId:
        ledger = next(reversed(self.ledgers))
        if len(self.ledgers[ledger]) >= self.roll_after:
            self._roll()
            ledger = next(reversed(self.ledgers))
        place = MessageId(ledger, len(self.ledgers[ledger]))
        stored = self._entry(pending, place)
        self.ledgers[ledger].append(stored)
        self.everything.append(stored)
        self.pulsar.on_stored(self, stored)
        return place

    def _entry(self, pending: _Pending, place: MessageId) -> Stored:
        self.next_index += pending.messages
        now = self.pulsar.loop.time()
        head = BrokerEntryMetadata(index=self.next_index - 1).SerializeToString()
        data = _BROKER_MAGIC + len(head).to_bytes(4, "big") + head + pending.entry
        read = read_entry(memoryview(data))
        return Stored(
            place,
            self.next_index - 1,
            pending.messages,
            data,
            bytes(read.producer_name).decode(),
            pending.first,
            pending.last,
            read.publish_time,
            now,
        )

    # Readers

    def entries(self, *, compacted: bool = False) -> Iterator[Stored]:
        """Give what is there, in order."""
        if compacted and self.horizon != NOWHERE:
            yield from self.compacted
        for ledger in self.ledgers.values():
            for entry in ledger:
                if not compacted or entry.place[:2] > self.horizon[:2]:
                    yield entry

    def at(self, place: MessageId) -> Stored | None:
        """Give one entry."""
        ledger = self.ledgers.get(place.ledger_id, [])
        return ledger[place.entry_id] if 0 <= place.entry_id < len(ledger) else None

    def last_place(self) -> MessageId:
        """Give the place of the last message; the entry is -1 if there is none."""
        last = next((ledger[-1] for ledger in reversed(self.ledgers.values()) if ledger), None)
        if last is None:
            return MessageId(next(reversed(self.ledgers)), -1)
        return last.place._replace(batch_index=last.messages - 1)

    def begin_at(self, start: MessageId) -> MessageId:
        """Give the first entry that a reader is to be given."""
        if start == LATEST:
            last = self.last_place()
            return last._replace(entry_id=last.entry_id + 1)
        if start == EARLIEST:
            return NOWHERE
        return start if start.batch_index >= 0 else start._replace(entry_id=start.entry_id + 1)

    def deliver(self) -> None:
        """Give consumers what they have asked for."""
        for consumer in list(self.consumers):
            if consumer.permits > 0:
                self._deliver_to(consumer)

    def _deliver_to(self, consumer: Consuming) -> None:
        for entry in self.entries(compacted=consumer.compacted):
            if entry.place[:2] < consumer.next[:2]:
                continue
            if consumer.permits <= 0:
                return
            consumer.permits -= entry.messages
            consumer.next = entry.place._replace(entry_id=entry.place.entry_id + 1)
            acks = () if consumer.cursor is None else consumer.cursor.acks(entry)
            consumer.session.message(consumer.consumer_id, entry, acks)

    # Compaction

    def compact(self) -> None:
        """Keep of each key the newest message, as a broker does; tombstones go."""
        newest: dict[str, tuple[MessageId, int]] = {}
        entries = list(self.entries(compacted=True))
        for entry in entries:
            for number, (head, _) in enumerate(messages_of(entry)):
                newest[head.partition_key] = (entry.place, number)
                if head.null_value:
                    newest[head.partition_key] = (NOWHERE, -1)
        if entries:
            kept = [_without(entry, newest) for entry in entries]
            self.compacted = [entry for entry in kept if entry is not None]
            self.horizon = entries[-1].place


def _split(data: bytes) -> tuple[bytes, Any, bytes]:
    """Cut an entry into what the broker put before it, its metadata and its payload."""
    at = 6 + int.from_bytes(data[2:6], "big") if data[:2] == _BROKER_MAGIC else 0
    body = at + 6 if data[at : at + 2] == _MAGIC else at
    size = int.from_bytes(data[body : body + 4], "big")
    metadata = MessageMetadata.FromString(data[body + 4 : body + 4 + size])
    return data[:at], metadata, data[body + 4 + size :]


def messages_of(entry: Stored) -> Iterator[tuple[Any, bytes]]:
    """Give the messages of an entry: metadata and payload."""
    _, metadata, payload = _split(entry.data)
    at = 0
    for _ in range(metadata.num_messages_in_batch):
        size = int.from_bytes(payload[at : at + 4], "big")
        head = SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        begin = at + 4 + size
        at = begin + head.payload_size
        yield head, payload[begin:at]


def _without(entry: Stored, newest: dict[str, tuple[MessageId, int]]) -> Stored | None:
    """Give an entry without the messages that are not the newest of their keys; None if none is left."""
    before, metadata, _ = _split(entry.data)
    pieces, left = [], 0
    for number, (head, payload) in enumerate(messages_of(entry)):
        value = payload
        if newest[head.partition_key] == (entry.place, number) and not head.compacted_out:
            left += 1
        else:
            head.compacted_out, head.payload_size, value = True, 0, b""
        written = head.SerializeToString()
        pieces += [len(written).to_bytes(4, "big"), written, value]
    if not left:
        return None
    written = metadata.SerializeToString()
    data = before + len(written).to_bytes(4, "big") + written + b"".join(pieces)
    return Stored(**{**vars(entry), "data": data})
