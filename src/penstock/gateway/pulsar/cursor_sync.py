"""Committed offsets become Pulsar cursors, period by period (spec 001, Group coordinator).

A group is a subscription of its name on every partition it has committed to, so that Pulsar's tools show its
backlog. A subscription that Pulsar consumers read is theirs and is left alone. What Pulsar's tools and
consumers do to a cursor is noticed and logged, and, if wanted, done to the group.

What it costs is bounded, whatever the number of groups. Each period:

- cursors of what was committed since are moved, at most `moves` a second, the oldest first;
- subscriptions of what was deleted are deleted. What is left to delete is in the log of the groups, so that a
  gateway that takes over goes on with it;
- the others are looked at in turn, at most `looks` a second: with n of them each is looked at once in
  n / `looks` seconds, but not more often than once a period. Those that a Pulsar consumer has are looked at
  each period.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from penstock.brokers.pulsar.tasks import Tasks
from penstock.errors import ApiError, PenstockError
from penstock.gateway.groups.offset_table import CursorId
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.shard import Shard
from penstock.gateway.groups.states import State
from penstock.gateway.pulsar.cursors import Cursors, CursorState, Seen

__all__ = ["LOOKS", "MOVES", "PERIOD", "CursorSync", "Home"]

log = logging.getLogger("penstock.gateway")

PERIOD: Final = 5.0
LOOKS: Final = 5.0
"""Partitions of groups that are looked at in a second: two requests each."""
MOVES: Final = 20.0
"""Cursors that are moved in a second: about five requests each."""
_AT_ONCE: Final = 8
_LONGEST_SAVING: Final = 30.0
"""Seconds for which looks and moves that were not needed are saved up."""
_WATCHED: Final = 200
"""Subscriptions with Pulsar consumers that are looked at each period."""
_GONE_AFTER: Final = 60.0
"""Seconds for which a topic must be gone until its offsets go, too: Pulsar may say so while it moves."""


async def _is_never_gone(topic: str, partition: int) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Home:
    """Where groups live: whose rights move their cursors, and which topics their names mean."""

    cursors: Cursors
    pulsar_name: Callable[[str, int], Awaitable[str]]
    is_gone: Callable[[str, int], Awaitable[bool]] = _is_never_gone
    """Whether Pulsar says that there is no such partition; not if it does not answer."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A cursor where it was left."""

    offset: int
    """What the group had committed."""
    actual: int | None
    """Where the cursor stands, which may be elsewhere; None if that is not known."""
    seen: Seen | None
    """None if somebody has deleted it: it is made again when the group commits."""
    is_due: bool = False
    """Whether it is placed once more, since it stands behind what the group has committed."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """The cursor of one group in one partition."""

    shard: Shard
    key: CursorId
    home: Home
    name: str
    """Of the subscription."""

    @property
    def place(self) -> Place:
        return self.key[1]

    @property
    def commit(self) -> Commit | None:
        """What the group has committed now."""
        return self.shard.commits.get(self.key[0], {}).get(self.key[1])


_Work = Callable[[str, list[_Subject]], Awaitable[None]]
"""What is done with the cursors of one Pulsar topic."""


class CursorSync:
    """Keeps the cursors of the groups that this gateway coordinates."""

    def __init__(
        self,
        home: Callable[[str], tuple[Home, str] | None],
        shards: Callable[[], Sequence[Shard]],
        *,
        period: float = PERIOD,
        adopt: bool = False,
        tasks: Tasks | None = None,
        looks: float = LOOKS,
        moves: float = MOVES,
        gone_after: float = _GONE_AFTER,
    ) -> None:
        self._home = home
        """The home of a group and its name there; None if nobody may move its cursors now."""
        self._shards = shards
        self._period = period
        self._adopt = adopt
        self._tasks = tasks or Tasks()
        self._looks = _Allowance(looks, period)
        self._moves = _Allowance(moves, period)
        self._gone_after = gone_after
        self._placed: dict[Shard, dict[CursorId, _Placed]] = {}
        self._turns: dict[Shard, Iterator[CursorId]] = {}
        self._watched: dict[tuple[Shard, CursorId], None] = {}
        self._missing: dict[tuple[Shard, CursorId], float] = {}
        """Since when the topic of a cursor is gone."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = self._tasks.forever(self._run, name="cursor sync")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.sync()
            except PenstockError as exc:
                log.warning("the cursors of groups stay behind for now: %s", exc)

    async def sync(self) -> None:
        """Do what is due of one period."""
        try:
            shards = list(self._shards())
        except ApiError:
            # This gateway coordinates nothing now.
            shards = []
        self._placed = {shard: self._placed.get(shard, {}) for shard in shards}
        self._turns = {shard: turn for shard, turn in self._turns.items() if shard in self._placed}
        self._watched = {each: None for each in self._watched if each[0] in self._placed}
        self._missing = {each: since for each, since in self._missing.items() if each[0] in self._placed}
        for shard in shards:
            await self._move_changed(shard)
            await self._remove_leftover(shard)
        await self._look_around(shards)

    async def _each_partition(self, shard: Shard, keys: Iterable[CursorId], work: _Work) -> None:
        """Do something with cursors, those of one partition together; what nobody may touch is left out."""
        partitions: dict[tuple[Home, Place], list[_Subject]] = {}
        for key in keys:
            found = self._home(key[0])
            if found is not None:
                subject = _Subject(shard, key, *found)
                partitions.setdefault((found[0], key[1]), []).append(subject)
        rows = list(partitions.items())
        for begin in range(0, len(rows), _AT_ONCE):
            await asyncio.gather(
                *(
                    self._partition(home, place, subjects, work)
                    for (home, place), subjects in rows[begin : begin + _AT_ONCE]
                )
            )

    async def _partition(self, home: Home, place: Place, subjects: list[_Subject], work: _Work) -> None:
        try:
            await work(await home.pulsar_name(*place), subjects)
            for subject in subjects:
                self._missing.pop((subject.shard, subject.key), None)
        except PenstockError as exc:
            # Whatever it is, also bytes that make no sense: the other partitions have their turn.
            log.debug("the cursors of %s partition %d stay behind: %s", *place, exc)
            if not await self._is_gone(home, place, subjects) and work == self._move:
                for subject in subjects:
                    subject.shard.offsets.changed[subject.key] = None

    # What groups do

    async def _move_changed(self, shard: Shard) -> None:
        """Move the cursors of what was committed since."""
        changed = shard.offsets.changed
        keys = []
        for key in list(islice(changed, self._moves.whole())):
            del changed[key]
            commit, placed = shard.commits.get(key[0], {}).get(key[1]), self._placed[shard].get(key)
            if commit is None:
                self._placed[shard].pop(key, None)
            elif placed is None or placed.offset != commit.offset or placed.is_due:
                keys.append(key)
        self._moves.spend(len(keys))
        await self._each_partition(shard, keys, self._move)

    async def _move(self, topic: str, subjects: list[_Subject]) -> None:
        """Bring cursors to where their groups are; those that consumers have are tried again next time."""
        cursors = subjects[0].home.cursors
        used = await cursors.in_use(topic)
        moved: list[tuple[_Subject, int, int | None]] = []
        for subject in subjects:
            commit = subject.commit
            if used.get(subject.name):
                subject.shard.offsets.changed[subject.key] = None
            elif commit is not None and commit.offset >= 0:
                exists = subject.name in used
                actual = await cursors.place(topic, subject.name, commit.offset, exists=exists)
                moved.append((subject, commit.offset, actual))
        states = await cursors.states(topic) if moved else {}
        for subject, offset, actual in moved:
            state = states.get(subject.name)
            if state is not None and not state.in_use:
                self._note(subject, _Placed(offset, actual, state.seen))

    def _note(self, subject: _Subject, placed: _Placed) -> None:
        """Note where a cursor was placed; one that passes records by is placed once more, but not for ever.

        It stays where it is if the log begins there, or if it ends with what holds no records.
        """
        shard, key = subject.shard, subject.key
        before = self._placed[shard].get(key)
        was_due = before is not None and before.is_due and before.offset == placed.offset
        if placed.actual is not None and placed.actual > placed.offset and not was_due:
            placed = replace(placed, is_due=True)
            shard.offsets.changed[key] = None
        self._placed[shard][key] = placed

    async def _remove_leftover(self, shard: Shard) -> None:
        """Delete the subscriptions of what groups have no offsets for any more."""
        leftover = shard.offsets.leftover
        back = [key for key in leftover if key[1] in shard.commits.get(key[0], {})]
        await shard.settle_cursors(back)
        keys = list(islice(leftover, self._moves.whole()))
        self._moves.spend(len(keys))
        for key in keys:
            # Those that cannot be deleted now must not keep the others waiting.
            leftover[key] = leftover.pop(key)
        await self._each_partition(shard, keys, self._remove)

    async def _remove(self, topic: str, subjects: list[_Subject]) -> None:
        used = await subjects[0].home.cursors.in_use(topic)
        for subject in subjects:
            if used.get(subject.name):
                log.info("subscription %s of %s stays: Pulsar consumers have it", subject.name, topic)
            elif subject.name in used and subject.commit is None:
                await subject.home.cursors.remove(topic, subject.name)
            self._placed[subject.shard].pop(subject.key, None)
            await subject.shard.settle_cursors([subject.key])

    async def _is_gone(self, home: Home, place: Place, subjects: list[_Subject]) -> bool:
        """Forget what belongs to a topic that is gone; its offsets go when it stays away, as Kafka's do."""
        try:
            if not await home.is_gone(*place):
                return False
        except PenstockError:
            return False
        now = time.monotonic()
        for subject in subjects:
            shard, key = subject.shard, subject.key
            self._placed[shard].pop(key, None)
            self._watched.pop((shard, key), None)
            since = self._missing.setdefault((shard, key), now)
            if subject.commit is None:
                del self._missing[shard, key]
                await shard.settle_cursors([key])
            elif now - since >= self._gone_after:
                del self._missing[shard, key]
                log.info("the offsets of group %s in %s partition %d go with the topic", key[0], *place)
                await shard.remove_offsets(key[0], [place])
        return True

    # What Pulsar's tools and consumers do

    async def _look_around(self, shards: Sequence[Shard]) -> None:
        """Look at those that consumers have, and at some of the others, in turn."""
        overdue = time.monotonic() - self._gone_after
        for number, shard in enumerate(shards):
            count = self._looks.whole() // (len(shards) - number)
            watched = [key for owner, key in self._watched if owner is shard]
            missing = [
                key for (owner, key), since in self._missing.items() if owner is shard and since <= overdue
            ]
            keys = dict.fromkeys([*watched, *missing[:count], *self._next_turns(shard, count)])
            self._looks.spend(len(keys))
            await self._each_partition(shard, keys, self._look)

    def _next_turns(self, shard: Shard, count: int) -> Iterator[CursorId]:
        """Give the next cursors of a shard, each at most once."""
        turn = self._turns.get(shard) or _turn(shard)
        given = 0
        for key in islice(turn, count):
            given += 1
            yield key
        if given == count:
            self._turns[shard] = turn
        else:
            self._turns.pop(shard, None)

    async def _look(self, topic: str, subjects: list[_Subject]) -> None:
        states = await subjects[0].home.cursors.states(topic)
        for subject in subjects:
            await self._look_at(topic, subject, states.get(subject.name))

    async def _look_at(self, topic: str, subject: _Subject, state: CursorState | None) -> None:
        shard, key = subject.shard, subject.key
        commit, placed = subject.commit, self._placed[shard].get(key)
        if state is not None and state.in_use:
            # Theirs for now; where they have left it is looked at when they are gone.
            if len(self._watched) < _WATCHED:
                self._watched[shard, key] = None
            return
        self._watched.pop((shard, key), None)
        if commit is None or commit.offset < 0:
            return
        if placed is None:
            await self._take_over(topic, subject, commit, state)
        elif placed.offset != commit.offset:
            # The move was not possible when it was due.
            shard.offsets.changed[key] = None
        elif placed.seen != (None if state is None else state.seen):
            await self._moved_by_others(topic, subject, placed, state)

    async def _take_over(
        self, topic: str, subject: _Subject, commit: Commit, state: CursorState | None
    ) -> None:
        """Learn where a cursor stands that another gateway has placed; move it if the group is elsewhere."""
        if state is not None:
            offset = await subject.home.cursors.offset_of(topic, state.seen.mark)
            if offset == commit.offset:
                self._placed[subject.shard][subject.key] = _Placed(offset, offset, state.seen)
                return
        await self._move(topic, [subject])

    async def _moved_by_others(
        self, topic: str, subject: _Subject, placed: _Placed, state: CursorState | None
    ) -> None:
        actual = None if state is None else await subject.home.cursors.position(topic, subject.name, state)
        if state is not None:
            # Our own look at it leaves a trace, too.
            now = (await subject.home.cursors.states(topic)).get(subject.name)
            if now is None or now.in_use or now.seen.mark != state.seen.mark:
                return
            if now.backlog and not state.backlog:
                # Produced meanwhile: whether it was counted as read is not known. Looked at next time.
                return
            self._placed[subject.shard][subject.key] = replace(
                placed, actual=actual, seen=now.seen, is_due=False
            )
            if actual is None or placed.actual in (None, actual):
                # The same place under another name, or one without: Pulsar went on to the next ledger.
                return
        else:
            self._placed[subject.shard][subject.key] = replace(placed, actual=None, seen=None, is_due=False)
        told = "deleted" if state is None else f"moved to offset {actual}"
        log.warning("subscription %s of %s partition %d was %s by others", subject.name, *subject.place, told)
        if self._adopt:
            await self._follow(subject, placed, actual)

    async def _follow(self, subject: _Subject, placed: _Placed, offset: int | None) -> None:
        """Do to a group what was done to its cursor, unless the group has moved meanwhile."""
        shard, (group_id, place) = subject.shard, subject.key
        group, commit = shard.groups.get(group_id), subject.commit
        if group is None or group.state is not State.EMPTY:
            log.warning("group %s has members: its offsets stay as they are", group_id)
        elif commit is None or commit.offset != placed.offset or shard.offsets.is_storing(group_id, place):
            log.debug("group %s has committed meanwhile: its offset stays as it is", group_id)
        elif offset is None:
            await shard.delete_offsets(group_id, [place])
        else:
            adopted = Commit(offset=offset, metadata=commit.metadata, committed_at=int(time.time() * 1000))
            await shard.commit(group_id, Identity(), {place: adopted})
            left = self._placed[shard].get(subject.key)
            if left is not None:
                self._placed[shard][subject.key] = replace(left, offset=offset)


def _turn(shard: Shard) -> Iterator[CursorId]:
    """Go through all offsets of a shard once; what comes and goes meanwhile may be left out."""
    for group_id in list(shard.commits):
        for place in list(shard.commits.get(group_id, ())):
            yield group_id, place


class _Allowance:
    """So many of something in a second, saved up for a while."""

    def __init__(self, per_second: float, period: float) -> None:
        self._per_second = per_second
        self._left = per_second * period
        self._since = time.monotonic()

    def whole(self) -> int:
        """How many may be spent now."""
        now = time.monotonic()
        most = self._per_second * _LONGEST_SAVING
        self._left, self._since = min(self._left + (now - self._since) * self._per_second, most), now
        return max(int(self._left), 0)

    def spend(self, count: int) -> None:
        """Note that so many were spent; more than there are is taken from what comes."""
        self._left -= count
