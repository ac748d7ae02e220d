"""LeaveGroup: members go at once, several in one request (KIP-345)."""

from __future__ import annotations

from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.rebalance import begin, complete_if_ready
from penstock.gateway.groups.requests import JoinAnswer, LeaveRequest, SyncAnswer
from penstock.gateway.groups.states import State
from penstock.wire.kafka import ErrorCode

__all__ = ["drop", "leave"]


def leave(group: Group, asked: LeaveRequest, now: float, limits: Limits) -> tuple[Outcome, ErrorCode]:
    """Let one member go."""
    member_id = asked.member_id
    if member_id in group.pending:
        return complete_if_ready(group.without_pending(member_id), now), ErrorCode.NONE
    if asked.instance_id is not None:
        registered = group.statics.get(asked.instance_id)
        if registered is None:
            return Outcome(group), ErrorCode.UNKNOWN_MEMBER_ID
        # KIP-345: an administrator removes an instance without knowing its member id.
        if member_id and member_id != registered:
            return Outcome(group), ErrorCode.FENCED_INSTANCE_ID
        member_id = registered
    if member_id not in group.members:
        return Outcome(group), ErrorCode.UNKNOWN_MEMBER_ID
    return drop(group, member_id, now, limits), ErrorCode.NONE


def drop(group: Group, member_id: str, now: float, limits: Limits) -> Outcome:
    """Take a member away; the others rebalance."""
    member, unknown = group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID
    outcome = Outcome(group.without_member(member_id))
    outcome = outcome.answer(member.joining, JoinAnswer(member_id=member_id, error=unknown))
    outcome = outcome.answer(member.syncing, SyncAnswer(error=unknown))
    if group.state in (State.STABLE, State.COMPLETING):
        outcome = outcome.then(lambda moved: begin(moved, now, limits))
    return outcome.then(lambda moved: complete_if_ready(moved, now))
