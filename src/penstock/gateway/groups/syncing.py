"""SyncGroup: the leader brings the assignment, and everybody gets their part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.members import check_generation
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.requests import SyncAnswer, SyncRequest
from penstock.gateway.groups.states import Event, State, after
from penstock.wire.kafka import ErrorCode

__all__ = ["sync"]


def sync(group: Group, asked: SyncRequest, now: float, limits: Limits) -> Outcome:
    """Take a request for an assignment; its answer comes when the leader has brought it."""
    error = check_generation(group, asked.who)
    if not error and not _is_consistent(group, asked):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error:
        return Outcome(group).answer(asked.token, SyncAnswer(error=error))
    return _BY_STATE[group.state](group, asked, now, limits)


def _is_consistent(group: Group, asked: SyncRequest) -> bool:
    # KIP-559: from version 5 on a member says what it believes the protocol to be.
    given = ((asked.protocol_type, group.protocol_type), (asked.protocol, group.protocol))
    return all(said is None or said == known for said, known in given)


def _refused(error: ErrorCode) -> Callable[[Group, SyncRequest, float, Limits], Outcome]:
    return lambda group, asked, now, limits: Outcome(group).answer(asked.token, SyncAnswer(error=error))


def _await(group: Group, asked: SyncRequest, now: float, limits: Limits) -> Outcome:
    member_id = asked.who.member_id
    former = group.members[member_id]
    superseded = SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
    waiting = group.with_member(replace(former.beat(now), syncing=asked.token))
    waiting = replace(waiting, unsynced=group.unsynced - {member_id})
    outcome = Outcome(waiting).answer(former.syncing, superseded)
    if member_id != group.leader:
        return outcome
    return outcome.then(lambda moved: _assign(moved, asked, now, limits))


def _assign(group: Group, asked: SyncRequest, now: float, limits: Limits) -> Outcome:
    """Give everybody their part; one whom the leader forgot gets nothing, as in Kafka."""
    given = dict(asked.assignments)
    members = {key: replace(each, assignment=given.get(key, b"")) for key, each in group.members.items()}
    assigned = replace(group, members=members, state=after(group.state, Event.ASSIGNED))
    if assigned.size > limits.max_group_bytes:
        # Kafka's own answer to a group that does not fit into one record.
        member = replace(group.members[asked.who.member_id], syncing=None)
        too_large = SyncAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        return Outcome(group.with_member(member)).answer(asked.token, too_large)
    outcome = Outcome(_nobody_waits(assigned, now), save=True)
    for member in members.values():
        outcome = outcome.answer(member.syncing, _answer(assigned, member.member_id))
    return outcome


def _nobody_waits(group: Group, now: float) -> Group:
    members = {
        key: replace(each.beat(now), syncing=None) if each.syncing is not None else each
        for key, each in group.members.items()
    }
    return replace(group, members=members)


def _repeat(group: Group, asked: SyncRequest, now: float, limits: Limits) -> Outcome:
    member = group.members[asked.who.member_id]
    known = replace(group.with_member(member.beat(now)), unsynced=group.unsynced - {member.member_id})
    return Outcome(known).answer(asked.token, _answer(group, member.member_id))


def _answer(group: Group, member_id: str) -> SyncAnswer:
    return SyncAnswer(
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=group.members[member_id].assignment,
    )


_BY_STATE: Final[Mapping[State, Callable[[Group, SyncRequest, float, Limits], Outcome]]] = {
    State.EMPTY: _refused(ErrorCode.UNKNOWN_MEMBER_ID),
    State.PREPARING: _refused(ErrorCode.REBALANCE_IN_PROGRESS),
    State.COMPLETING: _await,
    State.STABLE: _repeat,
    State.DEAD: _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
}
