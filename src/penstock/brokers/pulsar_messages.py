"""The messages of Pulsar topics for tools: what a topic holds or gets, and a send that was acknowledged.

Not a hot path: one object a message.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final

from penstock.brokers.pulsar import PulsarClient
from penstock.brokers.pulsar.reader import Reader
from penstock.brokers.pulsar.subscription import Delivery
from penstock.brokers.start import Start, StartKind
from penstock.errors import ClusterError, PenstockError, PulsarRefused, RecordRefused, WireError
from penstock.record import PulsarMessage
from penstock.wire.pulsar import MessageId
from penstock.wire.pulsar.message_id import EARLIEST, LATEST
from penstock.wire.pulsar.messages import metadata_of, unpack
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["Unreadable", "follow", "parts_of", "publish"]

_SEATS: Final = 1000
_MASK: Final = 0x7FFFFFFF
_OF_A_MESSAGE: Final = frozenset({ServerError.NOT_ALLOWED_ERROR, ServerError.INCOMPATIBLE_SCHEMA})
"""Codes that say that a topic does not take a message, whoever sends it again."""
_BETWEEN_MESSAGES: Final = 0.02
"""Seconds to wait for a message that is not there yet."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry whose messages cannot be read."""

    topic: str
    message_id: str
    reason: str


Item = PulsarMessage | Unreadable


async def parts_of(client: PulsarClient, topic: str) -> list[str]:
    """Name the partitions of a topic; a topic without partitions is its only one."""
    count = await client.partitions(topic)
    return [f"{topic}-partition-{number}" for number in range(count)] or [topic]


async def publish(
    client: PulsarClient,
    topic: str,
    messages: Iterable[PulsarMessage | None],
    *,
    avro_schema: str | None = None,
    named: Callable[[PulsarMessage], str] = lambda message: "a message",
) -> int:
    """Send messages and wait until all are acknowledged; a key decides as in Pulsar's Java client.

    None among them means that the next one is not there yet; what was refused is raised meanwhile too.
    RecordRefused says which message its topic does not take, as it is `named`; nothing behind it is sent.
    """
    parts = await parts_of(client, topic)
    producers = [await client.producer(part, avro_schema=avro_schema) for part in parts]
    receipts: deque[tuple[asyncio.Future[Any], PulsarMessage]] = deque()
    sent = written = 0

    async def settled(waiting: Awaitable[Any], message: PulsarMessage) -> Any:
        try:
            return await waiting
        except PulsarRefused as exc:
            if exc.server_error not in _OF_A_MESSAGE:
                raise
            others = await asyncio.gather(*(each for each, _ in receipts), return_exceptions=True)
            count = written + sum(not isinstance(each, BaseException) for each in others)
            what = f"{named(message)} was refused ({count} written)"
            why = ": ".join(filter(None, (exc.what, exc.why)))
            raise RecordRefused(ClusterError(what, where=topic, why=why, next=exc.next), message) from exc

    try:
        for message in messages:
            while receipts and receipts[0][0].done():
                await settled(*receipts.popleft())
                written += 1
            if message is None:
                await asyncio.sleep(_BETWEEN_MESSAGES)
                continue
            part = sent if message.key is None else _java_hash(message.key) & _MASK
            metadata = metadata_of(message, time.time_ns() // 1_000_000)
            sending = producers[part % len(parts)].send_message(metadata, message.payload or b"")
            receipts.append((await settled(sending, message), message))
            sent += 1
        while receipts:
            await settled(*receipts.popleft())
            written += 1
    except PenstockError:
        # The source ended in the middle, or one was refused. The others are on their way.
        await asyncio.gather(*(each for each, _ in receipts), return_exceptions=True)
        raise
    return sent


def _java_hash(text: str) -> int:
    """Give String.hashCode of Java.

    >>> _java_hash("customer-7"), _java_hash("")
    (2713781768, 0)
    """
    found = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found


async def follow(
    client: PulsarClient, topic: str, start: Start, *, until_end: bool = False
) -> AsyncGenerator[Item, None]:
    """Give the messages of all partitions as they come, each partition in its order.

    With `until_end` it ends behind what was there at the start.
    """
    parts = await parts_of(client, topic)
    try:
        async with aclosing(_followed(client, parts, start, until_end)) as items:
            async for item in items:
                yield item
    except BaseExceptionGroup as group:
        # The readers of several partitions fail together: one of their reasons is enough.
        known = group.subgroup(PenstockError)
        raise (_first(known) if known is not None else group) from None


def _first(group: BaseExceptionGroup[PenstockError]) -> PenstockError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def _followed(
    client: PulsarClient, parts: Sequence[str], start: Start, until_end: bool
) -> AsyncGenerator[Item, None]:
    queue: asyncio.Queue[Item | None] = asyncio.Queue(_SEATS)
    async with AsyncExitStack() as held:
        tasks = await held.enter_async_context(asyncio.TaskGroup())
        readers = [
            tasks.create_task(_read(client, part, start, until_end, queue), name=f"tail {part}")
            for part in parts
        ]
        held.callback(_cancel, readers)
        ended = 0
        while ended < len(parts):
            item = await queue.get()
            if item is None:
                ended += 1
            else:
                try:
                    yield item
                except GeneratorExit:
                    # Who reads has enough. The group of tasks would take it for a failure.
                    return


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


async def _read(
    client: PulsarClient, part: str, start: Start, until_end: bool, queue: asyncio.Queue[Item | None]
) -> None:
    place = LATEST if start.kind is StartKind.END else EARLIEST
    reader = await client.reader(part, start=place, convert=_copied, create=False)
    try:
        last = await reader.last_message_id()
        await _go_to(reader, start, last)
        empty = last.entry_id < 0 or start.kind is StartKind.END
        if not (until_end and empty):
            async with aclosing(_items(reader, part, last if until_end else None)) as items:
                async for item in items:
                    await queue.put(item)
    finally:
        await reader.close()
    await queue.put(None)


async def _go_to(reader: Reader[Delivery], start: Start, last: MessageId) -> None:
    if start.kind is StartKind.TIME:
        await reader.seek_to_time(start.number)
    elif start.kind is StartKind.LAST and last.entry_id >= 0:
        # An entry holds one message or more: so many entries back are enough, in the newest ledger.
        await reader.seek(MessageId(last.ledger_id, max(0, last.entry_id - start.number + 1)))


async def _items(reader: Reader[Delivery], part: str, last: MessageId | None) -> AsyncGenerator[Item, None]:
    async for delivery in reader:
        place = delivery.message_id
        try:
            if isinstance(delivery.entry, WireError):
                raise delivery.entry
            for message in unpack(delivery.entry, place, topic=part):
                yield message
        except WireError as exc:
            yield Unreadable(part, str(place), exc.what)
        if last is not None and (place.ledger_id, place.entry_id) >= (last.ledger_id, last.entry_id):
            return


def _copied(delivery: Delivery) -> Delivery:
    """Keep a delivery beyond the buffer of the socket: its bytes are views into it."""
    from penstock.wire.pulsar import read_entry

    data = memoryview(bytes(delivery.data))
    entry = delivery.entry if isinstance(delivery.entry, WireError) else read_entry(data)
    return delivery._replace(data=data, entry=entry)
