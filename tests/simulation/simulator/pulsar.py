"""Pulsar brokers behind the bytes of the binary protocol: they look up, serve topics, move them, and die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.brokers.pulsar.message_ids import from_wire, to_wire
from penstock.wire.framing import FrameBuffer
from penstock.wire.pulsar import MessageId, decode_command, encode_command
from penstock.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAckResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandError,
    CommandGetLastMessageIdResponse,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPartitionedTopicMetadataResponse,
    CommandPong,
    CommandProducerSuccess,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    ProducerAccessMode,
    ServerError,
)
from simulator.network import Link, Network
from simulator.pulsar_cursor import join
from simulator.pulsar_topic import Attached, Consuming, Refused, Stored, Topic

__all__ = ["Pulsar", "Session"]

MAX_MESSAGE: Final = 100_000
_RELOAD_SECONDS: Final = 2.0
"""The longest time for which nobody serves a topic that moves."""


class Pulsar:
    """The brokers of one cluster, and its topics."""

    WITH_FENCING: Final = ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING

    def __init__(self, network: Network, brokers: tuple[str, ...] = ("one", "two")) -> None:
        self.network, self.loop, self.random = network, network.loop, network.loop.random
        self.context = network.context
        self.brokers = brokers
        self.partitions: dict[str, int] = {}
        self.topics: dict[str, Topic] = {}
        self.sessions: dict[str, list[Session]] = {broker: [] for broker in brokers}
        self.slow_writes = 0.0
        """Seconds that storing an entry may take beyond the ordinary."""
        self.admin_failures = 0.0
        """The share of admin calls that fail, before or after their effect."""
        self.max_message = MAX_MESSAGE
        self.liveness_seconds: float | None = None
        """How long who holds a name that another one asks for may be silent; None: nobody looks."""
        self.lingering = 0.0
        """Seconds for which a topic may tell ids whose entries it failed to store."""
        self.on_stored: Callable[[Topic, Stored], None] = lambda topic, entry: None
        self._ledgers = 10
        self._names = 0
        for broker in brokers:
            network.servers[broker] = self._listener(broker)

    @property
    def url(self) -> str:
        """The service URL."""
        return "pulsar://" + ",".join(f"{broker}:6650" for broker in self.brokers)

    def _listener(self, broker: str) -> Callable[[Link], Session]:
        def accept(link: Link) -> Session:
            session = Session(self, broker, link)
            self.sessions[broker].append(session)
            return session

        return accept

    def write_delay(self) -> float:
        """Give the seconds that it takes to store an entry."""
        return self.network.delays.next() + self.random.uniform(0, self.slow_writes)

    def new_ledger(self) -> int:
        """Give a ledger id that is larger than all before."""
        self._ledgers += self.random.randint(1, 3)
        return self._ledgers

    def new_name(self) -> str:
        """Give a producer name that nobody had."""
        self._names += 1
        return f"standalone-0-{self._names}"

    # Topics

    def create(self, name: str, partitions: int = 0) -> None:
        """Create a topic."""
        self.partitions[name] = partitions
        names = [f"{name}-partition-{number}" for number in range(partitions)] if partitions else [name]
        for each in names:
            self._create(each)

    def _create(self, name: str) -> None:
        topic = Topic(self, name, roll_after=self.random.choice((4, 20, 1000)))
        self.topics[name] = topic
        alive = self._alive()
        if alive:
            topic.load(self.random.choice(alive))

    def grow(self, name: str) -> int:
        """Add a partition to a topic that has some; give how many there are."""
        self._create(f"{name}-partition-{self.partitions[name]}")
        self.partitions[name] += 1
        return self.partitions[name]

    def _alive(self) -> list[str]:
        return [broker for broker in self.brokers if self.network.servers[broker] is not None]

    def served(self, name: str, broker: str | None = None) -> Topic:
        """Give a topic that a broker serves now, or raise Refused."""
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ServerError.TOPIC_NOT_FOUND, f"there is no topic {name}")
        if topic.owner is None or (broker is not None and topic.owner != broker):
            raise Refused(ServerError.SERVICE_NOT_READY, "the topic is not served here now")
        return topic

    # Faults

    def move(self, topic: Topic) -> None:
        """Unload a topic; after a moment some broker serves it."""
        if topic.owner is None:
            return
        topic.unload()
        self.loop.call_later(
            self.random.uniform(0, _RELOAD_SECONDS), self._load_again, topic, context=self.context
        )

    def _load_again(self, topic: Topic) -> None:
        alive = self._alive()
        if topic.owner is None and alive:
            topic.load(self.random.choice(alive))

    def kill(self, broker: str, seconds: float) -> None:
        """Let a broker die, and come back after a while; its topics move to others."""
        listener = self.network.servers[broker]
        if listener is None:
            return
        self.network.servers[broker] = None
        for link in [each for each in self.network.links if each.address == broker]:
            link.cut()
        for session in self.sessions[broker]:
            session.is_gone = True
        self.sessions[broker] = []
        for topic in self.topics.values():
            if topic.owner == broker:
                self.move(topic)
        self.loop.call_later(seconds, self._revive, broker, listener, context=self.context)

    def _revive(self, broker: str, listener: Any) -> None:
        self.network.servers[broker] = listener
        for topic in self.topics.values():
            self._load_again(topic)


class Session:
    """The broker's end of one connection."""

    def __init__(self, pulsar: Pulsar, broker: str, link: Link) -> None:
        self.pulsar, self.broker, self.link = pulsar, broker, link
        self.is_gone = False
        self._frames = FrameBuffer(limit=1 << 20, first=4096)
        self._producers: dict[int, tuple[Topic, Attached]] = {}
        self._consumers: dict[int, tuple[Topic, Consuming]] = {}
        self._opening: dict[tuple[str, int], int] = {}
        """The requests that open producers and consumers; who is closed meanwhile is not opened."""

    def on_bytes(self, data: bytes) -> None:
        """Handle the frames that have come."""
        self._frames.receive(data)
        for frame in self._frames.frames():
            if self.is_gone:
                return
            command: Any = decode_command(frame)
            handler = _HANDLERS.get(command.type)
            if handler is not None:
                handler(self, command.body, frame)

    def look_alive(self) -> None:
        """Close the connection if the client does not answer for a while."""
        seconds = self.pulsar.liveness_seconds
        if seconds is None or self.link.hears:
            return

        def look() -> None:
            if not self.is_gone and not self.link.hears:
                self.link.give_up()
                self.on_closed()

        self.pulsar.loop.call_later(seconds, look, context=self.pulsar.context)

    def on_closed(self) -> None:
        """Hear that the client is gone: its producers and consumers go too."""
        self.is_gone = True
        for topic, producer in list(self._producers.values()):
            topic.detach(producer)
        for topic, consumer in list(self._consumers.values()):
            _drop(topic, consumer)

    def _write(self, body: Any) -> None:
        if not self.is_gone:
            self.link.send(encode_command(body))

    def _later(self, work: Callable[[], None]) -> None:
        """Do something that takes a broker a moment, if the client is still there then."""

        def run() -> None:
            if not self.is_gone:
                work()

        delay = self.pulsar.network.delays.next()
        self.pulsar.loop.call_later(delay, run, context=self.pulsar.context)

    def _opened(self, kind: str, number: int, request_id: int, work: Callable[[], None]) -> None:
        """Open something, unless it is closed before that is done."""
        self._opening[kind, number] = request_id

        def run() -> None:
            if self._opening.get((kind, number)) != request_id:
                raise Refused(ServerError.UNKNOWN_ERROR, f"the {kind} was closed before it was opened")
            del self._opening[kind, number]
            work()

        self._answered(request_id, run)

    def _answered(self, request_id: int, work: Callable[[], None]) -> None:
        """Do something, and answer the request with an error if it is refused."""

        def run() -> None:
            try:
                work()
            except Refused as exc:
                self._write(CommandError(request_id=request_id, error=exc.code, message=str(exc)))

        self._later(run)

    # What topics say

    def receipt(self, producer_id: int, first: int, last: int, place: MessageId) -> None:
        """Confirm an entry."""
        self._write(
            CommandSendReceipt(
                producer_id=producer_id,
                sequence_id=first,
                highest_sequence_id=last,
                message_id=to_wire(place),
            )
        )

    def send_error(self, producer_id: int, sequence: int, code: int) -> None:
        """Refuse an entry."""
        self._write(
            CommandSendError(producer_id=producer_id, sequence_id=sequence, error=code, message="refused")
        )

    def message(self, consumer_id: int, entry: Stored, acks: tuple[int, ...]) -> None:
        """Deliver an entry."""
        command = encode_command(
            CommandMessage(
                consumer_id=consumer_id,
                message_id=to_wire(entry.place),
                redelivery_count=0,
                ack_set=acks,
            )
        )
        size = len(command) - 4 + len(entry.data)
        if not self.is_gone:
            self.link.send(size.to_bytes(4, "big") + command[4:] + entry.data)

    def close_producer(self, producer_id: int) -> None:
        """Tell the client that it has no producer here any more."""
        if self._producers.pop(producer_id, None) is not None:
            self._write(CommandCloseProducer(producer_id=producer_id, request_id=0))

    def close_consumer(self, consumer_id: int) -> None:
        """Tell the client that it has no consumer here any more."""
        if self._consumers.pop(consumer_id, None) is not None:
            self._write(CommandCloseConsumer(consumer_id=consumer_id, request_id=0))

    # What the client asks

    def _connect(self, _: Any, __: memoryview) -> None:
        self._write(CommandConnected(server_version="simulated", max_message_size=self.pulsar.max_message))

    def _ping(self, _: Any, __: memoryview) -> None:
        self._write(CommandPong())

    def _lookup(self, body: Any, _: memoryview) -> None:
        def run() -> None:
            answer = CommandLookupTopicResponse(request_id=body.request_id)
            try:
                owner = self.pulsar.served(body.topic).owner
                answer.response = CommandLookupTopicResponse.CONNECT
                answer.broker_service_url = f"pulsar://{owner}:6650"
            except Refused as exc:
                answer.response, answer.error = CommandLookupTopicResponse.FAILED, exc.code
                answer.message = str(exc)
            self._write(answer)

        self._later(run)

    def _partitions(self, body: Any, _: memoryview) -> None:
        found = self.pulsar.partitions.get(body.topic)
        answer = CommandPartitionedTopicMetadataResponse(request_id=body.request_id)
        answer.response = CommandPartitionedTopicMetadataResponse.SUCCESS
        if found is None:
            answer.response = CommandPartitionedTopicMetadataResponse.FAILED
            answer.error = ServerError.TOPIC_NOT_FOUND
        else:
            answer.partitions = found
        self._write(answer)

    def _producer(self, body: Any, _: memoryview) -> None:
        def run() -> None:
            topic = self.pulsar.served(body.topic, self.broker)
            producer = Attached(
                self,
                body.producer_id,
                body.producer_name or self.pulsar.new_name(),
                body.epoch,
                body.producer_access_mode != ProducerAccessMode.ACCESS_SHARED,
            )
            epoch = body.topic_epoch if body.HasField("topic_epoch") else None
            topic.attach(producer, body.producer_access_mode, epoch)
            self._producers[body.producer_id] = topic, producer
            answer = CommandProducerSuccess(
                request_id=body.request_id,
                producer_name=producer.name,
                last_sequence_id=topic.last_sequence(producer.name),
                producer_ready=True,
            )
            if producer.exclusive:
                answer.topic_epoch = topic.epoch
            self._write(answer)

        self._opened("producer", body.producer_id, body.request_id, run)

    def _send(self, body: Any, frame: memoryview) -> None:
        found = self._producers.get(body.producer_id)
        if found is None:
            return
        topic, producer = found
        at = 4 + int.from_bytes(frame[:4], "big")
        last = max(body.highest_sequence_id, body.sequence_id)
        topic.publish(producer, body.sequence_id, last, max(body.num_messages, 1), bytes(frame[at:]))

    def _close_producer(self, body: Any, _: memoryview) -> None:
        def done() -> None:
            self._write(CommandSuccess(request_id=body.request_id))

        self._opening.pop(("producer", body.producer_id), None)
        found = self._producers.pop(body.producer_id, None)
        if found is None:
            return done()
        topic, producer = found
        if producer.pending:
            # The name is free when all that it has begun is stored.
            producer.leaving = lambda: (topic.detach(producer), done())
        else:
            topic.detach(producer)
            done()

    def _subscribe(self, body: Any, _: memoryview) -> None:
        def run() -> None:
            topic = self.pulsar.served(body.topic, self.broker)
            consumer = Consuming(self, body.consumer_id, MessageId(-1, -1), compacted=body.read_compacted)
            if body.durable:
                alone = body.sub_type != CommandSubscribe.FAILOVER
                join(topic, consumer, body.subscription, alone=alone)
            else:
                consumer.next = topic.begin_at(from_wire(body.start_message_id))
            topic.consumers.append(consumer)
            self._consumers[body.consumer_id] = topic, consumer
            self._write(CommandSuccess(request_id=body.request_id))

        self._opened("consumer", body.consumer_id, body.request_id, run)

    def _flow(self, body: Any, _: memoryview) -> None:
        found = self._consumers.get(body.consumer_id)
        if found is not None:
            topic, consumer = found
            consumer.permits += body.message_permits
            if consumer.cursor is not None:
                consumer.cursor.flow = int(self.pulsar.loop.time() * 1000) + 1
            self._later(topic.deliver)

    def _last_message(self, body: Any, _: memoryview) -> None:
        def run() -> None:
            found = self._consumers.get(body.consumer_id)
            if found is None:
                raise Refused(ServerError.METADATA_ERROR, "there is no such consumer")
            place = found[0].last_place()
            self._write(
                CommandGetLastMessageIdResponse(request_id=body.request_id, last_message_id=to_wire(place))
            )

        self._answered(body.request_id, run)

    def _close_consumer(self, body: Any, _: memoryview) -> None:
        self._opening.pop(("consumer", body.consumer_id), None)
        found = self._consumers.pop(body.consumer_id, None)
        if found is not None:
            _drop(*found)
        self._write(CommandSuccess(request_id=body.request_id))

    def _acknowledge(self, body: Any, _: memoryview) -> None:
        found = self._consumers.get(body.consumer_id)
        if found is not None and found[1].cursor is not None:
            found[1].cursor.acknowledge(body)
        if body.HasField("request_id"):
            self._write(CommandAckResponse(consumer_id=body.consumer_id, request_id=body.request_id))


def _drop(topic: Topic, consumer: Consuming) -> None:
    if consumer in topic.consumers:
        topic.consumers.remove(consumer)


_HANDLERS: Final[dict[int, Callable[[Session, Any, memoryview], None]]] = {
    BaseCommand.CONNECT: Session._connect,
    BaseCommand.PING: Session._ping,
    BaseCommand.LOOKUP: Session._lookup,
    BaseCommand.PARTITIONED_METADATA: Session._partitions,
    BaseCommand.PRODUCER: Session._producer,
    BaseCommand.SEND: Session._send,
    BaseCommand.CLOSE_PRODUCER: Session._close_producer,
    BaseCommand.SUBSCRIBE: Session._subscribe,
    BaseCommand.FLOW: Session._flow,
    BaseCommand.GET_LAST_MESSAGE_ID: Session._last_message,
    BaseCommand.CLOSE_CONSUMER: Session._close_consumer,
    BaseCommand.ACK: Session._acknowledge,
}
