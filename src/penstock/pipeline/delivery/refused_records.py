"""Ranges with records that a topic refuses: the batch is narrowed down to them, and each is a dead letter.

The transaction with the refused batch is aborted, and its range is done again in short ones; the one that is
refused again is done here, a few records at a time.
Each goes through the reference evaluator, so that it is known which record became what, and each batch waits
for its answer. If the broker refuses one, it names the records (KIP-467), or the batch is halved until one is
left. The transaction is aborted again, since a refused batch makes its sequences uncertain, and the next
attempt writes dead letters in the place of what was refused. Letters, the rest of the output and the mark are
one transaction.

What was sent to Pulsar stays there, so it gets nothing before all that is refused is known: what it would
refuse is found without sending, and it comes behind Kafka. A letter that is there because of a refusal has a
producer of its own: records behind it may be stored already, and the ids of one producer only grow.

Only that is slow: who calls goes on behind it as before.
"""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from penstock.errors import JobFailed, Unreachable
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.delivery.kafka_sink import FanOut
from penstock.pipeline.delivery.partition_reader import PartitionReader
from penstock.pipeline.delivery.range_clock import RangeClock
from penstock.pipeline.delivery.sink import IdempotentSink, Sink
from penstock.pipeline.delivery.source_cluster import target_partitions
from penstock.pipeline.delivery.worker_spec import WorkerSpec
from penstock.pipeline.evaluators.kernel.batch_builder import (
    BATCH_BYTES,
    RECORD_HEAD,
    Output,
    numbered,
    partition_by_position,
    record_bytes,
    sequence_id,
)
from penstock.pipeline.evaluators.kernel.fallback import Fallback, Place, Written
from penstock.pipeline.evaluators.kernel.record_body import HELD, INFLATED, Body, bodies_of
from penstock.pipeline.evaluators.reference.outcome import Refused
from penstock.pipeline.evaluators.reference.router import Known
from penstock.pipeline.size import BATCH
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kernels import IntArray
from penstock.wire.kernels.hashing import partition_of

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.brokers.kafka_raw.producer import BatchRefusal

__all__ = ["Narrowing", "RowNarrowing", "redo", "warn_refused"]

_log = logging.getLogger(__name__)
_RECORDS: Final = 500
"""Records of one transaction: also if each has to be sent alone, it ends well before its time-out."""
_ATTEMPTS: Final = 16
"""What is refused is known after one attempt, or two if letters are too large; time and settings may move."""
_POLL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 120.0
_MOST_TEXT: Final = 300
_TELL_AGAIN_SECONDS: Final = 300.0
_told: dict[str, float] = {}
"""When it was logged that records of a topic are refused."""
_CODES: Final[Mapping[int, str]] = {
    ErrorCode.MESSAGE_TOO_LARGE: "too-large",
    ErrorCode.RECORD_LIST_TOO_LARGE: "too-large",
    ErrorCode.INVALID_TIMESTAMP: "timestamp-out-of-bounds",
}
_OTHER: Final = "refused"


class Row(Protocol):
    """A record that was read."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def place(self) -> Place:
        """Its topic and partition, and the moment at which it is routed."""


RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True, slots=True)
class _Row:
    """A record that was read."""

    body: Body
    start: int
    offset: int
    place: Place


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record to write, and the offset of the one that it was made of."""

    offset: int
    source: int
    """The partition of that one."""
    rest: bytes
    """Its bytes, as far as they do not depend on its place in a batch."""
    has_key: bool
    ordinal: int
    """Its number among what that record became for the target."""


class _Where(NamedTuple):
    """Where records go."""

    target: int
    partition: int
    is_late: bool = False
    """Whether it is Pulsar, and they are there only because a topic has refused a record."""


_Outputs = dict[_Where, list[_Sent]]
_Refusal = tuple[int, _Sent, "BatchRefusal", str | None]
"""A target, the record that it refused, and why."""


class RowNarrowing(ABC, Generic[RowT]):
    """Delivers records that were read, in transactions of a few."""

    collects = holds = is_full = False
    held: Mapping[int, int] = MappingProxyType({})

    def __init__(self, work: WorkerSpec, cluster: Cluster, known: Known | None = None) -> None:
        """`known` is what functions have answered about these records already."""
        self._known = known
        self.counts: Counter[str] = Counter()
        self.limits: dict[int, int] = {}
        """By target, bytes of a batch that it takes: less than those of one that it refused."""
        self._targets = work.program.targets
        self._on_pulsar = work.program.by_position
        self._has_ids = work.program.has_ids
        self._partitions = [target_partitions(cluster, target) for target in self._targets]
        self._rows: list[RowT] = []

    @abstractmethod
    def _written(
        self, rows: Sequence[RowT], refused: Refused, known: Known
    ) -> tuple[list[list[Written]], Mapping[str, int]]:
        """Return what each record becomes, and what was counted; what a topic has `refused` is a letter.

        `known` keeps what functions have answered.
        """

    def take(self, rows: Iterable[RowT]) -> None:
        """Take records of one partition, in their order."""
        self._rows += rows

    def delivered(self, outlet: Sink) -> Iterator[int | None]:
        """Put what was taken, some records at a time; each must be committed before the next are asked for.

        Gives the offset of the record that comes next, None if none does. Raises JobFailed if a letter is
        refused as well.
        """
        rows, self._rows = self._rows, []
        start = 0
        while start < len(rows):
            behind = start + _RECORDS
            # A mark is an offset: records that have one together stay together.
            while behind < len(rows) and rows[behind].offset == rows[behind - 1].offset:
                behind += 1
            self._deliver(rows[start:behind], outlet)
            yield rows[behind].offset if behind < len(rows) else None
            start = behind

    def _deliver(self, rows: list[RowT], outlet: Sink) -> None:
        refused: dict[tuple[int, int, str], tuple[str, str]] = {}
        durable: set[tuple[int, _Sent]] = set()
        known: Known = {} if self._known is None else self._known
        for _ in range(_ATTEMPTS):
            # Nothing is open here: functions are called before the first record is offered, and once.
            outputs, apart, counted = self._routed(rows, refused, known)
            if isinstance(outlet, FanOut):
                found = self._deliver_apart(apart, durable, outlet)
            else:
                outputs, found = _merged(outputs, apart), []
            if not found:
                found = self._deliver_all(outputs, outlet)
            if not found:
                self.counts.update(counted)
                return
            outlet.restart()
            refused |= dict(self._noted(refused, rows[0].place, *each) for each in found)
        raise JobFailed(
            "topics go on refusing records",
            where=f"{rows[0].place.topic}, partition {rows[0].place.partition}, offset {rows[0].offset}",
            why=f"After {_ATTEMPTS} attempts still others are refused.",
            next="look at the settings of the topics that are written, and at the clocks of the brokers",
        )

    def _deliver_all(self, outputs: _Outputs, outlet: Sink) -> list[_Refusal]:
        """Put what leaves, to Pulsar last; give what is refused. Then Pulsar has got nothing."""
        pulsar = {place: sent for place, sent in outputs.items() if place.target in self._on_pulsar}
        found: list[_Refusal] = []
        if pulsar:
            assert isinstance(outlet, FanOut | IdempotentSink)
            found += (e for place in pulsar for e in self._offered(place, pulsar[place], outlet.check))
        kafka = [place for place in outputs if place not in pulsar]
        for place in kafka if not found else ():
            found += self._offered(place, outputs[place], outlet.offer)
        for place in pulsar if not found else ():
            found += self._offered(place, pulsar[place], outlet.offer)
        return found

    def _routed(
        self, rows: list[RowT], refused: Refused, known: Known
    ) -> tuple[_Outputs, _Outputs, Counter[str]]:
        """Give what leaves, by target and partition, and what was counted.

        Letters that are there because another cluster refused the record are given for themselves.
        """
        written, counted = self._written(rows, refused, known)
        refusing: dict[int, set[int]] = {}
        for offset, sink, _ in refused:
            refusing.setdefault(offset, set()).add(sink)
        late = self._late(rows, refusing, known, written)
        # Records without a key go to one partition of each target.
        sticky = [random.randrange(count) for count in self._partitions]
        outputs: _Outputs = {}
        apart: _Outputs = {}
        last: dict[_Where, tuple[int, int]] = {}
        for row, records in zip(rows, written, strict=True):
            ordinals: Counter[tuple[int, bool]] = Counter()
            for target, record in records:
                key, count, taken = record.key, self._partitions[target], outputs
                is_late = (target, record) in late.get(row.offset, ())
                if target in self._on_pulsar:
                    part = partition_by_position(row.offset, row.place.partition, count)
                else:
                    part = sticky[target]
                    if is_late and refusing[row.offset] != {self._targets[target].sink}:
                        taken = apart
                    is_late = False
                if key is not None:
                    part = partition_of(as_array(key), 0, len(key), count)
                where, ordinal = _Where(target, part, is_late), ordinals[target, is_late]
                ordinals[target, is_late] += 1
                before = last.get(where, (-1, -1))
                if before[0] == row.offset:
                    ordinal = max(ordinal, before[1] + 1)  # as `GrowingIds` does
                last[where] = (row.offset, ordinal)
                rest = record_bytes(key, record.value, record.headers)
                sent = _Sent(row.offset, row.place.partition, rest, key is not None, ordinal)
                taken.setdefault(where, []).append(sent)
        counts = Counter({name: counted.get(name, 0) for name in COUNTERS})
        counts["n_slow"] += len(rows)
        return outputs, apart, counts

    def _late(
        self,
        rows: list[RowT],
        refusing: Mapping[int, set[int]],
        known: Known,
        written: list[list[Written]],
    ) -> dict[int, list[Written]]:
        """Find, by offset, what is there only because of refusals."""
        if not refusing or (len({target.sink for target in self._targets}) < 2 and not self._on_pulsar):
            return {}
        usual, _ = self._written(rows, {}, known)
        found: dict[int, list[Written]] = {}
        for row, now, before in zip(rows, written, usual, strict=True):
            if row.offset in refusing:
                found.setdefault(row.offset, []).extend(each for each in now if each not in before)
        return found

    def _deliver_apart(
        self, letters: _Outputs, durable: set[tuple[int, _Sent]], outlet: FanOut
    ) -> list[_Refusal]:
        """Make letters durable before any mark is: the next run may not offer their records again.

        A cluster that is ahead after a crash is left out, and so it refuses nothing. Gives what is refused.
        """
        new = {
            place: [sent for sent in found if (place.target, sent) not in durable]
            for place, found in letters.items()
        }
        if not any(new.values()):
            return []
        found = [each for place in new for each in self._offered(place, new[place], outlet.offer_apart)]
        if not found:
            outlet.commit_apart()
            durable |= {(place.target, sent) for place, each in new.items() for sent in each}
        return found

    def _offered(
        self,
        place: _Where,
        records: list[_Sent],
        offer: Callable[[Output], BatchRefusal | None],
    ) -> Iterator[_Refusal]:
        """Send records for a partition; give those that are refused, each with why."""
        target, partition, is_late = place
        waiting = list(self._batches(target, records))[::-1]
        while waiting:
            if not (batch := waiting.pop()):
                continue
            body = _body(batch)
            ids = None
            if target in self._on_pulsar and self._has_ids:
                ids = np.array([sequence_id(sent.offset, sent.ordinal) for sent in batch], np.int64)
            refusal = offer(Output(target, partition, body, batch[0].source, ids, is_late))
            if refusal is None:
                continue
            named = {at: why for at, why in refusal.error.records if 0 <= at < len(batch)}
            if len(batch) == 1:
                yield target, batch[0], refusal, named.get(0) or refusal.error.message
            elif named:
                said = refusal.error.message
                yield from ((target, batch[at], refusal, why or said) for at, why in named.items())
                # Without a transaction what is sent stays there: the others go before those behind them.
                waiting.append([sent for at, sent in enumerate(batch) if at not in named])
            else:
                self._learn(target, len(body.records), refusal)
                waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]

    def _batches(self, target: int, records: Iterable[_Sent]) -> Iterator[list[_Sent]]:
        known = (BATCH_BYTES, self._targets[target].limit, self.limits.get(target))
        room = min(each for each in known if each is not None) - BATCH
        batch, used = list[_Sent](), 0
        for sent in records:
            size = len(sent.rest) + RECORD_HEAD
            if batch and used + size > room:
                yield batch
                batch, used = [], 0
            batch.append(sent)
            used += size
        if batch:
            yield batch

    def _learn(self, target: int, size: int, refusal: BatchRefusal) -> None:
        if _CODES.get(refusal.code) == "too-large":
            self.limits[target] = min(BATCH + size - 1, self.limits.get(target, BATCH_BYTES))

    def _noted(
        self,
        known: Refused,
        place: Place,
        target: int,
        sent: _Sent,
        refusal: BatchRefusal,
        message: str | None,
    ) -> tuple[tuple[int, int, str], tuple[str, str]]:
        """Give what a topic does not take, and code and reason of the letter; JobFailed if it was one."""
        topic = self._targets[target].topic
        key = (sent.offset, self._targets[target].sink, topic)
        why = (message or ErrorCode(refusal.code).name)[:_MOST_TEXT]
        if key in known:
            raise JobFailed(
                f"{topic} refuses a dead letter",
                where=f"{place.topic}, partition {place.partition}, offset {sent.offset}",
                why=why,
                next=f"let {topic} take dead letters: look at its cleanup.policy, max.message.bytes and "
                "message.timestamp settings, and at the clocks; then run again",
            )
        code = _CODES.get(refusal.code, _OTHER)
        if not sent.has_key and "key" in why.lower():
            code = "no-key"
        return key, (code, f"{topic} refuses it: {why}")


class Narrowing(RowNarrowing[_Row]):
    """Takes records as a machine does."""

    def __init__(self, work: WorkerSpec, cluster: Cluster) -> None:
        super().__init__(work, cluster)
        self._slow_path = Fallback(work.program, work.stage)
        self._held = 0

    def feed(self, data: Buffer, *, topic: str, partition: int, first: int, end: int, now: int) -> int | None:
        """Take records; their bytes stay in the memory that they were fetched into.

        Returns where the first batch begins that there is no room for.
        """
        place = Place(topic, partition, now)
        self._held = self._held if self._rows else 0
        for body in bodies_of(data, first, end, None, INFLATED):
            if self._held >= HELD:
                return body.base_offset
            self._held += len(body.records)
            starts = body.starts()
            pairs = zip(starts.tolist(), body.offsets(starts).tolist(), strict=True)
            self.take(_Row(body, start, offset, place) for start, offset in pairs)
        return None

    def flush(self, *, now: int) -> None:
        """Nothing is held that `delivered` does not put."""

    def _written(
        self, rows: Sequence[_Row], refused: Refused, known: Known
    ) -> tuple[list[list[Written]], Mapping[str, int]]:
        return self._slow_path.written(_by_body(rows), rows[0].place, refused, known)


def _merged(outputs: _Outputs, more: _Outputs) -> _Outputs:
    return {
        place: sorted((*outputs.get(place, ()), *more.get(place, ())), key=lambda sent: sent.offset)
        for place in {**outputs, **more}
    }


def _by_body(rows: Sequence[_Row]) -> list[tuple[Body, IntArray]]:
    found: list[tuple[Body, list[int]]] = []
    for row in rows:
        if not found or found[-1][0] is not row.body:
            found.append((row.body, []))
        found[-1][1].append(row.start)
    return [(body, np.array(starts, np.int64)) for body, starts in found]


def _body(batch: list[_Sent]) -> BatchBody:
    now = time.time_ns() // 1_000_000
    records = b"".join(numbered(sent.rest, at) for at, sent in enumerate(batch))
    return BatchBody(records, len(batch), now, now)


def redo(
    work: WorkerSpec,
    cluster: Cluster,
    outlet: Sink,
    partition: int,
    start: int,
    end: int,
    commit: Callable[[int, Mapping[str, int]], None],
    clock: RangeClock,
) -> Mapping[int, int]:
    """Do a range again in which records were refused; `commit` is told how far it is, and what was counted.

    All of it is done with one moment of `clock`. Gives the bytes of a batch that targets were found to take,
    by target.
    """
    warn_refused(work.topic, partition, start, end)
    router, moved, done = Narrowing(work, cluster), time.monotonic(), start
    with closing(
        PartitionReader(work, cluster, router, {partition: start}, {partition: end}, clock=clock)
    ) as feed:
        while feed.waiting:
            if feed.poll(_POLL_SECONDS):
                moved = time.monotonic()
                for offset in router.delivered(outlet):
                    done = feed.positions[partition] if offset is None else offset
                    commit(done, feed.taken())
            elif time.monotonic() - moved > _SILENT_SECONDS:
                raise Unreachable(
                    f"nothing came for {_SILENT_SECONDS:.0f} s",
                    where=f"{work.topic}, partition {partition}, offset {feed.positions[partition]}",
                    next="look at the broker that leads the partition; the next run does the range again",
                )
    if done < end:
        commit(end, feed.taken())  # nothing but what was aborted or deleted
    return router.limits


def warn_refused(topic: str, partition: int, start: int, end: int) -> None:
    """Log that records are refused; a topic that goes on refusing is told of every five minutes."""
    now = time.monotonic()
    if now - _told.get(topic, -_TELL_AGAIN_SECONDS) >= _TELL_AGAIN_SECONDS:
        _told[topic] = now
        what = "records of %s-%d between %d and %d are refused by a topic that they are written to; "
        _log.warning(f"{what}they become dead letters", topic, partition, start, end)
