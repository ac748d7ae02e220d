"""What keeps the log of a shard, and who coordinates which group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from penstock.errors import ApiError
from penstock.gateway.groups.listing import Description
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.requests import (
    Identity,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from penstock.gateway.groups.schemas import Commit, Record
from penstock.wire.kafka import ErrorCode

__all__ = ["TOO_LARGE", "Coordinator", "GroupLog", "Groups", "NoGroups"]


TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
"""The code of the ApiError with which a log refuses a record that it can never store, and only that."""


class GroupLog(Protocol):
    """The log of the groups in one partition."""

    @property
    def max_group_bytes(self) -> int:
        """The largest value that one record may have."""

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Begin to store records in the order of the calls; done when all are stored.

        Few records are stored all or none. Many take several messages: after an error a first part may be
        there.
        """


class Members(Protocol):
    """What members ask of the coordinator of their group."""

    async def join(self, group_id: str, asked: JoinRequest) -> JoinAnswer:
        """JoinGroup: answered when the next generation begins."""

    async def sync(self, group_id: str, asked: SyncRequest) -> SyncAnswer:
        """SyncGroup: answered when the leader has brought the assignment."""

    def heartbeat(self, group_id: str, who: Identity) -> ErrorCode:
        """Heartbeat: answered at once."""

    def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> Sequence[ErrorCode]:
        """LeaveGroup: every member by itself."""

    async def commit(
        self, group_id: str, who: Identity, commits: Mapping[Place, Commit]
    ) -> Mapping[Place, ErrorCode]:
        """OffsetCommit: answered when the offsets are stored."""

    def committed(self, group_id: str) -> Mapping[Place, Commit]:
        """OffsetFetch: what is stored."""


class Coordinator(Members, Protocol):
    """The coordinator of some groups, for members and administrators."""

    def describe(self, group_id: str) -> Description | None:
        """DescribeGroups: one group, None if there is none."""

    def list(self, states: Sequence[str], types: Sequence[str]) -> Sequence[Description]:
        """ListGroups: those in some states, of some types."""

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups: an empty group and its offsets."""

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
        """OffsetDelete: not of a topic that the group reads."""


class Groups(Protocol):
    """Which groups this node coordinates, and who coordinates the others."""

    def shard(self, group_id: str) -> Coordinator:
        """Give the coordinator of a group; ApiError if this node does not coordinate it, or not yet."""

    def shards(self) -> Sequence[Coordinator]:
        """Give all that this node coordinates; ApiError if it is not ready."""

    async def coordinator(self, group_id: str) -> int:
        """Give the node that coordinates a group; -1 if none does now."""


class NoGroups:
    """A node without groups."""

    def shard(self, group_id: str) -> Coordinator:
        """Refuse: no node coordinates it."""
        raise ApiError("consumer groups are not served", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def shards(self) -> Sequence[Coordinator]:
        """Give none."""
        return ()

    async def coordinator(self, group_id: str) -> int:
        """Give no node."""
        return -1
