"""Who a member is: known, fenced, of this generation (KIP-345 for static members)."""

from __future__ import annotations

from penstock.gateway.groups.group import Group
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.states import State
from penstock.wire.kafka import ErrorCode

__all__ = ["check_generation", "check_member"]


def check_member(group: Group, who: Identity) -> ErrorCode:
    """Say what is wrong with an identity.

    KIP-345: an instance id that is registered with another member id fences the one who uses the old one.
    """
    if who.instance_id is not None:
        registered = group.statics.get(who.instance_id)
        if registered is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if registered == who.member_id else ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if who.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def check_generation(group: Group, who: Identity) -> ErrorCode:
    """Say what is wrong with an identity or its generation; a dead group sends everybody to look again."""
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = check_member(group, who)
    if error == ErrorCode.NONE and who.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
