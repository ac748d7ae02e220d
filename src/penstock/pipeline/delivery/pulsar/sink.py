"""Output to Pulsar, each record once: by the broker's deduplication, or at least once without names.

Exactly once: a producer has a name that a re-run of the same range has, too, and every record an id that is
made of the position of its input and grows. A broker drops an entry whose FIRST id is not above the last id
that it has of the name; so records that are stored are left out here, record by record, and what is sent
begins behind them, however the borders of entries fall. That needs the same records in the same order on a
re-run.

| broker says of the name | what is done |
|---|---|
| last id below the range | nothing of the range is stored |
| last id inside of the range | records up to it are left out, once its entry was seen in the topic; if the \
topic may have removed it, so long as no failed write can be the cause |
| nothing (-1), range begun before | the ids are read from the topic's tail: it may have forgotten |
| name in use | waited for until the holder is gone, then an error |
| after a reconnect, an id that was not sent from here | an error: another job has taken the name over |

An entry that is answered with message id -1:-1 was dropped. If it was sent once, somebody else has used the
name; if it was sent again after a reconnect, it is looked for in the topic. A broker answers so only what it
counts as stored, so an entry may be missing if a ledger that could have held it was removed: readers that
keep up have acknowledged it, and nothing is retained by default.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from penstock.brokers.kafka_raw.produce_call import BatchError
from penstock.brokers.kafka_raw.producer import BatchRefusal
from penstock.brokers.pulsar import Producer, Receipt
from penstock.errors import (
    InternalError,
    JobFailed,
    PenstockError,
    PulsarRefused,
    RecordRefused,
    UsageError,
)
from penstock.mapping import DEFAULT_HEADROOM, PulsarBatch, body_to_entry, slice_records
from penstock.pipeline.delivery.pulsar.cluster import (
    DELIVERY_SECONDS,
    PulsarCluster,
    as_outage,
    partition_name,
)
from penstock.pipeline.delivery.pulsar.producer_names import (
    ORDINAL_BITS,
    PulsarTarget,
    SinkBatch,
    SinkSource,
    producer_name,
)
from penstock.pipeline.delivery.pulsar.producer_tail import StoredIds, find_stored, has_all_since
from penstock.pipeline.delivery.pulsar.targets import inspect_topics, require_deduplication
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kernels import IntArray
from penstock.wire.pulsar.compression import Compression, compress
from penstock.wire.pulsar.pulsar_pb2 import ServerError

__all__ = ["PulsarSink"]

_log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_NAME_WAIT_SECONDS: Final = 30.0
"""A broker looks after 5 s whether a silent holder of a name is alive."""
_RETRY_SECONDS: Final = 0.25
_TAIL_SECONDS: Final = 15.0
"""So long a broker may tell of ids that are not in the topic, until it has noticed a failed write."""
_HEAD_BYTES: Final = DEFAULT_HEADROOM
_AT_ONCE: Final = 32
"""Producers that are opened at a time."""


@dataclass(slots=True)
class _Lane:
    """One producer."""

    producer: Producer
    limit: int
    """Bytes of a payload that the topic takes."""
    stored: int = -1
    """Records with ids up to it are stored: they are left out."""
    put: int = -1
    """The highest id that was handed to the producer."""
    repeated: set[int] = field(default_factory=set)
    """Highest ids of entries that were answered as duplicates after they had been sent again."""


class PulsarSink:
    """Writes batches to partitions of targets; `put` waits while `buffer_bytes` are under way.

    One thread uses it. After an error only `restart` or `close` makes sense.
    """

    every = 1.0
    expired = False

    def __init__(
        self,
        cluster: PulsarCluster,
        targets: Sequence[PulsarTarget],
        source: SinkSource | None,
        *,
        compression: str = "none",
        buffer_bytes: int = 32 * _MIB,
        name_wait: float = _NAME_WAIT_SECONDS,
        limits: Mapping[int, int] | None = None,
        check: Callable[[], None] | None = None,
        on_commit: Callable[[Mapping[int, Any]], None] | None = None,
    ) -> None:
        """Without a `source` records are delivered at least once. `on_commit` keeps the marks.

        `limits` are the bytes of a payload that targets take, where somebody has looked at them already;
        without it the targets are asked, also whether they deduplicate. `check` raises what ends a wait for
        the name of a producer: who was shut out and does not know it yet would wait for who has taken over.

        Raises Refused if a target does not deduplicate, exactly once.
        """
        self.was_refused = False
        """Whether a record was refused for its own sake: it is larger than the topic takes."""
        self.left_out = 0
        """Records that were stored already by an earlier attempt."""
        self._cluster = cluster
        self._targets = tuple(targets)
        self._source = source
        self._made = time.time_ns() // 1_000_000
        self._codec = Compression[compression.upper()]
        self._buffer_bytes = buffer_bytes
        self._name_wait = name_wait
        self._on_commit = on_commit
        self._check_owner = check
        self._limits = dict(limits or {})
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._state = threading.Condition()
        self._under_way = 0
        self._entries = 0
        self._failure: PenstockError | None = None
        if limits is None:
            self._inspect()

    # What callers do

    def put(self, batch: SinkBatch) -> None:
        """Send records on their way; their memory may be used again at once.

        Raises what became of earlier ones, and RecordRefused for a record that is too large.
        """
        self._check()
        lane = self._lane(batch.target, batch.partition)
        body, ids = self._unstored(lane, batch)
        self._refuse_left_out(lane, batch.body, batch.body.count - (0 if body is None else body.count))
        if body is not None:
            self._send(lane, body, ids, batch.body.count - body.count)

    def offer(self, batch: SinkBatch) -> BatchRefusal | None:
        """Send records and wait for them; return why they were refused for their own sake."""
        try:
            self.put(batch)
            self.flush()
        except RecordRefused as exc:
            records = ((int(str(exc.record)), exc.why),)
            return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, BatchError(records, exc.what))
        return None

    def check(self, batch: SinkBatch) -> BatchRefusal | None:
        """Return why a record of the batch would be refused for its own sake; nothing is sent."""
        lane = self._lane(batch.target, batch.partition)
        found = self._oversized(lane, batch.body, 0)
        if found is None:
            return None
        at, size = found
        refused = _too_large(lane.producer.topic, size, lane.limit)
        return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, BatchError(((at, refused.why),), refused.what))

    def stored(self, targets: Sequence[int]) -> int:
        """Open the producers of all partitions of some targets; return the highest id that is stored, or -1.

        Raises JobFailed if somebody else holds one of their names.
        """
        self._check()
        wanted = [
            (target, partition)
            for target in targets
            for partition in range(max(self._targets[target].partitions, 1))
            if (target, partition) not in self._lanes
        ]
        self._cluster.call(self._open_all(wanted))
        return max((lane.stored for lane in self._lanes.values()), default=-1)

    def flush(self) -> None:
        """Wait until everything is stored; raise what was not."""
        until = time.monotonic() + DELIVERY_SECONDS + _NAME_WAIT_SECONDS
        with self._state:
            while self._entries and self._failure is None:
                if not self._state.wait(max(until - time.monotonic(), 0.0)) and time.monotonic() > until:
                    raise InternalError("a producer of Pulsar told nothing of its entries")
        self._check()
        for lane in self._lanes.values():
            if lane.repeated:
                self._cluster.call(self._confirm(lane))

    def commit(self, marks: Mapping[int, Any]) -> None:
        """Wait until everything is stored, then keep the marks."""
        self.flush()
        if self._on_commit is not None:
            self._on_commit(marks)

    def restart(self) -> None:
        """Go on after an error with new producers: what is stored is left out when it is put again."""
        self._close_lanes()
        with self._state:
            self._failure, self._under_way, self._entries = None, 0, 0
        self.was_refused = False
        if self._source is not None:
            # If nothing was begun before, what there is was written since this sink was made.
            since, begun = self._source.since, self._source.begun
            self._source = replace(
                self._source, begun=True, since=since if begun else max(self._made, since or 0)
            )

    def moved(self, first: int, since: int | None) -> None:
        """Note a mark: all before `first` is stored, and nothing behind it was written before `since`."""
        if self._source is not None:
            self._source = replace(self._source, first=first, since=since)

    def close(self) -> None:
        """Close the producers; what was put and not flushed may or may not be stored."""
        try:
            self._close_lanes()
        except PenstockError as exc:
            _log.warning("producers were not closed in order: %s", exc)

    # Opening

    def _inspect(self) -> None:
        """Ask what the targets take, and check that they deduplicate."""
        found = inspect_topics(self._cluster, {target.topic for target in self._targets})
        for number, target in enumerate(self._targets):
            if target.topic not in found:
                continue
            if self._source is not None:
                require_deduplication(target.topic, found[target.topic])
            self._limits[number] = found[target.topic].limit

    def _lane(self, target: int, partition: int) -> _Lane:
        lane = self._lanes.get((target, partition))
        if lane is None:
            if not 0 <= partition < max(self._targets[target].partitions, 1):
                raise UsageError(f"{self._targets[target].topic} has no partition {partition} in this range")
            lane = self._cluster.call(self._open(target, partition))
            self._lanes[target, partition] = lane
        return lane

    async def _open_all(self, places: Sequence[tuple[int, int]]) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(target: int, partition: int) -> None:
            async with turns:
                self._lanes[target, partition] = await self._open(target, partition)

        # What is open already is closed with the sink, also if another one fails.
        found = await asyncio.gather(*(one(*each) for each in places), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each

    async def _open(self, number: int, partition: int) -> _Lane:
        target, source = self._targets[number], self._source
        topic = partition_name(target.topic, partition, target.partitions)
        if source is None:
            return self._new_lane(number, await self._cluster.client.producer(topic))
        name = producer_name(source, target, partition)
        until = time.monotonic() + _TAIL_SECONDS
        while True:
            producer = await self._named(topic, name)
            try:
                stored = await self._stored(source, topic, producer)
                if stored is not None:
                    lane = self._new_lane(number, producer)
                    lane.stored = lane.put = stored
                    return lane
                if time.monotonic() > until:
                    last = producer.last_sequence_id
                    if await has_all_since(self._cluster, topic, name, source.since):
                        raise _not_found(topic, name, last)
                    # A failed write would have been taken back by now.
                    _log.warning("record id %d of %s was removed from %s already", last, name, topic)
                    lane = self._new_lane(number, producer)
                    lane.stored = lane.put = last
                    return lane
            except BaseException:
                await producer.close()
                raise
            # Opened anew, the broker tells what it has by then: a failed write is taken back.
            await producer.close()
            await asyncio.sleep(_RETRY_SECONDS)

    def _new_lane(self, number: int, producer: Producer) -> _Lane:
        limit = producer.max_message_bytes - _HEAD_BYTES
        return _Lane(producer, min(limit, self._limits.get(number, limit)))

    async def _named(self, topic: str, name: str) -> Producer:
        """Open a producer under a name, when nobody has it any more."""
        until = time.monotonic() + self._name_wait
        while True:
            try:
                return await self._cluster.client.producer(topic, name=name, owns_name=True)
            except PulsarRefused as exc:
                if exc.server_error != ServerError.PRODUCER_BUSY:
                    raise
                if self._check_owner is not None:
                    self._check_owner()
                if time.monotonic() > until:
                    raise JobFailed(
                        f"another job writes this output, and did not end within {self._name_wait:g} s",
                        where=topic,
                        why=f"A producer with the name {name} is open.",
                        next="stop the other job; this one goes on where that one stopped",
                    ) from exc
            await asyncio.sleep(_RETRY_SECONDS)

    async def _stored(self, source: SinkSource, topic: str, producer: Producer) -> int | None:
        """Return the highest id that is stored under the name; None if broker and topic do not agree yet."""
        last, lowest = producer.last_sequence_id, source.first << ORDINAL_BITS

        if 0 <= last < lowest or not (last >= 0 or source.begun):
            # Ranges before this one were acknowledged as a whole, so their ids are not looked for.
            return last

        def enough(found: StoredIds) -> bool:
            return found.highest >= max(last, 0)

        # An id that the broker tells is there, however long ago it was written.
        since = source.since if last < 0 else None
        found = await find_stored(self._cluster, topic, producer.name, enough=enough, since=since)
        if last < 0:
            if found.highest >= lowest:
                _log.warning("the broker forgot producer %s of %s; read back", producer.name, topic)
            return found.highest
        # More than the broker tells is stored all the same.
        return found.highest if found.highest >= last else None

    # Sending

    def _unstored(self, lane: _Lane, batch: SinkBatch) -> tuple[BatchBody | None, IntArray | None]:
        """Leave out records that are stored; return the rest, None if there is none."""
        body, ids = batch.body, batch.sequence_ids
        if self._source is None:
            return body, None
        if ids is None or len(ids) != body.count or (len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all())):
            raise InternalError("records for Pulsar need an id each, in growing order")
        known = int(np.searchsorted(ids, lane.stored, side="right"))
        self.left_out += known
        if known == body.count:
            return None, None
        if int(ids[known]) <= lane.put:
            raise InternalError(f"record id {int(ids[known])} comes behind {lane.put}")
        if known:
            count = body.count - known
            body = replace(body, records=slice_records(body.records, known, count), count=count)
        return body, ids[known:]

    def _refuse_left_out(self, lane: _Lane, body: BatchBody, count: int) -> None:
        """Raise RecordRefused for a record among the first `count` that is too large: it is not stored.

        Its id is below that of the last record that is, since an earlier attempt went on behind it.
        """
        if not count:
            return
        left_out = replace(body, records=slice_records(body.records, 0, count), count=count)
        found = self._oversized(lane, left_out, 0)
        if found is not None:
            self.was_refused = True
            raise RecordRefused(_too_large(lane.producer.topic, found[1], lane.limit), found[0])

    def _send(self, lane: _Lane, body: BatchBody, ids: IntArray | None, before: int) -> None:
        """Make an entry of records, or several if one is too large; `before` counts those left out."""
        entry, compression, uncompressed = self._entry(body)
        size = entry.end - entry.start
        if size > lane.limit and body.count > 1:
            for first, part in _halves(body):
                part_ids = None if ids is None else ids[first : first + part.count]
                self._send(lane, part, part_ids, before + first)
            return
        if size > lane.limit:
            self.was_refused = True
            raise RecordRefused(_too_large(lane.producer.topic, size, lane.limit), before)
        first_id, last_id = (None, None) if ids is None else (int(ids[0]), int(ids[-1]))
        lane.put = lane.put if last_id is None else last_id
        self._wait_for_room(size)
        said = (entry.num_messages, entry.publish_time, first_id, last_id, compression, uncompressed)
        self._cluster.post(self._on_thread, lane, entry, said, size, last_id)

    def _oversized(self, lane: _Lane, body: BatchBody, before: int) -> tuple[int, int] | None:
        """Return number and size of the first record that is too large for itself; None if all fit."""
        entry, _, _ = self._entry(body)
        size = entry.end - entry.start
        if size <= lane.limit:
            return None
        if body.count == 1:
            return before, size
        parts = ((before + first, part) for first, part in _halves(body))
        found = (self._oversized(lane, part, at) for at, part in parts)
        return next((each for each in found if each is not None), None)

    def _entry(self, body: BatchBody) -> tuple[PulsarBatch, int, int]:
        """Return the entry of records, the number of its codec and its size before; -1 without one."""
        entry = body_to_entry(body, now=time.time_ns() // 1_000_000)
        if self._codec is Compression.NONE:
            return entry, -1, -1
        return self._compressed(entry), int(self._codec), entry.end - entry.start

    def _compressed(self, entry: PulsarBatch) -> PulsarBatch:
        payload = compress(self._codec, entry.payload)
        buffer = np.empty(_HEAD_BYTES + len(payload), np.uint8)
        buffer[_HEAD_BYTES:] = np.frombuffer(payload, np.uint8)
        return entry._replace(buffer=buffer, start=_HEAD_BYTES, end=len(buffer))

    def _wait_for_room(self, size: int) -> None:
        with self._state:
            # One entry may always be under way, however large.
            while self._entries and self._under_way + size > self._buffer_bytes and self._failure is None:
                self._state.wait(1.0)
            self._under_way += size
            self._entries += 1
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # On the cluster's thread

    def _on_thread(
        self, lane: _Lane, entry: PulsarBatch, said: tuple[Any, ...], size: int, last_id: int | None
    ) -> None:
        try:
            if self._failure is not None:
                # What follows an entry that failed must not be stored: it would hide what is missing.
                raise self._failure
            sent = lane.producer.send_nowait(entry.buffer, entry.start, entry.end, *said)
            if sent is None:
                raise InternalError("a producer had no room for an entry")
        except PenstockError as exc:
            self._ended(size, as_outage(exc))
        else:
            sent.add_done_callback(lambda done: self._on_receipt(lane, done, size, last_id))

    def _on_receipt(self, lane: _Lane, done: asyncio.Future[Receipt], size: int, last_id: int | None) -> None:
        error = ClosedEarly if done.cancelled() else done.exception()
        if error is not None:
            told = as_outage(error) if isinstance(error, PenstockError) else InternalError(repr(error))
            self._ended(size, told)
            return
        receipt = done.result()
        if receipt.is_duplicate and last_id is not None:
            if receipt.attempts < 2:
                self._ended(size, _dropped(lane.producer.topic, lane.producer.name, receipt.sequence_id))
                return
            lane.repeated.add(last_id)
        self._ended(size, None)

    def _ended(self, size: int, error: PenstockError | None) -> None:
        with self._state:
            self._under_way -= size
            self._entries -= 1
            self._failure = self._failure or error
            self._state.notify_all()

    async def _confirm(self, lane: _Lane) -> None:
        """See in the topic what was answered as a duplicate after a reconnect. Raises JobFailed."""
        wanted = frozenset(lane.repeated)
        topic, name = lane.producer.topic, lane.producer.name
        found = await find_stored(self._cluster, topic, name, enough=lambda stored: wanted <= stored.entries)
        missing = wanted - found.entries
        if missing:
            since = None if self._source is None else self._source.since
            if await has_all_since(self._cluster, topic, name, since):
                raise _dropped(topic, name, min(missing))
            _log.warning("%d entries of %s were removed from %s already", len(missing), name, topic)
        lane.repeated -= wanted

    def _close_lanes(self) -> None:
        lanes = list(self._lanes.values())
        self._lanes.clear()
        self._cluster.call(_closed([lane.producer for lane in lanes]))


def _halves(body: BatchBody) -> Iterator[tuple[int, BatchBody]]:
    half = body.count // 2
    for first, count in ((0, half), (half, body.count - half)):
        yield first, replace(body, records=slice_records(body.records, first, count), count=count)


async def _closed(producers: Sequence[Producer]) -> None:
    await asyncio.gather(*(producer.close() for producer in producers))


ClosedEarly: Final = JobFailed("a producer was closed before its entries were stored")


def _not_found(topic: str, name: str, last: int) -> JobFailed:
    return JobFailed(
        "what an earlier attempt has written cannot be found",
        where=topic,
        why=f"The broker has record id {last} of producer {name}, and no entry of the topic ends with it.",
        next="the broker has lost it, all since the mark is there; a new checkpoint writes the range again",
    )


def _dropped(topic: str, name: str, sequence_id: int) -> JobFailed:
    return JobFailed(
        "the broker dropped records as duplicates that are none",
        where=topic,
        why=f"Record id {sequence_id} of producer {name} was answered with message id -1:-1: "
        "another job writes under the same name, or ranges were done out of order.",
        next="run one job of this checkpoint; run it again, and it goes on behind what is stored",
    )


def _too_large(topic: str, size: int, limit: int) -> PulsarRefused:
    return PulsarRefused(
        f"a record of {size} bytes is too large for topic {topic}",
        server_error=ServerError.NOT_ALLOWED_ERROR,
        retriable=False,
        why=f"the topic takes {limit}",
        next="raise maxMessageSize, or let the route send less",
    )
