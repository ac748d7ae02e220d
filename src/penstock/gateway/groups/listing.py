"""Groups as administrators see them: DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.gateway.groups.group import Group
from penstock.gateway.groups.states import State

__all__ = ["TYPE", "DescribedMember", "Description", "describe", "matches"]

TYPE = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """One member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One group."""

    group_id: str
    state: State
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


def describe(group: Group) -> Description:
    """Describe a group; metadata and assignments are told of a stable one only."""
    stable = group.state is State.STABLE
    members = tuple(
        DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(group.protocol) if stable else b"",
            assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    return Description(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if stable else "",
        members=members,
    )


def matches(group: Group, states: Iterable[str], types: Iterable[str]) -> bool:
    """Whether a group is asked for; no names ask for all (KIP-518, KIP-848)."""
    wanted_states = {name.lower() for name in states}
    wanted_types = {name.lower() for name in types}
    return (not wanted_states or group.state.lower() in wanted_states) and (
        not wanted_types or TYPE in wanted_types
    )
