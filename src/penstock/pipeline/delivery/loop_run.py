"""The turns of a loop: feed, commit, catch up, begin ranges, redo what a topic refused; until it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.errors import (
    KafkaRefused,
    RecordRefused,
)
from penstock.pipeline.delivery.cluster_marks import begun_member, steps
from penstock.pipeline.delivery.kafka_sink import FanOut
from penstock.pipeline.delivery.offset_ranges import OffsetRange
from penstock.pipeline.delivery.partition_reader import PartitionReader
from penstock.pipeline.delivery.range_clock import OPEN_OFFSETS, OpenRange, RangeClock
from penstock.pipeline.delivery.range_delivery import finish
from penstock.pipeline.delivery.range_progress import RangeProgress
from penstock.pipeline.delivery.refused_records import redo
from penstock.pipeline.delivery.sink import Sink
from penstock.pipeline.delivery.source_cluster import (
    source_latest,
    source_partitions,
)
from penstock.pipeline.delivery.worker_spec import WorkerSpec

__all__ = ["ProgressReport", "LoopRun"]

_TURN: Final = 0.25
"""So long a loop waits for records before it looks whether it shall end."""
_LONGEST: Final = 1.0
"""A transaction is committed after so many seconds, however much there is to do."""
_BEAT: Final = 1.0
_GROWTH: Final = 10.0
"""How often it is asked whether the topic has more partitions."""
_KEEPING: Final = 3600.0
"""How often marks are committed anew: a broker forgets those of a group that is silent for a week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """What was committed since the last beat."""

    counts: Counter[str]
    start: Offsets
    end: Offsets
    lag: int
    seconds: float


@dataclass(slots=True)
class _Since:
    """What has happened since the last beat."""

    start: Offsets
    began: float = field(default_factory=monotonic)
    counts: Counter[str] = field(default_factory=Counter)


class LoopRun:
    """The turns of a loop."""

    def __init__(
        self,
        work: WorkerSpec,
        cluster: Cluster,
        feed: PartitionReader,
        outlet: Sink,
        tell: Callable[[ProgressReport], None],
        run_id: str,
        clock: RangeClock,
    ) -> None:
        """`clock` is that of the feed: a transaction has one moment."""
        self._clock = clock
        self._work = work
        self._cluster = cluster
        self._feed = feed
        self._outlet = outlet
        self._tell = tell
        self._done = dict(feed.positions)
        self._since = _Since(dict(feed.positions))
        self._moved = self._asked = self._kept = monotonic()
        self._open: float | None = None
        """When the first record came that is not committed yet."""
        self._short_until: Offsets = {}
        """How far it had come when a topic refused records."""
        self._until: Offsets = {}
        """By partition, up to where the moment of this range may be used; empty if none was begun."""
        self._fixes_moment = (
            isinstance(outlet, FanOut)
            and bool(work.pulsar_outputs)
            and work.is_repeatable
            and any(route.plan.reads_now for route in work.stage.routes)
        )
        if self._fixes_moment and not feed.collects:
            feed.before = self._before
        self._may_be_stored: Offsets = {}
        """Before these offsets, Pulsar may have what no mark covers: of an earlier run, or of a refusal."""
        plan = "" if work.plan is None else f',"plan":"{work.plan}"'
        self._more_at_end = f'{work.belonging.text},"run":"{run_id}"{plan}'
        leaves_open = isinstance(outlet, FanOut) and bool(work.pulsar_outputs)
        begun = begun_member(work.plan) if leaves_open and work.plan is not None else ""
        self._more = self._more_at_end + begun
        self._begun_until: Offsets = {}
        """Before these offsets Pulsar may have something of an attempt that no mark covers."""

    def wait_to_adopt(self, ends: Offsets) -> None:
        """Divide records as before up to these offsets: whoever wrote some of them has divided them so."""
        known = self._may_be_stored
        self._may_be_stored = {**known, **{part: max(end, known.get(part, 0)) for part, end in ends.items()}}
        if isinstance(self._outlet, FanOut):
            self._outlet.stored_before(ends)

    def begun_until(self, ends: Offsets) -> None:
        """Leave marks open that are below these offsets: Pulsar may have something behind them."""
        known = self._begun_until
        self._begun_until = {**known, **{part: max(end, known.get(part, 0)) for part, end in ends.items()}}

    def _adopts(self) -> bool:
        """Take over partitions that targets on Pulsar have got, if nothing behind the marks is stored."""
        done = self._feed.done
        is_behind = all(done.get(part, end) >= end for part, end in self._may_be_stored.items())
        return is_behind and isinstance(self._outlet, FanOut) and self._outlet.adopt_partitions()

    def claim(self, moments: Mapping[int, int], begun: Mapping[int, OpenRange]) -> None:
        """Commit where it begins, with whose it is: another pipeline sees that before the first record.

        A sink that is ahead keeps the moment of what the others do not have yet, and all keep what was begun.
        """
        marks = {
            part: RangeProgress(at, at, more=self._more_of(begun.get(part)), now=moments.get(part))
            for part, at in self._feed.positions.items()
        }
        self._outlet.commit(marks)

    def _more_of(self, open_range: OpenRange | None) -> str:
        return self._more if open_range is None else self._more + open_range.member

    def finish_begun(self, begun: Mapping[int, OpenRange], ends: Offsets | None = None) -> None:
        """Do again what Pulsar has perhaps got of a range that was interrupted, with the moment that it had.

        It was in the topic by now; what has come since has the moment of its own range. With `ends` it is
        done up to these, with a moment of its own or not.
        """
        if ends is None:
            latest = source_latest(self._work, self._cluster) if begun else {}
            ends = {part: min(each.until, latest.get(part, 0)) for part, each in begun.items()}
        if not ends:
            return
        for part, end in ends.items():
            start, open_range = self._done[part], begun.get(part)
            if start < end:
                mark = RangeProgress(start, start, more=self._more_of(open_range))
                clock = RangeClock(None if open_range is None else open_range.moment)
                span = OffsetRange(part, start, end)
                mark = finish(self._work, span, self._cluster, self._outlet, mark, clock)
                self._done[part] = end
                self._since.counts.update(mark.counts)
        # What comes from here on was begun by nobody.
        self._outlet.commit({part: RangeProgress(at, at, more=self._more) for part, at in self._done.items()})
        self._feed.rewind(self._done)

    def _before(self, part: int, reached: int) -> None:
        """Begin a range before its first record is routed, or the next one where it has come to its bound."""
        if reached <= self._until.get(part, -1):
            return
        if self._until:
            self._commit()
        self._begin_range({part: reached})

    def _begin_range(self, reached: Offsets) -> None:
        """Make the moment of a range durable; nothing may be under way."""
        moment, done = self._clock.read(), self._feed.done
        self._until = {part: max(at + OPEN_OFFSETS, reached.get(part, 0)) for part, at in done.items()}
        self._outlet.commit(
            {
                part: RangeProgress(at, at, more=self._more_of(OpenRange(moment, self._until[part])))
                for part, at in done.items()
            }
        )

    def catch_up(self, outlet: FanOut, ahead: Mapping[int, Offsets], moments: Mapping[int, int]) -> None:
        """Bring the sinks to one mark that a crash has left at several; by partition, how far each is.

        What is missing on some is evaluated with the moment with which it was written on the others.
        """
        for part, offsets in ahead.items():
            end = max(offsets.values())
            mark = RangeProgress(self._done[part], self._done[part], more=self._more)
            clock = RangeClock(moments.get(part))
            for until, skipped in steps(offsets, end):
                outlet.skip(skipped)
                mark = finish(
                    self._work, OffsetRange(part, mark.offset, until), self._cluster, outlet, mark, clock
                )
            self._done[part] = end
            self._since.counts.update(mark.counts)
        outlet.skip(frozenset())
        self._feed.rewind(self._done)

    def until(self, is_over: Callable[[PartitionReader, float], bool]) -> None:
        """Turn until it is over; what was begun is committed."""
        is_committed = False
        while not is_committed:
            while not is_over(self._feed, monotonic() - self._moved):
                self._is_done(self._turn)
            is_committed = self._is_done(self._commit_last)
        self._beat()

    def _is_done(self, step: Callable[[], None]) -> bool:
        """Do a step; False if a batch was refused for the sake of its records: it goes back before that."""
        try:
            step()
        except (KafkaRefused, RecordRefused):
            if not self._outlet.was_refused:
                raise
            self._redo()
            return False
        return True

    def _redo(self) -> None:
        """Abort what is open, and do it again: in short transactions, or if this was one, by narrowing."""
        self._outlet.restart()
        if not self._until:
            self._clock.reset()  # else Pulsar has perhaps a part of it, by this moment
        reached, limits = dict(self._feed.reached), dict[int, int]()
        self.wait_to_adopt(reached)
        self.begun_until(reached)
        if self._is_short or self._feed.collects:
            for part, end in reached.items():
                start, commit = self._done.get(part, 0), partial(self._commit_at, part)
                if start < end:
                    limits |= redo(
                        self._work, self._cluster, self._outlet, part, start, end, commit, self._clock
                    )
        else:
            self._short_until = reached
        self._feed.rewind({**dict.fromkeys(reached, 0), **self._done}, limits)
        self._moved = monotonic()
        self._open = None

    @property
    def _is_short(self) -> bool:
        """Whether it goes again over what was refused: then each turn is a transaction."""
        return any(self._done.get(part, 0) < end for part, end in self._short_until.items())

    def _commit_at(self, part: int, offset: int, counts: Mapping[str, int]) -> None:
        mark = self._mark(offset)
        if (until := self._until.get(part, 0)) > offset:
            mark = replace(mark, more=self._more_of(OpenRange(self._clock.read(), until)))
        self._outlet.commit({part: mark})
        self._done[part] = offset
        self._since.counts.update(counts)

    def _mark(self, offset: int) -> RangeProgress:
        """Make a mark; where several clusters are written, with the moment of the transaction."""
        now = self._clock.read() if isinstance(self._outlet, FanOut) else None
        return RangeProgress(offset, offset, more=self._more, now=now)

    def _turn(self) -> None:
        # What is collected and will be committed in this turn does not wait for more.
        is_due = self._feed.holds and not self._patience
        moved, now = self._feed.poll(0.0 if is_due else _TURN), monotonic()
        if moved:
            self._moved = now
            self._open = now if self._open is None else self._open
        if self._feed.caught_up and moved and not self._feed.collects:
            self._feed.flush()
        if now - self._kept >= _KEEPING:
            self._commit(everything=True)
        elif self._open is not None and (self._is_short or now - self._open >= self._patience):
            self._commit()
        if now - self._since.began >= _BEAT:
            self._beat()
        if now - self._asked >= _GROWTH:
            self._asked = now
            self._grow()

    @property
    def _patience(self) -> float:
        if self._feed.is_full and not self._feed.collects:
            return 0.0
        if self._feed.collects:
            # Readers wait for the commit, whatever the outlet: nothing is put before it.
            return 0.0 if self._feed.caught_up or not self._feed.takes else _LONGEST
        return self._outlet.every if self._feed.caught_up else _LONGEST

    def _commit(self, *, everything: bool = False) -> None:
        """Commit the partitions that moved, or all of them."""
        if self._fixes_moment and self._feed.collects and self._feed.holds:
            self._begin_range(self._feed.positions)
        self._feed.flush()
        self._commit_routed(everything=everything)

    def _commit_routed(self, *, everything: bool, ends: bool = False) -> None:
        """Commit what was routed; if this run `ends`, its marks say that nothing behind them is begun."""
        done = self._feed.done
        moved = {part: at for part, at in done.items() if everything or self._done.get(part) != at}
        if not moved:
            return
        marks = {part: self._mark(at) for part, at in moved.items()}
        if ends:
            ended = {part for part, at in moved.items() if at >= self._begun_until.get(part, 0)}
            marks |= {part: replace(marks[part], more=self._more_at_end) for part in ended}
        self._outlet.commit(marks)
        self._clock.reset()
        self._until = {}
        self._done |= moved
        self._kept = monotonic()
        self._since.counts.update(self._feed.taken())
        if self._feed.collects:
            self._moved = self._kept  # a function may have taken long
        self._open = self._kept if self._feed.holds else None

    def _beat(self) -> None:
        since = self._since
        if since.counts:
            self._tell(
                ProgressReport(
                    counts=since.counts,
                    start=since.start,
                    end=dict(self._done),
                    lag=self._feed.lag,
                    seconds=monotonic() - since.began,
                )
            )
        self._since = _Since(dict(self._done))

    def _grow(self) -> None:
        # Who does not answer now is asked again later: what is read goes on without an answer.
        new = {*range(source_partitions(self._work, self._cluster))} - self._feed.positions.keys()
        if self._feed.is_bounded:
            new = set()  # this run ends where the topic ended when it began
        for part in sorted(new):
            self._feed.add(part)
        if isinstance(self._outlet, FanOut):
            self._place(self._outlet, new)

    def _commit_last(self) -> None:
        """Commit what is open; the next run divides records among the partitions that targets have now."""
        if not self._feed.collects:
            self._feed.flush()  # what was only collected is not begun: the next run reads it again
        is_open = self._more != self._more_at_end
        self._commit_routed(everything=self._adopts() or is_open, ends=is_open)

    def _place(self, outlet: FanOut, new: Collection[int]) -> None:
        """Make it durable how records of new partitions are placed, and among how many of the targets."""
        if not self._feed.collects:
            self._feed.flush()  # what was routed is placed as before
        known = [outlet.place(part, None, 0) for part in new]
        has_grown = self._adopts()
        if has_grown or not all(known):
            self._commit_routed(everything=True)
        if has_grown:
            # What was only collected is routed by another router, which knows the partitions.
            self._feed.rewind(self._done)
            self._open = None
