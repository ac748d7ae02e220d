"""What time does to a group: sessions end, rebalances run out, ids that nobody used are forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.leaving import drop
from penstock.gateway.groups.outcome import Outcome
from penstock.gateway.groups.rebalance import complete, complete_if_ready
from penstock.gateway.groups.states import State

__all__ = ["next_deadline", "pass_time"]


def next_deadline(group: Group) -> float | None:
    """Say when time will do something, if nobody asks for anything before."""
    times = [member.expires for member in group.members.values() if not member.is_waiting]
    times += group.pending.values()
    if group.deadline is not None and (group.state is State.PREPARING or group.unsynced):
        times.append(group.deadline)
    return min(times, default=None)


def pass_time(group: Group, now: float, limits: Limits) -> Outcome:
    """Do what is due."""
    expired = [
        each.member_id for each in group.members.values() if each.expires <= now and not each.is_waiting
    ]
    outcome = _drop_all(group, expired, now, limits)
    outcome = outcome.then(lambda moved: _forget_pending(moved, now))
    if outcome.group.deadline is not None and outcome.group.deadline <= now:
        outcome = outcome.then(lambda moved: _run_out(moved, now, limits))
    return outcome


def _drop_all(group: Group, member_ids: Iterable[str], now: float, limits: Limits) -> Outcome:
    outcome = Outcome(group)
    for member_id in member_ids:
        outcome = outcome.then(partial(drop, member_id=member_id, now=now, limits=limits))
    return outcome


def _forget_pending(group: Group, now: float) -> Outcome:
    kept = {key: expires for key, expires in group.pending.items() if expires > now}
    if len(kept) == len(group.pending):
        return Outcome(group)
    return complete_if_ready(replace(group, pending=kept), now)


def _run_out(group: Group, now: float, limits: Limits) -> Outcome:
    if group.state is State.PREPARING:
        if group.initial and group.grew and group.delay_left > 0:
            delay = min(limits.initial_delay, group.delay_left)
            return Outcome(
                replace(group, deadline=now + delay, delay_left=group.delay_left - delay, grew=False)
            )
        return complete(group, now)
    # As in Kafka: a member that joined and never asks for its assignment holds nobody up.
    return _drop_all(replace(group, deadline=None), sorted(group.unsynced), now, limits)
