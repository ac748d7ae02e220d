"""JoinGroup: a new member, one that comes back, or a static one under a new id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from penstock.gateway.groups.fields import LONGEST
from penstock.gateway.groups.group import Group, Limits, Member
from penstock.gateway.groups.members import check_member
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.rebalance import (
    begin,
    common_protocols,
    complete_if_ready,
    join_answer,
    select_protocol,
)
from penstock.gateway.groups.requests import Identity, JoinAnswer, JoinRequest, SyncAnswer
from penstock.gateway.groups.states import State
from penstock.wire.kafka import ErrorCode

__all__ = ["join"]


def join(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    """Take a request to join; its answer may come with a later step."""
    error = _refusal(group, asked, limits)
    if error:
        return _refuse(group, asked, error)
    if asked.member_id:
        return _known(group, asked, now, limits)
    if asked.instance_id is not None and asked.instance_id in group.statics:
        return _replace_static(group, asked, now, limits)
    if asked.needs_known_id and asked.instance_id is None:
        # KIP-394: a member that never hears its id must not stay in the group.
        pending = {**group.pending, asked.new_member_id: now + asked.session}
        told = JoinAnswer(member_id=asked.new_member_id, error=ErrorCode.MEMBER_ID_REQUIRED)
        return Outcome(replace(group, pending=pending)).answer(asked.token, told)
    return _add(group, asked, asked.new_member_id, now, limits)


def _refuse(group: Group, asked: JoinRequest, error: ErrorCode) -> Outcome:
    return Outcome(group).answer(asked.token, JoinAnswer(member_id=asked.member_id, error=error))


def _refusal(group: Group, asked: JoinRequest, limits: Limits) -> ErrorCode:
    if not limits.min_session <= asked.session <= limits.max_session:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not _is_storable(group, asked):
        return ErrorCode.INVALID_REQUEST
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if _is_too_large(group, asked, limits):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _is_consistent(group, asked):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _is_storable(group: Group, asked: JoinRequest) -> bool:
    """Whether the names fit into the stored form of a group, whose strings end at 32767 bytes."""
    names = [
        group.group_id,
        asked.instance_id or "",
        asked.protocol_type,
        *(name for name, _ in asked.protocols),
    ]
    return all(len(name.encode()) <= LONGEST for name in names)


def _is_too_large(group: Group, asked: JoinRequest, limits: Limits) -> bool:
    metadata = sum(len(data) for _, data in asked.protocols)
    former = group.members.get(asked.member_id)
    grows = group.size + asked.size - (former.size if former else 0)
    if metadata > limits.max_member_bytes or grows > limits.max_group_bytes:
        return True
    is_new = not asked.member_id and asked.instance_id not in group.statics
    return is_new and len(group.members) + len(group.pending) >= limits.max_members


def _is_consistent(group: Group, asked: JoinRequest) -> bool:
    """Whether the member offers a protocol that all others offer."""
    if not asked.protocol_type or not asked.protocols:
        return False
    if not group.members:
        return True
    common = common_protocols(group, without=_same(group, asked))
    offered = {name for name, _ in asked.protocols}
    return group.protocol_type == asked.protocol_type and (common is None or bool(common & offered))


def _same(group: Group, asked: JoinRequest) -> str | None:
    """Give the id under which the member is in the group already."""
    static = group.statics.get(asked.instance_id) if asked.instance_id is not None else None
    return static or asked.member_id or None


# New members


def _add(group: Group, asked: JoinRequest, member_id: str, now: float, limits: Limits) -> Outcome:
    member = _member(asked, member_id, now)
    added = group.without_pending(member_id).with_member(member)
    added = replace(
        added, protocol_type=asked.protocol_type, leader=added.leader or member_id, grew=group.initial
    )
    return _rebalance(added, now, limits)


def _member(asked: JoinRequest, member_id: str, now: float) -> Member:
    return Member(
        member_id=member_id,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        session=asked.session,
        rebalance=asked.rebalance,
        protocols=asked.protocols,
        expires=now + asked.session,
        joining=asked.token,
    )


def _rebalance(group: Group, now: float, limits: Limits) -> Outcome:
    return begin(group, now, limits).then(lambda moved: complete_if_ready(moved, now))


# Members that come back


def _known(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    if asked.member_id in group.pending and asked.instance_id is None:
        return _add(group, asked, asked.member_id, now, limits)
    error = check_member(group, Identity(member_id=asked.member_id, instance_id=asked.instance_id))
    if error:
        return _refuse(group, asked, error)
    return _AGAIN[group.state](group, asked, now, limits)


def _update(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    """Take what the member offers now, and rebalance."""
    former = group.members[asked.member_id]
    member = replace(_member(asked, asked.member_id, now), assignment=former.assignment)
    # The member asks again on another connection: the one that waited is of no use any more.
    superseded = JoinAnswer(member_id=asked.member_id, error=ErrorCode.REBALANCE_IN_PROGRESS)
    told = Outcome(group.with_member(replace(member, syncing=former.syncing))).answer(
        former.joining, superseded
    )
    return told.then(lambda moved: _rebalance(moved, now, limits))


def _again_while_completing(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    """Tell once more what the member may not have heard."""
    if group.members[asked.member_id].protocols != asked.protocols:
        return _update(group, asked, now, limits)
    return _repeat(group, asked, now)


def _again_while_stable(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    """A leader that joins again wants a rebalance; another member only if it offers something else."""
    changed = group.members[asked.member_id].protocols != asked.protocols
    if changed or asked.member_id == group.leader:
        return _update(group, asked, now, limits)
    return _repeat(group, asked, now)


def _repeat(group: Group, asked: JoinRequest, now: float) -> Outcome:
    alive = group.with_member(group.members[asked.member_id].beat(now))
    return Outcome(alive).answer(asked.token, join_answer(group, asked.member_id))


def _unknown(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    return _refuse(group, asked, ErrorCode.UNKNOWN_MEMBER_ID)


_AGAIN: Final[Mapping[State, Callable[[Group, JoinRequest, float, Limits], Outcome]]] = {
    State.EMPTY: _unknown,
    State.PREPARING: _update,
    State.COMPLETING: _again_while_completing,
    State.STABLE: _again_while_stable,
    State.DEAD: _unknown,
}


# Static members under a new id (KIP-345)


def _replace_static(group: Group, asked: JoinRequest, now: float, limits: Limits) -> Outcome:
    """Put the new id in the place of the old one, which is fenced; a stable group stays stable."""
    assert asked.instance_id is not None
    former = group.members[group.statics[asked.instance_id]]
    was_leader = group.leader == former.member_id
    member = replace(_member(asked, asked.new_member_id, now), assignment=former.assignment)
    outcome = Outcome(_in_place_of(group, former, member))
    fenced = ErrorCode.FENCED_INSTANCE_ID
    outcome = outcome.answer(former.joining, JoinAnswer(member_id=former.member_id, error=fenced))
    outcome = outcome.answer(former.syncing, SyncAnswer(error=fenced))
    if group.state is State.STABLE and select_protocol(outcome.group) == group.protocol:
        return outcome.then(lambda moved: _keep_stable(moved, asked, former.member_id, was_leader))
    return outcome.then(lambda moved: _rebalance(moved, now, limits))


def _in_place_of(group: Group, former: Member, member: Member) -> Group:
    members = {
        (member.member_id if key == former.member_id else key): (member if key == former.member_id else each)
        for key, each in group.members.items()
    }
    leader = member.member_id if group.leader == former.member_id else group.leader
    statics = {**group.statics, str(member.instance_id): member.member_id}
    unsynced = group.unsynced
    if former.member_id in unsynced:
        unsynced = unsynced - {former.member_id} | {member.member_id}
    return replace(group, members=members, statics=statics, leader=leader, unsynced=unsynced)


def _keep_stable(group: Group, asked: JoinRequest, former_id: str, was_leader: bool) -> Outcome:
    member_id = asked.new_member_id
    answer = join_answer(group, member_id)
    if was_leader and asked.skips_assignment:
        answer = replace(answer, skip_assignment=True)
    elif was_leader:
        # Before KIP-814 the only way to keep it from computing is to let another one lead.
        answer = replace(answer, leader=former_id, members=())
    member = replace(group.members[member_id], joining=None)
    return Outcome(group.with_member(member), save=True).answer(asked.token, answer)
