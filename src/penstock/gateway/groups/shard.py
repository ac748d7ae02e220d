"""The groups of one partition, running: requests that wait, timers, and the log that remembers them.

Membership changes at once; what must be remembered is answered when it is stored. Offsets change when they
are stored, in the order of the log. When the log fails, everybody who waits is told to look for the
coordinator again, and so is everybody who comes later: what is in memory may not be what is stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from penstock.errors import ApiError, PenstockError, WireError
from penstock.gateway.groups.beating import beat
from penstock.gateway.groups.expiry import next_deadline, pass_time
from penstock.gateway.groups.fields import LONGEST
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.joining import join
from penstock.gateway.groups.leaving import leave
from penstock.gateway.groups.listing import Description, describe, matches
from penstock.gateway.groups.offsets import Place, check_commit, check_delete, check_metadata, expired
from penstock.gateway.groups.outcome import Answer, Outcome
from penstock.gateway.groups.ports import GroupLog
from penstock.gateway.groups.requests import (
    Identity,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from penstock.gateway.groups.schemas import (
    Commit,
    GroupKey,
    OffsetKey,
    Record,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from penstock.gateway.groups.states import Event, State, after
from penstock.gateway.groups.subscription import subscribed_topics
from penstock.gateway.groups.syncing import sync
from penstock.wire.kafka import ErrorCode

__all__ = ["Shard"]

log = logging.getLogger("penstock.gateway")

_MOVED: Final = ErrorCode.NOT_COORDINATOR
_LONGEST_CLIENT_ID: Final = 200
A = TypeVar("A", bound=Answer)


class Shard:
    """The coordinator of some groups."""

    def __init__(
        self,
        group_log: GroupLog,
        limits: Limits | None = None,
        *,
        on_failure: Callable[[BaseException], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.groups: dict[str, Group] = {}
        self.commits: dict[str, dict[Place, Commit]] = {}
        self.closed = False
        self._log = group_log
        self._clock = clock
        self._on_failure = on_failure
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sweep = self._sweep_later()

    def close(self) -> None:
        """Stop; everybody who waits is sent elsewhere."""
        self.closed = True
        self._sweep.cancel()
        for timer in self._timers.values():
            timer.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_elsewhere())
        self._waiting.clear()

    # From the log

    def load(self, records: Iterable[Record]) -> None:
        """Remember what is stored, in the order in which it was stored; what cannot be read is told."""
        for key, value in records:
            try:
                self._remember(key, value)
            except WireError as exc:
                log.warning("a record of the offsets topic is left out: %s", exc)
        for group_id in self.commits:
            self.groups.setdefault(group_id, Group(group_id=group_id))
        for group in self.groups.values():
            self._arm(group)

    def _remember(self, key: bytes, value: bytes | None) -> None:
        found = read_key(key)
        if isinstance(found, GroupKey):
            self.groups.pop(found.group_id, None)
            if value is not None:
                self.groups[found.group_id] = read_group(found.group_id, value, self._clock())
        elif isinstance(found, OffsetKey):
            self._set_commit(found, None if value is None else read_offset(value))

    def _set_commit(self, key: OffsetKey, commit: Commit | None) -> None:
        places = self.commits.setdefault(key.group_id, {})
        if commit is not None:
            places[key.topic, key.partition] = commit
        else:
            places.pop((key.topic, key.partition), None)
        if not places:
            del self.commits[key.group_id]

    # Members

    async def join(self, group_id: str, asked: JoinRequest) -> JoinAnswer:
        """JoinGroup: answered when the next generation begins."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            if asked.member_id:
                return JoinAnswer(member_id=asked.member_id, error=ErrorCode.UNKNOWN_MEMBER_ID)
            if len(self.groups) >= self.limits.max_groups:
                return JoinAnswer(member_id="", error=ErrorCode.GROUP_MAX_SIZE_REACHED)
            group = Group(group_id=group_id)
        token = next(self._tokens)
        asked = replace(asked, token=token, new_member_id=_new_member_id(asked))
        return await self._wait(JoinAnswer, token, group, join(group, asked, self._clock(), self.limits))

    async def sync(self, group_id: str, asked: SyncRequest) -> SyncAnswer:
        """SyncGroup: answered when the leader has brought the assignment."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            return SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)
        token = next(self._tokens)
        outcome = sync(group, replace(asked, token=token), self._clock(), self.limits)
        return await self._wait(SyncAnswer, token, group, outcome)

    def heartbeat(self, group_id: str, who: Identity) -> ErrorCode:
        """Heartbeat: answered at once."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # A session that was made longer needs no new timer: the old one looks again when it fires.
        self.groups[group_id], error = beat(group, who, self._clock())
        return error

    def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> list[ErrorCode]:
        """LeaveGroup: every member by itself."""
        self._check()
        errors = []
        for leaver in leavers:
            group = self.groups.get(group_id)
            if group is None:
                errors.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            outcome, error = leave(group, leaver, self._clock(), self.limits)
            self._apply(group, outcome)
            errors.append(error)
        return errors

    # Offsets

    async def commit(
        self, group_id: str, who: Identity, commits: Mapping[Place, Commit]
    ) -> Mapping[Place, ErrorCode]:
        """OffsetCommit: answered when the offsets are stored."""
        self._check()
        error = self._check_commit(group_id, who)
        if error:
            return dict.fromkeys(commits, error)
        errors = {place: check_metadata(each.metadata, self.limits) for place, each in commits.items()}
        good = {OffsetKey(group_id, *place): commits[place] for place, error in errors.items() if not error}
        await _stored(self._set_commits(good))
        return errors

    def _check_commit(self, group_id: str, who: Identity) -> ErrorCode:
        group = self.groups.get(group_id)
        error = check_commit(group, who)
        if error:
            return error
        if group is None:
            if len(group_id.encode()) > LONGEST:
                return ErrorCode.INVALID_GROUP_ID
            if len(self.groups) >= self.limits.max_groups:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self.groups[group_id] = Group(group_id=group_id)
        elif who.member_id in group.members:
            self.groups[group_id] = group.with_member(group.members[who.member_id].beat(self._clock()))
        return ErrorCode.NONE

    def _set_commits(self, commits: Mapping[OffsetKey, Commit | None]) -> asyncio.Future[None]:
        def stored() -> None:
            for key, commit in commits.items():
                self._set_commit(key, commit)

        return self._store([offset_record(key, each) for key, each in commits.items()], stored)

    def committed(self, group_id: str) -> Mapping[Place, Commit]:
        """OffsetFetch: what is stored."""
        self._check()
        return self.commits.get(group_id, {})

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
        """OffsetDelete (KIP-496): not of a topic that the group reads; ApiError if there is no such group."""
        self._check()
        group = self.groups.get(group_id)
        error = check_delete(group)
        if group is None or error:
            raise ApiError("the group does not let its offsets go", error_code=error)
        topics = subscribed_topics(group) or frozenset()
        errors = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if place[0] in topics else ErrorCode.NONE
            for place in places
        }
        known = self.commits.get(group_id, {})
        gone = [place for place, error in errors.items() if not error and place in known]
        await _stored(self._set_commits({OffsetKey(group_id, *place): None for place in gone}))
        return errors

    # Administrators

    def describe(self, group_id: str) -> Description | None:
        """DescribeGroups: one group, None if there is none."""
        self._check()
        group = self.groups.get(group_id)
        return None if group is None else describe(group)

    def list(self, states: Sequence[str], types: Sequence[str]) -> list[Description]:
        """ListGroups: those in some states, of some types."""
        self._check()
        return [describe(group) for group in self.groups.values() if matches(group, states, types)]

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups: an empty group and its offsets."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        await _stored(self._remove(group))
        return ErrorCode.NONE

    def _remove(self, group: Group) -> asyncio.Future[None]:
        # Whoever comes from now on finds no group; what it stores comes behind the tombstones.
        self._put(replace(group, state=after(group.state, Event.REMOVED)))
        keys = self._keys(group.group_id)

        def stored() -> None:
            for key in keys:
                self._set_commit(key, None)
            # Commits that were under way stand before the tombstones: they are seen only now.
            late = self._keys(group.group_id)
            if late:
                self._set_commits(dict.fromkeys(late))

        tombstones = [offset_record(key, None) for key in keys]
        return self._store([*tombstones, group_record(group.group_id, None)], stored)

    def _keys(self, group_id: str) -> Sequence[OffsetKey]:
        return [OffsetKey(group_id, *place) for place in self.commits.get(group_id, {})]

    # How steps become true

    def _check(self) -> None:
        if self.closed:
            raise _elsewhere()

    async def _wait(self, kind: type[A], token: int, former: Group, outcome: Outcome) -> A:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = waiting
        try:
            self._apply(former, outcome)
            answer = await waiting
        finally:
            self._waiting.pop(token, None)
        assert isinstance(answer, kind)
        return answer

    def _apply(self, former: Group, outcome: Outcome) -> None:
        group = outcome.group
        if group.state is not former.state:
            group = replace(group, changed_at=_now_ms())
        self._put(group)
        if not outcome.save:
            return self._release(outcome.answers)
        self._store([group_record(group.group_id, group)], lambda: self._release(outcome.answers))

    def _put(self, group: Group) -> None:
        idle = group.state is State.EMPTY and not group.pending and group.generation == 0
        if group.state is State.DEAD or (idle and group.group_id not in self.groups):
            self.groups.pop(group.group_id, None)
        else:
            self.groups[group.group_id] = group
        self._arm(group)

    def _release(self, answers: Iterable[tuple[int, Answer]]) -> None:
        for token, answer in answers:
            waiting = self._waiting.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _store(self, records: Sequence[Record], stored: Callable[[], None]) -> asyncio.Future[None]:
        """Store records; `stored` runs when they are, whether anybody still waits or not."""
        done = self._log.append(records)

        def finish(future: asyncio.Future[None]) -> None:
            error = ApiError("given up", error_code=_MOVED) if future.cancelled() else future.exception()
            if error is not None:
                self._fail(error)
            elif not self.closed:
                stored()

        done.add_done_callback(finish)
        return done

    def _fail(self, error: BaseException) -> None:
        if not self.closed:
            self.close()
            self._on_failure(error)

    # Time

    def _arm(self, group: Group) -> None:
        """Wake up when time will do something; one that wakes too early looks again."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(group.group_id)
        due = None if group.state is State.DEAD else next_deadline(group)
        if due is None:
            if timer is not None:
                self._timers.pop(group.group_id).cancel()
            return
        at = loop.time() + max(due - self._clock(), 0.0)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[group.group_id] = loop.call_at(at, self._on_time, group.group_id)

    def _on_time(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        group = self.groups.get(group_id)
        if group is not None and not self.closed:
            self._apply(group, pass_time(group, self._clock(), self.limits))

    def _sweep_later(self) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(self.limits.retention_check, self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = self._sweep_later()
        self.forget_old(_now_ms())

    def forget_old(self, now_ms: int) -> None:
        """Remove offsets that are too old, and groups of which nothing is left."""
        for group in list(self.groups.values()):
            commits = self.commits.get(group.group_id, {})
            gone = list(expired(group, commits, now_ms, self.limits))
            if group.state is State.EMPTY and not group.pending and len(gone) == len(commits):
                self._remove(group)
            elif gone:
                self._set_commits({OffsetKey(group.group_id, *place): None for place in gone})


async def _stored(done: asyncio.Future[None]) -> None:
    """Wait for the log; one who gives up waiting does not give up the record."""
    try:
        await asyncio.shield(done)
    except PenstockError as exc:
        raise _elsewhere() from exc


def _elsewhere() -> ApiError:
    return ApiError("this node does not coordinate the group any more", error_code=_MOVED)


def _new_member_id(asked: JoinRequest) -> str:
    # Kafka's form: operators recognise their clients by it.
    name = asked.client_id if asked.instance_id is None else asked.instance_id
    return f"{name[:_LONGEST_CLIENT_ID]}-{uuid.uuid4()}"


def _now_ms() -> int:
    return int(time.time() * 1000)
