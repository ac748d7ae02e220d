"""One partition of the offsets topic: records keyed for compaction, written by one gateway at a time.

Each record is one Pulsar message whose key is the record's key, so that compaction keeps the newest of every
group and of every (group, topic, partition). Who opens the log takes the topic from whoever has it
(ExclusiveWithFencing), writes a mark of its own, and reads up to that mark: nothing can come behind what it
has read but its own records.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import struct
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Self

from penstock.brokers.pulsar import AccessMode, Delivery, Producer, PulsarClient, Receipt
from penstock.errors import ClusterError, PenstockError, WireError
from penstock.gateway.groups.schemas import Record
from penstock.wire.pulsar import Compression, MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

__all__ = ["OffsetsLog", "mark_record", "read_records", "write_records"]

_MARK_KEY: Final = struct.pack(">h", 0x7FFF) + b"penstock"
"""A version that Kafka will not reach: readers of Kafka's schemas pass it by."""
_SIZE: Final = struct.Struct(">I")
_BATCH_BYTES: Final = 1024 * 1024
_BATCH_RECORDS: Final = 2000
_REPLAY_WITHIN: Final = 60.0

_Queued = tuple[Sequence[Record], "asyncio.Future[None]"]


class OffsetsLog:
    """The log of one shard; made by `open`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue()
        self._closed = False
        self._task = asyncio.create_task(self._write_all(), name=f"offsets log {producer.topic}")

    @classmethod
    async def open(cls, client: PulsarClient, topic: str, *, mark: Record) -> tuple[Self, list[Record]]:
        """Take the topic; give the log with everything that is in it."""
        producer = await client.producer(topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
        try:
            async with asyncio.timeout(_REPLAY_WITHIN):
                receipt = await (await _send(producer, [mark]))
                records = await _replay(client, topic, receipt.message_id)
        except TimeoutError as exc:
            await producer.close()
            raise ClusterError(f"topic {topic} was not read within {_REPLAY_WITHIN:g} s") from exc
        except BaseException:
            await producer.close()
            raise
        return cls(producer), records

    @property
    def epoch(self) -> int:
        """Grows with each gateway that takes the topic."""
        return self._producer.topic_epoch or 0

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Store records in the order of the calls; what waits at the same time is stored together."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed or self._producer.error is not None:
            done.set_exception(self._producer.error or ClusterError("the log is closed"))
        elif not records:
            done.set_result(None)
        else:
            self._queue.put_nowait((records, done))
        return done

    async def close(self) -> None:
        """Let the topic go; what was not stored fails."""
        self._closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            _fail([self._queue.get_nowait()], ClusterError("the log is closed"))
        await self._producer.close()

    async def _write_all(self) -> None:
        while True:
            batch = [await self._queue.get()]
            batch += self._more(len(batch[0][0]))
            try:
                receipt = await _send(self._producer, [record for records, _ in batch for record in records])
            except PenstockError as exc:
                _fail(batch, exc)
                continue
            # Receipts come in the order of sending, and so do these.
            receipt.add_done_callback(partial(_settle, batch=batch))

    def _more(self, count: int) -> list[_Queued]:
        taken: list[_Queued] = []
        while not self._queue.empty() and count < _BATCH_RECORDS:
            taken.append(self._queue.get_nowait())
            count += len(taken[-1][0])
        return taken


def _settle(sent: asyncio.Future[Receipt], batch: Sequence[_Queued]) -> None:
    error = ClusterError("the log was closed") if sent.cancelled() else sent.exception()
    if error is not None:
        _fail(batch, error)
        return
    for _, done in batch:
        if not done.done():
            done.set_result(None)


def _fail(batch: Sequence[_Queued], error: BaseException) -> None:
    for _, done in batch:
        if not done.done():
            done.set_exception(error)


async def _send(producer: Producer, records: Sequence[Record]) -> asyncio.Future[Receipt]:
    metadata = MessageMetadata(publish_time=int(time.time() * 1000), num_messages_in_batch=len(records))
    return await producer.send_message(metadata, write_records(records))


async def _replay(client: PulsarClient, topic: str, until: MessageId) -> list[Record]:
    """Read the compacted view up to our own mark."""
    records: list[Record] = []
    reader = await client.reader(topic, read_compacted=True, convert=_converted)
    try:
        while True:
            place, found = await reader.read()
            records += found
            if place[:2] >= until[:2]:
                return records
    finally:
        await reader.close()


def _converted(delivery: Delivery) -> tuple[MessageId, list[Record]]:
    entry = delivery.entry
    if isinstance(entry, WireError) or not entry.is_batch or entry.is_encrypted:
        return delivery.message_id, []
    if entry.compression not in (-1, Compression.NONE):
        return delivery.message_id, []
    return delivery.message_id, list(read_records(bytes(entry.payload), entry.num_messages))


def mark_record(text: str) -> Record:
    """Make a record that says nothing about groups: who can write it has the topic."""
    return _MARK_KEY, text.encode()


def write_records(records: Sequence[Record]) -> bytes:
    """Write records as the payload of a batch; a null value is what Pulsar takes for a delete.

    >>> list(read_records(write_records([(b"k", b"v"), (b"k", None)]), 2))
    [(b'k', b'v'), (b'k', None)]
    """
    pieces: list[bytes] = []
    for key, value in records:
        head = SingleMessageMetadata(
            partition_key=base64.b64encode(key).decode(),
            partition_key_b64_encoded=True,
            payload_size=len(value or b""),
            null_value=value is None,
        ).SerializeToString()
        pieces += (_SIZE.pack(len(head)), head, value or b"")
    return b"".join(pieces)


def read_records(payload: bytes, count: int) -> Iterator[Record]:
    """Read the records of a batch; those that compaction left out, and what makes no sense, are left out."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    at = 0
    for _ in range(count):
        if at + _SIZE.size > len(payload):
            return
        begin = at + _SIZE.size
        end = begin + _SIZE.unpack_from(payload, at)[0]
        try:
            head = SingleMessageMetadata.FromString(payload[begin:end])
            key = base64.b64decode(head.partition_key, validate=True)
        except (DecodeError, binascii.Error):
            return
        at = end + max(head.payload_size, 0)
        if not head.compacted_out and at <= len(payload):
            yield key, None if head.null_value or not head.payload_size else payload[end:at]
