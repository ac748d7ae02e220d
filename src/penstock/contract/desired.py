"""What a contract wants of the clusters, as plain values: topics, namespaces, subjects.

Channels become topics of the chosen servers, in the chosen environment. What cannot be wanted, because
its name is not known when the document is written, becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from penstock.brokers.pulsar_admin import Retention
from penstock.contract.addresses import addresses_of, may_name
from penstock.contract.channels import Channel
from penstock.contract.document import Contract
from penstock.contract.environments import kafka_channel, pulsar_channel, require_environment
from penstock.contract.fingerprint import fingerprint
from penstock.contract.kafka import KafkaChannel
from penstock.contract.protocols import family_of
from penstock.contract.pulsar import PulsarChannel, PulsarRetention
from penstock.contract.pulsar_schemas import PayloadSchema, payload_schema
from penstock.contract.topics import kafka_topic, namespace_of, pulsar_topic
from penstock.contract.wanted_subjects import WantedSubject, subjects_of
from penstock.errors import ContractError, UsageError

__all__ = ["Desired", "Note", "WantedKafkaTopic", "WantedNamespace", "WantedPulsarTopic", "desired_state"]

MEGABYTE: Final = 1024 * 1024
OWN_TOPICS: Final = "__penstock_"
"""What the names of topics begin with in which Penstock keeps state of its own: no plan removes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something worth knowing that no step will change."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKafkaTopic:
    """A topic as the contract wants it; what is None is not declared, and not compared."""

    server: str
    topic: str
    partitions: int | None = None
    replicas: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    dead_letters_of: tuple[str, ...] = ()
    may_have_more: bool = False
    """Whether a topic with more partitions is as good: then they are not compared."""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedNamespace:
    """A namespace of Pulsar with the policies that its channels declare."""

    server: str
    namespace: str
    retention: Retention | None = None
    ttl: int | None = None
    replication: tuple[str, ...] | None = None
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPulsarTopic:
    """A topic of Pulsar by its full name."""

    server: str
    topic: str
    partitions: int | None = None
    """0 is a topic without partitions; None is not declared."""
    deduplication: bool | None = None
    compaction: int | None = None
    """Bytes."""
    payload: PayloadSchema = PayloadSchema()
    """What its messages say about their payloads."""
    dead_letters_of: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Everything that a contract wants in one environment."""

    title: str
    version: str
    fingerprint: str
    environment: str | None = None
    servers: Mapping[str, str]
    """The servers that are looked at: name and family."""
    kafka_topics: tuple[WantedKafkaTopic, ...] = ()
    namespaces: tuple[WantedNamespace, ...] = ()
    pulsar_topics: tuple[WantedPulsarTopic, ...] = ()
    subjects: tuple[WantedSubject, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    """Server and topic of what the earlier document declared and this one does not."""
    notes: tuple[Note, ...] = ()

    def with_topics(self, topics: Iterable[WantedKafkaTopic]) -> Desired:
        """Add topics that a pipeline needs beside those of its contract, on the servers that are looked at.

        A topic that the contract declares too keeps what only one of them says; raises ContractError if they
        disagree.
        """
        found = {(each.server, each.topic): each for each in self.kafka_topics}
        added = sorted(
            (each for each in topics if self.servers.get(each.server) == "kafka"),
            key=lambda each: each.server,
        )
        for each in added:
            key = (each.server, each.topic)
            found[key] = _merged(found[key], each, each.topic) if key in found else each
        wanted = tuple(sorted(found.values(), key=lambda each: (each.server, each.topic)))
        # A plan of this state is another one than that of the contract alone.
        mark = fingerprint((self.fingerprint, [replace(each, place="") for each in added]))
        return replace(self, kafka_topics=wanted, fingerprint=mark if added else self.fingerprint)


def desired_state(
    contract: Contract,
    *,
    servers: Iterable[str] | None = None,
    environment: str | None = None,
    previous: Contract | None = None,
) -> Desired:
    """Read what a contract wants; `previous` is an earlier version, whose topics may be removed."""
    require_environment(contract, environment)
    chosen = _servers(contract, servers)
    collected = _collect(contract, chosen, environment)
    gone = _gone(collected, contract, previous, chosen)
    return Desired(
        title=contract.info.title,
        version=contract.info.version,
        fingerprint=contract.fingerprint,
        environment=environment,
        servers=chosen,
        kafka_topics=tuple(
            sorted(collected.kafka.values(), key=lambda wanted: (wanted.server, wanted.topic))
        ),
        namespaces=tuple(sorted(collected.namespaces.values(), key=lambda w: (w.server, w.namespace))),
        pulsar_topics=tuple(sorted(collected.pulsar.values(), key=lambda w: (w.server, w.topic))),
        subjects=subjects_of(contract, [n for n, f in chosen.items() if f == "kafka"], environment),
        gone=gone,
        notes=tuple(collected.notes.values()),
    )


def _servers(contract: Contract, names: Iterable[str] | None) -> dict[str, str]:
    for name in names or ():
        if name not in contract.servers:
            raise UsageError(
                f"the contract has no server '{name}'", next=f"use one of {', '.join(contract.servers)}"
            )
    wanted = tuple(contract.servers if names is None else names)
    families = {name: family_of(contract.servers[name]) for name in wanted}
    return {name: family for name, family in families.items() if family in ("kafka", "pulsar")}


class _Collected:
    """What the channels ask for, by server and name."""

    def __init__(self) -> None:
        self.kafka: dict[tuple[str, str], WantedKafkaTopic] = {}
        self.namespaces: dict[tuple[str, str], WantedNamespace] = {}
        self.pulsar: dict[tuple[str, str], WantedPulsarTopic] = {}
        self.notes: dict[str, Note] = {}


def _collect(contract: Contract, chosen: Mapping[str, str], environment: str | None) -> _Collected:
    found = _Collected()
    feeders: dict[str, tuple[str, ...]] = {}
    for name, channel in contract.channels.items():
        if channel.dead_letter is not None:
            feeders[channel.dead_letter] = (*feeders.get(channel.dead_letter, ()), name)
    for name, channel in contract.channels.items():
        for server in contract.servers_of(channel):
            if chosen.get(server) == "kafka":
                _add_kafka(found, name, channel, server, feeders.get(name, ()), environment)
            elif chosen.get(server) == "pulsar":
                _add_pulsar(found, contract, name, channel, server, feeders.get(name, ()), environment)
    return found


def _gone(
    now: _Collected, contract: Contract, previous: Contract | None, chosen: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Name what only the earlier document declares.

    A topic that an address of this document may still stand for is declared, although nobody listed it.
    """
    if previous is None:
        return ()
    before = _collect(previous, chosen, None)
    kafka = [key for key in before.kafka if key not in now.kafka]
    pulsar = [key for key in before.pulsar if key not in now.pulsar]
    gone = []
    for server, topic in sorted(kafka + pulsar):
        if topic.startswith(OWN_TOPICS):
            text = f"is kept: {topic} holds how far pipelines are"
            now.notes[topic] = Note(name=topic, text=text)
            continue
        template = _open_template(contract, server, topic)
        if template is None:
            gone.append((server, topic))
        else:
            text = f"is kept: {topic} may be one of {template}, whose values are not listed"
            now.notes[topic] = Note(name=topic, text=text)
    return tuple(gone)


def _open_template(contract: Contract, server: str, topic: str) -> str | None:
    """Find the address with values that are not listed which may stand for a topic on a server."""
    described = contract.servers[server]
    for channel in contract.channels.values():
        if server in contract.servers_of(channel):
            pulsar = family_of(described) == "pulsar"
            template = pulsar_topic(channel, described) if pulsar else kafka_topic(channel)
            if may_name(template, channel, topic):
                return template
    return None


# Addresses


def _named(found: _Collected, name: str, channel: Channel, template: str | None) -> tuple[str, ...]:
    addresses = addresses_of(template, channel)
    if addresses is None:
        reason = (
            "its address is not known" if template is None else f"{template} has parameters without values"
        )
        found.notes[name] = Note(name=name, text=f"channel is left out: {reason}")
    return addresses or ()


# Kafka


def _add_kafka(
    found: _Collected,
    name: str,
    channel: Channel,
    server: str,
    feeders: tuple[str, ...],
    environment: str | None,
) -> None:
    binding = kafka_channel(channel, environment)
    for topic in _named(found, name, channel, kafka_topic(channel)):
        wanted = WantedKafkaTopic(
            server=server,
            topic=topic,
            partitions=binding.partitions,
            replicas=binding.replicas,
            settings=_settings(binding),
            dead_letters_of=feeders,
            place=_place(channel, binding),
        )
        key = (server, topic)
        found.kafka[key] = _merged(found.kafka[key], wanted, topic) if key in found.kafka else wanted


def _settings(binding: KafkaChannel) -> tuple[tuple[str, str], ...]:
    configuration = binding.topic_configuration
    return tuple(sorted(configuration.settings.items())) if configuration is not None else ()


def _merged(left: WantedKafkaTopic, right: WantedKafkaTopic, topic: str) -> WantedKafkaTopic:
    """Two channels of one topic: each may declare what the other leaves out."""
    settings = dict(left.settings)
    for key, value in right.settings:
        settings[key] = str(_agreed(settings.get(key), value, f"{key} of topic {topic}", right.place))
    return replace(
        left,
        partitions=_agreed(left.partitions, right.partitions, f"partitions of topic {topic}", right.place),
        replicas=_agreed(left.replicas, right.replicas, f"replicas of topic {topic}", right.place),
        settings=tuple(sorted(settings.items())),
        dead_letters_of=tuple(dict.fromkeys((*left.dead_letters_of, *right.dead_letters_of))),
    )


T = TypeVar("T")


def _agreed(left: T | None, right: T | None, what: str, place: str) -> T | None:
    if left is not None and right is not None and left != right:
        raise ContractError(
            f"two channels disagree about {what}: {left} and {right}",
            where=place,
            next="write the same value in both",
        )
    return right if left is None else left


# Pulsar


def _add_pulsar(
    found: _Collected,
    contract: Contract,
    name: str,
    channel: Channel,
    server: str,
    feeders: tuple[str, ...],
    environment: str | None,
) -> None:
    binding = pulsar_channel(channel, environment)
    place = _place(channel, binding)
    for topic in _named(found, name, channel, pulsar_topic(channel, contract.servers[server])):
        stored = topic.startswith("persistent://")
        _add_namespace(found, server, topic, binding, place)
        wanted = WantedPulsarTopic(
            server=server,
            topic=topic,
            partitions=binding.partitions,
            deduplication=binding.deduplication if stored else None,
            compaction=binding.compaction * MEGABYTE if stored and binding.compaction is not None else None,
            payload=payload_schema(contract, channel),
            dead_letters_of=feeders,
            place=place,
        )
        known = found.pulsar.setdefault((server, topic), wanted)
        found.pulsar[server, topic] = replace(
            known,
            partitions=_agreed(known.partitions, wanted.partitions, f"partitions of {topic}", place),
            deduplication=_agreed(
                known.deduplication, wanted.deduplication, f"deduplication of {topic}", place
            ),
            compaction=_agreed(known.compaction, wanted.compaction, f"compaction of {topic}", place),
            # Channels with different payloads share the topic: no one schema describes it.
            payload=known.payload if known.payload == wanted.payload else PayloadSchema(),
        )


def _add_namespace(found: _Collected, server: str, topic: str, binding: PulsarChannel, place: str) -> None:
    namespace = namespace_of(topic)
    wanted = WantedNamespace(
        server=server,
        namespace=namespace,
        retention=_retention(binding.retention),
        ttl=binding.ttl,
        replication=None if binding.geo_replication is None else tuple(sorted(set(binding.geo_replication))),
        place=place,
    )
    known = found.namespaces.setdefault((server, namespace), wanted)
    what = f"of namespace {namespace}"
    found.namespaces[server, namespace] = replace(
        known,
        retention=_agreed(known.retention, wanted.retention, f"retention {what}", place),
        ttl=_agreed(known.ttl, wanted.ttl, f"ttl {what}", place),
        replication=_agreed(known.replication, wanted.replication, f"geo-replication {what}", place),
    )


def _retention(binding: PulsarRetention | None) -> Retention | None:
    """Give the retention as Pulsar takes it: one limit of 0 beside another means that it does not limit."""
    if binding is None:
        return None
    if binding.time == binding.size == 0:
        return Retention(minutes=0, megabytes=0)
    # Pulsar refuses {60, 0}: "Use the value of -1 instead of 0 to ignore a specific limit".
    return Retention(minutes=binding.time or -1, megabytes=binding.size or -1)


def _place(channel: Channel, binding: KafkaChannel | PulsarChannel) -> str:
    node = binding.node if binding.node.file else channel.node
    return str(node.position())
