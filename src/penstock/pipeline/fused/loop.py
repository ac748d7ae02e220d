"""A source without Spark: one loop fetches, works and commits; its progress is the offsets of its group.

Records leave when the end of the topic is reached, not when a fetch comes back empty: that is the difference
between one millisecond and twenty.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from time import monotonic
from typing import Final

from penstock.brokers.kafka_offsets import Offsets
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.group_offsets import GroupOffset, GroupOffsets
from penstock.brokers.kafka_raw.retry import is_retriable, pauses
from penstock.brokers.kafka_raw.topic_offsets import earliest, latest
from penstock.brokers.outage import OutageLog
from penstock.errors import (
    CheckpointMismatch,
    JobFailed,
    KafkaRefused,
    PenstockError,
    ProducerFenced,
    Unreachable,
)
from penstock.pipeline.fused.feed import Feed
from penstock.pipeline.fused.mark import Mark, read_belonging, read_run
from penstock.pipeline.fused.narrowing import redo
from penstock.pipeline.fused.outlet import Outlet, opened
from penstock.pipeline.fused.same_topic import refuse_other_topic
from penstock.pipeline.fused.work import TRANSACTION_SECONDS, Work
from penstock.wire.kafka.error_codes import ErrorCode

__all__ = ["Beat", "Loop", "refuse_other_owner"]

_log = logging.getLogger(__name__)
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_FIRST_PAUSE: Final = 0.5
"""Seconds before a loop begins anew whose cluster was away."""
_RETURNING: Final = 60.0
"""Seconds after an outage in which a refusal that passes is taken for a part of the return."""
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
class Beat:
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


class Loop:
    """One source, until it is asked to stop, has come to the end, or has nothing to do for long."""

    def __init__(
        self,
        work: Work,
        tell: Callable[[Beat], None],
        *,
        stop: Event,
        once: bool = False,
        until_idle: float | None = None,
        anew: bool = False,
        take_over: bool = False,
        outage: OutageLog | None = None,
    ) -> None:
        """`outage` is told whether the cluster answers."""
        self._outage = outage or OutageLog(_log, f"the cluster of {work.topic}")
        self._work = work
        self._tell = tell
        self._stop = stop
        self._once = once
        self._until_idle = until_idle
        self._anew = anew
        self._take_over = take_over
        self._run_id = secrets.token_hex(4)
        self._runs: set[str | None] = set()
        """Whose marks were there when it began; other ones are of somebody who began later."""
        self._doubt: ProducerFenced | None = None
        """Why it is not certain that nobody else works under the group."""

    def run(self) -> None:
        """Run; nothing else may work under the same group, and who does is shut out.

        A loop without an end goes on for as long as the cluster is away: it begins anew where its group is.
        """
        delays = pauses(_FIRST_PAUSE)
        while not self._has_run() and not self._stop.wait(next(delays)):
            pass

    def _has_run(self) -> bool:
        """Run until it is over; False if the cluster was away for too long and it may begin anew."""
        try:
            self._run_once()
        except PenstockError as exc:
            is_daemon = not self._once and self._until_idle is None
            if not is_daemon or not _is_away(exc):
                raise
            if isinstance(exc, KafkaRefused) and self._outage.seconds_since_end < _RETURNING:
                # Brokers answer before their coordinators have read their logs: that is no second outage.
                _log.info("group %s: begins anew: %s", self._work.group, exc)
            else:
                self._outage.failed(exc)
            if self._stop.is_set():
                _log.warning("group %s: what was under way is done again by the next run", self._work.group)
            return False
        return True

    def _run_once(self) -> None:
        outlet: Outlet | None = None
        try:
            with Cluster(self._work.settings, stop=self._stop, outage=self._outage) as cluster:
                self._look_who_works(cluster)
                with opened(self._work, cluster, "loop") as outlet:
                    self._run(cluster, outlet)
        except ProducerFenced as exc:
            if outlet is None or not outlet.expired:
                raise _taken_over(self._work) from exc
            self._doubt = exc
            raise Unreachable(
                f"a transaction took longer than {TRANSACTION_SECONDS:.0f} s, and was aborted",
                where=f"group {self._work.group}",
                next="look at the brokers; nothing of it is lost, and the next run does it again",
            ) from exc

    def _look_who_works(self, cluster: Cluster) -> None:
        """Raise JobFailed if it was shut out by another loop, and not because of time.

        A broker says the same of both; who began later has committed marks before anything else.
        """
        if self._doubt is not None:
            found = GroupOffsets(cluster, self._work.group).committed(self._work.topic)
            if not {read_run(mark.metadata) for mark in found.values()} <= {*self._runs, self._run_id}:
                raise _taken_over(self._work) from self._doubt
            self._doubt = None

    def _run(self, cluster: Cluster, outlet: Outlet) -> None:
        start = self._start(cluster)
        ends = latest(cluster, self._work.topic, read_committed=True) if self._once else None
        with closing(Feed(self._work, cluster, outlet.put, start, ends)) as feed:
            run = _Run(self._work, cluster, feed, outlet, self._tell, self._run_id)
            run.claim()
            # From here on the group's offsets are those of this loop.
            self._anew = False
            run.until(self._is_over)

    def _start(self, cluster: Cluster) -> Offsets:
        """Give where to begin; the marks are read when nobody else can move them any more."""
        begin = earliest(cluster, self._work.topic)
        found = GroupOffsets(cluster, self._work.group).committed(self._work.topic)
        if not self._take_over:
            # Somebody else may have written here since the job was prepared.
            refuse_other_owner(self._work, found)
        self._runs = {read_run(mark.metadata) for mark in found.values()}
        if self._anew:
            return begin
        return {**begin, **{part: mark.offset for part, mark in found.items() if part in begin}}

    def _is_over(self, feed: Feed, idle: float) -> bool:
        if self._stop.is_set() or (self._once and not feed.waiting):
            return True
        return self._until_idle is not None and feed.caught_up and idle > self._until_idle


def _taken_over(work: Work) -> JobFailed:
    return JobFailed(
        "another loop took over",
        where=f"group {work.group}",
        why="It began with the same group; this one writes no more.",
        next="give each job a group of its own: --group",
    )


def _is_away(error: PenstockError) -> bool:
    """Say whether the cluster, or the leader of a partition, is away; a deleted topic stays away."""
    gone = isinstance(error, KafkaRefused) and error.error_code in _GONE
    return is_retriable(error) and not gone


def refuse_other_owner(work: Work, marks: Mapping[int, GroupOffset]) -> None:
    """Raise CheckpointMismatch if the offsets of the group were committed by another pipeline.

    Offsets without an owner are those of an older version, or were set by an operator's tool.
    """
    own = work.belonging.owner
    for mark in marks.values():
        other = read_belonging(mark.metadata).owner
        if own is not None and other is not None and not own.is_same(other):
            raise CheckpointMismatch(
                "the group belongs to another pipeline",
                where=f"group {work.group}",
                why=f"Its offsets were committed by {other.label}; this is {own.label}.",
                next="give this pipeline a name of its own (name: in its file), or a group (--group); "
                "--take-over goes on from these offsets",
            )


class _Run:
    """The turns of a loop."""

    def __init__(
        self,
        work: Work,
        cluster: Cluster,
        feed: Feed,
        outlet: Outlet,
        tell: Callable[[Beat], None],
        run_id: str,
    ) -> None:
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
        self._more = f'{work.belonging.text},"run":"{run_id}"'

    def claim(self) -> None:
        """Commit where it begins, with whose it is: another pipeline sees that before the first record."""
        marks = {part: Mark(at, at, more=self._more) for part, at in self._feed.positions.items()}
        self._outlet.commit(marks)

    def until(self, is_over: Callable[[Feed, float], bool]) -> None:
        """Turn until it is over; what was begun is committed."""
        is_committed = False
        while not is_committed:
            while not is_over(self._feed, monotonic() - self._moved):
                self._is_done(self._turn)
            is_committed = self._is_done(self._commit)
        self._beat()

    def _is_done(self, step: Callable[[], None]) -> bool:
        """Do a step; False if a batch was refused for the sake of its records: it goes back before that."""
        try:
            step()
        except KafkaRefused:
            if not self._outlet.was_refused:
                raise
            self._redo()
            return False
        return True

    def _redo(self) -> None:
        """Abort what is open, and do it again: in short transactions, or if this was one, by narrowing."""
        self._outlet.restart()
        reached, limits = dict(self._feed.reached), dict[int, int]()
        if self._is_short:
            for part, end in reached.items():
                start, commit = self._done.get(part, 0), partial(self._commit_at, part)
                if start < end:
                    limits |= redo(self._work, self._cluster, self._outlet, part, start, end, commit)
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
        self._outlet.commit({part: Mark(offset, offset, more=self._more)})
        self._done[part] = offset
        self._since.counts.update(counts)

    def _turn(self) -> None:
        moved, now = self._feed.poll(_TURN), monotonic()
        if moved:
            self._moved = now
            self._open = now if self._open is None else self._open
        if self._feed.caught_up and moved:
            self._feed.flush()
        if now - self._kept >= _KEEPING:
            self._commit(dict(self._feed.positions))
        elif self._open is not None and (self._is_short or now - self._open >= self._patience):
            self._commit()
        if now - self._since.began >= _BEAT:
            self._beat()
        if now - self._asked >= _GROWTH:
            self._asked = now
            self._grow()

    @property
    def _patience(self) -> float:
        return self._outlet.every if self._feed.caught_up else _LONGEST

    def _commit(self, moved: Offsets | None = None) -> None:
        """Commit the partitions that moved, or those that are given."""
        positions = self._feed.positions.items()
        moved = moved or {part: at for part, at in positions if self._done.get(part) != at}
        if not moved:
            return
        self._feed.flush()
        self._outlet.commit({part: Mark(at, at, more=self._more) for part, at in moved.items()})
        self._done |= moved
        self._kept = monotonic()
        self._since.counts.update(self._feed.taken())
        self._open = None

    def _beat(self) -> None:
        since = self._since
        if since.counts:
            self._tell(
                Beat(
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
        self._cluster.try_refresh([self._work.topic])
        refuse_other_topic(self._cluster, self._work.topic, self._work.belonging.topic_id)
        for part in range(self._cluster.partitions(self._work.topic)):
            if part not in self._feed.positions:
                self._feed.add(part)
