"""An idempotent Kafka producer as Java's and librdkafka's are: five requests in flight, retries in order.

One that behaves well: it gives a batch another sequence only under a new epoch, and begins a new epoch only
when it was told for certain that a batch cannot be stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.wire.kafka import ErrorCode, RecordBatch, read_batches
from simulator.gateway import DISCONNECTED, Connection, Leadership
from simulator.history import History

__all__ = ["TOO_LATE", "IdempotentProducer", "Sent"]

_IN_FLIGHT: Final = 5
_DELIVERY_SECONDS: Final = 120.0
"""After so long a batch is given up (delivery.timeout.ms)."""
TOO_LATE: Final = -101
"""The code of a batch that was given up after that."""
_RETRIABLE: Final = frozenset(
    {
        DISCONNECTED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_UNKNOWN_OUTCOME: Final = frozenset(
    {DISCONNECTED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


@dataclass(eq=False)
class Sent:
    """One batch of the client."""

    records: list[bytes]
    sequence: int = -1
    epoch: int = -1
    answer: asyncio.Future[tuple[int, int]] | None = None
    attempts: int = 0
    began: float = 0.0
    ended: float = 0.0
    is_uncertain: bool = False
    """Whether an attempt may have been stored of which nothing was heard."""
    may_be_twice: bool = False
    """Whether it was sent under a new epoch although an attempt of the former one is uncertain."""
    offset: int | None = None
    """Where it went; -1 if it was only told that it is stored, None while nothing was told."""
    failed: int = 0
    """The code with which it was given up."""

    def __repr__(self) -> str:
        first, last = self.records[0][:7].decode(), self.records[-1][:7].decode()
        return f"[{first}..{last}] sequence {self.sequence} epoch {self.epoch}"


@dataclass(eq=False)
class IdempotentProducer:
    """Sends batches to one partition."""

    history: History
    leadership: Leadership
    topic: str
    producer_id: int
    is_java: bool
    batches: list[Sent] = field(default_factory=list)
    """All of them in the order of sending, acknowledged or not."""
    fatal: list[tuple[Sent, int]] = field(default_factory=list)
    """Batches that were refused for good, and with which code."""
    epoch: int = 0
    _next: int = 0
    _acked: int = 0
    """The sequence behind the last one that was acknowledged."""
    _connection: Connection | None = None
    _bumping: bool = False
    _answered: deque[Sent] = field(default_factory=deque)
    """Batches whose answers have come."""

    @property
    def name(self) -> str:
        """For the history."""
        return f"client {self.producer_id}"

    async def run(self, batches: list[Sent], pause: float) -> None:
        """Send everything, and come back when all of it is acknowledged or given up."""
        left = list(batches)
        while left or self._open():
            if left and len(self._open()) < _IN_FLIGHT and not self._retrying() and not self._bumping:
                batch = left.pop(0)
                self.batches.append(batch)
                batch.sequence, batch.epoch = self._next, self.epoch
                batch.began = self.history.loop.time()
                self._next += len(batch.records)
                self._send(batch)
                await self.history.pause(pause)
            else:
                await self._wait()
            self._handle()
            await self._retry()

    def _open(self) -> list[Sent]:
        return [each for each in self.batches[-2 * _IN_FLIGHT :] if each.offset is None and not each.failed]

    def _retrying(self) -> list[Sent]:
        return [each for each in self._open() if each.answer is None]

    async def _wait(self) -> None:
        waiting = [each.answer for each in self._open() if each.answer is not None]
        if waiting:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _retry(self) -> None:
        """Send again what failed, in order; give up what has failed for long."""
        for batch in self._retrying():
            if self.history.loop.time() - batch.began > _DELIVERY_SECONDS:
                self._give_up(batch, TOO_LATE)
        batches = self._open()
        in_flight = [each for each in batches if each.answer is not None]
        if self._bumping and not in_flight:
            self._bump(batches)
        again = [each for each in batches if each.answer is None]
        if not again or self._bumping:
            return
        # Java sends one again at a time, and that is always the oldest that is open; librdkafka waits until
        # nothing is in flight, and sends all of them again.
        if self.is_java:
            again = again[:1] if again[0] is batches[0] else []
        elif in_flight:
            again = []
        if again:
            await self.history.pause(0.1 * 2 ** min(again[0].attempts, 5))
        for batch in again:
            self._send(batch)

    def _send(self, batch: Sent) -> None:
        if self._connection is None or self._connection.is_lost:
            self._connection = Connection(self._gateway())
        batch.attempts += 1
        self.history.note(
            self.name, f"sends {batch} to {self._connection.gateway.name}, attempt {batch.attempts}"
        )
        batch.answer = self._connection.send(self.topic, self._encoded(batch))
        batch.answer.add_done_callback(lambda _: self._answered.append(batch))

    def _gateway(self) -> object:
        gateways, chance = self.leadership.gateways, self.history.random
        name = self.leadership.leader if chance.random() < 0.8 else chance.choice(sorted(gateways))
        return gateways[name]

    def _encoded(self, batch: Sent) -> RecordBatch:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=self.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            batch_size=1 << 20,
        )
        now = int((1_700_000_000 + self.history.loop.time()) * 1000)
        for number, value in enumerate(batch.records):
            builder.append(number, timestamp=now, key=None, value=value, headers=[])
        [made] = read_batches(bytes(builder.build()))
        return made

    # Answers

    def _handle(self) -> None:
        """Take the answers in the order in which they came: what a refusal means depends on it."""
        while self._answered:
            batch = self._answered.popleft()
            assert batch.answer is not None
            offset, code = batch.answer.result()
            batch.answer = None
            self.history.note(self.name, f"hears of {batch}: offset {offset} code {code}")
            self._judge(batch, offset, code)

    def _judge(self, batch: Sent, offset: int, code: int) -> None:
        if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.offset = -1 if code else offset
            if batch.epoch == self.epoch:
                self._acked = max(self._acked, batch.sequence + len(batch.records))
            return
        if code in _UNKNOWN_OUTCOME:
            batch.is_uncertain = True
        if code == DISCONNECTED or code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._leave()
        if code in _RETRIABLE:
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            return self._split(batch)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.sequence != self._acked:
            # Something before it is not acknowledged: it was refused because of that.
            return
        self._give_up(batch, code)

    def _give_up(self, batch: Sent, code: int) -> None:
        self.history.note(self.name, f"gives up {batch}: {code}")
        self.fatal.append((batch, code))
        batch.failed, batch.ended = code, self.history.loop.time()
        self._bumping = True

    def _leave(self) -> None:
        """Look for the leader again; what is in flight on the connection is still answered."""
        if self._connection is not None and (self._connection.is_lost or not self._has_in_flight()):
            self._connection = None

    def _has_in_flight(self) -> bool:
        return any(each.answer is not None for each in self._open())

    def _split(self, batch: Sent) -> None:
        """Cut a batch that is too large into two, which take its sequences."""
        half, at = len(batch.records) // 2, self.batches.index(batch)
        first, second = (
            replace(batch, records=batch.records[:half]),
            replace(batch, records=batch.records[half:]),
        )
        second.sequence += half
        self.batches[at : at + 1] = [first, second]

    def _bump(self, batches: list[Sent]) -> None:
        """Begin a new epoch, in which sequences begin again."""
        self.epoch += 1
        self._bumping, self._next, self._acked = False, 0, 0
        self.history.note(self.name, f"begins epoch {self.epoch}")
        for batch in batches:
            batch.may_be_twice = batch.may_be_twice or batch.is_uncertain
            batch.sequence, batch.epoch = self._next, self.epoch
            self._next += len(batch.records)
