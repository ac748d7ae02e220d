"""Committed offsets: who may commit, what is too large, what is too old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.gateway.groups.fields import LONGEST
from penstock.gateway.groups.group import Group, Limits
from penstock.gateway.groups.members import check_generation
from penstock.gateway.groups.requests import Identity
from penstock.gateway.groups.schemas import Commit
from penstock.gateway.groups.states import State
from penstock.gateway.groups.subscription import CONSUMER, subscribed_topics
from penstock.wire.kafka import ErrorCode

__all__ = ["Place", "check_commit", "check_delete", "check_metadata", "expired"]

Place = tuple[str, int]
"""Topic and partition."""


def check_commit(group: Group | None, who: Identity) -> ErrorCode:
    """Say whether somebody may commit to a group.

    A negative generation is an administrator, or a consumer that was assigned by hand: it may while the
    group has no members.
    """
    if group is None:
        return ErrorCode.NONE if who.generation < 0 else ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if who.generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if who.generation < 0 and not who.member_id and who.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_generation(group, who)
    if not error and group.state is State.COMPLETING:
        # The generation is new, and its members do not know yet what is theirs.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def check_metadata(metadata: str | None, limits: Limits) -> ErrorCode:
    """Say whether the words beside an offset are short enough."""
    too_large = len((metadata or "").encode()) > min(limits.max_offset_metadata, LONGEST)
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE


def check_delete(group: Group | None) -> ErrorCode:
    """Say whether a group may lose offsets; never those of a topic that it reads, whatever this says."""
    if group is None or group.state is State.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is State.EMPTY or group.protocol_type == CONSUMER:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP


def expired(group: Group, commits: Mapping[Place, Commit], now_ms: int, limits: Limits) -> Iterable[Place]:
    """Name the offsets that are too old.

    KIP-211: those of an empty group, counted from when it became empty; those of a stable group for topics
    that it does not read any more; those of a group that never had members, counted from the commit. While a
    group rebalances it is not known what it will read.
    """
    if group.state not in (State.EMPTY, State.STABLE):
        return
    retention = round(limits.offsets_retention * 1000)
    topics = subscribed_topics(group)
    for place, commit in commits.items():
        if group.state is State.STABLE and (topics is None or place[0] in topics):
            continue
        since = commit.committed_at
        if group.state is State.EMPTY and group.protocol_type is not None:
            since = max(since, group.changed_at)
        until = commit.expires_at if commit.expires_at >= 0 else since + retention
        if until <= now_ms:
            yield place
