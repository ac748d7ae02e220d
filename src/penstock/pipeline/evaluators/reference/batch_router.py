"""Fetched batches through the reference alone: collected first, routed some at a time, then put.

For sources that the kernel cannot express: functions, typed and plain data, encoders of Python, conditions
without a kernel form. Routing may take long (a function is called with its retries), so it is over before the
first batch is put: no transaction is open meanwhile, and each `flush` has to be committed before the next.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.evaluators.kernel.batch_builder import (
    BATCH_BYTES,
    RECORD_HEAD,
    GrowingIds,
    Output,
    Pick,
    Put,
    batch_limits,
    partition_by_position,
    record_bytes,
    sequence_id,
    varint,
)
from penstock.pipeline.evaluators.kernel.record_body import HELD, INFLATED, Body, bodies_of
from penstock.pipeline.evaluators.reference.router import ReferenceRouter
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.size import BATCH
from penstock.record import KafkaRecord
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kernels.hashing import partition_of

if TYPE_CHECKING:
    from penstock.pipeline.evaluators.kernel.program import Program
    from penstock.pipeline.stage import Stage
    from penstock.wire.kernels import IntArray

__all__ = ["Bounds", "ReferenceBatchRouter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is held and routed at once."""

    held_records: int = 20_000
    """Nothing more is fetched while so many records wait; what is on its way may still come."""
    held_bytes: int = 32 << 20
    flush_records: int = 10_000
    """Records of one flush, and so of one transaction."""
    flush_bytes: int = 16 << 20
    """The same in bytes, of what came and of what is written; one record, or one step, may have more."""
    flush_seconds: float = 5.0
    """After so long a flush routes no further records, so that slow functions commit often, too."""
    step_records: int = 500
    """Records that are routed before the clock is looked at; at least one batch of a function."""
    step_seconds: float = 0.5
    """While a step with functions takes longer, the next one has half as many records."""


_Place = tuple[int, int, int]
"""A target, its partition, and the partition that is read, for a target on Pulsar; else -1."""
_BOUNDS: Final = Bounds()
_MOST_HASHED: Final = 10_000
"""Keys whose partitions are remembered."""
_LONGEST_HASHED: Final = 128
"""Bytes of a key that is remembered: of long ones a few thousand are gigabytes."""


@dataclass(slots=True)
class _Pending:
    """The records of one batch that were not routed yet."""

    body: Body
    starts: IntArray
    topic: str
    partition: int
    record_bytes: int
    """The mean size of its records."""

    @property
    def first_offset(self) -> int:
        return int(self.body.offsets(self.starts[:1])[0])


class ReferenceBatchRouter:
    """Routes batches of any number of partitions; a `Router` that collects.

    `partitions` says how many each target of the program has. `put` is given each batch of a flush, when all
    records of the flush are routed. `limits` are the bytes of a batch that targets were found to take.
    """

    collects = True

    def __init__(
        self,
        program: Program,
        stage: Stage,
        partitions: Sequence[int],
        put: Put,
        *,
        bounds: Bounds = _BOUNDS,
        batch_bytes: int = BATCH_BYTES,
        pick: Pick | None = None,
        limits: Mapping[int, int] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((*COUNTERS, "n_slow"), 0))
        self._router = ReferenceRouter(stage)
        self._numbers = {(target.sink, target.topic): n for n, target in enumerate(program.targets)}
        self._builder = _BatchBuilder(
            partitions,
            batch_limits(program, limits or {}),
            batch_bytes=batch_bytes,
            pick=pick,
            by_position=program.by_position,
            has_ids=program.has_ids,
        )
        self._put = put
        self._bounds = bounds
        calls = (route.invoker for route in stage.routes)
        batches = [call.batch for call in calls if isinstance(call, FunctionInvoker)]
        self._least = max(*batches, 1) if batches else max(bounds.step_records, 1)
        self._most = max(bounds.step_records, self._least)
        self._step = self._least
        """With functions it begins with one call, as nobody knows how long that takes, and grows."""
        self._pending: deque[_Pending] = deque()
        self._records = 0
        self._bytes = 0

    @property
    def holds(self) -> bool:
        """Whether records were fed that are not routed yet."""
        return bool(self._pending)

    @property
    def held(self) -> dict[int, int]:
        """By partition, the offset of the first record that was fed and not routed yet."""
        found: dict[int, int] = {}
        for each in self._pending:
            if each.partition not in found:
                found[each.partition] = each.first_offset
        return found

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fed before the next flush."""
        return self._records >= self._bounds.held_records or self._bytes >= self._bounds.held_bytes

    def feed(
        self, data: Buffer, *, topic: str, partition: int, first: int, end: int, now: int | None = None
    ) -> int | None:
        """Take the records with offsets from `first` up to `end` of whole batches.

        `now` has no part in it: records are routed by `flush`, with the moment of their transaction. Their
        bytes stay in the memory that they were fetched into. Returns where the first batch begins that there
        is no room for. Raises RecordsError for bytes that are no batches or no records.
        """
        for body in bodies_of(data, first, end, None, INFLATED):
            if self._bytes >= HELD:
                return body.base_offset
            starts = body.starts()
            if len(starts):
                mean = len(body.records) // body.count
                self._pending.append(_Pending(body, starts, topic, partition, mean))
                self._records += len(starts)
                self._bytes += len(starts) * mean
        return None

    def flush(self, *, now: int | None = None) -> None:
        """Route records in the order in which they came, as far as the bounds go, then put what they became.

        `now` is what `now()` stands for, in microseconds; by default the moment of this call. Raises what
        stops a batch, such as UnknownSchemas, before anything is put; the records are still held.
        """
        try:
            with _without_collector():
                left, counts = self._route(time.time_ns() // 1000 if now is None else now)
        except BaseException:
            self._builder.clear()
            raise
        self._pending = left
        self._records = sum(len(each.starts) for each in left)
        self._bytes = sum(len(each.starts) * each.record_bytes for each in left)
        self.counts.update(counts)
        self.counts["n_slow"] += counts["n_in"]
        for output in self._builder.taken():
            self._put(output)

    def _route(self, now: int) -> tuple[deque[_Pending], Counter[str]]:
        """Route as far as the bounds go; give what is left, and what was counted."""
        bounds, until = self._bounds, time.monotonic() + self._bounds.flush_seconds
        left, counts = deque(self._pending), Counter[str]()
        size, numbers, builder = 0, self._numbers, self._builder
        while left and counts["n_in"] < bounds.flush_records:
            room = bounds.flush_bytes - max(size, builder.size)
            if counts["n_in"] and (room <= 0 or time.monotonic() >= until):
                break
            began = time.monotonic()
            taken = list(_taken(left, min(self._step, bounds.flush_records - counts["n_in"]), room))
            records = _records(taken)
            routing = self._router.route(records, now=now)
            # At once: what a record becomes is then a few bytes, and its objects are free again.
            for given, written in zip(records, routing.written, strict=True):
                for target, record in written:
                    builder.add(numbers[target.sink, target.topic], record, given)
            counts.update(routing.counts)
            size += sum(len(each.starts) * each.record_bytes for each in taken)
            is_quick = time.monotonic() - began < bounds.step_seconds
            self._step = min(self._step * 2, self._most) if is_quick else max(self._step // 2, self._least)
        return left, counts


@contextmanager
def _without_collector() -> Iterator[None]:
    """Turn the garbage collector off for one flush: it takes a tenth of the time and finds nothing.

    Records, events and what they become hold no cycles, and a flush is bounded.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _BatchBuilder:
    """Makes batches of records, for each partition of each target; keeps them until they are taken."""

    def __init__(
        self,
        partitions: Sequence[int],
        limits: Sequence[int | None],
        *,
        batch_bytes: int,
        pick: Pick | None,
        by_position: Collection[int] = (),
        has_ids: bool = True,
    ) -> None:
        """`by_position` are the targets on Pulsar: their records have ids, where offsets can make some."""
        self.size = 0
        """Bytes of all batches that were not taken."""
        self._partitions = partitions
        self._by_position = frozenset(by_position)
        self._numbered = self._by_position if has_ids else frozenset()
        self._pick = pick or (lambda target, count: random.randrange(count))
        self._capacity = [
            batch_bytes if limit is None else min(batch_bytes, limit - BATCH) for limit in limits
        ]
        self._open: dict[_Place, _Open] = {}
        self._full: list[Output] = []
        self._sticky: dict[int, int] = {}
        """By target, the partition of records without a key: another one for each batch."""
        self._hashed: dict[tuple[bytes, int], int] = {}
        self._ids = GrowingIds()
        self._input: KafkaRecord | None = None
        self._ordinals: Counter[int] = Counter()
        """By target on Pulsar, how many records the input has become for it."""

    def add(self, target: int, record: KafkaRecord, given: KafkaRecord) -> None:
        """Append a record to its batch, or to a new one if that has no room for it.

        `given` is the one that it was made of; those of one input come one after the other. Raises Refused if
        offset and number of a record for Pulsar make no id.
        """
        rest = record_bytes(record.key, record.value, record.headers)
        size = len(rest) + RECORD_HEAD
        self.size += size
        while True:
            place = self._place(target, record.key, given)
            found = self._open.get(place)
            if found is None:
                found = self._open[place] = _Open()
                break
            if found.size + size <= self._capacity[target]:
                break
            # Without a key the next partition is another one, which may have a full batch, too.
            self._close(place)
        if target in self._numbered:
            found.ids.append(self._identity(target, given))
        offset = varint(found.count)
        found.parts += (varint(2 + len(offset) + len(rest)), b"\x00\x00", offset, rest)
        found.count += 1
        found.size += size

    def taken(self) -> list[Output]:
        """Return all batches, those of a partition in their order, and forget them."""
        for place in list(self._open):
            self._close(place)
        found, self._full = self._full, []
        self.size = 0
        return [each if each.ids is None else self._growing(each, each.ids) for each in found]

    def _growing(self, output: Output, ids: IntArray) -> Output:
        """Number on what several records at one offset became; nothing that is taken is routed again."""
        grown = self._ids.of(output.target, output.partition, output.source, ids)
        return replace(output, ids=grown)

    def clear(self) -> None:
        """Forget all batches."""
        self._open.clear()
        self._full.clear()
        self._input = None
        self.size = 0

    def _identity(self, target: int, given: KafkaRecord) -> int:
        if given is not self._input:
            self._input = given
            self._ordinals.clear()
        ordinal = self._ordinals[target]
        self._ordinals[target] += 1
        return sequence_id(given.offset or 0, ordinal)

    def _close(self, place: _Place) -> None:
        target, partition, source = place
        found = self._open.pop(place)
        now = time.time_ns() // 1_000_000
        body = BatchBody(b"".join(found.parts), found.count, now, now)
        ids = np.array(found.ids, np.int64) if target in self._numbered else None
        self._full.append(Output(target, partition, body, source, ids))
        if self._sticky.get(target) == partition:
            del self._sticky[target]

    def _place(self, target: int, key: bytes | None, given: KafkaRecord) -> _Place:
        """Return where a record goes; a batch for Pulsar has records of one source partition only."""
        if target not in self._by_position:
            return target, self._partition(target, key), -1
        source = given.partition or 0
        if key is None:
            return target, partition_by_position(given.offset or 0, source, self._partitions[target]), source
        return target, self._partition(target, key), source

    def _partition(self, target: int, key: bytes | None) -> int:
        count = self._partitions[target]
        if key is None:
            if target not in self._sticky:
                self._sticky[target] = self._pick(target, count)
            return self._sticky[target]
        known = self._hashed.get((key, count))
        if known is None:
            known = partition_of(as_array(key), 0, len(key), count)
            if len(key) > _LONGEST_HASHED:
                return known
            if len(self._hashed) >= _MOST_HASHED:
                self._hashed.clear()
            self._hashed[key, count] = known
        return known


@dataclass(slots=True)
class _Open:
    """A batch that is filled."""

    parts: list[bytes] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    count: int = 0
    size: int = 0


def _taken(pending: deque[_Pending], records: int, room: int) -> Iterator[_Pending]:
    """Take so many records away from the front, or fewer of so many bytes; at least one."""
    is_first = True
    while pending and records > 0:
        each = pending.popleft()
        count = min(records, len(each.starts), max(room // max(each.record_bytes, 1), int(is_first)))
        count = _whole(each, count)
        if count < len(each.starts):
            pending.appendleft(replace(each, starts=each.starts[count:]))
            each = replace(each, starts=each.starts[:count])
        if not count:
            return
        records, room, is_first = records - count, room - count * each.record_bytes, False
        yield each


def _whole(pending: _Pending, count: int) -> int:
    """Return a number of records that cuts none apart that have one offset: a mark is an offset."""
    if not 0 < count < len(pending.starts):
        return count
    offsets = pending.body.offsets(pending.starts[count - 1 :])
    return count - 1 + int(np.searchsorted(offsets, offsets[0], side="right"))


def _records(pending: Sequence[_Pending]) -> list[KafkaRecord]:
    return [
        record
        for each in pending
        for record in each.body.kafka_records(each.starts, each.topic, each.partition)
    ]
