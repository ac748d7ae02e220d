"""Committed offsets become Pulsar cursors, period by period (spec 001, Group coordinator).

A group is a subscription of its name on every partition it has committed to, so that Pulsar's tools show its
backlog. A subscription that Pulsar consumers read is theirs and is left alone. What Pulsar's tools do to a
cursor is noticed and told, and, if wanted, done to the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ApiError, ClusterError, PenstockError
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.shard import Shard
from penstock.gateway.groups.states import State
from penstock.gateway.pulsar.cursors import Cursors
from penstock.wire.pulsar import MessageId

__all__ = ["PERIOD", "CursorSync", "Home"]

log = logging.getLogger("penstock.gateway")

PERIOD: Final = 5.0
_AT_ONCE: Final = 8
_Key = tuple[str, Place]
"""Group, and topic with partition."""
_Wanted = tuple[str, str, Commit | None]
"""Group, the name of its subscription, and what it has committed; None if nothing any more."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A cursor where we put it."""

    offset: int
    mark: MessageId | None


@dataclass(frozen=True, slots=True, eq=False)
class Home:
    """Where groups live: whose rights move their cursors, and which topics their names mean."""

    cursors: Cursors
    pulsar_name: Callable[[str, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class _Subject:
    """The cursor of one group in one partition."""

    shard: Shard
    key: _Key
    cursors: Cursors
    topic: str
    name: str
    """Of the subscription."""


class CursorSync:
    """Keeps the cursors of the groups that this gateway coordinates."""

    def __init__(
        self,
        home: Callable[[str], tuple[Home, str] | None],
        shards: Callable[[], Sequence[Shard]],
        *,
        period: float = PERIOD,
        adopt: bool = False,
    ) -> None:
        self._home = home
        """The home of a group and its name there; None if nobody may move its cursors now."""
        self._shards = shards
        self._period = period
        self._adopt = adopt
        self._placed: dict[Shard, dict[_Key, _Placed]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="cursor sync")

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
        """Bring every cursor to where its group is."""
        try:
            shards = list(self._shards())
        except ApiError:
            # This gateway coordinates nothing now.
            shards = []
        self._placed = {shard: self._placed.get(shard, {}) for shard in shards}
        for shard in shards:
            await self._sync(shard)

    async def _sync(self, shard: Shard) -> None:
        commits: dict[_Key, Commit | None] = dict.fromkeys(self._placed[shard])
        for group_id, places in shard.commits.items():
            commits |= {(group_id, place): commit for place, commit in places.items()}
        homes = {group_id: self._home(group_id) for group_id in {key[0] for key in commits}}
        wanted: dict[tuple[Home, Place], list[_Wanted]] = {}
        for (group_id, place), commit in commits.items():
            found = homes[group_id]
            if found is not None:
                wanted.setdefault((found[0], place), []).append((group_id, found[1], commit))
        work = [self._sync_partition(shard, home, place, rows) for (home, place), rows in wanted.items()]
        for begin in range(0, len(work), _AT_ONCE):
            await asyncio.gather(*work[begin : begin + _AT_ONCE])

    async def _sync_partition(self, shard: Shard, home: Home, place: Place, rows: list[_Wanted]) -> None:
        try:
            topic = await home.pulsar_name(*place)
            marks = await home.cursors.marks(topic)
            for group_id, name, commit in rows:
                subject = _Subject(shard, (group_id, place), home.cursors, topic, name)
                await self._sync_one(subject, commit, marks.get(name))
        except (ApiError, ClusterError) as exc:
            log.debug("the cursors of %s partition %d stay behind: %s", *place, exc)

    async def _sync_one(self, subject: _Subject, commit: Commit | None, mark: MessageId | None) -> None:
        all_placed, key = self._placed[subject.shard], subject.key
        placed = all_placed.get(key)
        if commit is None:
            del all_placed[key]
            if mark is not None:
                await subject.cursors.remove(subject.topic, subject.name)
        elif placed is not None and mark != placed.mark and commit.offset == placed.offset:
            await self._moved_by_others(subject, placed, mark)
        elif placed is None or commit.offset != placed.offset:
            await self._place(subject, commit.offset, mark)

    async def _place(self, subject: _Subject, offset: int, mark: MessageId | None) -> None:
        cursors, topic, name = subject.cursors, subject.topic, subject.name
        if mark is not None and await cursors.is_in_use(topic, name):
            return
        await cursors.place(topic, name, offset, exists=mark is not None)
        now = (await cursors.marks(topic)).get(name)
        self._placed[subject.shard][subject.key] = _Placed(offset, now)

    # What Pulsar's tools do

    async def _moved_by_others(self, subject: _Subject, placed: _Placed, mark: MessageId | None) -> None:
        cursors, topic, name = subject.cursors, subject.topic, subject.name
        kafka_topic, partition = subject.key[1]
        offset = None if mark is None else await cursors.offset_of(topic, mark)
        self._placed[subject.shard][subject.key] = _Placed(placed.offset, mark)
        if offset is not None and placed.mark is not None:
            former = await cursors.offset_of(topic, placed.mark)
            if former == offset:
                # The same place under another name: Pulsar went on to the next ledger.
                return
        if mark is not None and await cursors.is_in_use(topic, name):
            return
        told = "deleted" if mark is None else f"moved to offset {offset}"
        log.warning("subscription %s of %s partition %d was %s by others", name, kafka_topic, partition, told)
        if self._adopt:
            await self._follow(subject.shard, subject.key, offset, deleted=mark is None)

    async def _follow(self, shard: Shard, key: _Key, offset: int | None, *, deleted: bool) -> None:
        group_id, place = key
        group = shard.groups.get(group_id)
        if group is None or group.state is not State.EMPTY:
            log.warning("group %s has members: its offsets stay as they are", group_id)
        elif deleted:
            await shard.delete_offsets(group_id, [place])
            self._placed[shard].pop(key, None)
        elif offset is not None:
            former = shard.commits[group_id][place]
            commit = Commit(offset=offset, metadata=former.metadata, committed_at=former.committed_at)
            await shard.commit(group_id, Identity(), {place: commit})
            self._placed[shard][key] = _Placed(offset, self._placed[shard][key].mark)
