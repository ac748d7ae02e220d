"""How a generation ends and the next one begins.

A rebalance waits until every known member has joined again, or until the slowest of them had its time. One
that begins with an empty group also waits a little for more members (KIP-134).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from penstock.gateway.groups.group import Group, Limits, Member
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.requests import JoinAnswer, JoinedMember, SyncAnswer
from penstock.gateway.groups.states import Event, State, after
from penstock.wire.kafka import ErrorCode

__all__ = ["begin", "common_protocols", "complete", "complete_if_ready", "join_answer", "select_protocol"]


def begin(group: Group, now: float, limits: Limits) -> Outcome:
    """Ask everybody to join again; nothing happens if that is under way."""
    if group.state is State.PREPARING:
        return Outcome(group)
    told = Outcome(_forget_syncing(group))
    for member in group.members.values():
        told = told.answer(member.syncing, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
    initial = group.state is State.EMPTY and limits.initial_delay > 0
    delay = min(limits.initial_delay, group.patience) if initial else group.patience
    moved = replace(
        told.group,
        state=after(group.state, Event.REBALANCE),
        deadline=now + delay,
        initial=initial,
        delay_left=group.patience - delay,
        unsynced=frozenset(),
        grew=False,
    )
    return Outcome(moved, told.answers)


def complete_if_ready(group: Group, now: float) -> Outcome:
    """Begin the next generation as soon as all have joined; an initial rebalance waits for its deadline."""
    if group.state is not State.PREPARING or group.initial or not group.has_all_joined:
        return Outcome(group)
    return complete(group, now)


def complete(group: Group, now: float) -> Outcome:
    """Begin the next generation with those who have joined.

    KIP-345: a static member that did not come stays until its session ends; all others are dropped.
    """
    late = [each for each in group.members.values() if each.joining is None and each.instance_id is None]
    for member in late:
        group = group.without_member(member.member_id)
    if not group.members:
        return _empty(group)
    joined = [member.member_id for member in group.members.values() if member.joining is not None]
    if not joined:
        # Only static members that are away: give them another round.
        return Outcome(replace(group, deadline=now + group.patience))
    leader = group.leader if group.leader in joined else joined[0]
    return _next_generation(replace(group, leader=leader), now)


def _empty(group: Group) -> Outcome:
    return Outcome(
        replace(
            group,
            state=after(group.state, Event.NOBODY_JOINED),
            generation=group.generation + 1,
            protocol=None,
            leader=None,
            deadline=None,
            initial=False,
        ),
        save=True,
    )


def _next_generation(group: Group, now: float) -> Outcome:
    group = replace(
        group,
        state=after(group.state, Event.ALL_JOINED),
        generation=group.generation + 1,
        protocol=select_protocol(group),
        deadline=now + group.patience,
        initial=False,
        unsynced=frozenset(group.members),
    )
    waiting = {member.member_id: member.joining for member in group.members.values()}
    members = {key: replace(each.beat(now), joining=None) for key, each in group.members.items()}
    outcome = Outcome(replace(group, members=members))
    for member_id, token in waiting.items():
        outcome = outcome.answer(token, join_answer(group, member_id))
    return outcome


def join_answer(group: Group, member_id: str) -> JoinAnswer:
    """Tell a member its generation; the leader is told everybody."""
    leads = member_id == group.leader
    return JoinAnswer(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=tuple(_seen(group, each) for each in group.members.values()) if leads else (),
    )


def _seen(group: Group, member: Member) -> JoinedMember:
    return JoinedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        metadata=member.metadata(group.protocol),
    )


def _forget_syncing(group: Group) -> Group:
    members = {
        key: replace(each, syncing=None, assignment=b"")
        if group.state is State.COMPLETING
        else replace(each, syncing=None)
        for key, each in group.members.items()
    }
    return replace(group, members=members)


def common_protocols(group: Group, *, without: str | None = None) -> set[str] | None:
    """Give the protocols that all members offer; None if there are no members."""
    # Members of a group offer the same, as a rule: few different sets are left to compare.
    offered = {member.offers for member in group.members.values() if member.member_id != without}
    return set(frozenset.intersection(*offered)) if offered else None


def select_protocol(group: Group) -> str | None:
    """Let each member vote for the first of its protocols that all offer; ties go to the name."""
    common = common_protocols(group) or set()
    votes: Counter[str] = Counter()
    for member in group.members.values():
        votes.update([name for name, _ in member.protocols if name in common][:1])
    return min(votes, key=lambda name: (-votes[name], name), default=None)
