"""Clusters in memory with the rules of real ones, for tests of contracts without servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.brokers.kafka_layout import Cluster, Setting, TopicLayout, TopicUsage
from penstock.brokers.pulsar_admin import (
    NamespaceState,
    Policies,
    PulsarSchema,
    PulsarTopicState,
    PulsarUsage,
    Retention,
)
from penstock.brokers.schema_registry import Registered, SchemaReference, Verdict
from penstock.contract.pulsar_schemas import same_definition
from penstock.contract.topics import namespace_of
from penstock.errors import AccessDenied, ClusterError

__all__ = ["MemoryClusters", "MemoryKafka", "MemoryPulsar", "MemoryRegistry"]

# The defaults of Apache Kafka 4 for the settings that contracts declare most.
DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


# The defaults of Apache Pulsar 4: nothing that was acknowledged is kept, nothing expires.
PULSAR_DEFAULTS: Final = Policies(
    retention=Retention(minutes=0, megabytes=0), ttl=0, deduplication=False, compaction=0
)


def _refuse(subject: str, why: str) -> ClusterError:
    return ClusterError(f"memory refused: {subject}", why=why)


@dataclass(slots=True)
class _Topic:
    partitions: int
    replicas: int
    settings: dict[str, str]


@dataclass(slots=True)
class MemoryKafka:
    """A Kafka cluster."""

    brokers: int = 3
    defaults: Mapping[str, str] = field(default_factory=lambda: DEFAULTS)
    state: dict[str, _Topic] = field(default_factory=dict)
    usages: dict[str, TopicUsage] = field(default_factory=dict)

    def cluster(self, expected: Sequence[str] = ()) -> Cluster:
        """Count the brokers and list every topic."""
        topics = {
            name: TopicLayout(partitions=topic.partitions, replicas=(topic.replicas,))
            for name, topic in self.state.items()
        }
        return Cluster(brokers=self.brokers, topics=topics)

    def settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, Setting]]:
        """Read all settings of some topics."""
        return {
            name: {key: self._setting(self._topic(name), key) for key in self.defaults} for name in topics
        }

    def unknown_settings(self, settings: Mapping[str, str]) -> frozenset[str]:
        """Say which settings are not known."""
        return frozenset(settings.keys() - self.defaults.keys())

    def usage(self, topic: str) -> TopicUsage:
        """Say what would be lost with a topic."""
        return self.usages.get(topic, TopicUsage(records=0, groups=()))

    def create_topic(
        self, topic: str, *, partitions: int | None, replicas: int | None, settings: Mapping[str, str]
    ) -> None:
        """Create a topic."""
        if topic in self.state:
            raise _refuse(f"topic {topic}", "Topic already exists.")
        if (replicas or 1) > self.brokers:
            raise _refuse(f"topic {topic}", "Replication factor is larger than the number of brokers.")
        self._require_known(topic, settings)
        self.state[topic] = _Topic(partitions or 1, replicas or 1, dict(settings))

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions."""
        if total <= self._topic(topic).partitions:
            raise _refuse(f"topic {topic}", "The topic has as many partitions, or more.")
        self._topic(topic).partitions = total

    def change_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set some settings of a topic."""
        self._require_known(topic, settings)
        self._topic(topic).settings.update(settings)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._topic(topic)
        del self.state[topic]

    def _setting(self, topic: _Topic, key: str) -> Setting:
        own = topic.settings.get(key)
        source = "default" if own is None else "topic"
        return Setting(value=self.defaults[key] if own is None else own, source=source)

    def _topic(self, name: str) -> _Topic:
        if name not in self.state:
            raise _refuse(f"topic {name}", "There is no such topic.")
        return self.state[name]

    def _require_known(self, topic: str, settings: Mapping[str, str]) -> None:
        for key in settings:
            if key not in self.defaults:
                raise _refuse(f"topic {topic}", f"Unknown topic config name: {key}")


@dataclass(slots=True)
class MemoryPulsar:
    """A Pulsar cluster."""

    names: tuple[str, ...] = ("standalone",)
    tenants: dict[str, dict[str, NamespaceState]] = field(
        default_factory=lambda: {"public": {"public/default": NamespaceState(replication=("standalone",))}}
    )
    defaults: Policies = PULSAR_DEFAULTS
    refusal: str | None = None
    """Why a new schema is not compatible; None if it is."""
    state: dict[str, PulsarTopicState] = field(default_factory=dict)
    earlier: dict[str, list[PulsarSchema]] = field(default_factory=dict)
    """The schemas of topics before the newest ones."""
    usages: dict[str, PulsarUsage] = field(default_factory=dict)

    def clusters(self) -> tuple[str, ...]:
        """Name the clusters."""
        return self.names

    def has_tenant(self, tenant: str) -> bool:
        """Say whether a tenant is there."""
        return tenant in self.tenants

    def namespace(self, namespace: str, policies: Collection[str] = ()) -> NamespaceState | None:
        """Read a namespace; as of a real one, its topics tell the defaults of the broker."""
        state = self.tenants.get(namespace.partition("/")[0], {}).get(namespace)
        is_empty = not any(f"://{namespace}/" in topic for topic in self.state)
        inherited = Policies() if is_empty else self.defaults
        return None if state is None else replace(state, inherited=inherited, is_empty=is_empty)

    def create_tenant(self, tenant: str) -> None:
        """Create a tenant."""
        if tenant in self.tenants:
            raise _refuse(f"tenant {tenant}", "Tenant already exist")
        self.tenants[tenant] = {}

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace."""
        known = self.tenants.get(namespace.partition("/")[0])
        if known is None or namespace in known:
            raise _refuse(f"namespace {namespace}", "No tenant, or it exists.")
        known[namespace] = NamespaceState(replication=self.names)

    def set_policy(self, namespace: str, policy: str, value: Retention | int | tuple[str, ...]) -> None:
        """Set one policy of a namespace."""
        state = self.namespace(namespace)
        if state is None:
            raise _refuse(f"namespace {namespace}", "There is no such namespace.")
        changed: Any = {policy: value}
        self.tenants[namespace.partition("/")[0]][namespace] = replace(state, **changed)

    def topics(
        self, names: Sequence[str], policies: Collection[str] = ()
    ) -> Mapping[str, PulsarTopicState | AccessDenied | None]:
        """Read several topics."""
        known = {name: self.state[name] for name in names if name in self.state}
        inherited = {name: replace(state, inherited=self.defaults) for name, state in known.items()}
        return {name: inherited.get(name) for name in names}

    def usage(self, topic: str) -> PulsarUsage:
        """Say what would be lost with a topic."""
        return self.usages.get(topic, PulsarUsage(entries=0, subscriptions=()))

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        namespace = namespace_of(topic)
        if topic in self.state or self.namespace(namespace) is None:
            raise _refuse(f"topic {topic}", "No namespace, or it exists.")
        self.state[topic] = PulsarTopicState(partitions=partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions."""
        if not 0 < self._topic(topic).partitions < total:
            raise _refuse(f"topic {topic}", "Desired partitions can't be less than the current partitions.")
        self.state[topic] = replace(self._topic(topic), partitions=total)

    def schema_refusal(self, topic: str, schema: PulsarSchema) -> str | None:
        """Give the reason why a schema may not become the next version of a topic."""
        return self.refusal

    def schemas(self, topic: str) -> Sequence[PulsarSchema]:
        """Give all versions of the schema of a topic."""
        newest = self._topic(topic).schema
        return [*self.earlier.get(topic, ()), *([] if newest is None else [newest])]

    def set_schema(self, topic: str, schema: PulsarSchema) -> None:
        """Make a schema the newest of a topic; one that is a version of it already stays that version."""
        known = self.schemas(topic)
        if any(
            each.type == schema.type and same_definition(each.definition, schema.definition) for each in known
        ):
            return
        self.earlier[topic] = list(known)
        self.state[topic] = replace(self._topic(topic), schema=replace(schema, version=len(known)))

    def create_missed_partitions(self, topic: str) -> None:
        """Create the partitions that are missing."""
        self.state[topic] = replace(self._topic(topic), missing=())

    def set_topic_policy(self, topic: str, policy: str, value: bool | int) -> None:
        """Set one policy of a topic."""
        changed: Any = {policy: value}
        self.state[topic] = replace(self._topic(topic), **changed)

    def remove_topic_policy(self, topic: str, policy: str) -> None:
        """Remove one policy of a topic."""
        changed: Any = {policy: None}
        self.state[topic] = replace(self._topic(topic), **changed)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._topic(topic)
        del self.state[topic]

    def _topic(self, name: str) -> PulsarTopicState:
        if name not in self.state:
            raise _refuse(f"topic {name}", "There is no such topic.")
        return self.state[name]


@dataclass(slots=True)
class MemoryRegistry:
    """A schema registry; `judge` decides about a new version after the newest one."""

    level: str = "BACKWARD"
    judge: Callable[[Registered, str], Verdict] = lambda _latest, _schema: Verdict(compatible=True)
    state: dict[str, list[Registered]] = field(default_factory=dict)

    def subjects(self) -> frozenset[str]:
        """Name all subjects."""
        return frozenset(self.state)

    def latest(self, subject: str) -> Registered | None:
        """Give the newest version of a subject."""
        versions = self.state.get(subject)
        return versions[-1] if versions else None

    def version(self, subject: str, version: int) -> Registered | None:
        """Give one version of a subject."""
        return next((each for each in self.state.get(subject, []) if each.version == version), None)

    def find(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> Registered | None:
        """Give the version of a subject that is this schema."""
        self._require(subject, references)
        wanted = (schema_type, _canonical(schema), {(each.subject, each.version) for each in references})
        for found in self.state.get(subject, []):
            if (found.schema_type, _canonical(found.schema), set(found.references)) == wanted:
                return found
        return None

    def _require(self, subject: str, references: Sequence[SchemaReference]) -> None:
        for each in references:
            if not 0 < each.version <= len(self.state.get(each.subject, [])):
                raise _refuse(f"schema of {subject}", f"there is no {each.subject} {each.version}")

    def compatibility(self, subject: str) -> str:
        """Give the compatibility level of a subject."""
        return self.level

    def check(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> Verdict:
        """Ask whether a schema may become the next version."""
        self._require(subject, references)
        latest = self.latest(subject)
        return Verdict(compatible=True) if latest is None else self.judge(latest, schema)

    def register(
        self, subject: str, schema_type: str, schema: str, references: Sequence[SchemaReference] = ()
    ) -> int:
        """Register a schema and give its id."""
        verdict = self.check(subject, schema_type, schema, references)
        if not verdict.compatible:
            raise _refuse(f"schema of {subject}", verdict.reason)
        versions = self.state.setdefault(subject, [])
        if self.find(subject, schema_type, schema, references) is None:
            named = tuple((each.subject, each.version) for each in references)
            versions.append(
                Registered(
                    version=len(versions) + 1, schema_type=schema_type, schema=schema, references=named
                )
            )
        return sum(map(len, self.state.values()))


def _canonical(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError:
        return schema.strip()


@dataclass(slots=True)
class MemoryClusters:
    """One cluster of each kind per name, made when it is asked for."""

    _kafka: dict[str, MemoryKafka] = field(default_factory=dict)
    _pulsar: dict[str, MemoryPulsar] = field(default_factory=dict)
    _registries: dict[str, MemoryRegistry] = field(default_factory=dict)

    def kafka(self, server: str) -> MemoryKafka:
        """Give a Kafka cluster."""
        return self._kafka.setdefault(server, MemoryKafka())

    def pulsar(self, server: str) -> MemoryPulsar:
        """Give a Pulsar cluster."""
        return self._pulsar.setdefault(server, MemoryPulsar())

    def registry(self, server: str) -> MemoryRegistry:
        """Give the registry that a Kafka server names."""
        return self._registries.setdefault(server, MemoryRegistry())
