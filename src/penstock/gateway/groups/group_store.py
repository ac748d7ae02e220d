"""What a coordinator remembers: groups and offsets in memory, and in the log in the same order.

What is in the log's hands counts as stored when the log says so. When the log fails, everything here may be
wrong, and the store closes. A record that the log cannot take because of its size fails the request that
brought it, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.brokers.pulsar.tasks import watched
from penstock.errors import ApiError, PenstockError, WireError
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.offset_table import CursorId, OffsetTable
from penstock.gateway.groups.offsets import Place, expired
from penstock.gateway.groups.pacing import Pace
from penstock.gateway.groups.ports import TOO_LARGE, GroupLog
from penstock.gateway.groups.schemas import (
    Commit,
    CursorKey,
    GroupKey,
    OffsetKey,
    Record,
    cursor_record,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from penstock.gateway.groups.states import Event, State, after
from penstock.gateway.groups.usage import Usage, tenant_of
from penstock.wire.kafka import ErrorCode

__all__ = ["GroupStore", "elsewhere", "when_stored"]

log = logging.getLogger("penstock.gateway")

_MOVED: Final = ErrorCode.NOT_COORDINATOR
_GROUP_OVERHEAD: Final = 1500
"""What a group takes in memory beside what its members bring (CPython 3.11, measured)."""
_TOMBSTONES_AT_ONCE: Final = 500
_LOOKED_AT_ONCE: Final = 5000


class GroupStore:
    """The groups and offsets of one partition of the offsets topic."""

    def __init__(
        self,
        group_log: GroupLog,
        limits: Limits | None = None,
        *,
        on_failure: Callable[[BaseException], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
        keeps_cursors: bool = False,
    ) -> None:
        limits = limits or Limits()
        # A group is one record: no group may grow beyond what the log takes.
        self.limits = replace(limits, max_group_bytes=min(limits.max_group_bytes, group_log.max_group_bytes))
        self.groups: dict[str, Group] = {}
        self.usage = Usage(self.limits)
        self.offsets = OffsetTable(self.usage, keeps_cursors=keeps_cursors)
        self.closed = False
        self._log = group_log
        self._clock = clock
        self._on_failure = on_failure
        self._sizes: dict[str, int] = {}
        """What each group is counted with."""
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop; what is under way finds the log closed, and ends by itself."""
        self.closed = True

    def _on_change(self, group: Group) -> None:
        """Hear that a group was set."""

    def _on_drop(self, group_id: str) -> None:
        """Hear that a group was forgotten."""

    @property
    def commits(self) -> Mapping[str, Mapping[Place, Commit]]:
        """The stored offsets by group."""
        return self.offsets.stored

    # From the log

    async def load(self, records: Iterable[Record]) -> None:
        """Remember what is stored, in the order in which it was stored; what cannot be read is told.

        Nothing is refused for its size: limits are for what comes. Lets others on the loop run meanwhile.
        """
        pace = Pace()
        for key, value in records:
            try:
                self._remember(key, value)
            except WireError as exc:
                log.warning("a record of the offsets topic is left out: %s", exc)
            if pace.is_due():
                await pace.rest()
        for group_id in [*self.groups, *self.commits]:
            self._put(self.groups.get(group_id) or Group(group_id=group_id), keep=True)
            if pace.is_due():
                await pace.rest()
        # All of it is new to whoever keeps the cursors.
        self.offsets.changed.clear()

    def _remember(self, key: bytes, value: bytes | None) -> None:
        found = read_key(key)
        if isinstance(found, OffsetKey):
            self.offsets.set(found, None if value is None else read_offset(value))
        elif isinstance(found, GroupKey):
            self.groups.pop(found.group_id, None)
            if value is not None:
                self.groups[found.group_id] = read_group(found.group_id, value, self._clock())
        elif isinstance(found, CursorKey):
            cursor = found.group_id, (found.topic, found.partition)
            self.offsets.leftover.pop(cursor, None)
            if value is not None:
                self.offsets.leftover[cursor] = None

    # Groups

    def _put(self, group: Group, *, keep: bool = False) -> None:
        """Set a group; one that nothing is known of yet is set only if it is to be kept."""
        idle = group.state is State.EMPTY and not group.pending and group.generation == 0
        if idle and not keep and group.group_id not in self.groups:
            return self._drop(group.group_id)
        self.groups[group.group_id] = group
        size, known = _GROUP_OVERHEAD + group.size, self._sizes.get(group.group_id)
        if size != known:
            self._sizes[group.group_id] = size
            new = known is None
            self.usage.add(tenant_of(group.group_id), groups=int(new), size=size - (known or 0))
        self._on_change(group)

    def _drop(self, group_id: str) -> None:
        """Forget a group; its offsets stay."""
        self.groups.pop(group_id, None)
        self._on_drop(group_id)
        size = self._sizes.pop(group_id, None)
        if size is not None:
            self.usage.add(tenant_of(group_id), groups=-1, size=-size)

    def _has_room(self, group: Group, grown: int) -> bool:
        """Whether the tenant of a group may have it, and so many bytes more."""
        tenant, known = tenant_of(group.group_id), group.group_id in self.groups
        if not known and not self.usage.takes_group(tenant):
            return False
        return self.usage.takes_bytes(tenant, grown + (0 if known else _GROUP_OVERHEAD))

    def _remove(self, group: Group) -> asyncio.Future[None]:
        """Remove a group with its offsets, also with those that are on their way to the log now."""
        # Dead and still here: nobody can join or commit until the last tombstone is in the log's hands, for
        # what is stored between them would be removed by a later one.
        self._put(replace(group, state=after(group.state, Event.REMOVED)), keep=True)
        places = self.offsets.places(group.group_id)
        if len(places) > _TOMBSTONES_AT_ONCE:
            return self._start(self._remove_slowly(group.group_id, places))
        self._set_commits({OffsetKey(group.group_id, *place): None for place in places})
        self._drop(group.group_id)
        return self._store([group_record(group.group_id, None)])

    async def _remove_slowly(self, group_id: str, places: Sequence[Place]) -> None:
        """Write the tombstones of many offsets in slices, and that of the group when all are on their way."""
        pace = Pace()
        for begin in range(0, len(places), _TOMBSTONES_AT_ONCE):
            part = places[begin : begin + _TOMBSTONES_AT_ONCE]
            self._set_commits({OffsetKey(group_id, *place): None for place in part})
            if pace.is_late():
                await pace.rest()
            self._check()
        self._drop(group_id)
        await self._store([group_record(group_id, None)])

    # Offsets

    def _set_commits(self, commits: Mapping[OffsetKey, Commit | None]) -> asyncio.Future[None]:
        """Store offsets or their tombstones; with a tombstone goes the word that the subscription must go."""
        removed = [key for key, each in commits.items() if each is None] if self.offsets.keeps_cursors else []
        cursors = [CursorKey(key.group_id, key.topic, key.partition) for key in removed]

        def stored() -> None:
            for key, commit in commits.items():
                self.offsets.set(key, commit)
            for key in removed:
                self.offsets.leftover[key.group_id, (key.topic, key.partition)] = None

        self.offsets.begin(commits)
        records = [offset_record(key, each) for key, each in commits.items()]
        records += [cursor_record(key, gone=False) for key in cursors]
        return self._store(records, stored, lambda: self.offsets.end(commits))

    async def forget_old(self, now_ms: int) -> None:
        """Remove offsets that are too old, and groups of which nothing is left.

        Lets others on the loop run meanwhile, so everything is looked at again before it is removed. A group
        of which something is on its way to the log is left for the next time: a tombstone would remove that.
        """
        pace = Pace()
        for group_id in list(self.groups):
            before = self.groups.get(group_id)
            if before is None or self.offsets.is_storing(group_id):
                continue
            rows = list(self.offsets.stored.get(group_id, {}).items())
            gone: list[tuple[Place, Commit]] = []
            for begin in range(0, len(rows), _LOOKED_AT_ONCE):
                part = dict(rows[begin : begin + _LOOKED_AT_ONCE])
                gone += [(place, part[place]) for place in expired(before, part, now_ms, self.limits)]
                if pace.is_late():
                    await pace.rest()
            if pace.is_due():
                await pace.rest()
            group = self.groups.get(group_id)
            if group is not None and not self.closed and _is_same(group, before):
                await self._forget(group, gone, pace)

    async def _forget(self, group: Group, gone: Sequence[tuple[Place, Commit]], pace: Pace) -> None:
        group_id = group.group_id
        known = self.offsets.stored.get(group_id, {})
        is_quiet = not self.offsets.is_storing(group_id)
        still = [row for row in gone if known.get(row[0]) is row[1]]
        if is_quiet and group.state is State.EMPTY and not group.pending and len(still) == len(known):
            return await when_stored(self._remove(group))
        for begin in range(0, len(still), _TOMBSTONES_AT_ONCE):
            part = still[begin : begin + _TOMBSTONES_AT_ONCE]
            self._set_commits(
                {
                    OffsetKey(group_id, *place): None
                    for place, commit in part
                    if known.get(place) is commit and not self.offsets.is_storing(group_id, place)
                }
            )
            if pace.is_late():
                await pace.rest()
        return None

    async def remove_offsets(self, group_id: str, places: Iterable[Place]) -> None:
        """Remove offsets whatever the group does with them, but not those that are being committed now."""
        known = self.offsets.stored.get(group_id, {})
        gone = [place for place in places if place in known and not self.offsets.is_storing(group_id, place)]
        await when_stored(self._set_commits({OffsetKey(group_id, *place): None for place in gone}))

    async def settle_cursors(self, cursors: Iterable[CursorId]) -> None:
        """Note that these subscriptions need not be deleted any more; not while their offsets change.

        With a tombstone that is on its way goes the word that the subscription must go once more. This note
        would stand behind it in the log, and who takes over would not know of it.
        """
        settled = [
            cursor
            for cursor in cursors
            if cursor in self.offsets.leftover and not self.offsets.is_storing(*cursor)
        ]
        if not settled:
            return
        for cursor in settled:
            del self.offsets.leftover[cursor]
        keys = [CursorKey(group_id, *place) for group_id, place in settled]
        await when_stored(self._store([cursor_record(key, gone=True) for key in keys]))

    # The log

    def _check(self) -> None:
        if self.closed:
            raise elsewhere()

    def _store(
        self,
        records: Sequence[Record],
        stored: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
        *,
        refused: Callable[[], None] = lambda: None,
    ) -> asyncio.Future[None]:
        """Store records; `stored` runs when they are, whether anybody still waits or not.

        `refused` runs when they are too large for the log, `ended` in any case and first.
        """
        done = self._log.append(records)

        def finish(future: asyncio.Future[None]) -> None:
            ended()
            error = ApiError("given up", error_code=_MOVED) if future.cancelled() else future.exception()
            if isinstance(error, ApiError) and error.error_code == TOO_LARGE:
                log.warning("a record of %d bytes was not stored: %s", _bytes(records), error)
                refused()
            elif error is not None:
                self.fail(error)
            elif not self.closed:
                stored()

        done.add_done_callback(finish)
        return done

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = watched(asyncio.create_task(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fail(self, error: BaseException) -> None:
        """Stop because the log is lost; what is known may be out of date from now on."""
        if not self.closed:
            self.close()
            self._on_failure(error)


def _is_same(group: Group, before: Group) -> bool:
    """Whether what decides about the age of offsets is as it was."""
    return group.state is before.state and group.members.keys() == before.members.keys()


async def when_stored(done: asyncio.Future[None]) -> None:
    """Wait for the log; one who gives up waiting does not give up the record."""
    try:
        await asyncio.shield(done)
    except PenstockError as exc:
        if isinstance(exc, ApiError) and exc.error_code == TOO_LARGE:
            raise
        raise elsewhere() from exc


def elsewhere() -> ApiError:
    """Make the error that sends a client to look for the coordinator again."""
    return ApiError("this node does not coordinate the group any more", error_code=_MOVED)


def _bytes(records: Sequence[Record]) -> int:
    return sum(len(key) + len(value or b"") for key, value in records)
