"""The groups of one namespace as its clients see them: no others, and by their own names.

Stored and placed, a group has its namespace in front: two tenants may both have a group `billing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.errors import ApiError
from penstock.gateway.groups.listing import Description
from penstock.gateway.groups.offsets import Place
from penstock.gateway.groups.ports import Coordinator, Groups
from penstock.gateway.groups.requests import (
    Identity,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from penstock.gateway.groups.schemas import Commit
from penstock.wire.kafka import ErrorCode

__all__ = ["SCOPED", "OwnGroups", "TenantGroups", "read_scope"]

SCOPED: Final = "//"
"""Begins the stored name of a group that belongs to a namespace; no other group has such a name."""
_PARTS: Final = 3


def read_scope(stored: str) -> tuple[str, str] | None:
    """Give the namespace of a stored group and its name there; None if it has no namespace.

    >>> read_scope("//acme/shop/billing/eu"), read_scope("billing")
    (('acme/shop', 'billing/eu'), None)
    """
    parts = stored.removeprefix(SCOPED).split("/", _PARTS - 1)
    if not stored.startswith(SCOPED) or len(parts) != _PARTS:
        return None
    return f"{parts[0]}/{parts[1]}", parts[2]


class TenantGroups:
    """The groups of one namespace, for one principal."""

    def __init__(
        self, groups: Groups, namespace: str, may_use: Callable[[], bool | None] = lambda: True
    ) -> None:
        self._groups = groups
        self._prefix = f"{SCOPED}{namespace}/"
        self._may_use = may_use
        """None if it is not known yet: then clients are told to come again."""

    def shard(self, group_id: str) -> Coordinator:
        """Give the shard of a group."""
        # The one code that every client takes, in the answer to every request, for "look for it again".
        stored = self._stored(group_id, unknown=ErrorCode.NOT_COORDINATOR)
        return TenantShard(self._groups.shard(stored), self._prefix)

    def shards(self) -> Sequence[Coordinator]:
        """Give all shards that are here; who may use none sees none, as in Kafka."""
        allowed = self._may_use()
        if allowed is None:
            raise _not_known(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [TenantShard(shard, self._prefix) for shard in self._groups.shards()] if allowed else ()

    async def coordinator(self, group_id: str) -> int:
        """Give the node that coordinates a group."""
        return await self._groups.coordinator(
            self._stored(group_id, unknown=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )

    def _stored(self, group_id: str, *, unknown: ErrorCode) -> str:
        allowed = self._may_use()
        if allowed is None:
            raise _not_known(unknown)
        if not allowed:
            raise ApiError(
                "the role may not consume in this namespace", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
        if not group_id:
            raise ApiError("no group is named", error_code=ErrorCode.INVALID_GROUP_ID)
        return self._prefix + group_id


def _not_known(error_code: ErrorCode) -> ApiError:
    return ApiError("Pulsar has not said yet what the role may do", error_code=error_code)


class OwnGroups:
    """The groups without a namespace: those of clients who act as the gateway itself."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def shard(self, group_id: str) -> Coordinator:
        """Give the shard of a group."""
        _check_own(group_id)
        return OwnShard(self._groups.shard(group_id), "")

    def shards(self) -> Sequence[Coordinator]:
        """Give all shards that are here."""
        return [OwnShard(shard, "") for shard in self._groups.shards()]

    async def coordinator(self, group_id: str) -> int:
        """Give the node that coordinates a group."""
        _check_own(group_id)
        return await self._groups.coordinator(group_id)


def _check_own(group_id: str) -> None:
    if group_id.startswith(SCOPED):
        raise ApiError(
            f"a name does not begin with {SCOPED}", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )


class TenantShard:
    """A shard in which only the groups of one namespace can be seen."""

    def __init__(self, shard: Coordinator, prefix: str) -> None:
        self._shard = shard
        self._prefix = prefix

    # Members

    async def join(self, group_id: str, asked: JoinRequest) -> JoinAnswer:
        """JoinGroup."""
        return await self._shard.join(self._prefix + group_id, asked)

    async def sync(self, group_id: str, asked: SyncRequest) -> SyncAnswer:
        """SyncGroup."""
        return await self._shard.sync(self._prefix + group_id, asked)

    def heartbeat(self, group_id: str, who: Identity) -> ErrorCode:
        """Heartbeat."""
        return self._shard.heartbeat(self._prefix + group_id, who)

    def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> Sequence[ErrorCode]:
        """LeaveGroup."""
        return self._shard.leave(self._prefix + group_id, leavers)

    # Offsets

    async def commit(
        self, group_id: str, who: Identity, commits: Mapping[Place, Commit]
    ) -> Mapping[Place, ErrorCode]:
        """OffsetCommit."""
        return await self._shard.commit(self._prefix + group_id, who, commits)

    def committed(self, group_id: str) -> Mapping[Place, Commit]:
        """OffsetFetch."""
        return self._shard.committed(self._prefix + group_id)

    async def delete_offsets(self, group_id: str, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
        """OffsetDelete."""
        return await self._shard.delete_offsets(self._prefix + group_id, places)

    # Administrators

    def describe(self, group_id: str) -> Description | None:
        """DescribeGroups."""
        found = self._shard.describe(self._prefix + group_id)
        return None if found is None else replace(found, group_id=group_id)

    def list(self, states: Sequence[str], types: Sequence[str]) -> list[Description]:
        """ListGroups."""
        return [
            replace(found, group_id=found.group_id.removeprefix(self._prefix))
            for found in self._shard.list(states, types)
            if self._is_mine(found.group_id)
        ]

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups."""
        return await self._shard.delete(self._prefix + group_id)

    def _is_mine(self, stored: str) -> bool:
        return stored.startswith(self._prefix)


class OwnShard(TenantShard):
    """A shard in which only the groups without a namespace can be seen."""

    def _is_mine(self, stored: str) -> bool:
        return not stored.startswith(SCOPED)
