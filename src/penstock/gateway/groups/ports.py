"""What keeps the log of a shard, and who coordinates which group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ApiError
from penstock.gateway.groups.schemas import Record
from penstock.wire.kafka import ErrorCode

if TYPE_CHECKING:
    from penstock.gateway.groups.shard import Shard

__all__ = ["GroupLog", "Groups", "NoGroups"]


class GroupLog(Protocol):
    """The log of the groups in one partition."""

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Begin to store records, all or none, in the order of the calls; done when they are stored."""


class Groups(Protocol):
    """Which groups this node coordinates, and who coordinates the others."""

    def shard(self, group_id: str) -> Shard:
        """Give the shard of a group; ApiError if this node does not coordinate it, or not yet."""

    def shards(self) -> Sequence[Shard]:
        """Give all that this node coordinates; ApiError if it is not ready."""

    async def coordinator(self, group_id: str) -> int:
        """Give the node that coordinates a group; -1 if none does now."""


class NoGroups:
    """A node without groups."""

    def shard(self, group_id: str) -> Shard:
        """Refuse: no node coordinates it."""
        raise ApiError("consumer groups are not served", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def shards(self) -> Sequence[Shard]:
        """Give none."""
        return ()

    async def coordinator(self, group_id: str) -> int:
        """Give no node."""
        return -1
