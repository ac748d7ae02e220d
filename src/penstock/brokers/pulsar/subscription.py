"""What reader and consumer share: entries come in, wait in a queue bounded by bytes, and are taken.

An entry is converted in place, while it is still in the buffer of the socket; what waits is the result.
After a loss the subscription goes on behind the last entry that came. A burst that does not fit is
dropped, and asked for again when there is room.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.brokers.pulsar.connection import Connection
from penstock.brokers.pulsar.flow import FlowControl
from penstock.brokers.pulsar.message_ids import from_wire
from penstock.brokers.pulsar.refusal import refusal
from penstock.brokers.pulsar.session import Cluster, Session
from penstock.errors import ClusterError, InternalError, PenstockError, Unreachable, WireError
from penstock.wire.pulsar import Entry, Message, MessageId, encode_flow, read_entry
from penstock.wire.pulsar.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandGetLastMessageId,
    CommandSeek,
    ServerError,
)

__all__ = ["Delivery", "Subscription"]

T = TypeVar("T")


class Delivery(NamedTuple):
    """An entry as it was delivered; its bytes are views."""

    message_id: MessageId
    redelivery_count: int
    entry: Entry | WireError
    """The head of the entry with its payload, or why it cannot be read."""
    data: memoryview
    """The whole entry as it is stored."""


def _read(data: memoryview) -> Entry | WireError:
    try:
        return read_entry(data)
    except WireError as exc:
        return exc


class _Waiting(NamedTuple):
    item: Any
    size: int


class Subscription(Session, Generic[T]):
    """A queue that the broker fills; taken by `read`, `read_nowait` or `async for`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        ids: Callable[[], int],
        convert: Callable[[Delivery], T] | None = None,
        size_of: Callable[[T], int] | None = None,
        read_bytes: int | None = None,
    ) -> None:
        super().__init__(cluster, topic)
        self.received: MessageId | None = None
        """The last entry that came; None before the first and after a seek."""
        self.ended = False
        """Whether the topic was terminated and everything was delivered."""
        self.overflows = 0
        """How often entries were dropped for want of room, to be asked for again."""
        self._convert = convert
        self._size_of = size_of
        self._ids = ids
        self._consumer_id = -1
        self._flow = FlowControl(budget=read_bytes or self._options.read_bytes)
        self._queue: deque[_Waiting] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def close(self) -> None:
        """End it; what was not taken is dropped."""
        await super().close()
        self._queue.clear()
        self._flow.cleared()

    # Taking

    async def read(self) -> T:
        """Take the next entry; wait for it if need be."""
        await self.arrival()
        return self._take()

    async def arrival(self) -> None:
        """Wait until there is an entry to take; raise if none will come."""
        while not self._queue:
            self._check_end()
            self._news.clear()
            await self._news.wait()

    def read_nowait(self) -> T | None:
        """Take the next entry if there is one."""
        if not self._queue:
            self._check_end()
            return None
        return self._take()

    def take_nowait(self) -> tuple[T, int] | None:
        """Take the next entry if there is one, with its size; its bytes stay counted until `release`."""
        if not self._queue:
            self._check_end()
            return None
        return self._queue.popleft()

    def release(self, size: int) -> None:
        """Count bytes that were taken by `take_nowait` as gone: so many more may be asked for."""
        self._flow.taken(size)
        if self._flow.is_low:
            self._room.set()
        self._ask_for_more()

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            yield await self.read()

    def __len__(self) -> int:
        """Count the entries that wait."""
        return len(self._queue)

    def __bool__(self) -> bool:
        # An empty reader is still a reader.
        return True

    @property
    def is_attached(self) -> bool:
        """Whether the broker has it now; one that was lost, or waits for room, has to come back first."""
        return self._opened.is_set() and self.error is None

    @property
    def held_bytes(self) -> int:
        """Bytes of the entries that wait, and of those that were taken and not released."""
        return self._flow.held

    def limit(self, size: int) -> None:
        """Ask for so many bytes ahead from now on."""
        self._flow.limit(size)
        self._ask_for_more()

    def _take(self) -> T:
        item: T
        item, size = self._queue.popleft()
        self.release(size)
        return item

    def _check_end(self) -> None:
        if self.error is not None:
            raise self.error
        if self.ended:
            raise refusal(ServerError.TOPIC_TERMINATED_ERROR, "", what=f"topic {self.topic} has ended")

    # Asking

    async def last_message_id(self) -> MessageId:
        """Ask for the id of the last message in the topic; its entry id is -1 if there is none."""
        answer = await self._ask(lambda: CommandGetLastMessageId(consumer_id=self._consumer_id))
        return from_wire(answer.last_message_id)

    async def _seek(self, **where: Any) -> None:
        """Move to a place; what waits is dropped, and what still comes from the former place as well.

        After an error the place is not known: seek once more.
        """
        connection = await self._attached()
        consumer_id, self._consumer_id = self._consumer_id, -1
        connection.consumers.pop(consumer_id, None)
        self._forget()
        try:
            # The broker closes the consumer when it moves a cursor: we come back after it.
            await connection.request(CommandSeek(consumer_id=consumer_id, request_id=0, **where))
        finally:
            self._useful = True
            self.on_lost(connection, Unreachable("the cursor was moved"))

    def _forget(self) -> None:
        self._queue.clear()
        self._flow.cleared()
        self._room.set()
        self.received = None
        self.ended = False

    async def _ask(self, command: Callable[[], Any]) -> Any:
        """Send a request on the connection that there is; again on the next one if it gets lost with it."""
        while True:
            connection = await self._attached()
            consumer_id = self._consumer_id
            try:
                return await connection.request(command())
            except ClusterError:
                # A refusal or a time-out stands, unless the session was lost meanwhile.
                if self._opened.is_set() and self._consumer_id == consumer_id:
                    raise

    async def _attached(self) -> Connection:
        """Wait until there is a connection; raise what ended the session, or Unreachable if it takes long."""
        try:
            async with asyncio.timeout(self._options.request_timeout):
                await self._opened.wait()
        except TimeoutError as exc:
            raise Unreachable(f"no broker serves topic {self.topic} now") from exc
        if self.error is not None or self._connection is None:
            raise self.error or Unreachable(f"topic {self.topic} is not open")
        return self._connection

    # What the connection tells

    def on_message(self, message: Message) -> None:
        """Convert an entry and put it into the queue."""
        if self._is_old(message.message_id):
            return
        # Without a conversion the entry itself is kept: one copy, out of the buffer of the socket.
        data = memoryview(bytes(message.entry)) if self._convert is None else message.entry
        entry = _read(data)
        messages = max(entry.num_messages, 1) if isinstance(entry, Entry) else 1
        if not self._flow.received(messages, len(data)):
            self._overflow()
            return
        self.received = message.message_id
        self._useful = True
        self._put(Delivery(message.message_id, message.redelivery_count, entry, data), messages)
        self._ask_for_more()

    def _put(self, delivery: Delivery, messages: int) -> None:
        try:
            item = delivery if self._convert is None else self._convert(delivery)
        except Exception as exc:  # noqa: BLE001  what a caller's function does must not end the connection
            error = InternalError(
                f"an entry of topic {self.topic} could not be converted",
                where=str(delivery.message_id),
                why=repr(exc),
            )
            error.__cause__ = exc
            self._end(error)
        else:
            size = len(delivery.data)
            if self._size_of is not None:
                # What waits is the result, and a compressed entry may be many times as large then.
                size = self._size_of(item)  # type: ignore[arg-type]
                self._flow.resized(messages, len(delivery.data), size)
            self._queue.append(_Waiting(item, size))
            self._news.set()

    def on_end_of_topic(self) -> None:
        """Let the one who reads know when the queue is empty."""
        self.ended = True
        self._news.set()

    def _is_old(self, message_id: MessageId) -> bool:
        """After a loss a broker delivers again what was not acknowledged: we have it."""
        return self.received is not None and message_id[:2] <= self.received[:2]

    def _overflow(self) -> None:
        """Drop what does not fit; `_attach` waits for room and goes on behind what was kept."""
        connection = self._connection
        self.overflows += 1
        self._room.clear()
        if connection is not None:
            connection.consumers.pop(self._consumer_id, None)
            self.on_lost(connection, Unreachable("the queue is full"))

    def _ask_for_more(self) -> None:
        connection = self._connection
        if connection is None or not self._opened.is_set():
            return
        permits = self._flow.grant()
        if permits:
            self._on_grant(connection)
            connection.write(encode_flow(self._consumer_id, permits))

    def _on_grant(self, connection: Connection) -> None:
        """Say more than FLOW, if a kind of subscription wants to."""

    # The life

    @abstractmethod
    def _command(self, consumer_id: int) -> Any:
        """Make the SUBSCRIBE that goes on where we are."""

    async def _attach(self, connection: Connection) -> None:
        former, self._connection = self._connection, connection
        if former is not None and former.error is None and self._consumer_id >= 0:
            await self._leave(former)
        await self._room.wait()
        # A number of its own for each life: what comes late for a former one finds nobody.
        self._consumer_id = self._ids()
        self._flow.restart()
        connection.consumers[self._consumer_id] = self
        try:
            await connection.request(self._command(self._consumer_id))
        except PenstockError:
            connection.consumers.pop(self._consumer_id, None)
            raise

    def _resume(self) -> None:
        self._ask_for_more()

    async def _leave(self, connection: Connection) -> None:
        connection.consumers.pop(self._consumer_id, None)
        try:
            async with asyncio.timeout(self._options.barrier_timeout):
                await connection.request(CommandCloseConsumer(consumer_id=self._consumer_id, request_id=0))
        except (PenstockError, TimeoutError):
            return

    async def _detach(self, connection: Connection) -> None:
        await self._leave(connection)

    def _failed(self, error: PenstockError) -> None:
        self._news.set()
        self._room.set()
