"""What planning needs of the clusters; `penstock.brokers` has it for real ones, `memory` for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.brokers.kafka_layout import Cluster, Setting, TopicUsage
from penstock.brokers.pulsar_admin import (
    NamespaceState,
    PulsarSchema,
    PulsarTopicState,
    PulsarUsage,
    Retention,
)
from penstock.brokers.schema_registry import Registered, SchemaReference, Verdict
from penstock.errors import AccessDenied

__all__ = ["Clusters", "KafkaPort", "PulsarPort", "PulsarTenancy", "PulsarTopics", "RegistryPort"]


class KafkaPort(Protocol):
    """A Kafka cluster; see `KafkaAdmin`."""

    def cluster(self, expected: Sequence[str] = ()) -> Cluster:
        """Count the brokers and list every topic, and the expected ones that may not be seen."""

    def settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, Setting]]:
        """Read all settings of some topics."""

    def unknown_settings(self, settings: Mapping[str, str]) -> frozenset[str]:
        """Say which settings the broker does not know."""

    def usage(self, topic: str) -> TopicUsage:
        """Say what would be lost with a topic."""

    def create_topic(
        self, topic: str, *, partitions: int | None, replicas: int | None, settings: Mapping[str, str]
    ) -> None:
        """Create a topic."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions."""

    def change_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set some settings of a topic."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""


class PulsarTenancy(Protocol):
    """The tenants and namespaces of a Pulsar cluster; see `PulsarAdmin`."""

    def clusters(self) -> tuple[str, ...]:
        """Name the clusters."""

    def has_tenant(self, tenant: str) -> bool:
        """Say whether a tenant is there."""

    def namespace(self, namespace: str, policies: Collection[str] = ...) -> NamespaceState | None:
        """Read a namespace, with what is in effect for some policies; None if it is not there."""

    def create_tenant(self, tenant: str) -> None:
        """Create a tenant."""

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace."""

    def set_policy(self, namespace: str, policy: str, value: Retention | int | tuple[str, ...]) -> None:
        """Set one policy of a namespace."""


class PulsarTopics(Protocol):
    """The topics of a Pulsar cluster; see `PulsarAdmin`."""

    def topics(
        self, names: Sequence[str], policies: Collection[str] = ...
    ) -> Mapping[str, PulsarTopicState | AccessDenied | None]:
        """Read several topics with some of their policies; None is one that is not there.

        AccessDenied is one that may not be seen.
        """

    def usage(self, topic: str) -> PulsarUsage:
        """Say what would be lost with a topic."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions."""

    def schema_refusal(self, topic: str, schema: PulsarSchema) -> str | None:
        """Give the reason why a schema may not become the next version of a topic; None if it may."""

    def schemas(self, topic: str) -> Sequence[PulsarSchema]:
        """Give all versions of the schema of a topic, the oldest first."""

    def set_schema(self, topic: str, schema: PulsarSchema) -> None:
        """Make a schema the newest of a topic; one that is a version of it already stays that version."""

    def create_missed_partitions(self, topic: str) -> None:
        """Create the partitions that a topic should have by its metadata and does not."""

    def set_topic_policy(self, topic: str, policy: str, value: bool | int) -> None:
        """Set one policy of a topic."""

    def remove_topic_policy(self, topic: str, policy: str) -> None:
        """Remove a policy of a topic, so that the namespace's is in effect."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""


class PulsarPort(PulsarTenancy, PulsarTopics, Protocol):
    """A Pulsar cluster."""


class RegistryPort(Protocol):
    """A schema registry; see `SchemaRegistry`."""

    def subjects(self) -> frozenset[str]:
        """Name all subjects."""

    def latest(self, subject: str) -> Registered | None:
        """Give the newest version of a subject."""

    def version(self, subject: str, version: int) -> Registered | None:
        """Give one version of a subject."""

    def find(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> Registered | None:
        """Give the version of a subject that is this schema."""

    def compatibility(self, subject: str) -> str:
        """Give the compatibility level of a subject."""

    def check(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> Verdict:
        """Ask whether a schema may become the next version."""

    def register(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> int:
        """Register a schema and give its id."""


class Clusters(Protocol):
    """The clusters of a contract, by the name of the server."""

    def kafka(self, server: str) -> KafkaPort:
        """Give a Kafka cluster."""

    def pulsar(self, server: str) -> PulsarPort:
        """Give a Pulsar cluster."""

    def registry(self, server: str) -> RegistryPort:
        """Give the registry that a Kafka server names."""
