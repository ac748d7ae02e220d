"""What members ask of a group, and what they are answered."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.groups.group import Protocol, protocols_bytes, texts_bytes
from penstock.wire.kafka import ErrorCode

__all__ = [
    "Identity",
    "JoinAnswer",
    "JoinRequest",
    "JoinedMember",
    "LeaveRequest",
    "SyncAnswer",
    "SyncRequest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a member says it is."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """JoinGroup; `token` names the waiting request."""

    token: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session: float
    rebalance: float
    protocol_type: str
    protocols: tuple[Protocol, ...]
    new_member_id: str
    """The id for a member that has none yet."""
    needs_known_id: bool = False
    """KIP-394: a new member is given its id first, and joins with it."""
    skips_assignment: bool = False
    """KIP-814: a static leader that comes back is told the members and computes nothing."""

    @property
    def size(self) -> int:
        """The bytes that the member will bring into the group."""
        texts = (self.member_id or self.new_member_id, self.instance_id or "", self.client_id)
        return texts_bytes((*texts, self.client_host)) + protocols_bytes(self.protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to JoinGroup."""

    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """SyncGroup; `token` names the waiting request."""

    token: int
    who: Identity
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """One member of a LeaveGroup; an administrator names only the instance (KIP-345)."""

    member_id: str
    instance_id: str | None = None
