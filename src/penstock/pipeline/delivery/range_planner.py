"""A topic as a stream of ranges, for Spark: it plans and remembers offsets, and sees no record.

Offsets look as those of Spark's Kafka source, `{topic: {partition: offset}}`, so both can go on from one
checkpoint. Planning runs in the driver, which must not import a kernel. A task that reads its ranges does
them: the rows that come out are counts, and no second worker waits behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from time import monotonic
from typing import Any, Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.first_batches import bytes_per_offset
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.topic_offsets import latest
from penstock.errors import JobFailed
from penstock.pipeline.delivery.end_watch import EndWatch, is_behind
from penstock.pipeline.delivery.offset_ranges import (
    OffsetRange,
    assigned,
    cut,
    limited,
    offset_ranges_of,
    task_count,
    within_bytes,
)
from penstock.pipeline.delivery.same_topic import refuse_other_topic

__all__ = ["LONGEST_WAIT_SECONDS", "BatchLimits", "Planner"]

_GROWTH: Final = 10.0
"""How often it is asked whether the topic has more partitions."""

SHRUNK_SECONDS: Final = 60.0
"""How long a topic may end before what was to be read, until a job takes it for lost."""

_Json = dict[str, dict[str, int]]

LONGEST_WAIT_SECONDS: Final = 60.0
"""Seconds after which Spark hears that nothing has come, so that it can tell that the query is idle."""
_OWN_PAUSE: Final = 0.25
"""Seconds between two questions where the shared one does not tell the end of this topic."""

_STOP_SECONDS: Final = 2.0
"""For a broker that is away, from when the end was asked for."""

_WORTH_LOOKING: Final = 500
"""Offsets of a batch whose bytes are looked at before it is planned; fewer are small whatever they hold."""
_MOST_LOOKED_AT: Final = 16
"""Partitions that are looked at, those with the most to do; the others are taken to be like them."""


@dataclass(slots=True, kw_only=True)
class BatchLimits:
    """What bounds a batch of Spark and its tasks; callables are asked anew for each batch."""

    offsets: Callable[[], int]
    """Offsets of one batch at most."""
    bytes: int
    """Bytes of one batch, about: they are estimated by the first records of each partition."""
    slots: Callable[[], int]
    """How many tasks can run at the same time."""
    tasks: int | None = None
    """Tasks of one batch at most."""
    record_cost: int = 1
    """What a record costs in records of the kernel."""
    split: bool = False
    """Whether a large partition may be cut: what is read of it has no order, and no mark."""


@dataclass(slots=True)
class Planner:
    """Plans the batches of a topic: where each ends, and which task does which ranges of it.

    Spark's threads call it, one call at a time; `release` may be called by any other.
    """

    settings: Settings
    topic: str
    begin: Offsets
    """Where the query began: Spark does not note it before its first batch is done."""
    limits: BatchLimits
    watch: EndWatch
    topic_id: str | None = None
    """The id of the topic that the offsets are of; None if the cluster has no ids."""
    waits: bool = True
    """Whether `plan` waits for records; not where Spark asks at the times of a trigger."""
    idle_at: float = 0.0
    """When the topic last had nothing new; 0 if it never had."""
    asked_at: float = 0.0
    """When the cluster last told the end of the topic."""
    _released: Event = field(default_factory=Event)
    _target: Offsets | None = None
    _known: Offsets | None = None
    """The end of the topic, as it was told last."""
    _just_came: bool = False
    """Whether what is known was told a moment ago, by a wait that it ended."""
    _cluster: Cluster | None = None
    _looked: float = 0.0
    _short_since: float | None = None
    _short_looked: float = 0.0

    @property
    def limit(self) -> int:
        """Offsets of a batch at most, as Spark's admission control counts them."""
        return self.limits.offsets()

    @property
    def known_end(self) -> Offsets | None:
        """The end of the topic as it was told last."""
        return self._known

    def start(self) -> _Json:
        """Give where the first batch begins."""
        return self._json(self.begin)

    def end(self) -> _Json | None:
        """Give its end as it was told last, for who reads what is committed."""
        return None if self._known is None else self._json(self._known)

    def freeze(self) -> None:
        """Take the end of now for the end of all."""
        self._target = self._latest()

    def release(self) -> None:
        """Do not wait any more: the end was asked for."""
        self._released.set()
        self.watch.wake()

    def plan(self, start: _Json) -> _Json:
        """Say where the next batch ends.

        If there is nothing it waits, but a batch does not begin with the end of a wait: Spark would count the
        wait as the duration of the batch. It asks again at once.
        """
        begin, latest = self._read(start), self._latest()
        has_more = is_behind(begin, latest)
        if has_more or self._has_shrunk(begin, latest):
            # A batch that is planned on the offsets of another topic would skip records. An idle query, which
            # asks several times a second, asks only for the end.
            self._refuse_other()
        if not has_more and self._target is None:
            self._wait(begin)
            return start
        end = self._admitted(begin, latest)
        return self._json(self._within_bytes(begin, end))

    def _within_bytes(self, begin: Offsets, end: Offsets) -> Offsets:
        spans = sorted(offset_ranges_of(begin, end), key=len, reverse=True)
        if sum(map(len, spans)) < _WORTH_LOOKING:
            return end
        positions = {span.partition: span.start for span in spans[:_MOST_LOOKED_AT]}
        return within_bytes(begin, end, self._bytes_per_offset(positions), self.limits.bytes)

    def _wait(self, begin: Offsets) -> None:
        """Wait until something has come, for a while."""
        now = self.idle_at = monotonic()
        end = now + LONGEST_WAIT_SECONDS
        while self.waits and now < end and not self._released.is_set():
            found = self.watch.wait(
                self.topic, begin, end - now, released=self._released, asked=self._nothing_came
            )
            if found is not None:
                self._known, self._just_came = found, True
                self.asked_at = monotonic()
                return
            now = monotonic()
            if now < end and not self._released.wait(_OWN_PAUSE):
                # The shared question could not tell: a broker is away, or the topic is.
                if is_behind(begin, self._latest()):
                    self._just_came = True
                    return
                now = self.idle_at = monotonic()

    def _nothing_came(self) -> None:
        self.idle_at = self.asked_at = monotonic()

    def _has_shrunk(self, begin: Offsets, latest: Offsets) -> bool:
        """Tell whether the topic ends before the next batch begins, at most once a second.

        A new leader may tell an end that lags behind for a moment. If it stays so, records that come between
        its end and the start of the batch would never be read: JobFailed.
        """
        short = {part: latest.get(part, 0) for part, at in begin.items() if latest.get(part, 0) < at}
        now = monotonic()
        if not short:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = self._short_looked = now
            return True
        elif now - self._short_since > SHRUNK_SECONDS:
            part, end = min(short.items())
            raise JobFailed(
                f"the topic ends at {end}, before what was to be read",
                where=f"{self.topic}, partition {part}, offset {begin[part]}",
                why="It lost its end, or is another one of the same name.",
                next="--fresh-checkpoint reads it from its beginning",
            )
        elif now - self._short_looked > 1.0:
            self._short_looked = now
            return True
        return False

    def shares(self, start: _Json, end: _Json) -> list[Sequence[OffsetRange]]:
        """Divide a batch into tasks."""
        spans, slots, most = (
            offset_ranges_of(self._read(start), self._read(end)),
            self.limits.slots(),
            self.limits.tasks,
        )
        if self.limits.split:
            spans = cut(spans, min(slots, most or slots))
        return assigned(spans, task_count(spans, slots, most, cost=self.limits.record_cost))

    def close(self) -> None:
        """Close the connection."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _latest(self) -> Offsets:
        if self._target is not None:
            return self._target
        if self._just_came and self._known is not None:
            self._just_came = False
            return self._known
        return self._ask_latest()

    # What is asked of the cluster

    def _ask_latest(self) -> Offsets:
        """Ask for the end of the topic, and for new partitions now and then."""
        cluster, now = self._open(), monotonic()
        if now - self._looked > _GROWTH:
            self._looked = now
            cluster.partitions(self.topic, refresh=True)
        self._known = latest(cluster, self.topic, read_committed=True)
        self.asked_at = monotonic()
        return self._known

    def _refuse_other(self) -> None:
        """Raise JobFailed if the topic is another one than before."""
        refuse_other_topic(self._open(), self.topic, self.topic_id)

    def _admitted(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Choose where a batch ends by the number of its offsets."""
        return limited(begin, latest, self.limits.offsets())

    def _bytes_per_offset(self, positions: Offsets) -> Mapping[int, float]:
        """Estimate the size of the records behind some positions."""
        return bytes_per_offset(self._open(), self.topic, positions)

    def _open(self) -> Cluster:
        if self._cluster is None:
            settings = replace(self.settings, stop_timeout=_STOP_SECONDS)
            self._cluster = Cluster(settings, stop=self._released)
        return self._cluster

    def _json(self, offsets: Offsets) -> _Json:
        return {self.topic: {str(part): offset for part, offset in sorted(offsets.items())}}

    def _read(self, found: Mapping[str, Any]) -> Offsets:
        return {int(part): int(offset) for part, offset in found.get(self.topic, {}).items()}
