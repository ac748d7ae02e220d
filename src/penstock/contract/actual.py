"""What is there: the part of the clusters that a contract speaks about, read once, as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.brokers.kafka_layout import Setting, TopicUsage
from penstock.brokers.pulsar_admin import (
    NAMESPACE_POLICIES,
    TOPIC_POLICIES,
    NamespaceState,
    PulsarTopicState,
    PulsarUsage,
)
from penstock.brokers.schema_registry import Registered, SchemaReference, Verdict
from penstock.contract.desired import Desired, WantedKafkaTopic
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.topic_settings import TOPIC_SETTINGS
from penstock.contract.topics import namespace_of
from penstock.contract.wanted_subjects import WantedSubject

__all__ = [
    "Actual",
    "ActualKafka",
    "ActualKafkaTopic",
    "ActualPulsar",
    "ActualSubject",
    "read_actual",
    "same_schema",
]

NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualKafkaTopic:
    """A topic; of its settings only those that the contract declares."""

    partitions: int
    replicas: tuple[int, ...]
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualKafka:
    """A Kafka cluster as far as the contract goes."""

    brokers: int
    topics: Mapping[str, ActualKafkaTopic] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    """Declared settings that this broker does not know."""
    doomed: Mapping[str, TopicUsage] = field(default_factory=dict)
    """Topics that are declared no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualPulsar:
    """A Pulsar cluster as far as the contract goes."""

    clusters: tuple[str, ...]
    tenants: frozenset[str] = frozenset()
    namespaces: Mapping[str, NamespaceState] = field(default_factory=dict)
    topics: Mapping[str, PulsarTopicState] = field(default_factory=dict)
    doomed: Mapping[str, PulsarUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualSubject:
    """A subject, and what the registry says about the schema that is wanted."""

    latest: Registered
    found: int | None = None
    """The version that is the wanted schema."""
    compatibility: str = ""
    verdict: Verdict = Verdict(compatible=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """The clusters, by the name of the server; registries by the server that names them."""

    kafka: Mapping[str, ActualKafka] = field(default_factory=dict)
    pulsar: Mapping[str, ActualPulsar] = field(default_factory=dict)
    registries: Mapping[str, Mapping[str, ActualSubject]] = field(default_factory=dict)


def read_actual(desired: Desired, clusters: Clusters) -> Actual:
    """Look at everything that the contract speaks about."""
    families = desired.servers.items()
    registries = dict.fromkeys(wanted.registry for wanted in desired.subjects)
    return Actual(
        kafka={n: _read_kafka(n, desired, clusters.kafka(n)) for n, f in families if f == "kafka"},
        pulsar={n: _read_pulsar(n, desired, clusters.pulsar(n)) for n, f in families if f == "pulsar"},
        registries={name: _read_registry(name, desired, clusters.registry(name)) for name in registries},
    )


def _gone(desired: Desired, server: str) -> list[str]:
    return [topic for name, topic in desired.gone if name == server]


# Kafka


def _read_kafka(server: str, desired: Desired, port: KafkaPort) -> ActualKafka:
    wanted = [topic for topic in desired.kafka_topics if topic.server == server]
    cluster = port.cluster([topic.topic for topic in wanted])
    there = [topic for topic in wanted if topic.topic in cluster.topics]
    settings = port.settings([topic.topic for topic in there])
    there = [topic for topic in there if topic.topic in settings]
    doomed = [topic for topic in _gone(desired, server) if topic in cluster.topics]
    return ActualKafka(
        brokers=cluster.brokers,
        topics={
            topic.topic: ActualKafkaTopic(
                partitions=cluster.topics[topic.topic].partitions,
                replicas=cluster.topics[topic.topic].replicas,
                settings=_declared(topic, settings[topic.topic]),
            )
            for topic in there
        },
        unknown=_unknown(wanted, settings, port),
        doomed={topic: port.usage(topic) for topic in doomed},
    )


def _declared(topic: WantedKafkaTopic, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {key: settings[key] for key, _ in topic.settings if key in settings}


def _unknown(
    wanted: Iterable[WantedKafkaTopic], described: Mapping[str, Mapping[str, Setting]], port: KafkaPort
) -> frozenset[str]:
    """The declared settings that the broker does not list; with no topic to list them, it is asked."""
    declared = {key: value for topic in wanted for key, value in topic.settings}
    unusual = {key: value for key, value in declared.items() if key not in TOPIC_SETTINGS}
    if described:
        listed = {key for settings in described.values() for key in settings}
        return frozenset(declared.keys() - listed)
    return port.unknown_settings(unusual) if unusual else frozenset()


# Pulsar


def _read_pulsar(server: str, desired: Desired, port: PulsarPort) -> ActualPulsar:
    names = [wanted.namespace for wanted in desired.namespaces if wanted.server == server]
    tenants = frozenset(t for t in dict.fromkeys(n.partition("/")[0] for n in names) if port.has_tenant(t))
    policies = _policies(server, desired)
    namespaces = {n: port.namespace(n, policies) for n in names if n.partition("/")[0] in tenants}
    known = {name: state for name, state in namespaces.items() if state is not None}
    asked = [w.topic for w in desired.pulsar_topics if w.server == server and namespace_of(w.topic) in known]
    topics = port.topics(asked, policies)
    gone = port.topics(_gone(desired, server), ())
    doomed = [topic for topic, state in gone.items() if state is not None]
    return ActualPulsar(
        clusters=port.clusters(),
        tenants=tenants,
        namespaces=known,
        topics={topic: state for topic, state in topics.items() if state is not None},
        doomed={topic: port.usage(topic) for topic in doomed},
    )


def _policies(server: str, desired: Desired) -> tuple[str, ...]:
    """Name the policies that the contract declares somewhere on a server; others are not read."""
    namespaces = [wanted for wanted in desired.namespaces if wanted.server == server]
    topics = [wanted for wanted in desired.pulsar_topics if wanted.server == server]
    of_namespaces = [p for p in NAMESPACE_POLICIES if any(getattr(w, p) is not None for w in namespaces)]
    return (*of_namespaces, *(p for p in TOPIC_POLICIES if any(getattr(w, p) is not None for w in topics)))


# Registries


def _read_registry(name: str, desired: Desired, port: RegistryPort) -> dict[str, ActualSubject]:
    """Read the subjects, those that others refer to first: a reference has a version."""
    there = port.subjects()
    wanted = [subject for subject in desired.subjects if subject.registry == name and not subject.problem]
    found: dict[str, ActualSubject] = {}
    for subject in sorted(wanted, key=lambda each: each.rank):
        state = _read_subject(subject, found, port) if subject.subject in there else None
        if state is not None:
            found[subject.subject] = state
    return found


def _read_subject(
    wanted: WantedSubject, known: Mapping[str, ActualSubject], port: RegistryPort
) -> ActualSubject | None:
    latest = port.latest(wanted.subject)
    if latest is None:
        return None
    references = _references(wanted, known)
    if references is None:
        # What it refers to gets a new version, so this one does too; the registry cannot be asked before.
        return ActualSubject(latest=latest, compatibility=port.compatibility(wanted.subject))
    named = {(each.subject, each.version) for each in references}
    if same_schema(latest, wanted.schema_type, wanted.schema) and set(latest.references) == named:
        return ActualSubject(latest=latest, found=latest.version)
    schema = (wanted.schema_type, wanted.schema, references)
    found = port.find(wanted.subject, *schema)
    if found is not None:
        return ActualSubject(latest=latest, found=found.version)
    return ActualSubject(
        latest=latest,
        compatibility=port.compatibility(wanted.subject),
        verdict=port.check(wanted.subject, *schema),
    )


def _references(
    wanted: WantedSubject, known: Mapping[str, ActualSubject]
) -> tuple[SchemaReference, ...] | None:
    """Give the versions to which a schema refers; None if one of them is not registered yet."""
    found = []
    for subject in wanted.uses:
        version = known[subject].found if subject in known else None
        if version is None:
            return None
        found.append(SchemaReference(name=subject, subject=subject, version=version))
    return tuple(found)


def same_schema(registered: Registered, schema_type: str, schema: str) -> bool:
    """Say whether two schemas are the same text, or the same JSON."""
    if registered.schema_type != schema_type:
        return False
    try:
        return registered.schema.strip() == schema.strip() or json.loads(registered.schema) == json.loads(
            schema
        )
    except (ValueError, RecursionError):
        return False
