"""One partition of the offsets topic: records keyed for compaction, written by one gateway at a time.

Each record is one Pulsar message whose key is the record's key, so that compaction keeps the newest of every
group and of every (group, topic, partition). Who opens the log takes the topic from whoever has it
(ExclusiveWithFencing), writes a mark of its own, and reads up to that mark: nothing can come behind what it
has read but its own records.

Records that wait at the same time share a message, up to a number and a size. A record that is larger than
the broker's largest message is refused by itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from penstock.brokers.pulsar import AccessMode, Delivery, Producer, PulsarClient, Receipt
from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ApiError, ClusterError, WireError
from penstock.gateway.groups.fields import LONGEST
from penstock.gateway.groups.ports import TOO_LARGE
from penstock.gateway.groups.schemas import Record
from penstock.wire.pulsar import Compression, MessageId
from penstock.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

__all__ = ["OffsetsLog", "mark_record", "read_records", "write_records"]

log = logging.getLogger("penstock.gateway")

_MARK_KEY: Final = struct.pack(">h", 0x7FFF) + b"penstock"
"""A version that Kafka will not reach: readers of Kafka's schemas pass it by."""
_SIZE: Final = struct.Struct(">I")
_BATCH_BYTES: Final = 1024 * 1024
_BATCH_RECORDS: Final = 2000
_HEAD_BYTES: Final = 1024
"""What a message takes beside its records, at most."""
_GROUP_BYTES: Final = LONGEST * 4 // 3 + 3 * LONGEST + 1024
"""What a group's record takes beside its members, at most: its name in base64, its protocol and leader."""
_RECORD_BYTES: Final = 64
"""What a record takes beside its key and value, at most."""
STALL_SECONDS: Final = 60.0
"""How long a log that is read may stand still. A long one takes as long as it takes: whoever gives it up in
the middle reads it again from the start, and never gets to its end."""


class _Queued(NamedTuple):
    """Records that go into one message."""

    records: Sequence[Record]
    size: int
    done: asyncio.Future[None]
    is_last: bool
    """Whether `done` is done with them; else more of the same request comes behind."""


class OffsetsLog:
    """The log of one shard; made by `open`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue()
        self._held: _Queued | None = None
        """What did not fit into the message before."""
        self._closed = False
        name = f"offsets log {producer.topic}"
        self._task = watched(asyncio.create_task(self._write_all(), name=name))

    @classmethod
    async def open(cls, client: PulsarClient, topic: str, *, mark: Record) -> tuple[Self, list[Record]]:
        """Take the topic; give the log with everything that is in it."""
        producer = await client.producer(topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
        try:
            async with asyncio.timeout(STALL_SECONDS):
                until = await _write_mark(producer, mark)
            records = await _replay(client, topic, until)
        except TimeoutError as exc:
            await producer.close()
            raise ClusterError(f"topic {topic} gave nothing for {STALL_SECONDS:g} s") from exc
        except BaseException:
            await producer.close()
            raise
        return cls(producer), records

    @property
    def epoch(self) -> int:
        """Grows with each gateway that takes the topic."""
        return self._producer.topic_epoch or 0

    @property
    def max_group_bytes(self) -> int:
        """The largest value that one record may have."""
        return max(self._producer.max_message_bytes - _HEAD_BYTES - _GROUP_BYTES, 0)

    def watch(self, lost: Callable[[BaseException], None]) -> None:
        """Let it be told when the topic is lost, as to another gateway, also if nothing is written."""
        self._producer.on_failure = lost
        if self._producer.error is not None:
            lost(self._producer.error)

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Store records in the order of the calls; what waits at the same time is stored together.

        A record that is larger than a message may be is refused with ApiError TOO_LARGE: nothing of its call
        is stored, and nothing else is refused.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed or self._producer.error is not None:
            done.set_exception(self._producer.error or ClusterError("the log is closed"))
        elif not records:
            done.set_result(None)
        else:
            self._put(records, done)
        return done

    def _put(self, records: Sequence[Record], done: asyncio.Future[None]) -> None:
        sizes = [_size(record) for record in records]
        most = self._producer.max_message_bytes - _HEAD_BYTES
        if max(sizes) > most:
            done.set_exception(ApiError(f"a record has {max(sizes)} bytes of {most}", error_code=TOO_LARGE))
            return
        for begin, end in _cut(sizes, min(_BATCH_BYTES, most)):
            part = records[begin:end]
            self._queue.put_nowait(_Queued(part, sum(sizes[begin:end]), done, end == len(records)))

    async def close(self) -> None:
        """Let the topic go; what was not stored fails."""
        self._closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        left = [] if self._held is None else [self._held]
        while not self._queue.empty():
            left.append(self._queue.get_nowait())
        _fail(left, ClusterError("the log is closed"))
        await self._producer.close()

    async def _write_all(self) -> None:
        while True:
            batch = [self._held or await self._queue.get()]
            self._held = None
            batch += self._more(batch[0])
            try:
                receipt = await _send(self._producer, [record for part in batch for record in part.records])
            except asyncio.CancelledError:
                _fail(batch, ClusterError("the log is closed"))
                raise
            except Exception as exc:  # noqa: BLE001  whatever it is, who waits for these records must hear of it
                log.debug("records of %s were not sent: %s", self._producer.topic, exc)
                _fail(batch, exc)
                continue
            # Receipts come in the order of sending, and so do these.
            receipt.add_done_callback(partial(_settle, batch=batch))

    def _more(self, first: _Queued) -> list[_Queued]:
        """Take what fits into the message of the first; what does not fit is held for the next one."""
        taken: list[_Queued] = []
        count, size = len(first.records), first.size
        most = min(_BATCH_BYTES, self._producer.max_message_bytes - _HEAD_BYTES)
        while not self._queue.empty():
            following = self._queue.get_nowait()
            count, size = count + len(following.records), size + following.size
            if count > _BATCH_RECORDS or size > most:
                self._held = following
                break
            taken.append(following)
        return taken


def _size(record: Record) -> int:
    """Count the bytes of a record in a message, at most: its key is written in base64."""
    key, value = record
    return _RECORD_BYTES + (len(key) + 2) // 3 * 4 + len(value or b"")


def _cut(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Cut records into messages, by number and by size; a larger one has a message of its own.

    >>> list(_cut([4, 4, 4, 9, 1], 8))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    begin, total = 0, 0
    for at, size in enumerate(sizes):
        if at > begin and (total + size > most or at - begin == _BATCH_RECORDS):
            yield begin, at
            begin, total = at, 0
        total += size
    yield begin, len(sizes)


def _settle(sent: asyncio.Future[Receipt], batch: Sequence[_Queued]) -> None:
    error = ClusterError("the log was closed") if sent.cancelled() else sent.exception()
    if error is not None:
        _fail(batch, error)
        return
    for part in batch:
        if part.is_last and not part.done.done():
            part.done.set_result(None)


def _fail(batch: Sequence[_Queued], error: BaseException) -> None:
    for part in batch:
        if not part.done.done():
            part.done.set_exception(error)


async def _send(producer: Producer, records: Sequence[Record]) -> asyncio.Future[Receipt]:
    metadata = MessageMetadata(publish_time=int(time.time() * 1000), num_messages_in_batch=len(records))
    return await producer.send_message(metadata, write_records(records))


async def _write_mark(producer: Producer, mark: Record) -> MessageId:
    """Write a mark, and give its place.

    A receipt without a place is for a mark that was sent again after its first receipt was lost: it is
    stored, and where is not known. Then another one is written.
    """
    while True:
        receipt = await (await _send(producer, [mark]))
        if not receipt.is_duplicate:
            return receipt.message_id


async def _replay(client: PulsarClient, topic: str, until: MessageId) -> list[Record]:
    """Read the compacted view up to our own mark."""
    records: list[Record] = []
    reader = await client.reader(topic, read_compacted=True, convert=_converted)
    try:
        while True:
            async with asyncio.timeout(STALL_SECONDS):
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
