"""A classic group and its members as frozen values; times are seconds of a clock that only runs forward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from penstock.gateway.groups.states import State

__all__ = ["Group", "Limits", "Member", "Protocol", "protocols_bytes", "texts_bytes"]

Protocol = tuple[str, bytes]
"""A protocol that a member offers: its name and the member's metadata for it."""
_MEMBER_OVERHEAD = 64
"""Numbers and lengths of fields, in the stored form and in memory."""


def texts_bytes(texts: Iterable[str]) -> int:
    """Count the bytes of texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def protocols_bytes(protocols: Iterable[Protocol]) -> int:
    """Count the bytes of protocols, their names and the metadata."""
    return sum(len(name.encode()) + len(data) for name, data in protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an operator may choose; the names and defaults are Kafka's where Kafka has them."""

    min_session: float = 6.0
    max_session: float = 1800.0
    initial_delay: float = 3.0
    """`group.initial.rebalance.delay.ms`: how long an empty group waits for more members."""
    max_members: int = 10_000
    """`group.max.size`; Kafka has no limit unless it is told one."""
    max_groups: int = 50_000
    """Of one tenant in one partition of the offsets topic."""
    max_tenant_bytes: int = 256 * 1024 * 1024
    """Memory of the groups and offsets of one tenant in one partition; about 500 000 offsets."""
    max_bytes: int = 512 * 1024 * 1024
    """Memory of all groups and offsets in one partition; beyond it each tenant has an equal share."""
    max_member_bytes: int = 256 * 1024
    """Metadata of one member, all its protocols together."""
    max_group_bytes: int = 4 * 1024 * 1024
    """Everything that the members of a group bring, ids, names, metadata and assignments: it is stored as one
    message, for which Pulsar's default limit is 5 MiB."""
    max_offset_metadata: int = 4096
    """`offset.metadata.max.bytes`."""
    offsets_retention: float = 7 * 24 * 3600.0
    """`offsets.retention.minutes`."""
    retention_check: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member; `joining` and `syncing` name the request that waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session: float
    rebalance: float
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    expires: float
    offers: frozenset[str] = field(init=False)
    """The names of its protocols."""
    size: int = field(init=False)
    """The bytes it brings into the group, at least as many as it takes in the stored form."""
    joining: int | None = None
    syncing: int | None = None

    def __post_init__(self) -> None:
        """Note what is asked for often."""
        object.__setattr__(self, "offers", frozenset(name for name, _ in self.protocols))
        texts = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        size = _MEMBER_OVERHEAD + texts_bytes(texts) + protocols_bytes(self.protocols) + len(self.assignment)
        object.__setattr__(self, "size", size)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for us: then its silence is no fault of its own."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Give its metadata for a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def beat(self, now: float) -> Self:
        """Let its session begin again."""
        return replace(self, expires=now + self.session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group between two requests."""

    group_id: str
    state: State = State.EMPTY
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    statics: Mapping[str, str] = field(default_factory=dict)
    """Member ids by `group.instance.id`."""
    pending: Mapping[str, float] = field(default_factory=dict)
    """Member ids that were given out and not used yet, and when they are forgotten (KIP-394)."""
    unsynced: frozenset[str] = frozenset()
    """Members of this generation that have not asked for their assignment."""
    deadline: float | None = None
    """When the present rebalance ends without those who do not come."""
    initial: bool = False
    """Whether the rebalance began with an empty group, and so waits for more members (KIP-134)."""
    delay_left: float = 0.0
    """How much longer it may wait for them."""
    grew: bool = False
    """Whether one came since it began to wait."""
    changed_at: int = -1
    """When the state changed, in milliseconds of the day's clock; for the retention of offsets."""

    def with_member(self, member: Member) -> Self:
        """Add or change a member."""
        statics = self.statics
        if member.instance_id is not None:
            statics = {**statics, member.instance_id: member.member_id}
        return replace(self, members={**self.members, member.member_id: member}, statics=statics)

    def without_member(self, member_id: str) -> Self:
        """Take a member away; the next one leads if it led."""
        member = self.members[member_id]
        members = {key: each for key, each in self.members.items() if key != member_id}
        statics = {key: each for key, each in self.statics.items() if key != member.instance_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(
            self, members=members, statics=statics, leader=leader, unsynced=self.unsynced - {member_id}
        )

    def without_pending(self, member_id: str) -> Self:
        """Forget a member id that was given out."""
        return replace(self, pending={key: each for key, each in self.pending.items() if key != member_id})

    @property
    def has_all_joined(self) -> bool:
        """Whether nobody needs to be waited for."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def patience(self) -> float:
        """How long a rebalance may take: as long as the slowest member says."""
        return max((member.rebalance for member in self.members.values()), default=0.0)

    @property
    def size(self) -> int:
        """The bytes that members bring, and those who were given an id and have not joined yet."""
        pending = sum(_MEMBER_OVERHEAD + len(member_id.encode()) for member_id in self.pending)
        return pending + sum(member.size for member in self.members.values())
