"""The steps of a plan: a closed union of frozen values, each with its risk.

What a step would replace (`before`) and how risky that is are told but not compared: two steps are the
same if they lead to the same state, so that an interrupted plan can be continued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeAlias

__all__ = [
    "ORDER_BREAKS",
    "AddPartitions",
    "AddPulsarPartitions",
    "Blocked",
    "Change",
    "ChangePolicy",
    "ChangeSettings",
    "ChangeTopicPolicy",
    "CreateMissedPartitions",
    "CreateNamespace",
    "CreatePulsarTopic",
    "CreateTenant",
    "CreateTopic",
    "DeletePulsarTopic",
    "DeleteTopic",
    "RegisterSchema",
    "RemoveTopicPolicy",
    "Risk",
    "SetPulsarSchema",
    "Step",
    "identity",
    "name_of",
    "step_id",
    "target_of",
]

ORDER_BREAKS: Final = "keys move to other partitions; their order breaks once"
"""What everybody should know before partitions are added."""


class Risk(StrEnum):
    """How bad a step may be."""

    SAFE = "safe"
    CAUTION = "caution"
    """Nothing is lost, but somebody may be surprised."""
    DANGEROUS = "dangerous"
    """Something is lost; done only if it is allowed by name."""
    IMPOSSIBLE = "impossible"
    """The cluster cannot do it, or will not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that becomes another; `before` is None if nothing was set."""

    key: str
    before: str | None = field(default=None, compare=False)
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What all steps have: where, and where the contract asks for it."""

    server: str
    place: str = field(default="", compare=False)
    """file:line:column and path of the contract."""
    risk: Risk = field(default=Risk.SAFE, compare=False)
    warning: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(_Step):
    """Create a Kafka topic; None leaves a number to the broker."""

    kind: Literal["create-topic"] = "create-topic"
    topic: str
    partitions: int | None = None
    replicas: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    dead_letters_of: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(_Step):
    """Let a Kafka topic have more partitions."""

    kind: Literal["add-partitions"] = "add-partitions"
    topic: str
    before: int = field(compare=False)
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettings(_Step):
    """Change settings of a Kafka topic."""

    kind: Literal["change-settings"] = "change-settings"
    topic: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(_Step):
    """Delete a Kafka topic."""

    kind: Literal["delete-topic"] = "delete-topic"
    topic: str
    records: int = field(default=0, compare=False)
    readers: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTenant(_Step):
    """Create a Pulsar tenant."""

    kind: Literal["create-tenant"] = "create-tenant"
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace(_Step):
    """Create a Pulsar namespace."""

    kind: Literal["create-namespace"] = "create-namespace"
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy(_Step):
    """Change a policy of a Pulsar namespace."""

    kind: Literal["change-policy"] = "change-policy"
    namespace: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePulsarTopic(_Step):
    """Create a Pulsar topic; 0 partitions make one without."""

    kind: Literal["create-pulsar-topic"] = "create-pulsar-topic"
    topic: str
    partitions: int
    dead_letters_of: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPulsarPartitions(_Step):
    """Let a Pulsar topic have more partitions."""

    kind: Literal["add-pulsar-partitions"] = "add-pulsar-partitions"
    topic: str
    before: int = field(compare=False)
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTopicPolicy(_Step):
    """Change a policy of a Pulsar topic."""

    kind: Literal["change-topic-policy"] = "change-topic-policy"
    topic: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMissedPartitions(_Step):
    """Create the partitions that a Pulsar topic should have by its metadata and does not."""

    kind: Literal["create-missed-partitions"] = "create-missed-partitions"
    topic: str
    missing: tuple[int, ...] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPulsarSchema(_Step):
    """Make an Avro schema the newest of a Pulsar topic."""

    kind: Literal["set-pulsar-schema"] = "set-pulsar-schema"
    topic: str
    schema: str = field(repr=False)
    before: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicPolicy(_Step):
    """Remove a policy of a Pulsar topic that goes before the one of its namespace."""

    kind: Literal["remove-topic-policy"] = "remove-topic-policy"
    topic: str
    policy: str
    before: str = field(compare=False)
    after: str = field(compare=False)
    """What the contract says for the namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePulsarTopic(_Step):
    """Delete a Pulsar topic."""

    kind: Literal["delete-pulsar-topic"] = "delete-pulsar-topic"
    topic: str
    records: int = field(default=0, compare=False)
    readers: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSchema(_Step):
    """Register a schema as the next version of a subject; `server` names the registry."""

    kind: Literal["register-schema"] = "register-schema"
    subject: str
    schema_type: str
    schema: str = field(repr=False)
    before: int | None = field(default=None, compare=False)
    after: int = field(default=1, compare=False)
    compatibility: str = field(default="", compare=False)
    uses: tuple[str, ...] = ()
    """The subjects to which the schema refers, each named like the type that it holds."""
    versions: tuple[int | None, ...] = field(default=(), compare=False)
    """Their versions; None is the newest one when the step is done, which a step before it registers."""
    rank: int = field(default=0, compare=False)
    """What others refer to comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(_Step):
    """A difference that no step can remove: shown, counted as drift, never executed."""

    kind: Literal["blocked"] = "blocked"
    noun: str
    name: str
    difference: str
    why: str
    next: str
    risk: Risk = field(default=Risk.IMPOSSIBLE, compare=False)


Step: TypeAlias = (
    CreateTopic
    | AddPartitions
    | ChangeSettings
    | DeleteTopic
    | CreateTenant
    | CreateNamespace
    | ChangePolicy
    | CreatePulsarTopic
    | AddPulsarPartitions
    | CreateMissedPartitions
    | ChangeTopicPolicy
    | RemoveTopicPolicy
    | SetPulsarSchema
    | DeletePulsarTopic
    | RegisterSchema
    | Blocked
)

_NAMES: Final = ("topic", "namespace", "tenant", "subject", "name")


def target_of(step: Step) -> str:
    """Give the full name of what a step is about."""
    return next(str(getattr(step, field)) for field in _NAMES if hasattr(step, field))


def name_of(step: Step) -> str:
    """Give the name by which a step is shown.

    >>> name_of(CreatePulsarTopic(server="pulsar", topic="persistent://acme/shop/orders", partitions=1))
    'acme/shop/orders'
    """
    return target_of(step).removeprefix("persistent://")


def identity(kind: str, server: str, name: str, *keys: str) -> str:
    """Write the identity of a step, by which it is allowed: its kind, its server, its target and its keys.

    >>> identity("delete-pulsar-topic", "prod", "persistent://acme/shop/orders")
    'delete-pulsar-topic:prod/acme/shop/orders'
    """
    return ":".join((kind, f"{server}/{name.removeprefix('persistent://')}", *filter(None, [",".join(keys)])))


def step_id(step: Step) -> str:
    """Give the identity of a step.

    >>> shorter = Change(key="retention.ms", after="5")
    >>> step_id(ChangeSettings(server="prod", topic="orders", changes=(shorter,)))
    'change-settings:prod/orders:retention.ms'
    """
    keys: tuple[str, ...] = ()
    if isinstance(step, ChangeSettings):
        keys = tuple(change.key for change in step.changes)
    elif isinstance(step, ChangePolicy | ChangeTopicPolicy):
        keys = (step.change.key,)
    elif isinstance(step, RemoveTopicPolicy):
        keys = (step.policy,)
    return identity(step.kind, step.server, target_of(step), *keys)
