"""A delivered Pulsar entry as a Kafka record batch, or as what is rejected with its raw bytes kept.

Pulsar numbers the n messages of a batch by n indexes, but by one if the batch was sent in a transaction. All
of them are read all the same: then they have one offset together. The indexes of the entries around it tell
which of the two it is; where they do not, because entries between are hidden from readers, the broker is
asked. So it is with a batch whose producer told the broker of fewer messages than it has: none of them is
passed by for having the index of an entry before it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from penstock.brokers.pulsar import Delivery
from penstock.errors import JobFailed, PenstockError, WireError
from penstock.mapping import KafkaBatch, Reason, Undecodable, entry_to_batch
from penstock.pipeline.delivery.pulsar.log import LARGEST_PACKED_BATCH, Numbering, no_index, packed
from penstock.pipeline.evaluators.kernel.batch_builder import numbered, record_bytes
from penstock.pipeline.pulsar import REJECTED
from penstock.record import Headers, KafkaRecord
from penstock.wire.kafka.record_batch import HEAD_SIZE, write_batch_head
from penstock.wire.pulsar import Entry, MessageId, read_entry
from penstock.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata

__all__ = ["Decoded", "EntryDecoder", "Hidden", "RejectedEntry", "Undecided", "size_of"]

_ITEM_BYTES: Final = 256
"""What an entry that waits takes besides its bytes."""
_MOST_PROPERTIES: Final = 1_000
_MOST_KEYS: Final = 100
_OUTER_MAGIC: Final = b"\x0e\x02"
_OUTER_HEAD: Final = 6
"""Bytes before what the broker has written to an entry by itself: a magic number and the size."""


@dataclass(frozen=True, slots=True)
class RejectedEntry:
    """An entry that cannot become records; the caller makes a dead letter of it."""

    topic: str
    partition: int
    base_offset: int
    next_offset: int
    """Its offsets; the same as `base_offset` if it has none because nothing of it can be read."""
    place: MessageId
    reason: Reason
    detail: str
    raw: bytes
    """The whole entry as it is stored: head, metadata and payload."""

    def record(self) -> KafkaRecord:
        """Return it as one record: the payload as it is stored, key, properties, and facts to decode it.

        Facts are headers that begin with `pulsar-`: message id, number of messages, compression, chunk, event
        time, and what decrypts it: the parameter (nonce) and the data key under each key, in base64. Of very
        many properties the first are kept, and how many are not. An entry whose head cannot be read is a
        value of all its bytes.
        """
        facts: list[tuple[str, bytes | None]] = [
            ("pulsar-message-id", f"{self.place.ledger_id}:{self.place.entry_id}".encode())
        ]
        try:
            entry = read_entry(memoryview(self.raw))
            metadata = MessageMetadata.FromString(bytes(entry.metadata))
        except (WireError, DecodeError):
            return self._record(self.raw, None, tuple(facts), None)
        said = (
            ("num-messages", entry.num_messages if entry.is_batch else None),
            ("compression", entry.compression if entry.compression > 0 else None),
            ("uncompressed-size", entry.uncompressed_size if entry.compression > 0 else None),
            ("chunk-uuid", _text(metadata.uuid) or None),
            ("chunk-id", entry.chunk_id if entry.is_chunk else None),
            ("chunks", entry.chunks if entry.is_chunk else None),
            ("encryption-algorithm", _text(metadata.encryption_algo) or None),
            ("encryption-keys", ",".join(_text(key.key) for key in metadata.encryption_keys) or None),
            ("encryption-param", _base64(metadata.encryption_param) or None),
            ("event-time", metadata.event_time or None),
            ("properties-left-out", max(len(metadata.properties) - _MOST_PROPERTIES, 0) or None),
        )
        facts += [(f"pulsar-{name}", str(value).encode()) for name, value in said if value is not None]
        for number, key in enumerate(list(metadata.encryption_keys)[:_MOST_KEYS]):
            facts += [(f"pulsar-encryption-key-{number}-{name}", value) for name, value in _key_facts(key)]
        properties = [
            (_text(each.key), _bytes(each.value)) for each in list(metadata.properties)[:_MOST_PROPERTIES]
        ]
        headers = (*properties, *facts)
        return self._record(bytes(entry.payload), _key_of(metadata), headers, entry.publish_time)

    def batch(self) -> bytes:
        """Return it as a record batch: `record`, and a header by which every evaluator rejects it.

        A producer that sets the property by itself has its own message rejected, and nothing else.
        """
        record = self.record()
        headers = (*record.headers, (REJECTED, f"{self.reason.value}-entry: {self.detail}".encode()))
        records = numbered(record_bytes(record.key, record.value, headers), 0)
        head, moment = bytearray(HEAD_SIZE), record.timestamp or 0
        batch = memoryview(head + records)
        write_batch_head(
            batch,
            base_offset=self.base_offset,
            last_offset_delta=0,
            base_timestamp=moment,
            max_timestamp=moment,
            record_count=1,
        )
        return bytes(batch)

    def _record(self, value: bytes, key: bytes | None, headers: Headers, time: int | None) -> KafkaRecord:
        return KafkaRecord(
            value=value,
            key=key,
            headers=headers,
            timestamp=time,
            topic=self.topic,
            partition=self.partition,
            offset=self.base_offset,
        )


class Hidden(NamedTuple):
    """An entry that holds no message of anybody: a marker."""

    base_offset: int
    next_offset: int


class Undecided(NamedTuple):
    """A batch of a transaction: Pulsar counted all of its messages, or all of them as one."""

    counted: KafkaBatch | RejectedEntry
    as_one: KafkaBatch | RejectedEntry
    index_if_counted: int
    """The index of the entry before it, if its messages were counted."""
    is_transactional: bool = True
    """Only then they may be counted as one by an honest producer; what is true if the broker cannot tell."""

    def settled(self, before: int | None) -> KafkaBatch | RejectedEntry:
        """Return what it is by the index of the entry before it, None if that is not there any more."""
        if before is None:
            return self.as_one if self.is_transactional else self.counted
        return self.counted if before <= self.index_if_counted else self.as_one

    @property
    def base_offset(self) -> int:
        """The offset that its first message has at least."""
        return self.counted.base_offset


class Decoded(NamedTuple):
    """What waits in the queue of the reader."""

    place: MessageId
    content: KafkaBatch | RejectedEntry | Hidden | Undecided | PenstockError
    messages: int
    """Of the entry, if its offsets are known; else 0."""


def size_of(item: Decoded) -> int:
    """Return the bytes that an item takes while it waits."""
    content = item.content
    if isinstance(content, Undecided):
        content = content.counted
    if isinstance(content, KafkaBatch):
        return _ITEM_BYTES + content.held_bytes
    return _ITEM_BYTES + (len(content.raw) if isinstance(content, RejectedEntry) else 0)


class EntryDecoder:
    """Decodes the entries of one reader, in their order, while the bytes are in the socket's buffer."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        name: str,
        numbering: Numbering,
        inflated: int,
        first: int = 0,
    ) -> None:
        """`first` is the offset that is read first: messages before it are nobody's."""
        self._first = first
        self.arrived = -1
        """The offset behind the last entry that came; -1 before the first."""
        self._topic = topic
        self._partition = partition
        self._name = name
        self._numbering = numbering
        self._inflated = inflated
        self._last: tuple[MessageId, int] | None = None
        """The entry that was decoded last, and its index."""

    def decode(self, delivery: Delivery) -> Decoded:
        """Decode an entry; the content is an error if the log is another one than before, or has no index."""
        try:
            return self._decode(delivery)
        except PenstockError as exc:
            return Decoded(delivery.message_id, exc, 0)

    def _decode(self, delivery: Delivery) -> Decoded:
        place, entry = delivery.message_id, delivery.entry
        if isinstance(entry, WireError):
            return self._headless(delivery, entry)
        if self._numbering is Numbering.PLACE:
            return self._by_place(delivery, entry)
        if entry.broker_index < 0:
            raise no_index(self._name)
        before = self._last
        following = self._follow(place, entry.broker_index)
        if entry.num_messages > 1 and not entry.is_marker and self._is_doubtful(place, entry, before):
            return Decoded(place, self._in_transaction(delivery, entry, before), entry.num_messages)
        # A batch of no messages was counted as one.
        base = min(max(entry.first_index, 0), entry.broker_index)
        return Decoded(place, self._content(delivery, entry, base, following), entry.num_messages)

    def _follow(self, place: MessageId, index: int) -> int:
        """Note the entry with this last index as the one that came last; return the index behind it."""
        before, self._last = self._last, (place, index)
        if before is not None and index <= before[1]:
            # Entries come in their order, so indexes grow: else the log began anew in other ledgers.
            raise JobFailed(
                "the topic was deleted and made again while it was read",
                where=f"{self._name}, entry {place.ledger_id}:{place.entry_id}",
                why=f"Index {index} came behind index {before[1]}.",
                next="--fresh-checkpoint reads the new topic from its beginning",
            )
        self.arrived = index + 1
        return self.arrived

    def _headless(self, delivery: Delivery, error: WireError) -> Decoded:
        """Reject an entry whose metadata cannot be read, at its last index, which stands before them.

        Without that it has no offset: it stands before what follows.
        """
        place, index = delivery.message_id, _broker_index(delivery.data)
        base = following = max(self.arrived, 0)
        if self._numbering is Numbering.PLACE:
            base, following = packed(*place[:2]), packed(place.ledger_id, place.entry_id + 1)
            self.arrived = following
        elif index >= 0:
            base, following = index, self._follow(place, index)
        return Decoded(place, self._reject(delivery, base, following, Reason.CORRUPT, str(error)), 0)

    def _by_place(self, delivery: Delivery, entry: Entry) -> Decoded:
        place = delivery.message_id
        base, following = packed(*place[:2]), packed(place.ledger_id, place.entry_id + 1)
        self.arrived = following
        if entry.num_messages > LARGEST_PACKED_BATCH:
            detail = f"{entry.num_messages} messages in one entry, and positions for {LARGEST_PACKED_BATCH}"
            return Decoded(place, self._reject(delivery, base, following, Reason.UNNUMBERED, detail), 0)
        return Decoded(place, self._content(delivery, entry, base, following), entry.num_messages)

    def _content(
        self, delivery: Delivery, entry: Entry, base: int, following: int, *, one_offset: bool = False
    ) -> KafkaBatch | RejectedEntry | Hidden:
        found = entry_to_batch(entry, base_offset=base, limit=self._inflated, one_offset=one_offset)
        if isinstance(found, KafkaBatch):
            return found
        if found.reason is Reason.MARKER:
            return Hidden(base, following)
        return self._undecodable(delivery, base, following, found)

    def _is_doubtful(self, place: MessageId, entry: Entry, before: tuple[MessageId, int] | None) -> bool:
        """Return whether fewer messages may have been counted than an entry has, and it matters."""
        if entry.is_transactional or not _may_be_counted(place, entry, before):
            return True
        return entry.first_index < (self._first if before is None else 0)

    def _in_transaction(
        self, delivery: Delivery, entry: Entry, before: tuple[MessageId, int] | None
    ) -> KafkaBatch | RejectedEntry | Undecided:
        """Decode a batch, mostly of a transaction, for which Pulsar may have counted one message only."""
        index, following, base = entry.broker_index, entry.broker_index + 1, entry.first_index
        place = delivery.message_id
        counted = as_one = None
        is_next = before is not None and before[0][:2] == (place.ledger_id, place.entry_id - 1)
        if base >= 0 and _may_be_counted(place, entry, before):
            counted = self._content(delivery, entry, base, following)
        if counted is None or not is_next:
            as_one = self._content(delivery, entry, index, following, one_offset=True)
        if counted is None or as_one is None:
            found = counted if counted is not None else as_one
            assert found is not None and not isinstance(found, Hidden)
            return found
        assert not isinstance(counted, Hidden) and not isinstance(as_one, Hidden)
        return Undecided(counted, as_one, base - 1, entry.is_transactional)

    def _undecodable(
        self, delivery: Delivery, base: int, following: int, verdict: Undecodable
    ) -> RejectedEntry:
        return self._reject(delivery, base, following, verdict.reason, verdict.detail)

    def _reject(
        self, delivery: Delivery, base: int, following: int, reason: Reason, detail: str
    ) -> RejectedEntry:
        raw = bytes(delivery.data)
        where = (self._topic, self._partition, base, following, delivery.message_id)
        return RejectedEntry(*where, reason, detail, raw)


def _key_of(metadata: Any) -> bytes | None:
    """Return the key of a message as the mapping of a good one does; one that is no base64 stays as it is."""
    if metadata.HasField("ordering_key"):
        return bytes(metadata.ordering_key)
    if metadata.null_partition_key or not metadata.HasField("partition_key"):
        return None
    key = _bytes(metadata.partition_key)
    if metadata.partition_key_b64_encoded:
        with suppress(ValueError):
            return base64.b64decode(key, validate=True)
    return key


def _key_facts(key: Any) -> Iterator[tuple[str, bytes]]:
    """Yield what a client needs to decrypt by a key: its name, the data key under it, and facts of that."""
    yield "name", _bytes(key.key)
    yield "value", _base64(key.value).encode()
    for each in key.metadata:
        yield f"metadata-{_text(each.key)}", _bytes(each.value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str | bytes) -> bytes:
    """Return a text of a message as it came: Python's Protocol Buffers give one that is none as bytes."""
    return text if isinstance(text, bytes) else text.encode()


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="replace")


def _broker_index(data: memoryview) -> int:
    """Return the index that the broker has written before an entry; -1 if it has not."""
    head = bytes(data[:_OUTER_HEAD])
    size = int.from_bytes(head[2:], "big")
    if head[:2] != _OUTER_MAGIC or len(data) < _OUTER_HEAD + size:
        return -1
    try:
        found = BrokerEntryMetadata.FromString(bytes(data[_OUTER_HEAD : _OUTER_HEAD + size]))
    except DecodeError:
        return -1
    return int(found.index) if found.HasField("index") else -1


def _may_be_counted(place: MessageId, entry: Entry, before: tuple[MessageId, int] | None) -> bool:
    """Return whether the index leaves room for all messages of an entry behind the entry seen before it.

    Entries between the two, which readers are not given, have an index each, or more.
    """
    if before is None or before[0].ledger_id != place.ledger_id:
        return True
    between = place.entry_id - before[0].entry_id - 1
    return entry.broker_index - before[1] - between >= entry.num_messages
