"""Histories of idempotent producers through gateways that crash and take over.

What was acknowledged is stored, once and in order; a client that behaves well is not refused.

The real `PulsarStorage`, `Partition`, `Writer`, `Sequences` and Pulsar client run here; see `simulator`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from penstock.wire.pulsar.pulsar_pb2 import ServerError
from simulator.gateway import Gateway, Leadership
from simulator.history import History
from simulator.kafka_consumer import Consumer
from simulator.kafka_producer import TOO_LATE, IdempotentProducer, Sent
from simulator.pulsar import Pulsar
from simulator.pulsar_topic import Stored, Topic, messages_of

__all__ = ["producing"]

TOPIC = "persistent://public/default/t"
GIVEN_UP_WITHIN = 115.0
"""Seconds after the last fault for which it may still be felt: brokers notice late that a client is gone."""
REFUSALS = (
    ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
    ServerError.NOT_ALLOWED_ERROR,
    ServerError.CHECKSUM_ERROR,
)
"""Answers to one entry after which a broker goes on with the next."""


class World:
    """One history of producers."""

    def __init__(self, history: History) -> None:
        self.history, self.random = history, history.random
        self.pulsar = Pulsar(history.network)
        self.pulsar.create(TOPIC)
        self.leadership = Leadership(history)
        self._born = 0
        self.leadership.elect(self._new_gateway().name)
        self._new_gateway()
        for gateway in self.leadership.gateways.values():
            gateway.believes = self.leadership.leader
        self.last_fault = 0.0
        self.refused = False
        """Whether Pulsar has refused an entry: then a producer may have to begin anew."""
        actions = [self.move, self.cut, self.silence, self.kill, self.crash, self.elect, self.trim]
        actions += [self.slow, self.refuse, self.lose_client, self.fail_admin, self.write_directly]
        actions += [self.fail_writes, self.outage]
        self.actions = self.random.sample(actions, self.random.choice((0, 1, 1, 2, 3, 5)))
        self.is_early = self.random.random() < 0.2
        """Whether all faults come while the first batches are under way."""
        if self.is_early:
            self.actions = self.random.sample([self.outage, self.silence, self.fail_writes, self.elect], 2)
        self.clients = [
            IdempotentProducer(history, self.leadership, "t", 7 + number, self.random.random() < 0.5)
            for number in range(self.random.choice((1, 1, 2)))
        ]

        self.consumer = Consumer(history, self.leadership, "t") if self.random.random() < 0.4 else None

    @property
    def topic(self) -> Topic:
        return self.pulsar.topics[TOPIC]

    def _new_gateway(self) -> Gateway:
        self._born += 1
        return Gateway(self.history, self.pulsar, self.leadership, f"gateway-{self._born}")

    # Faults

    def move(self) -> str:
        self.pulsar.move(self.topic)
        return "the topic moves"

    def cut(self) -> str:
        links = list(self.history.network.links)
        if links:
            self.random.choice(links).cut()
        return "a connection to Pulsar is cut"

    def silence(self) -> str:
        links = list(self.history.network.links)
        if links:
            self.random.choice(links).fall_silent()
        return "a connection to Pulsar goes silent"

    def kill(self) -> str:
        broker = self.random.choice(self.pulsar.brokers)
        self.pulsar.kill(broker, self.random.uniform(0.1, 20))
        return f"broker {broker} dies"

    def outage(self) -> str:
        seconds = self.random.uniform(1, 40)
        for broker in self.pulsar.brokers:
            self.pulsar.kill(broker, seconds)
        return f"no broker serves for {seconds:.1f} s"

    def crash(self) -> str:
        name = self.random.choice(sorted(self.leadership.gateways))
        del self.leadership.gateways[name]
        self.history.network.stop_node(name)
        for client in self.clients:
            if client._connection is not None and client._connection.gateway.name == name:
                client._connection.cut()
        new = self._new_gateway()
        if self.leadership.leader == name:
            self.leadership.elect(self.random.choice(sorted(self.leadership.gateways)))
        return f"{name} is killed, {new.name} starts, {self.leadership.leader} leads"

    def elect(self) -> str:
        self.leadership.elect(self.random.choice(sorted(self.leadership.gateways)))
        return f"{self.leadership.leader} leads"

    def trim(self) -> str:
        gone = self.topic.trim(self.history.loop.time() - 120)
        return f"{gone} entries are trimmed"

    def slow(self) -> str:
        self.pulsar.slow_writes = self.random.choice((0.0, 0.5, 4.0))
        return f"storing takes up to {self.pulsar.slow_writes} s more"

    def fail_writes(self) -> str:
        self.topic.fail_writes()
        return "storing fails"

    def refuse(self) -> str:
        self.refused = True
        self.topic.refusing[self.random.choice(REFUSALS)] = self.random.randint(1, 2)
        return f"entries are refused: {self.topic.refusing}"

    def lose_client(self) -> str:
        client = self.random.choice(self.clients)
        if client._connection is not None:
            client._connection.cut()
        return f"{client.name} loses its connection"

    def fail_admin(self) -> str:
        self.pulsar.admin_failures = self.random.choice((0.0, 0.1, 0.5))
        return f"{self.pulsar.admin_failures:.0%} of admin calls fail"

    def write_directly(self) -> str:
        """Let somebody write who is no Kafka client, so that offsets cannot be counted."""
        self.topic.write_foreign(self.random.randint(1, 3))
        return "another client writes"

    # The course

    async def faults(self) -> None:
        for _ in range(self.random.choice((1, 2, 4, 12)) if self.actions else 0):
            await self.history.pause(0.05 if self.is_early else self.random.choice((0.05, 1, 10)))
            self.history.note("world", self.random.choice(self.actions)())
            self.last_fault = self.history.loop.time()
        await self.history.pause(20)
        self.pulsar.slow_writes = self.pulsar.admin_failures = 0.0
        self.history.note("world", "all is well from now on")
        self.last_fault = self.history.loop.time()

    async def run(self) -> None:
        random, number = self.random, 0
        work = []
        for client in self.clients:
            batches = []
            for _ in range(random.randint(1, 15)):
                records = []
                for _ in range(random.choice((1, 1, 2, 5))):
                    number += 1
                    records.append(b"%07d" % number + b"x" * random.choice((0, 0, 0, 900)))
                batches.append(Sent(records))
            work.append(client.run(batches, 0.0 if self.is_early else random.choice((0.0, 0.05, 2.0))))
        reading = None if self.consumer is None else asyncio.ensure_future(self.consumer.run())
        await asyncio.gather(self.faults(), self._within(asyncio.gather(*work)))
        if reading is not None:
            await self._catch_up(reading)

    async def _catch_up(self, reading: asyncio.Future[None]) -> None:
        """A consumer comes to the end of the log."""
        assert self.consumer is not None
        for _ in range(600):
            if reading.done() or self.consumer.offset >= self.topic.next_index:
                break
            await asyncio.sleep(1)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        end = self.topic.next_index
        self.history.check(
            self.consumer.offset == end, f"a consumer waits at {self.consumer.offset} of {end}"
        )

    async def _within(self, work: asyncio.Future[list[None]]) -> None:
        """Nothing waits for ever: in time every record is acknowledged or given up."""
        try:
            await asyncio.wait_for(work, 1200)
        except TimeoutError:
            open_batches = [str(each) for client in self.clients for each in client._open()]
            self.history.check(False, f"not acknowledged after 20 minutes: {open_batches}")

    # Laws

    def check(self) -> None:
        stored = self.topic.everything
        self._check_read(stored)
        values = [value for entry in stored for _, value in messages_of(entry)]
        for client in self.clients:
            self._check_stored(client, Counter(values), values)
            self._check_offsets(client, stored)
            if not self.refused:
                refused = [each for each in client.fatal if not self._is_excused(each[0])]
                self.history.check(not refused, f"a client was refused: {refused[:1]}")

    def _is_excused(self, batch: Sent) -> bool:
        """A batch may be given up as too late if things were bad for most of its time."""
        return batch.failed == TOO_LATE and batch.ended - self.last_fault < GIVEN_UP_WITHIN

    def _check_stored(self, client: IdempotentProducer, counts: Counter[bytes], values: list[bytes]) -> None:
        order = []
        for batch in client.batches:
            for record in batch.records:
                count, text = counts[record], record[:7].decode()
                if batch.offset is not None:
                    self.history.check(count > 0, f"{text} was acknowledged and is not stored")
                if not batch.may_be_twice:
                    self.history.check(count < 2, f"{text} is stored {count} times")
                    order.append(record)
        places = {value: place for place, value in enumerate(values)}
        found = [places[record] for record in order if record in places]
        # A broker that refuses an entry goes on with the next: what is sent again comes behind.
        in_order = self.refused or found == sorted(found)
        self.history.check(in_order, f"the records of {client.name} are out of order")

    def _check_read(self, stored: list[Stored]) -> None:
        if self.consumer is None:
            return
        found, read = _by_offset(stored), self.consumer.read
        for offset, value in found.items():
            is_read = read.get(offset) == value or (offset not in read and self.consumer.jumps)
            self.history.check(is_read, f"at offset {offset} a consumer read {read.get(offset, b'-')[:7]!r}")

    def _check_offsets(self, client: IdempotentProducer, stored: list[Stored]) -> None:
        by_offset = _by_offset(stored)
        for batch in client.batches:
            if batch.offset is not None and batch.offset >= 0:
                found = by_offset.get(batch.offset, b"nothing")
                self.history.check(
                    found == batch.records[0],
                    f"{batch} was told offset {batch.offset}, there is {found[:7]!r}",
                )


def _by_offset(stored: list[Stored]) -> dict[int, bytes]:
    return {
        entry.index - entry.messages + 1 + number: value
        for entry in stored
        for number, (_, value) in enumerate(messages_of(entry))
    }


async def producing(history: History) -> None:
    """Let a history of producers run, and check its laws."""
    world = World(history)
    await world.run()
    world.check()
