"""What is there: the part of the clusters that a contract speaks about, read once, as plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.brokers.kafka_layout import Setting, TopicUsage
from penstock.brokers.pulsar_admin import (
    NAMESPACE_POLICIES,
    SCHEMA,
    TOPIC_POLICIES,
    NamespaceState,
    PulsarSchema,
    PulsarTopicState,
    PulsarUsage,
)
from penstock.brokers.schema_registry import Registered, SchemaReference, Verdict
from penstock.contract.avro_types import defined_names, inlined, normal_form
from penstock.contract.desired import Desired, WantedKafkaTopic, WantedNamespace
from penstock.contract.node import JsonValue
from penstock.contract.ports import Clusters, KafkaPort, PulsarPort, RegistryPort
from penstock.contract.pulsar_schemas import AVRO, same_definition
from penstock.contract.topic_settings import TOPIC_SETTINGS
from penstock.contract.topics import namespace_of
from penstock.contract.wanted_subjects import WantedSubject
from penstock.errors import AccessDenied

__all__ = [
    "UNCHECKED",
    "Actual",
    "ActualKafka",
    "ActualKafkaTopic",
    "ActualPulsar",
    "ActualSubject",
    "Unseen",
    "read_actual",
    "same_schema",
]

_T = TypeVar("_T")
UNCHECKED: Final = "NONE"
"""The level at which a registry takes any schema."""
MAX_REFERENCES: Final = 200
MAX_VALUES: Final = 100_000
"""Values of a schema with all types written out, and schemas that it may refer to; more is not compared."""


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
    versions: Mapping[str, int] = field(default_factory=dict)
    """Which version of a topic's schema is the wanted one, where the newest is written otherwise."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why the schema that is wanted of a topic may not follow the one that it has."""
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
class Unseen:
    """Something that the contract declares and that this user may not see, so that it is not compared."""

    server: str
    noun: str
    name: str
    what: str = ""
    """The part that may not be seen; empty if it is the whole."""
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """The clusters, by the name of the server; registries by the server that names them."""

    kafka: Mapping[str, ActualKafka] = field(default_factory=dict)
    pulsar: Mapping[str, ActualPulsar] = field(default_factory=dict)
    registries: Mapping[str, Mapping[str, ActualSubject]] = field(default_factory=dict)
    unseen: tuple[Unseen, ...] = ()
    hidden: frozenset[tuple[str, str]] = frozenset()
    """Server and name of what may not be seen at all."""


def read_actual(desired: Desired, clusters: Clusters) -> Actual:
    """Look at everything that the contract speaks about; what may not be seen does not hide the rest."""
    families = desired.servers.items()
    registries = dict.fromkeys(wanted.registry for wanted in desired.subjects)
    unseen: list[Unseen] = []
    kafka = {n: _read_kafka(n, desired, clusters.kafka(n), unseen) for n, f in families if f == "kafka"}
    pulsar = {n: _read_pulsar(n, desired, clusters.pulsar(n), unseen) for n, f in families if f == "pulsar"}
    subjects = {name: _read_registry(name, desired, clusters.registry(name), unseen) for name in registries}
    return Actual(
        kafka=kafka,
        pulsar=pulsar,
        registries=subjects,
        unseen=tuple(unseen),
        hidden=frozenset((each.server, each.name) for each in unseen if not each.what),
    )


def _gone(desired: Desired, server: str) -> list[str]:
    return [topic for name, topic in desired.gone if name == server]


# Kafka


def _read_kafka(server: str, desired: Desired, port: KafkaPort, unseen: list[Unseen]) -> ActualKafka:
    wanted = [topic for topic in desired.kafka_topics if topic.server == server]
    cluster = port.cluster([*(topic.topic for topic in wanted), *_gone(desired, server)])
    there = [topic for topic in wanted if topic.topic in cluster.topics]
    unseen += [Unseen(server=server, noun="topic", name=name) for name in sorted(cluster.hidden)]
    settings = _read_settings(server, there, port, unseen)
    there = [topic for topic in there if topic.topic in settings]
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
        doomed=_usages(
            server, [t for t in _gone(desired, server) if t in cluster.topics], port.usage, unseen
        ),
    )


def _read_settings(
    server: str, topics: Sequence[WantedKafkaTopic], port: KafkaPort, unseen: list[Unseen]
) -> Mapping[str, Mapping[str, Setting]]:
    """Read the settings of topics; where those of one may not be seen, of each by itself."""
    try:
        return port.settings([topic.topic for topic in topics])
    except AccessDenied:
        found: dict[str, Mapping[str, Setting]] = {}
    for topic in topics:
        try:
            found |= port.settings([topic.topic])
        except AccessDenied as denied:
            found[topic.topic] = {}
            if topic.settings:
                unseen.append(_unseen(server, "topic", topic.topic, denied, "settings"))
    return found


def _usages(
    server: str, topics: Iterable[str], usage: Callable[[str], _T], unseen: list[Unseen]
) -> dict[str, _T]:
    """Read what would be lost with topics; one that may not be looked into is not deleted."""
    found = {}
    for topic in topics:
        try:
            found[topic] = usage(topic)
        except AccessDenied as denied:
            unseen.append(_unseen(server, "topic", topic, denied, "what it holds"))
    return found


def _unseen(server: str, noun: str, name: str, denied: AccessDenied, what: str = "") -> Unseen:
    return Unseen(server=server, noun=noun, name=name, what=what, why=denied.why or denied.what)


def _declared(topic: WantedKafkaTopic, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    return {key: settings[key] for key, _ in topic.settings if key in settings}


def _unknown(
    wanted: Iterable[WantedKafkaTopic], described: Mapping[str, Mapping[str, Setting]], port: KafkaPort
) -> frozenset[str]:
    """The declared settings that the broker does not list; with no topic to list them, it is asked."""
    declared = {key: value for topic in wanted for key, value in topic.settings}
    unusual = {key: value for key, value in declared.items() if key not in TOPIC_SETTINGS}
    listed = {key for settings in described.values() for key in settings}
    if listed:
        return frozenset(declared.keys() - listed)
    try:
        return port.unknown_settings(unusual) if unusual else frozenset()
    except AccessDenied:
        # Who may not create topics may not ask either; what the broker does not know it refuses later.
        return frozenset()


# Pulsar


def _read_pulsar(server: str, desired: Desired, port: PulsarPort, unseen: list[Unseen]) -> ActualPulsar:
    # Everybody with valid credentials may ask for the clusters: a refusal here is no missing right.
    clusters = port.clusters()
    wanted = [each for each in desired.namespaces if each.server == server]
    policies = _policies(server, desired)
    tenants = _tenants(dict.fromkeys(each.namespace.partition("/")[0] for each in wanted), port)
    there = [each for each in wanted if each.namespace.partition("/")[0] in tenants]
    known, hidden = _read_namespaces(there, policies, port, unseen)
    asked = [
        each.topic
        for each in desired.pulsar_topics
        if each.server == server and namespace_of(each.topic) in {*known, *hidden}
    ]
    topics = _read_topics(server, port.topics(asked, policies), unseen)
    versions, refusals = _schemas(server, desired, topics, port, unseen)
    doomed = _read_topics(server, port.topics(_gone(desired, server), ()), unseen)
    return ActualPulsar(
        clusters=clusters,
        tenants=tenants,
        namespaces=known,
        topics=topics,
        versions=versions,
        refusals=refusals,
        doomed=_usages(server, doomed, port.usage, unseen),
    )


def _schemas(
    server: str,
    desired: Desired,
    topics: Mapping[str, PulsarTopicState],
    port: PulsarPort,
    unseen: list[Unseen],
) -> tuple[dict[str, int], dict[str, str]]:
    """Ask about schemas that would replace others: which version one is already, or why it may not be one.

    Only administrators of a tenant may ask whether a schema is compatible. A topic without one takes any.
    """
    versions: dict[str, int] = {}
    refusals: dict[str, str] = {}
    for wanted in desired.pulsar_topics:
        there = topics[wanted.topic].schema if wanted.server == server and wanted.topic in topics else None
        avro = wanted.payload.avro
        if there is None or avro is None or there.type != AVRO or same_definition(there.definition, avro):
            continue
        schema = PulsarSchema(type=AVRO, definition=avro)
        try:
            version = _version_of(avro, port.schemas(wanted.topic))
            refusal = port.schema_refusal(wanted.topic, schema) if version is None else None
        except AccessDenied as denied:
            what = "whether a new schema is compatible"
            unseen.append(_unseen(server, "topic", wanted.topic, denied, what))
            continue
        versions |= {} if version is None else {wanted.topic: version}
        refusals |= {} if refusal is None else {wanted.topic: refusal}
    return versions, refusals


def _version_of(avro: str, versions: Iterable[PulsarSchema]) -> int | None:
    found = (
        each.version for each in versions if each.type == AVRO and same_definition(each.definition, avro)
    )
    return max(found, default=None)


def _tenants(names: Iterable[str], port: PulsarPort) -> frozenset[str]:
    """Give the tenants that are there, or may be: only their administrators may ask."""
    found = set()
    for name in names:
        try:
            if port.has_tenant(name):
                found.add(name)
        except AccessDenied:
            found.add(name)
    return frozenset(found)


def _read_namespaces(
    wanted: Iterable[WantedNamespace], policies: Sequence[str], port: PulsarPort, unseen: list[Unseen]
) -> tuple[dict[str, NamespaceState], list[str]]:
    """Read namespaces; the second are those that may not be seen, whose topics perhaps may."""
    known: dict[str, NamespaceState] = {}
    hidden = []
    for each in wanted:
        try:
            state = port.namespace(each.namespace, policies)
        except AccessDenied as denied:
            if all(getattr(each, policy) is None for policy in NAMESPACE_POLICIES):
                known[each.namespace] = NamespaceState()  # nothing of it is compared
                continue
            hidden.append(each.namespace)
            unseen.append(_unseen(each.server, "namespace", each.namespace, denied))
        else:
            known |= {} if state is None else {each.namespace: state}
    return known, hidden


def _read_topics(
    server: str, found: Mapping[str, PulsarTopicState | AccessDenied | None], unseen: list[Unseen]
) -> dict[str, PulsarTopicState]:
    topics = {}
    for topic, state in found.items():
        if isinstance(state, AccessDenied):
            unseen.append(_unseen(server, "topic", topic, state))
        elif state is not None:
            topics[topic] = state
            if state.hidden:
                what = ", ".join(state.hidden)
                unseen.append(Unseen(server=server, noun="topic", name=topic, what=what))
    return topics


def _policies(server: str, desired: Desired) -> tuple[str, ...]:
    """Name the policies that the contract declares somewhere on a server; others are not read."""
    namespaces = [wanted for wanted in desired.namespaces if wanted.server == server]
    topics = [wanted for wanted in desired.pulsar_topics if wanted.server == server]
    of_namespaces = [p for p in NAMESPACE_POLICIES if any(getattr(w, p) is not None for w in namespaces)]
    of_topics = [p for p in TOPIC_POLICIES if any(getattr(w, p) is not None for w in topics)]
    schema = [SCHEMA] if any(w.payload.format is not None for w in topics) else []
    return (*of_namespaces, *of_topics, *schema)


# Registries


def _read_registry(
    name: str, desired: Desired, port: RegistryPort, unseen: list[Unseen]
) -> dict[str, ActualSubject]:
    """Read the subjects, those that others refer to first: a reference has a version."""
    wanted = [subject for subject in desired.subjects if subject.registry == name and not subject.problem]
    found: dict[str, ActualSubject] = {}
    there: frozenset[str] | None = None
    for subject in sorted(wanted, key=lambda each: each.rank):
        try:
            there = port.subjects() if there is None else there
            state = _read_subject(subject, found, port) if subject.subject in there else None
        except AccessDenied as denied:
            unseen.append(_unseen(name, "schema", subject.subject, denied))
        else:
            found |= {} if state is None else {subject.subject: state}
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
    is_same = same_schema(latest, wanted.schema_type, wanted.schema) and set(latest.references) == named
    if is_same or (not references and _is_same_with_references(latest, wanted, port)):
        return ActualSubject(
            latest=latest, found=latest.version, compatibility=_unchecked(wanted.subject, port)
        )
    schema = (wanted.schema_type, wanted.schema, references)
    found = port.find(wanted.subject, *schema)
    if found is not None:
        return ActualSubject(
            latest=latest, found=found.version, compatibility=_unchecked(wanted.subject, port)
        )
    return ActualSubject(
        latest=latest,
        compatibility=port.compatibility(wanted.subject),
        verdict=port.check(wanted.subject, *schema),
    )


def _unchecked(subject: str, port: RegistryPort) -> str:
    """Give the level of a subject whose new versions the registry does not check; empty if it does."""
    level = port.compatibility(subject)
    return level if level == UNCHECKED else ""


def _is_same_with_references(latest: Registered, wanted: WantedSubject, port: RegistryPort) -> bool:
    """Say whether an Avro schema is the wanted one once the types that it refers to are written out."""
    if not latest.references or {latest.schema_type, wanted.schema_type} != {"AVRO"}:
        return False
    written = 0

    def spend() -> None:
        nonlocal written
        written += 1
        if written > MAX_VALUES:
            raise ValueError("the schema is too large to be written out")

    try:
        whole = inlined(json.loads(latest.schema), _referenced(latest, port), spend)
        return normal_form(whole) == normal_form(json.loads(wanted.schema))
    except (ValueError, RecursionError):
        return False


def _referenced(registered: Registered, port: RegistryPort) -> dict[str, JsonValue]:
    """Give the schemas to which one refers, directly or not, by the names of the types that they define."""
    found: dict[str, JsonValue] = {}
    waiting = list(registered.references)
    seen = set(waiting)
    while waiting and len(seen) <= MAX_REFERENCES:
        each = port.version(*waiting.pop())
        if each is not None:
            schema = json.loads(each.schema)
            found |= dict.fromkeys(defined_names(schema), schema)
            waiting += [new for new in each.references if new not in seen]
            seen |= set(each.references)
    return found


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
