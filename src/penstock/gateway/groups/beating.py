"""Heartbeat: a member lives, and hears whether it must join again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.gateway.groups.group import Group
from penstock.gateway.groups.members import check_generation
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.states import State
from penstock.wire.kafka import ErrorCode

__all__ = ["beat"]

_BY_STATE: Final[Mapping[State, ErrorCode]] = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    State.COMPLETING: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def beat(group: Group, who: Identity, now: float) -> tuple[Group, ErrorCode]:
    """Let a member's session begin again."""
    error = check_generation(group, who)
    if error:
        return group, error
    return group.with_member(group.members[who.member_id].beat(now)), _BY_STATE[group.state]
