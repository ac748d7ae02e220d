"""A Pulsar topic in memory: real readers on a broker without a socket, and the admin calls that go with it.

It numbers, hides, holds back and trims as a broker does; what a real one cannot do, it cannot do either.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.brokers.pulsar import Options, Reader
from penstock.brokers.pulsar.admin import EntryHead, EntryIndex, NoEntry
from penstock.brokers.pulsar.message_ids import from_wire, to_wire
from penstock.brokers.pulsar.session import Cluster
from penstock.errors import ClusterError
from penstock.gateway.pulsar.partition import Partition
from penstock.mapping import OnUndecodable
from penstock.wire.kernels import crc32c
from penstock.wire.pulsar import EARLIEST, LATEST, Message, MessageId, decode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BrokerEntryMetadata,
    CommandCloseConsumer,
    CommandGetLastMessageId,
    CommandSubscribe,
    MessageMetadata,
    SingleMessageMetadata,
)

TOPIC = "persistent://public/default/fake-partition-0"


@dataclass
class Stored:
    """One entry of the topic."""

    place: MessageId
    index: int
    """Of its last message; -1 if the broker keeps none."""
    messages: int
    data: bytes
    published: int
    is_marker: bool = False
    is_known_marker: bool = True
    is_aborted: bool = False
    is_open: bool = False

    @property
    def is_hidden(self) -> bool:
        return self.is_marker or self.is_aborted


def u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def batch_payload(values: tuple[bytes, ...]) -> bytes:
    out = b""
    for value in values:
        head = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
        out += u32(len(head)) + head + value
    return out


class Feed:
    """What the broker knows of one consumer."""

    def __init__(self, consumer: Any, start: MessageId) -> None:
        self.consumer = consumer
        self.next = start
        self.permits = 0


class Connection:
    """The broker's end of a connection; it delivers while there are permits."""

    where = "fake"

    def __init__(self, topic: FakeTopic) -> None:
        self.error = None
        self.consumers: dict[int, Any] = {}
        self.feeds: dict[int, Feed] = {}
        self._topic = topic
        self._loop = asyncio.get_running_loop()

    async def request(self, command: Any) -> Any:
        await asyncio.sleep(0)
        self._topic.requests.append(type(command).__name__)
        if isinstance(command, CommandSubscribe):
            gate = self._topic.subscribing
            if gate is not None:
                await gate.wait()
            start = from_wire(command.start_message_id)
            feed = Feed(self.consumers[command.consumer_id], _begin(start))
            if start == LATEST:
                feed.next = self._topic.behind_last()
            self.feeds[command.consumer_id] = feed
        elif isinstance(command, CommandGetLastMessageId):
            return SimpleNamespace(last_message_id=to_wire(self._topic.last_given()))
        elif isinstance(command, CommandCloseConsumer):
            self.feeds.pop(command.consumer_id, None)
        return None

    def write(self, data: bytes) -> None:
        command: Any = decode_command(memoryview(data)[4:])
        if type(command.body).__name__ == "CommandFlow":
            feed = self.feeds.get(command.body.consumer_id)
            if feed is not None:
                feed.permits += command.body.message_permits
                self._loop.call_soon(self.deliver)

    def deliver(self) -> None:
        if self._topic.is_stalled:
            return
        for consumer_id, feed in list(self.feeds.items()):
            for entry in self._topic.given_from(feed.next):
                if feed.permits <= 0 or consumer_id not in self.consumers:
                    break
                feed.next = entry.place._replace(entry_id=entry.place.entry_id + 1)
                feed.permits -= entry.messages
                feed.consumer.on_message(Message(consumer_id, entry.place, 0, memoryview(entry.data)))


def _begin(start: MessageId) -> MessageId:
    if start in (EARLIEST, LATEST):
        return MessageId(-1, -1)
    # Without a batch index the reader goes on behind the entry.
    return start if start.batch_index >= 0 else start._replace(entry_id=start.entry_id + 1)


class FakeTopic:
    """The topic: `write` and its kin fill it, the other methods are what the gateway calls."""

    def __init__(self, *, numbered: bool = True) -> None:
        self.entries: list[Stored] = []
        self.ledgers: dict[int, int] = {5: 0}
        """Entries by ledger; the last one is open."""
        self.properties: dict[str, str] = {}
        self.next_index = 0
        self.requests: list[str] = []
        self.asked: list[str] = []
        """Admin calls."""
        self.is_stalled = False
        """Whether nothing is delivered for the moment."""
        self.subscribing: asyncio.Event | None = None
        self.failing: ClusterError | None = None
        """What every admin call is refused with."""
        self.clock = itertools.count(1_700_000_000_000)
        self._numbered = numbered
        self._ids = itertools.count()
        self.connection = Connection(self)
        self._cluster = Cluster(
            SimpleNamespace(get=self._connected),  # type: ignore[arg-type]
            SimpleNamespace(broker_of=self._connected),  # type: ignore[arg-type]
            Options(),
        )

    async def _connected(self, _: Any) -> Connection:
        return self.connection

    @property
    def attached(self) -> int:
        """How many readers the broker has."""
        return len(self.connection.feeds)

    # Writing

    def write(
        self, *values: bytes, txn: int | None = None, counted: bool = True, is_open: bool = False, **said: Any
    ) -> MessageId:
        """Store a batch; `counted` False gives it one number, as a send in a transaction does."""
        metadata = MessageMetadata(**said)
        if "marker_type" not in said and "chunk_id" not in said:
            metadata.num_messages_in_batch = len(values)
        if txn is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = 0, txn
        payload = batch_payload(values) if "marker_type" not in said else b""
        return self.store(
            metadata,
            payload,
            messages=max(len(values), 1),
            numbers=max(len(values), 1) if counted else 1,
            is_open=is_open,
            is_marker="marker_type" in said,
            is_known_marker=said.get("marker_type") != 99,
        )

    def marker(self, *, known: bool = True, numbers: int = 1) -> MessageId:
        """Store an entry that no reader is given."""
        metadata = MessageMetadata(marker_type=21 if known else 99)
        return self.store(metadata, b"", numbers=numbers, is_marker=True, is_known_marker=known)

    def aborted(self, *values: bytes, counted: bool = False) -> None:
        """Store a batch of a transaction and the marker of its end."""
        self.write(*values, txn=1, counted=counted)
        self.entries[-1].is_aborted = True
        self.marker()

    def end_transaction(self) -> None:
        """Commit what is open."""
        for entry in self.entries:
            entry.is_open = False
        self.marker()

    def store(
        self, metadata: Any, payload: bytes, *, messages: int = 1, numbers: int = 1, **said: Any
    ) -> MessageId:
        ledger = max(self.ledgers)
        place = MessageId(ledger, self.ledgers[ledger])
        self.ledgers[ledger] += 1
        metadata.producer_name, metadata.sequence_id = "fake", len(self.entries)
        metadata.publish_time = next(self.clock)
        head = metadata.SerializeToString()
        inner = u32(len(head)) + head + payload
        data = b"\x0e\x01" + u32(crc32c(inner)) + inner
        self.next_index += numbers
        index = self.next_index - 1 if self._numbered else -1
        if self._numbered:
            broker = BrokerEntryMetadata(index=index).SerializeToString()
            data = b"\x0e\x02" + u32(len(broker)) + broker + data
        self.entries.append(Stored(place, index, messages, data, metadata.publish_time, **said))
        asyncio.get_running_loop().call_soon(self.connection.deliver)
        return place

    def roll(self) -> None:
        """Begin a new ledger."""
        self.ledgers[max(self.ledgers) + 3] = 0

    def trim(self) -> None:
        """Remove all ledgers but the open one."""
        kept = max(self.ledgers)
        self.ledgers = {kept: self.ledgers[kept]}
        self.entries = [entry for entry in self.entries if entry.place.ledger_id == kept]
        self.properties["index"] = str(self.next_index - 1)

    def resume(self) -> None:
        """Deliver again."""
        self.is_stalled = False
        self.connection.deliver()

    # What readers are given

    def _stable(self) -> list[Stored]:
        return list(itertools.takewhile(lambda entry: not entry.is_open, self.entries))

    def given_from(self, place: MessageId) -> Iterator[Stored]:
        return (e for e in self._stable() if e.place[:2] >= place[:2] and not e.is_hidden)

    def last_given(self) -> MessageId:
        """As a broker answers: markers of an unknown kind count, although nobody is given them."""
        seen = [e for e in self._stable() if not (e.is_aborted or (e.is_marker and e.is_known_marker))]
        return seen[-1].place._replace(batch_index=seen[-1].messages - 1) if seen else MessageId(-1, -1)

    def behind_last(self) -> MessageId:
        return MessageId(max(self.ledgers), self.ledgers[max(self.ledgers)])

    # The client

    async def reader(self, topic: str, *, start: MessageId = EARLIEST, **options: Any) -> Reader[Any]:
        reader = Reader[Any](self._cluster, topic, ids=self._ids.__next__, start=start, **options)
        await reader.open()
        return reader

    # The admin calls

    async def _ask(self, name: str) -> None:
        self.asked.append(name)
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing

    async def last_message_id(self, topic: str) -> MessageId | None:
        await self._ask("last_message_id")
        if not self.entries:
            return MessageId(max(self.ledgers), -1)
        last = self.entries[-1]
        return last.place._replace(batch_index=-1 if last.is_marker else last.messages - 1)

    async def entry_head(self, topic: str, place: MessageId) -> EntryHead:
        await self._ask("entry_head")
        for entry in self.entries:
            if entry.place[:2] == place[:2]:
                return EntryHead(
                    EntryIndex(entry.index, entry.messages) if self._numbered else None,
                    is_hidden=entry.is_hidden,
                    is_held_back=entry not in self._stable(),
                )
        raise NoEntry(f"there is no entry {place}")

    async def entry_index(self, topic: str, place: MessageId) -> EntryIndex | None:
        return (await self.entry_head(topic, place)).index

    async def stats(self, topic: str, *, internal: bool = False) -> Mapping[str, Any]:
        await self._ask("stats")
        current = max(self.ledgers)
        rows = [
            {"ledgerId": ledger, "entries": 0 if ledger == current else count, "size": 1000 * count}
            for ledger, count in self.ledgers.items()
        ]
        return {
            "ledgers": rows,
            "currentLedgerEntries": self.ledgers[current],
            "currentLedgerSize": 1000 * self.ledgers[current],
            "properties": dict(self.properties),
        }

    async def message_id_by_index(self, topic: str, index: int) -> MessageId | None:
        await self._ask("message_id_by_index")
        for entry in self.entries:
            if entry.index >= index:
                # Inside the first entry a broker answers with the earliest place.
                return EARLIEST if entry is self.entries[0] and index < entry.index else entry.place
        return None

    async def message_id_by_time(self, topic: str, publish_time: int) -> MessageId | None:
        await self._ask("message_id_by_time")
        found = next((e.place for e in self.entries if e.published >= publish_time), None)
        return found or self.behind_last()

    async def set_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        await self._ask("set_properties")
        self.properties |= properties

    async def unload(self, topic: str) -> None:
        await self._ask("unload")
        self.roll()

    async def truncate(self, topic: str) -> None:
        await self._ask("truncate")
        self.trim()


@dataclass
class World:
    """A topic, and what makes partitions on it."""

    topic: FakeTopic
    opened: list[Partition] = field(default_factory=list)

    def partition(self, kind: type[Partition] = Partition, **options: Any) -> Partition:
        options = {"max_batch_bytes": 5 << 20, "on_undecodable": OnUndecodable.FAIL} | options
        made = kind(self.topic, self.topic, TOPIC, **options)  # type: ignore[arg-type]
        self.opened.append(made)
        return made


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a test on a topic in a loop of its own; afterwards no reader may be attached, no task left."""

    def go(main: Callable[[World], Awaitable[None]], *, numbered: bool = True, debug: bool = False) -> None:
        unseen: list[dict[str, Any]] = []

        async def all_of_it() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
            world = World(FakeTopic(numbered=numbered))
            async with asyncio.timeout(60):
                await main(world)
                await asyncio.gather(*(partition.close() for partition in world.opened))
            assert world.topic.attached == 0, "a reader is still attached"
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

        asyncio.run(all_of_it())
        assert not unseen

    return go
