"""The records that wait for their batch, by target and partition, shared by the kernel and by plain Python.

A batch leaves when its slot is full or when it is asked for; a record larger than a slot leaves alone. What
`put` is given lies in memory that is used again: it must be copied or sent before `put` returns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.pipeline.size import BATCH
from penstock.record import Headers, KafkaRecord
from penstock.wire.buffer import as_array
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels import ByteArray, IntArray
from penstock.wire.kernels.hashing import partition_of
from penstock.wire.kernels.routing.boxes import (
    B_CAPACITY,
    B_FULL,
    B_HEAD,
    B_PARTITIONS,
    B_SIZE,
    B_SLOTS,
    B_SLOTS_AT,
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
    slot_for,
    slot_row,
)

__all__ = ["Outbox", "Output", "Pick", "Put", "numbered", "record_bytes"]

_MAX_SLOTS = 64
_VARINT = 10
"""Bytes of an offset as a varint, at most; it is not known before the slot is."""


@dataclass(frozen=True, slots=True)
class Output:
    """The records of one batch for one partition of a target of the program."""

    target: int
    partition: int
    body: BatchBody


Put = Callable[[Output], None]
Pick = Callable[[int, int], int]
"""From target and number of partitions to the partition for the next batch of records without a key."""


class Outbox:
    """Slots for so many targets; `limits` are the largest batches that their topics take, None if unknown."""

    def __init__(
        self,
        partitions: Sequence[int],
        limits: Sequence[int | None],
        put: Put,
        *,
        batch_bytes: int,
        pick: Pick | None = None,
    ) -> None:
        self._put = put
        self._pick = pick or (lambda target, count: random.randrange(count))
        slots = min(sum(partitions), _MAX_SLOTS)
        self.out: ByteArray = np.empty(slots * batch_bytes, np.uint8)
        self.box: IntArray = _box(partitions, limits, slots, batch_bytes)
        for target in range(len(partitions)):
            self._choose(target)

    def add(self, target: int, record: KafkaRecord) -> None:
        """Append a record that plain Python has made."""
        row = B_HEAD + target * B_TARGET
        partition = self._partition(row, record.key)
        rest = record_bytes(record.key, record.value, record.headers)
        size = len(rest) + 2 * _VARINT
        if size > self.box[row + B_CAPACITY]:
            self._alone(target, partition, rest)
            return
        while (slot := slot_for(self.box, target, partition, size)) == NO_ROOM:
            self.make_room()
        at = slot_row(self.box, slot)
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
        start = slot * int(self.box[B_SIZE])
        self._leave(target, partition, self.out[start : start + used].data, count)
        self.box[at + S_USED] = self.box[at + S_COUNT] = 0
        if partition == self.box[B_HEAD + target * B_TARGET + B_STICKY]:
            self._choose(target)

    def _alone(self, target: int, partition: int, rest: bytes) -> None:
        """Send a record that fits in no slot, behind those that came before it."""
        slot = int(self.box[self.box[B_HEAD + target * B_TARGET + B_WHERE] + partition])
        if slot >= 0:
            self._send(slot)
        self._leave(target, partition, memoryview(numbered(rest, 0)), 1)

    def _leave(self, target: int, partition: int, records: memoryview, count: int) -> None:
        now = time.time_ns() // 1_000_000
        self._put(Output(target, partition, BatchBody(records, count, now, now)))

    def _choose(self, target: int) -> None:
        row = B_HEAD + target * B_TARGET
        self.box[row + B_STICKY] = self._pick(target, int(self.box[row + B_PARTITIONS]))

    def _partition(self, row: int, key: bytes | None) -> int:
        if key is None:
            return int(self.box[row + B_STICKY])
        return partition_of(as_array(key), 0, len(key), int(self.box[row + B_PARTITIONS]))


def _box(partitions: Sequence[int], limits: Sequence[int | None], slots: int, batch_bytes: int) -> IntArray:
    where = B_HEAD + len(partitions) * B_TARGET
    box = np.full(where + sum(partitions) + slots * S_SLOT, -1, np.int64)
    box[B_SLOTS], box[B_SIZE], box[B_TAKEN] = slots, batch_bytes, 0
    box[B_SLOTS_AT] = where + sum(partitions)
    for target, (count, limit) in enumerate(zip(partitions, limits, strict=True)):
        row = B_HEAD + target * B_TARGET
        box[row + B_WHERE], box[row + B_PARTITIONS] = where, count
        box[row + B_CAPACITY] = batch_bytes if limit is None else min(batch_bytes, limit - BATCH)
        where += count
    return box


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Write a record of format v2 as far as it does not depend on its place in a batch."""
    parts = [_blob(key), _blob(value), _varint(len(headers))]
    for name, text in headers:
        parts += [_blob(name.encode()), _blob(text)]
    return b"".join(parts)


def numbered(rest: bytes, offset: int) -> bytes:
    """Write a record at its place in a batch, by what `record_bytes` gave."""
    body = b"\x00\x00" + _varint(offset) + rest
    return _varint(len(body)) + body


def _blob(raw: bytes | None) -> bytes:
    return _varint(-1) if raw is None else _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
