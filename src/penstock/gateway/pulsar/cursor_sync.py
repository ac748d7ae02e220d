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

__all__ = ["PERIOD", "CursorSync"]

log = logging.getLogger("penstock.gateway")

PERIOD: Final = 5.0
_AT_ONCE: Final = 8
_Key = tuple[str, Place]
"""Group, and topic with partition."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A cursor where we put it."""

    offset: int
    mark: MessageId | None


class CursorSync:
    """Keeps the cursors of the groups that this gateway coordinates."""

    def __init__(
        self,
        cursors: Cursors,
        shards: Callable[[], Sequence[Shard]],
        pulsar_name: Callable[[str, int], Awaitable[str]],
        *,
        period: float = PERIOD,
        adopt: bool = False,
    ) -> None:
        self._cursors = cursors
        self._shards = shards
        self._pulsar_name = pulsar_name
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
        wanted: dict[Place, dict[str, Commit | None]] = {}
        for group_id, commits in shard.commits.items():
            for place, commit in commits.items():
                wanted.setdefault(place, {})[group_id] = commit
        for group_id, place in self._placed[shard]:
            wanted.setdefault(place, {}).setdefault(group_id, None)
        work = [self._sync_partition(shard, place, groups) for place, groups in wanted.items()]
        for begin in range(0, len(work), _AT_ONCE):
            await asyncio.gather(*work[begin : begin + _AT_ONCE])

    async def _sync_partition(self, shard: Shard, place: Place, groups: dict[str, Commit | None]) -> None:
        try:
            topic = await self._pulsar_name(*place)
            marks = await self._cursors.marks(topic)
            for group_id, commit in groups.items():
                await self._sync_one(shard, topic, (group_id, place), commit, marks.get(group_id))
        except (ApiError, ClusterError) as exc:
            log.debug("the cursors of %s partition %d stay behind: %s", *place, exc)

    async def _sync_one(
        self, shard: Shard, topic: str, key: _Key, commit: Commit | None, mark: MessageId | None
    ) -> None:
        placed = self._placed[shard].get(key)
        if commit is None:
            del self._placed[shard][key]
            if mark is not None:
                await self._cursors.remove(topic, key[0])
        elif placed is not None and mark != placed.mark and commit.offset == placed.offset:
            await self._moved_by_others(shard, topic, key, placed, mark)
        elif placed is None or commit.offset != placed.offset:
            await self._place(shard, topic, key, commit.offset, mark)

    async def _place(self, shard: Shard, topic: str, key: _Key, offset: int, mark: MessageId | None) -> None:
        name = key[0]
        if mark is not None and await self._cursors.is_in_use(topic, name):
            return
        await self._cursors.place(topic, name, offset, exists=mark is not None)
        now = (await self._cursors.marks(topic)).get(name)
        self._placed[shard][key] = _Placed(offset, now)

    # What Pulsar's tools do

    async def _moved_by_others(
        self, shard: Shard, topic: str, key: _Key, placed: _Placed, mark: MessageId | None
    ) -> None:
        name, (kafka_topic, partition) = key
        offset = None if mark is None else await self._cursors.offset_of(topic, mark)
        self._placed[shard][key] = _Placed(placed.offset, mark)
        if offset is not None and placed.mark is not None:
            former = await self._cursors.offset_of(topic, placed.mark)
            if former == offset:
                # The same place under another name: Pulsar went on to the next ledger.
                return
        if mark is not None and await self._cursors.is_in_use(topic, name):
            return
        told = "deleted" if mark is None else f"moved to offset {offset}"
        log.warning("subscription %s of %s partition %d was %s by others", name, kafka_topic, partition, told)
        if self._adopt:
            await self._follow(shard, key, offset, deleted=mark is None)

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
