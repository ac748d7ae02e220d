"""Reads the marks in the progress topic of a cluster (`progress`).

A mark counts if its transaction was committed, or if it was written without one. It is not read as a
committed record: a broker gives those only up to the first open transaction, and that of a neighbour may last
a minute. So everything up to the high watermark is read, and batches are judged by the markers behind them
(KIP-98). Those of our own id are decided by then, because InitProducerId has waited for their markers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.fetcher import Fetcher, Wanted
from penstock.brokers.kafka_raw.group_offsets import GroupOffset
from penstock.brokers.kafka_raw.topic_offsets import EARLIEST, LATEST, list_offsets
from penstock.brokers.kafka_raw.visible import COMMIT, marker_type
from penstock.errors import JobFailed, OffsetOutOfRange, Unreachable, WireError
from penstock.pipeline.delivery.progress import PARTITION, TOPIC, ProgressKey, Snapshot
from penstock.wire.kafka.record_batch import RecordBatch, read_batches

__all__ = ["read_progress"]

_INFLATED: Final = 16 * 1024 * 1024
_POLL_SECONDS: Final = 1.0
_OPEN_SECONDS: Final = 90.0
"""How long a transaction of somebody else with our key is waited for: brokers end it after 60."""


def read_progress(
    cluster: Cluster, key: ProgressKey, seen: Snapshot, *, decided: Collection[int] | None = ()
) -> Snapshot:
    """Read the marks that came since `seen`, up to the high watermark.

    Marks of the partitions in `decided` (None: of all) are waited for if their transaction is open; who has
    fenced its predecessors finds none. Raises Unreachable if one stays open, JobFailed if the topic lost its
    end or a mark cannot be read.
    """
    until = time.monotonic() + _OPEN_SECONDS
    reading = _Reading(key, dict(seen.marks), seen.plan)
    position = seen.position
    if position is None:
        position = list_offsets(cluster, TOPIC, EARLIEST, partitions=(PARTITION,))[PARTITION]
    while True:
        end = list_offsets(cluster, TOPIC, LATEST, partitions=(PARTITION,))[PARTITION]
        if position < end:
            position = _read(cluster, position, end, reading)
        elif position > end:
            raise _lost(position, end)
        if position >= end and not reading.waits_for(decided):
            # What is still open is read again the next time.
            return Snapshot(min((position, *reading.begins.values())), reading.marks, reading.plan)
        # A new leader may have less than the one that told the end: it is asked again.
        if position < end and time.monotonic() >= until:
            raise Unreachable(
                f"marks up to offset {end} are not given for {_OPEN_SECONDS:.0f} s",
                where=f"{TOPIC}, offset {position}, group {key.group}",
                next="look at the broker that leads this topic; then run again",
            )
        if time.monotonic() >= until:
            raise Unreachable(
                f"a transaction with marks of {key.topic} is open for {_OPEN_SECONDS:.0f} s",
                where=f"{TOPIC}, group {key.group}",
                why="It was begun under another transactional id.",
                next="end what else works under this group, or wait until the broker aborts the transaction",
            )
        time.sleep(0.1)


def _read(cluster: Cluster, position: int, end: int, reading: _Reading) -> int:
    """Read up to `end`, or as far as something comes; give how far."""
    wanted = [Wanted(TOPIC, PARTITION, position, end)]
    with closing(Fetcher(cluster, wanted, read_committed=False)) as fetcher:
        while position < end:
            try:
                found = fetcher.poll(_POLL_SECONDS)
            except OffsetOutOfRange as exc:
                raise _lost(exc.offset, exc.log_end) from exc
            for fetched in found:
                for batch in read_batches(fetched.data):
                    # A batch that spans the position was seen, but a compacted one may begin before it.
                    reading.take(batch)
                position = fetched.next_offset
                if not len(fetched.data) and fetched.high_watermark >= end:
                    return end  # compaction took the rest
            if not any(len(fetched.data) for fetched in found):
                break
    return position


class _Reading:
    """What was found so far; transactions are told apart by their producers, which have one at a time."""

    def __init__(self, key: ProgressKey, marks: dict[int, GroupOffset], plan: bytes | None) -> None:
        self.marks = marks
        self.plan = plan
        self.begins: dict[int, int] = {}
        """By producer, the first offset of an open transaction with marks of this source."""
        self._key = key
        self._prefix = key.prefix
        self._open: dict[int, dict[int, GroupOffset | None]] = {}
        self._open_plans: dict[int, bytes | None] = {}

    def take(self, batch: RecordBatch) -> None:
        who = batch.producer_id
        if batch.is_control:
            ended, plan = self._open.pop(who, {}), self._open_plans.pop(who, None)
            self.begins.pop(who, None)
            if marker_type(batch) == COMMIT:
                self._commit(ended)
                self.plan = plan or self.plan
            return
        found = dict(self._own(batch))
        if not batch.is_transactional:
            self._open_plans.pop(who, None)  # a plan is always part of a transaction
            self._commit(found)  # at least once: written behind its output
            return
        if found or who in self._open_plans:
            self.begins.setdefault(who, batch.base_offset)
            self._open.setdefault(who, {}).update(found)

    def waits_for(self, partitions: Collection[int] | None) -> bool:
        """Whether a transaction is open that has marks of these partitions; None: of any, or a plan."""
        if partitions is None and self._open_plans:
            return True
        return any(
            partitions is None or part in partitions for found in self._open.values() for part in found
        )

    def _commit(self, ended: Mapping[int, GroupOffset | None]) -> None:
        for part, mark in ended.items():
            if mark is None:
                self.marks.pop(part, None)
            else:
                self.marks[part] = mark

    def _own(self, batch: RecordBatch) -> Iterator[tuple[int, GroupOffset | None]]:
        records = bytes(batch.records(_INFLATED))
        if self._prefix not in records:
            return  # a neighbour's: most of the topic
        batch.check()
        for key, value in _records(records, batch.record_count):
            part = None if key is None else self._key.partition_of(key)
            if key == self._key.plan:
                self._open_plans[batch.producer_id] = value
            if part is not None:
                yield part, None if value is None else _mark(value, part, self._key)


def _mark(value: bytes, partition: int, key: ProgressKey) -> GroupOffset:
    try:
        text = value.decode()
        found: Any = json.loads(text)
        offset = found["offset"]
        if type(offset) is not int or not 0 <= offset < 1 << 63:
            raise ValueError("no offset")
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise JobFailed(
            "a mark of this source cannot be read",
            where=f"{TOPIC}, group {key.group}, {key.topic}, partition {partition}",
            why="Somebody else has written it.",
            next="only Penstock may write to this topic; a new group or checkpoint begins without marks",
        ) from exc
    return GroupOffset(offset, text)


def _lost(position: int, end: int) -> JobFailed:
    return JobFailed(
        f"{TOPIC} ends at {end}, before what was read of it",
        where=f"offset {position}",
        why="It was deleted and made again, or lost its end: it is not known what was written.",
        next="run again: a job that finds no marks begins where its checkpoint or group is",
    )


def _records(data: bytes, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Cut records of format v2 into keys and values; WireError if they are none."""
    pos = 0
    try:
        for _ in range(count):
            size, pos = _varint(data, pos)
            behind = pos + size
            pos += 1  # attributes
            _, pos = _varint(data, pos)
            _, pos = _varint(data, pos)
            key, pos = _blob(data, pos)
            value, _ = _blob(data, pos)
            yield key, value
            if not pos < behind <= len(data):
                raise IndexError
            pos = behind
    except IndexError:
        raise WireError(f"a batch of {TOPIC} holds bytes that are no records") from None


def _blob(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = _varint(data, pos)
    if size < 0:
        return None, pos
    if pos + size > len(data):
        raise IndexError
    return data[pos : pos + size], pos + size


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            raise IndexError
