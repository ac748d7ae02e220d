"""The records that wait for their batch, by target and partition, shared by the kernel and by plain Python.

A batch leaves when its slot is full or when it is asked for; a record larger than a slot leaves alone. What
`put` is given lies in memory that is used again: it must be copied or sent before `put` returns.

For targets on Pulsar a batch has records of one source partition only, each with its id, and records without
a key go where the position of their input says, in blocks: a second run sends each record to the same
partition under the same id, whatever the size of its batches.

Several records that were read may have one offset: Pulsar counts a batch of a transaction as one message.
Their outputs are numbered on (`GrowingIds`), over all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import Refused
from penstock.pipeline.size import BATCH
from penstock.record import Headers, KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels import ByteArray, IntArray
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.routing.boxes import (
    B_BLOCK,
    B_CAPACITY,
    B_FULL,
    B_HEAD,
    B_IDS,
    B_IDS_AT,
    B_PARTITIONS,
    B_SIZE,
    B_SLOTS,
    B_SLOTS_AT,
    B_SOURCE,
    B_STICKY,
    B_TAKEN,
    B_TARGET,
    B_WHERE,
    NO_ROOM,
    S_COUNT,
    S_PARTITION,
    S_SLOT,
    S_TARGET,
    S_USED,
    S_WHERE,
    note_id,
    position_partition,
    slot_for,
    slot_row,
)
from penstock.wire.routing_layout import ORDINAL_BITS

if TYPE_CHECKING:
    from penstock.pipeline.evaluators.kernel.program import Program

__all__ = [
    "BATCH_BYTES",
    "BLOCK",
    "RECORD_HEAD",
    "GrowingIds",
    "BatchBuilder",
    "Output",
    "Pick",
    "Put",
    "batch_limits",
    "numbered",
    "partition_by_position",
    "record_bytes",
    "sequence_id",
    "varint",
]

BATCH_BYTES: Final = 512 * 1024
_MAX_SLOTS = 64
RECORD_HEAD: Final = 20
"""Bytes of the length and the offset of a record, at most; they are not known before its slot is."""
_SMALLEST: Final = 7
"""Bytes of a record without key, value and headers."""
_INDEX_BITS: Final = 63 - ORDINAL_BITS
BLOCK: Final = 1024
"""Offsets after which records without a key go to the next partition of a target on Pulsar."""


@dataclass(frozen=True, slots=True)
class Output:
    """The records of one batch for one partition of a target of the program."""

    target: int
    partition: int
    body: BatchBody
    source: int = -1
    """The partition that all records come from, for a target on Pulsar."""
    ids: IntArray | None = None
    """The id of each record, growing, for a target on Pulsar."""
    is_late: bool = False
    """Whether these are letters of records that a topic refused: others behind them may be stored."""


Put = Callable[[Output], None]
Pick = Callable[[int, int], int]
"""From target and number of partitions to the partition for the next batch of records without a key."""


class GrowingIds:
    """Makes the ids of a producer grow where several records that were read have one offset.

    An id is the offset, shifted, plus a number that begins at 0 for each of these records; here the number
    goes on behind the one before it. What an id becomes depends on those before it alone, and not on how
    records are divided into batches. All records of an offset are routed by one object, from the first on.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, int], int] = {}
        """By target, its partition and the partition that is read."""

    def of(self, target: int, partition: int, source: int, ids: IntArray) -> IntArray:
        """Return the ids of the next batch. Raises Refused if an offset has more outputs than numbers."""
        lane = (target, partition, source)
        last = self._last.get(lane, -1)
        if int(ids[0]) <= last or (len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all())):
            ids = self._numbered_on(ids, last)
        self._last[lane] = int(ids[-1])
        return ids

    def _numbered_on(self, ids: IntArray, last: int) -> IntArray:
        steps = np.arange(len(ids), dtype=np.int64)
        least = ids - steps
        if int(ids[0]) >> ORDINAL_BITS == last >> ORDINAL_BITS:
            least[0] = max(int(ids[0]), last + 1)
        found: IntArray = np.maximum.accumulate(least) + steps
        if bool((found >> ORDINAL_BITS != ids >> ORDINAL_BITS).any()):
            raise _no_id()
        return found


class BatchBuilder:
    """Slots for so many targets; `limits` are the largest batches that their topics take, None if unknown."""

    def __init__(
        self,
        partitions: Sequence[int],
        limits: Sequence[int | None],
        put: Put,
        *,
        batch_bytes: int,
        pick: Pick | None = None,
        by_position: Collection[int] = (),
        has_ids: bool = True,
    ) -> None:
        """`by_position` are the targets on Pulsar: their records have ids, where offsets can make some."""
        self._put = put
        self._pick = pick or (lambda target, count: random.randrange(count))
        self._by_position = frozenset(by_position)
        self._numbered = self._by_position if has_ids else frozenset()
        self._growing = GrowingIds()
        slots = min(sum(partitions), _MAX_SLOTS)
        self.out: ByteArray = np.empty(slots * batch_bytes, np.uint8)
        self.box: IntArray = _box(partitions, limits, slots, batch_bytes, self._by_position)
        for target in range(len(partitions)):
            self._choose(target)

    def begin(self, source: int) -> None:
        """Take records of a partition; those of another one leave if their batch may have no others."""
        if source != self.box[B_SOURCE]:
            for slot in range(int(self.box[B_TAKEN]) if self._by_position else 0):
                if int(self.box[slot_row(self.box, slot) + S_TARGET]) in self._by_position:
                    self._send(slot)
            self.box[B_SOURCE] = source

    def add(self, target: int, record: KafkaRecord, offset: int = 0, ordinal: int = 0) -> None:
        """Append a record that plain Python has made.

        It is number `ordinal` of what the record at `offset` becomes for this target. Raises Refused if that
        makes no id.
        """
        partition = self._partition(target, record.key, offset)
        rest = record_bytes(record.key, record.value, record.headers)
        size = len(rest) + RECORD_HEAD
        has_id = target in self._numbered
        identity = sequence_id(offset, ordinal) if has_id else -1
        if size > self.box[B_HEAD + target * B_TARGET + B_CAPACITY]:
            self._alone(target, partition, rest, identity)
            return
        while (slot := slot_for(self.box, target, partition, size)) == NO_ROOM:
            self.make_room()
        at = slot_row(self.box, slot)
        if has_id:
            note_id(self.box, slot, int(self.box[at + S_COUNT]), offset, ordinal)
        whole = as_array(numbered(rest, int(self.box[at + S_COUNT])))
        start = slot * int(self.box[B_SIZE]) + int(self.box[at + S_USED])
        self.out[start : start + len(whole)] = whole
        self.box[at + S_USED] += len(whole)
        self.box[at + S_COUNT] += 1

    def make_room(self) -> None:
        """Empty what stopped a record: its slot, or all of them if none was free."""
        slot = int(self.box[B_FULL])
        if slot >= 0:
            self._send(slot)
        else:
            self.flush()

    def flush(self) -> None:
        """Send everything, and free all slots."""
        for slot in range(int(self.box[B_TAKEN])):
            self._send(slot)
            self.box[self.box[slot_row(self.box, slot) + S_WHERE]] = -1
        self.box[B_TAKEN] = 0

    def _send(self, slot: int) -> None:
        at = slot_row(self.box, slot)
        used, count = int(self.box[at + S_USED]), int(self.box[at + S_COUNT])
        target, partition = int(self.box[at + S_TARGET]), int(self.box[at + S_PARTITION])
        if not count:
            return
        start, ids = slot * int(self.box[B_SIZE]), None
        if target in self._numbered:
            first = int(self.box[B_IDS_AT]) + slot * int(self.box[B_IDS])
            ids = self.box[first : first + count]
        self._leave(target, partition, self.out[start : start + used].data, count, ids)
        self.box[at + S_USED] = self.box[at + S_COUNT] = 0
        if partition == self.box[B_HEAD + target * B_TARGET + B_STICKY]:
            self._choose(target)

    def _alone(self, target: int, partition: int, rest: bytes, identity: int) -> None:
        """Send a record that fits in no slot, behind those that came before it."""
        slot = int(self.box[self.box[B_HEAD + target * B_TARGET + B_WHERE] + partition])
        if slot >= 0:
            self._send(slot)
        ids = np.array([identity], np.int64) if target in self._numbered else None
        self._leave(target, partition, memoryview(numbered(rest, 0)), 1, ids)

    def _leave(
        self, target: int, partition: int, records: memoryview, count: int, ids: IntArray | None
    ) -> None:
        now = time.time_ns() // 1_000_000
        if ids is not None and int(ids[0]) < 0:
            raise _no_id()  # the shift of an offset that has too many bits
        source = int(self.box[B_SOURCE])
        if ids is not None:
            ids = self._growing.of(target, partition, source, ids)
        self._put(Output(target, partition, BatchBody(records, count, now, now), source, ids))

    def _choose(self, target: int) -> None:
        row = B_HEAD + target * B_TARGET
        self.box[row + B_STICKY] = self._pick(target, int(self.box[row + B_PARTITIONS]))

    def _partition(self, target: int, key: bytes | None, offset: int) -> int:
        row = B_HEAD + target * B_TARGET
        if key is None and target in self._by_position:
            return position_partition(self.box, target, offset)
        if key is None:
            return int(self.box[row + B_STICKY])
        return partition_of(as_array(key), 0, len(key), int(self.box[row + B_PARTITIONS]))


def partition_by_position(offset: int, source: int, count: int) -> int:
    """Return the partition of a record without a key for Pulsar, by offset and partition of its input.

    >>> [partition_by_position(*each, 4) for each in ((1023, 0), (1024, 0), (1024, 3))]
    [0, 1, 0]
    """
    return (offset // BLOCK + source) % count


def sequence_id(offset: int, ordinal: int) -> int:
    """Return the id of a record by the offset of its input and its ordinal. Raises Refused if there is none.

    >>> sequence_id(3, 1)
    196609
    """
    if not (0 <= offset < 1 << _INDEX_BITS and 0 <= ordinal < 1 << ORDINAL_BITS):
        raise _no_id()
    return (offset << ORDINAL_BITS) + ordinal


def _no_id() -> Refused:
    return Refused(
        "a record for Pulsar has no sequence id",
        why=f"One record, or one batch of a transaction of Pulsar, may become {1 << ORDINAL_BITS} records "
        f"for one topic, and an offset has {_INDEX_BITS} bits. A Pulsar topic counts as many messages as a "
        "producer claims to have sent.",
        next="let a function give fewer events, or run with --at-least-once",
    )


def _box(
    partitions: Sequence[int],
    limits: Sequence[int | None],
    slots: int,
    batch_bytes: int,
    by_position: Collection[int],
) -> IntArray:
    where = B_HEAD + len(partitions) * B_TARGET
    end = where + sum(partitions) + slots * S_SLOT
    ids = batch_bytes // _SMALLEST + 1 if by_position else 0
    # The ids are not written here: memory that nobody has touched costs nothing.
    box = np.empty(end + slots * ids, np.int64)
    box[:end] = -1
    box[B_SLOTS], box[B_SIZE], box[B_TAKEN] = slots, batch_bytes, 0
    box[B_SLOTS_AT], box[B_IDS_AT], box[B_IDS] = where + sum(partitions), end, ids
    for target, (count, limit) in enumerate(zip(partitions, limits, strict=True)):
        row = B_HEAD + target * B_TARGET
        box[row + B_WHERE], box[row + B_PARTITIONS] = where, count
        box[row + B_CAPACITY] = batch_bytes if limit is None else min(batch_bytes, limit - BATCH)
        box[row + B_BLOCK] = BLOCK if target in by_position else 0
        where += count
    return box


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Write a record of format v2 as far as it does not depend on its place in a batch."""
    parts = [_NULL if key is None else varint(len(key)), key or b""]
    parts += (_NULL if value is None else varint(len(value)), value or b"", varint(len(headers)))
    for name, text in headers:
        known = _names.get(name)
        parts.append(_name_bytes(name) if known is None else known)
        if text is None:
            parts.append(_NULL)
        else:
            size = len(text)
            parts += (_VARINTS[size] if size < _SHORT else varint(size), text)
    return b"".join(parts)


def batch_limits(program: Program, found: Mapping[int, int]) -> list[int | None]:
    """Give the largest batch of each target, None if nothing is known."""
    known = ((target.limit, found.get(number)) for number, target in enumerate(program.targets))
    return [min((each for each in pair if each is not None), default=None) for pair in known]


def numbered(rest: bytes, offset: int) -> bytes:
    """Write a record at its place in a batch, by what `record_bytes` gave."""
    body = b"\x00\x00" + varint(offset) + rest
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """Write a number as Kafka's records do: zigzag, seven bits a byte.

    >>> varint(0), varint(-1), varint(300)
    (b'\\x00', b'\\x01', b'\\xd8\\x04')
    """
    return _VARINTS[value] if 0 <= value < _SHORT else _written_varint(value)


def _name_bytes(name: str) -> bytes:
    """Write the name of a header behind its length; names that come again are kept."""
    raw = name.encode()
    found = varint(len(raw)) + raw
    if len(_names) < _MOST_NAMES and len(raw) < _SHORT:
        _names[name] = found
    return found


def _written_varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SHORT: Final = 2048
_VARINTS: Final = tuple(map(_written_varint, range(_SHORT)))
_NULL: Final = _written_varint(-1)
_MOST_NAMES: Final = 1024
_names: Final[dict[str, bytes]] = {}
