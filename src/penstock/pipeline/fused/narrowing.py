"""Ranges with records that a topic refuses: the batch is narrowed down to them, and each is a dead letter.

The transaction with the refused batch is aborted, and its range is done again in short ones; the one that is
refused again is done here, a few records at a time.
Each goes through the stage, so that it is known which record became what, and each batch waits for its
answer. If the broker refuses one, it names the records (KIP-467), or the batch is halved until one is left.
The transaction is aborted again, since a refused batch makes its sequences uncertain, and the next attempt
writes dead letters in the place of what was refused. Letters, the rest of the output and the mark are one
transaction.

Only that is slow: who calls goes on behind it as before.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import JobFailed, Unreachable
from penstock.pipeline.fused.bodies import Body, bodies_of
from penstock.pipeline.fused.feed import Feed
from penstock.pipeline.fused.machine import BATCH_BYTES, INFLATED
from penstock.pipeline.fused.outbox import Output, numbered, record_bytes
from penstock.pipeline.fused.outlet import Outlet
from penstock.pipeline.fused.slow import Place, SlowPath
from penstock.pipeline.fused.work import Work
from penstock.pipeline.outgoing import COUNTERS
from penstock.pipeline.size import BATCH
from penstock.pipeline.stage import Refused
from penstock.wire.buffer import Buffer, as_array
from penstock.wire.kafka.batch_body import BatchBody
from penstock.wire.kafka.error_codes import ErrorCode
from penstock.wire.kernels import IntArray
from penstock.wire.kernels.hashing import partition_of

if TYPE_CHECKING:
    from penstock.brokers.kafka_raw.cluster import Cluster
    from penstock.brokers.kafka_raw.producer import BatchRefusal

__all__ = ["Narrowing", "redo"]

_log = logging.getLogger(__name__)
_RECORDS: Final = 500
"""Records of one transaction: also if each has to be sent alone, it ends well before its time-out."""
_ATTEMPTS: Final = 16
"""What is refused is known after one attempt, or two if letters are too large; time and settings may move."""
_POLL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 120.0
_RECORD_HEAD: Final = 20
"""Bytes of the length and the offset of a record, at most."""
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
    rest: bytes
    """Its bytes, as far as they do not depend on its place in a batch."""
    has_key: bool


class Narrowing:
    """Takes records as a machine does, and delivers them in transactions of a few."""

    def __init__(self, work: Work, cluster: Cluster) -> None:
        self.counts: Counter[str] = Counter()
        self.limits: dict[int, int] = {}
        """By target, bytes of a batch that it takes: less than those of one that it refused."""
        self._targets = work.program.targets
        self._partitions = [cluster.partitions(target.topic) for target in self._targets]
        self._slow_path = SlowPath(work.program, work.stage)
        self._rows: list[_Row] = []

    def feed(self, data: Buffer, *, topic: str, partition: int, first: int, end: int) -> None:
        """Take records; their bytes stay in the memory that they were fetched into."""
        place = Place(topic, partition, time.time_ns() // 1000)
        for body in bodies_of(data, first, end, None, INFLATED):
            starts = body.starts()
            pairs = zip(starts.tolist(), body.offsets(starts).tolist(), strict=True)
            self._rows += [_Row(body, start, offset, place) for start, offset in pairs]

    def flush(self) -> None:
        """Nothing is held that `delivered` does not put."""

    def delivered(self, outlet: Outlet) -> Iterator[int | None]:
        """Put what was taken, some records at a time; each must be committed before the next are asked for.

        Gives the offset of the record that comes next, None if none does. Raises JobFailed if a letter is
        refused as well.
        """
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), _RECORDS):
            self._deliver(rows[start : start + _RECORDS], outlet)
            behind = start + _RECORDS
            yield rows[behind].offset if behind < len(rows) else None

    def _deliver(self, rows: list[_Row], outlet: Outlet) -> None:
        refused: dict[tuple[int, int, str], tuple[str, str]] = {}
        for _ in range(_ATTEMPTS):
            outputs, counted = self._routed(rows, refused)
            found = [each for target in outputs for each in self._offered(target, outputs[target], outlet)]
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

    def _routed(
        self, rows: list[_Row], refused: Refused
    ) -> tuple[dict[tuple[int, int], list[_Sent]], Counter[str]]:
        """Give what leaves, by target and partition, and what was counted."""
        written, counted = self._slow_path.written(_by_body(rows), rows[0].place, refused)
        # Records without a key go to one partition of each target.
        sticky = [random.randrange(count) for count in self._partitions]
        outputs: dict[tuple[int, int], list[_Sent]] = {}
        for row, records in zip(rows, written, strict=True):
            for target, record in records:
                key, count = record.key, self._partitions[target]
                part = sticky[target] if key is None else partition_of(as_array(key), 0, len(key), count)
                sent = _Sent(row.offset, record_bytes(key, record.value, record.headers), key is not None)
                outputs.setdefault((target, part), []).append(sent)
        counts = Counter({name: counted[name] for name in COUNTERS})
        counts["n_slow"] += len(rows)
        return outputs, counts

    def _offered(
        self, place: tuple[int, int], records: list[_Sent], outlet: Outlet
    ) -> Iterator[tuple[int, _Sent, BatchRefusal, str | None]]:
        """Send records for a partition; give those that are refused, each with why."""
        target, partition = place
        waiting = list(self._batches(target, records))[::-1]
        while waiting:
            if not (batch := waiting.pop()):
                continue
            body = _body(batch)
            refusal = outlet.offer(Output(target, partition, body))
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
            size = len(sent.rest) + _RECORD_HEAD
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


def _by_body(rows: list[_Row]) -> list[tuple[Body, IntArray]]:
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
    work: Work,
    cluster: Cluster,
    outlet: Outlet,
    partition: int,
    start: int,
    end: int,
    commit: Callable[[int, Mapping[str, int]], None],
) -> Mapping[int, int]:
    """Do a range again in which records were refused; `commit` is told how far it is, and what was counted.

    Gives the bytes of a batch that targets were found to take, by target.
    """
    _tell(work.topic, partition, start, end)
    router, moved, done = Narrowing(work, cluster), time.monotonic(), start
    with closing(Feed(work, cluster, router, {partition: start}, {partition: end})) as feed:
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


def _tell(topic: str, partition: int, start: int, end: int) -> None:
    """Log that records are refused; a topic that goes on refusing is told of every five minutes."""
    now = time.monotonic()
    if now - _told.get(topic, -_TELL_AGAIN_SECONDS) >= _TELL_AGAIN_SECONDS:
        _told[topic] = now
        what = "records of %s-%d between %d and %d are refused by a topic that they are written to; "
        _log.warning(f"{what}they become dead letters", topic, partition, start, end)
