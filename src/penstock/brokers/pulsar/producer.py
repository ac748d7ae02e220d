"""A producer: entries go out as ready frames, and each is kept until its receipt.

When the producer is lost (topic moved, connection or broker gone) it is opened again under its name and
its id; what the former one still had to hear is heard first, then what is pending is sent again, in
order. With deduplication on the broker that makes exactly one copy of each entry, without it at least one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, Final

from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.refusal import FATAL_FOR_PRODUCERS, refusal
from penstock.brokers.pulsar.session import Cluster, Session
from penstock.brokers.pulsar.window import Pending, Receipt, Window
from penstock.errors import ClusterError, PenstockError, PulsarRefused, Unreachable
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kernels import ByteArray, crc32c
from penstock.wire.pulsar import SendReceipt, encode_send, send_frame
from penstock.wire.pulsar.pulsar_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandSend,
    ProducerAccessMode,
    SchemaType,
    ServerError,
)

__all__ = ["AccessMode", "Producer"]

_HEAD_BYTES: Final = 512
"""A frame is at most so much larger than its payload, for counting before it is made."""
_FORGOTTEN_SECONDS: Final = 55.0
"""A broker forgets the ids of a name at the earliest a minute after its producer has gone.

`brokerDeduplicationProducerInactivityTimeoutMinutes` is 6 hours by default, and 1 minute at least.
"""
_LEAST_WATCH: Final = 0.25
"""Seconds between two looks at a queue that stands still."""


class AccessMode(IntEnum):
    """Who else may write to the topic."""

    SHARED = ProducerAccessMode.ACCESS_SHARED
    EXCLUSIVE = ProducerAccessMode.ACCESS_EXCLUSIVE
    WAIT_FOR_EXCLUSIVE = ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE
    EXCLUSIVE_WITH_FENCING = ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING


class Producer(Session):
    """Made by `PulsarClient.producer`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        producer_id: int,
        name: str | None = None,
        access: AccessMode = AccessMode.SHARED,
        avro_schema: str | None = None,
        owns_name: bool = False,
    ) -> None:
        """With `owns_name` it ends when somebody else has written under its name while it was away.

        So it does when the broker has forgotten the ids of the name, as nothing may be sent again then.
        """
        super().__init__(cluster, topic)
        self.producer_id = producer_id
        self.name = name or ""
        """Given, or chosen by the broker; kept for the producer's life."""
        self._encoded_name = as_array(self.name.encode())
        self.access = access
        self.topic_epoch: int | None = None
        """Grows with each new exclusive producer of the topic; None when access is shared."""
        self.last_sequence_id = -1
        """The highest sequence id that the broker had under our name when we opened; -1 if none."""
        self.on_failure: Callable[[PenstockError], None] | None = None
        """Told why the producer ended for good, as when another took the topic."""
        self._owns_name = owns_name
        self._avro_schema = avro_schema
        self._schema_version = b""
        """The broker's name of our schema; empty without one."""
        self._given = name is not None
        self._epoch = 0
        self._next_sequence_id = 0
        self._turn = asyncio.Lock()
        self._window = Window(entries=self._options.window_entries, size=self._options.window_bytes)
        self._loop = asyncio.get_running_loop()
        self._news = self._loop.time()
        """When the broker last told anything about our entries."""
        self._timer: asyncio.TimerHandle | None = None
        self._places: set[Connection] = set()
        self._is_known = False
        self._acknowledged = -1
        """The highest sequence id that the broker has told of, at the opening or in a receipt."""
        self._max_bytes = 0

    # Sending

    async def send(
        self,
        buffer: ByteArray,
        start: int,
        end: int,
        num_messages: int,
        publish_time: int,
        sequence_id: int | None = None,
        last_sequence_id: int | None = None,
        compression: int = -1,
        uncompressed_size: int = -1,
    ) -> asyncio.Future[Receipt]:
        """Send a batch whose payload is buffer[start:end], with room for its head before it.

        Returns when there is room in the window and the entry is queued; the future is the receipt. The
        buffer belongs to the producer until then. Without a sequence id the entry takes the next.
        """
        said = (num_messages, publish_time, sequence_id, last_sequence_id, compression, uncompressed_size)
        async with self._turn:
            await self._room(end - start + _HEAD_BYTES)
            return self._send(buffer, start, end, *said)

    def send_nowait(
        self,
        buffer: ByteArray,
        start: int,
        end: int,
        num_messages: int,
        publish_time: int,
        sequence_id: int | None = None,
        last_sequence_id: int | None = None,
        compression: int = -1,
        uncompressed_size: int = -1,
    ) -> asyncio.Future[Receipt] | None:
        """Send as `send` does, or give None if that would have to wait."""
        self._check()
        if self._turn.locked() or not self._window.has_room(end - start + _HEAD_BYTES):
            return None
        said = (num_messages, publish_time, sequence_id, last_sequence_id, compression, uncompressed_size)
        return self._send(buffer, start, end, *said)

    async def room(self, size: int) -> None:
        """Wait until a payload of so many bytes may be sent, for who has to look again before he sends.

        Who sends in the same turn of the loop, with `send_nowait`, finds the room still there.
        """
        async with self._turn:
            await self._room(size + _HEAD_BYTES)

    def _send(
        self,
        buffer: ByteArray,
        start: int,
        end: int,
        num_messages: int,
        publish_time: int,
        sequence_id: int | None,
        last: int | None,
        compression: int,
        uncompressed_size: int,
    ) -> asyncio.Future[Receipt]:
        first = self._next_sequence_id if sequence_id is None else sequence_id
        frame = send_frame(
            buffer,
            start,
            end,
            self._encoded_name,
            self.producer_id,
            first,
            num_messages,
            publish_time,
            -1 if last is None else last,
            compression,
            uncompressed_size,
        )
        return self._queue(frame, first, last)

    async def send_message(self, metadata: Any, payload: Buffer) -> asyncio.Future[Receipt]:
        """Send an entry with any MessageMetadata; name, sequence id and schema version are filled in."""
        async with self._turn:
            metadata.producer_name, metadata.sequence_id = self.name, 0
            if self._schema_version:
                metadata.schema_version = self._schema_version
            await self._room(metadata.ByteSize() + len(payload) + _HEAD_BYTES)
            metadata.sequence_id = sequence_id = self._next_sequence_id
            send = CommandSend(
                producer_id=self.producer_id,
                sequence_id=sequence_id,
                num_messages=metadata.num_messages_in_batch,
            )
            return self._queue(memoryview(encode_send(send, metadata, payload)), sequence_id, None)

    async def flush(self) -> None:
        """Wait until nothing is under way; failures are told to those who sent."""
        waiting = [entry.done for entry in self._window.all()]
        await asyncio.gather(*map(asyncio.shield, waiting), return_exceptions=True)

    @property
    def pending(self) -> int:
        """Entries under way."""
        return len(self._window)

    @property
    def pending_bytes(self) -> int:
        """Bytes under way."""
        return self._window.size

    @property
    def max_message_bytes(self) -> int:
        """The largest entry that the broker takes, its head included."""
        return self._max_bytes

    @property
    def late_receipts(self) -> int:
        """Receipts for entries that were already answered."""
        return self._window.late_receipts

    async def _room(self, size: int) -> None:
        self._check()
        if not self._window.has_room(size):
            await self._window.wait_for_room(size)
            self._check()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _queue(self, frame: memoryview, sequence_id: int, last: int | None) -> asyncio.Future[Receipt]:
        if len(frame) > self._max_bytes:
            # What the broker itself answers to an entry that is too large; it ends the connection for larger.
            raise PulsarRefused(
                f"an entry of {len(frame)} bytes is too large for topic {self.topic}",
                server_error=ServerError.NOT_ALLOWED_ERROR,
                retriable=False,
                why=f"the broker takes {self._max_bytes}",
                next="send smaller batches",
            )
        deadline = self._loop.time() + self._options.send_timeout
        done: asyncio.Future[Receipt] = self._loop.create_future()
        pending = Pending(frame, sequence_id, sequence_id if last is None else last, deadline, done)
        self._window.add(pending)
        self._next_sequence_id = pending.last_sequence_id + 1
        self._watch()
        if self._connection is not None and self._opened.is_set():
            pending.attempts = 1
            self._connection.write(frame)
        return done

    # What the connection tells

    def on_receipt(self, receipt: SendReceipt) -> None:
        """Answer the head of the queue."""
        head = self._window.head
        self._window.receive(receipt)
        if head is not None and self._window.head is not head:
            self._acknowledged = max(self._acknowledged, head.last_sequence_id)
        self._news = self._loop.time()
        self._useful = True

    def on_send_error(self, error: Any) -> None:
        """Fail the entry, or the producer, or open again and send once more."""
        failed = refusal(error.error, error.message, what=f"topic {self.topic} did not take an entry")
        entry = self._window.find(error.sequence_id)
        if error.error in FATAL_FOR_PRODUCERS:
            self._end(failed)
        elif entry is not None and not (failed.retriable and _is_intact(entry.frame)):
            self._window.fail(entry, failed)
        elif self._connection is not None:
            self.on_lost(self._connection, failed)

    def _on_time(self) -> None:
        """Look at the head of the queue: is it too late, or without news for too long?"""
        self._timer = None
        head, now = self._window.head, self._loop.time()
        if head is None:
            return
        if head.deadline <= now:
            # Entries behind it may not overtake it: all fail.
            self._window.fail_all(self._too_late())
        elif self._stalls_at(head) <= now and self._connection is not None and self._opened.is_set():
            self.on_lost(self._connection, Unreachable("no receipt came"))
        self._watch()

    def _watch(self) -> None:
        head = self._window.head if self._timer is None else None
        if head is not None:
            at = max(self._stalls_at(head), self._loop.time() + _LEAST_WATCH)
            self._timer = self._loop.call_at(min(head.deadline, at), self._on_time)

    def _stalls_at(self, head: Pending) -> float:
        sent = head.deadline - self._options.send_timeout
        return max(self._news, sent) + self._options.stall_timeout

    def _too_late(self) -> Unreachable:
        return Unreachable(
            f"no receipt within {self._options.send_timeout:g} s for topic {self.topic}",
            why="The entries may or may not be stored.",
            next="send again under the same name and sequence ids, with deduplication on",
        )

    # The life

    async def _attach(self, connection: Connection) -> None:
        self._connection = connection
        if connection in self._places:
            # We may still be open there, after a SEND_ERROR or a time-out.
            await self._leave(connection)
        # The end stays where it was, too: late receipts are heard until we are open again.
        self._places.add(connection)
        connection.producers[self.producer_id] = self
        answer = await connection.request(self._command())
        self._accept(answer, connection)
        await self._hear_out(connection)

    def _command(self) -> Any:
        # Who has held the topic comes back with its epoch, and as exclusive only: a broker puts one that
        # waits into its queue although it was fenced, and later hands it the topic with the old epoch.
        access = self.access if self.topic_epoch is None else AccessMode.EXCLUSIVE
        command = CommandProducer(
            topic=self.topic,
            producer_id=self.producer_id,
            request_id=0,
            epoch=self._epoch,
            user_provided_producer_name=self._given,
            producer_access_mode=ProducerAccessMode.Name(access),
        )
        if self.name:
            command.producer_name = self.name
        if self.topic_epoch is not None:
            command.topic_epoch = self.topic_epoch
        if self._avro_schema is not None:
            command.schema.name, command.schema.type = self.topic, SchemaType.SCHEMA_AVRO
            command.schema.schema_data = self._avro_schema.encode()
        self._epoch += 1
        return command

    def _accept(self, answer: Any, connection: Connection) -> None:
        self._max_bytes = connection.max_message_bytes
        if self._avro_schema is not None:
            self._schema_version = answer.schema_version
        if answer.HasField("topic_epoch") and self.access is not AccessMode.SHARED:
            self.topic_epoch = answer.topic_epoch
        if not self._is_known:
            self._is_known = True
            self.name = answer.producer_name
            self._encoded_name = as_array(self.name.encode())
            self.last_sequence_id = answer.last_sequence_id
            self._next_sequence_id = answer.last_sequence_id + 1
            self._acknowledged = answer.last_sequence_id
        elif self._owns_name:
            self._refuse_other_user(answer.last_sequence_id)
            self._refuse_forgotten(answer.last_sequence_id)

    def _refuse_other_user(self, last: int) -> None:
        """Raise PulsarRefused if the broker's last id of our name ends no entry of ours.

        Somebody else has written under the name, up to the middle of what is pending here or behind it. A
        broker would drop the entry around that id and store those behind it: what the other one has not
        written of the first would be missing, and hidden by the ids of the others.
        """
        pending = self._window.all()
        if pending:
            is_own = last < pending[0].sequence_id or any(last == each.last_sequence_id for each in pending)
        else:
            is_own = last < self._next_sequence_id
        if not is_own:
            raise PulsarRefused(
                f"another producer has written to {self.topic} under the name of this one",
                server_error=ServerError.PRODUCER_FENCED,
                retriable=False,
                why=f"The broker has sequence id {last} of {self.name}, which was not sent from here.",
                next="let one job write at a time; what is missing is written by the next run",
            )

    def _refuse_forgotten(self, last: int) -> None:
        """End as after an outage if the broker may have forgotten ids of entries that would be sent again.

        It would store those a second time whose receipts were lost. Who opens the name anew looks into the
        topic. Where no id was ever told, having forgotten and having stored nothing look the same; but what
        was stored lately is not forgotten.
        """
        sent = [each for each in self._window.all() if each.attempts]
        is_known = last >= self._acknowledged and last >= 0
        if is_known or not sent:
            return
        first_sent = sent[0].deadline - self._options.send_timeout
        if self._acknowledged < 0 and self._loop.time() - first_sent < _FORGOTTEN_SECONDS:
            return
        self._end(
            Unreachable(
                f"the broker forgot the ids of producer {self.name} while it was away",
                where=self.topic,
                why="Entries whose receipts were lost may be stored or not.",
                next="open the name anew behind what the topic holds",
            )
        )
        # Not to be cured by another attempt to attach.
        raise ClusterError("this producer has ended", where=self.topic)

    async def _hear_out(self, connection: Connection) -> None:
        """Wait for the receipts that were on their way when the former producer ended."""
        for place in list(self._places):
            await self._quietly(place.barrier())
            if place is not connection:
                place.producers.pop(self.producer_id, None)
                self._places.discard(place)

    def _resume(self) -> None:
        """Send what is pending, what was queued while we were away included."""
        self._news = self._loop.time()
        pending = self._window.all()
        for entry in pending:
            entry.attempts += 1
        if self._connection is not None:
            self._connection.write_all([entry.frame for entry in pending])

    async def _leave(self, connection: Connection) -> None:
        command = CommandCloseProducer(producer_id=self.producer_id, request_id=0)
        await self._quietly(connection.request(command))

    async def _quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            async with asyncio.timeout(self._options.barrier_timeout):
                await work
        except (PenstockError, TimeoutError):
            return

    async def _detach(self, connection: Connection) -> None:
        await self._leave(connection)

    def _failed(self, error: PenstockError) -> None:
        for place in self._places:
            place.producers.pop(self.producer_id, None)
        self._places.clear()
        self._window.fail_all(error)
        if self._timer is not None:
            self._timer.cancel()
        if self.on_failure is not None:
            self.on_failure(error)


def _is_intact(frame: memoryview) -> bool:
    """Compare the checksum of a SEND frame of ours; sizes, command and magic number stand before it."""
    at = 8 + int.from_bytes(frame[4:8], "big") + 2
    return crc32c(frame[at + 4 :]) == int.from_bytes(frame[at : at + 4], "big")
