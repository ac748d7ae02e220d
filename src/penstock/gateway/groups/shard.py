"""The groups of one partition, running: requests that wait, timers, and the log that remembers them.

Membership changes at once; what must be remembered is answered when it is stored. Offsets change when they
are stored, in the order of the log. When the log fails, everybody who waits is told to look for the
coordinator again, and so is everybody who comes later: what is in memory may not be what is stored. A record
that the log cannot take because of its size fails the request that brought it, and nothing else.
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

from penstock.errors import ApiError
from penstock.gateway.groups.beating import beat
from penstock.gateway.groups.expiry import next_deadline, pass_time
from penstock.gateway.groups.fields import LONGEST
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.group_store import GroupStore, elsewhere, when_stored
from penstock.gateway.groups.joining import join
from penstock.gateway.groups.leaving import leave
from penstock.gateway.groups.listing import Description, describe, matches
from penstock.gateway.groups.offsets import Place, check_commit, check_delete, check_metadata
from penstock.gateway.groups.outcome import Answer, Outcome
from penstock.gateway.groups.ports import TOO_LARGE, GroupLog
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
    OffsetKey,
    group_record,
)
from penstock.gateway.groups.states import State
from penstock.gateway.groups.subscription import subscribed_topics
from penstock.gateway.groups.syncing import sync
from penstock.gateway.groups.usage import tenant_of
from penstock.wire.kafka import ErrorCode

__all__ = ["Shard"]

log = logging.getLogger("penstock.gateway")

_LONGEST_CLIENT_ID: Final = 200
_SWEEP: Final = "sweep of old offsets"
A = TypeVar("A", bound=Answer)


class Shard(GroupStore):
    """The coordinator of some groups."""

    def __init__(
        self,
        group_log: GroupLog,
        limits: Limits | None = None,
        *,
        on_failure: Callable[[BaseException], None] = lambda error: None,
        clock: Callable[[], float] = time.monotonic,
        keeps_cursors: bool = False,
    ) -> None:
        super().__init__(group_log, limits, on_failure=on_failure, clock=clock, keeps_cursors=keeps_cursors)
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sweep = self._sweep_later()

    def close(self) -> None:
        """Stop; everybody who waits is sent elsewhere."""
        super().close()
        self._sweep.cancel()
        for timer in self._timers.values():
            timer.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(elsewhere())
        self._waiting.clear()

    # Members

    async def join(self, group_id: str, asked: JoinRequest) -> JoinAnswer:
        """JoinGroup: answered when the next generation begins."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            if asked.member_id:
                return JoinAnswer(member_id=asked.member_id, error=ErrorCode.UNKNOWN_MEMBER_ID)
            group = Group(group_id=group_id)
        token = next(self._tokens)
        asked = replace(asked, token=token, new_member_id=_new_member_id(asked))
        if not self._has_room(group, asked.size - _known_size(group, asked)):
            return JoinAnswer(member_id=asked.member_id, error=ErrorCode.GROUP_MAX_SIZE_REACHED)
        return await self._wait(JoinAnswer, token, group, join(group, asked, self._clock(), self.limits))

    async def sync(self, group_id: str, asked: SyncRequest) -> SyncAnswer:
        """SyncGroup: answered when the leader has brought the assignment."""
        self._check()
        group = self.groups.get(group_id)
        if group is None:
            return SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)
        assigned = sum(len(assignment) for _, assignment in asked.assignments)
        if not self._has_room(group, assigned - sum(len(each.assignment) for each in group.members.values())):
            return SyncAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
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
        """LeaveGroup: every member by itself; ApiError if the group is being removed."""
        self._check()
        group = self.groups.get(group_id)
        if group is not None and group.state is State.DEAD:
            raise ApiError("the group is being removed", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
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
        good = commits
        if any(errors.values()):
            good = {place: commits[place] for place, error in errors.items() if not error}
        grown, tenant = self.offsets.growth(group_id, good), tenant_of(group_id)
        if grown > 0 and not self.usage.takes_bytes(tenant, grown):
            return errors | dict.fromkeys(good, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        done = self._set_commits({OffsetKey(group_id, *place): each for place, each in good.items()})
        if grown:
            # Counted from now on, so that many requests at once do not pass the limit together.
            self.usage.add(tenant, size=grown)
            done.add_done_callback(lambda _: self.usage.add(tenant, size=-grown))
        try:
            await when_stored(done)
        except ApiError as exc:
            if exc.error_code != TOO_LARGE:
                raise
            return errors | dict.fromkeys(good, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return errors

    def _check_commit(self, group_id: str, who: Identity) -> ErrorCode:
        group = self.groups.get(group_id)
        error = check_commit(group, who)
        if error:
            return error
        if group is None:
            if len(group_id.encode()) > LONGEST:
                return ErrorCode.INVALID_GROUP_ID
            group = Group(group_id=group_id)
            if not self._has_room(group, 0):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self._put(group, keep=True)
        elif who.member_id in group.members:
            self.groups[group_id] = group.with_member(group.members[who.member_id].beat(self._clock()))
        return ErrorCode.NONE

    def committed(self, group_id: str) -> Mapping[Place, Commit]:
        """OffsetFetch: what is stored."""
        self._check()
        return self.offsets.stored.get(group_id, {})

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
        """OffsetDelete (KIP-496): not of a topic that the group reads; ApiError if there is no such group."""
        self._check()
        group = self.groups.get(group_id)
        error = check_delete(group)
        if group is None or error:
            raise ApiError("the group does not let its offsets go", error_code=error)
        topics = subscribed_topics(group) if group.members else frozenset[str]()
        errors = {
            # Members that do not say what they read may read it.
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if topics is None or place[0] in topics
            else ErrorCode.NONE
            for place in places
        }
        known = self.commits.get(group_id, {})
        gone = [place for place, error in errors.items() if not error and place in known]
        await when_stored(self._set_commits({OffsetKey(group_id, *place): None for place in gone}))
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
        if group is None or group.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        await when_stored(self._remove(group))
        return ErrorCode.NONE

    # How steps become true

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

        def refused() -> None:
            for token, _ in outcome.answers:
                waiting = self._waiting.get(token)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(
                        ApiError("the group is too large", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                    )

        record = group_record(group.group_id, group)
        self._store([record], lambda: self._release(outcome.answers), refused=refused)

    def _release(self, answers: Iterable[tuple[int, Answer]]) -> None:
        for token, answer in answers:
            waiting = self._waiting.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    # Time

    def _on_change(self, group: Group) -> None:
        self._arm(group)

    def _on_drop(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

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
        if not any(task.get_name() == _SWEEP for task in self._tasks):
            self._start(self._swept()).set_name(_SWEEP)

    async def _swept(self) -> None:
        try:
            await self.forget_old(_now_ms())
        except ApiError as exc:
            log.debug("old offsets stay for now: %s", exc)
        except Exception:  # a fault here must not end the sweeps for ever
            log.exception("old offsets stay for now")


def _new_member_id(asked: JoinRequest) -> str:
    # Kafka's form: operators recognise their clients by it.
    name = asked.client_id if asked.instance_id is None else asked.instance_id
    return f"{name[:_LONGEST_CLIENT_ID]}-{uuid.uuid4()}"


def _known_size(group: Group, asked: JoinRequest) -> int:
    """What a member that joins again is counted with: it takes no more room."""
    member_id = asked.member_id
    if asked.instance_id is not None:
        member_id = group.statics.get(asked.instance_id, member_id)
    former = group.members.get(member_id)
    return 0 if former is None else former.size


def _now_ms() -> int:
    return int(time.time() * 1000)
