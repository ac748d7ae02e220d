"""One look at the clusters before anything runs: the topics are there, who they are, and what they take."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Protocol

from penstock.brokers.conditions import Condition, made
from penstock.brokers.kafka_offsets import KafkaOffsets, Offsets
from penstock.contract.clusters import ContractClusters
from penstock.contract.credentials import Client, Connection, options, reveal
from penstock.errors import ClusterError, PipelineError, Unreachable
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.delivery.pulsar.settings import PulsarSettings
from penstock.pipeline.delivery.pulsar.targets import PulsarTopic, inspect_topics
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.job.fingerprint import Change, beyond
from penstock.pipeline.ports import Invoker, Target
from penstock.pipeline.pulsar import PULSAR
from penstock.pipeline.stage import Stage

if TYPE_CHECKING:
    from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets

__all__ = ["Clusters", "SourceOffsets", "Survey", "beyond_end", "creation", "has_topics", "settled", "survey"]

_log = logging.getLogger(__name__)


class SourceOffsets(Protocol):
    """What a job asks of the side that it reads, Kafka or Pulsar."""

    def earliest(self, topic: str) -> Offsets:
        """Return the first offset that each partition still has."""

    def latest(self, topic: str) -> Offsets:
        """Return where each partition ends."""

    def commit(self, group: str, topic: str, offsets: Offsets) -> None:
        """Commit offsets for a group, or move the cursors of a subscription."""


class Clusters:
    """The admin clients of a job, one for each cluster."""

    def __init__(self, stop: Event | None = None) -> None:
        """When `stop` is set, what waits for an answer of Pulsar ends soon."""
        self._stop = stop
        self._clients: dict[str, KafkaOffsets] = {}
        self._pulsars: dict[str, PulsarOffsets] = {}

    def close(self) -> None:
        """Close the connections to Pulsar; those to Kafka close themselves."""
        for client in self._pulsars.values():
            client.close()
        self._pulsars.clear()

    def source(self, source: Source) -> SourceOffsets:
        """Return the client of the cluster that a source reads."""
        receive = source.receive
        if source.is_on_pulsar:
            return self.pulsar(receive.server, receive.connection)
        return self.client(receive.server, receive.connection)

    def own(self, source: Source, *, timeout: float) -> SourceOffsets:
        """Return a client of the cluster that a source reads for another thread; Pulsar's serves them all."""
        receive = source.receive
        if source.is_on_pulsar:
            return self.pulsar(receive.server, receive.connection).within(timeout)
        return self.new(receive.server, receive.connection, timeout=timeout)

    def pulsar(self, server: str, connection: Connection) -> PulsarOffsets:
        """Return the client of a Pulsar; any thread may use it."""
        if server not in self._pulsars:
            # It loads kernels, which only jobs with a source on Pulsar need.
            from penstock.pipeline.delivery.pulsar.cluster import PulsarSettings
            from penstock.pipeline.delivery.pulsar.offsets import PulsarOffsets

            self._pulsars[server] = PulsarOffsets(PulsarSettings.of(connection), stop=self._stop)
        return self._pulsars[server]

    def client(self, server: str, connection: Connection, client_id: str | None = None) -> KafkaOffsets:
        """Give the client of a cluster."""
        if server not in self._clients:
            self._clients[server] = self.new(server, connection, client_id)
        return self._clients[server]

    def new(
        self, server: str, connection: Connection, client_id: str | None = None, *, timeout: float = 30.0
    ) -> KafkaOffsets:
        """Make a client of a cluster for one's own use, in another thread."""
        own = reveal(options(connection, Client.CONFLUENT_KAFKA))
        named = {"client.id": client_id} if client_id else {}
        return KafkaOffsets({**own, **named}, name=server, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a source and its targets are like."""

    cluster_id: str | None
    topic_id: str | None
    earliest: Offsets
    latest: Offsets
    created: Mapping[int, str] = field(default_factory=dict)
    """When each partition was created, as far as Pulsar says; empty on Kafka, whose ids suffice."""
    limits: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """max.message.bytes of each target, by sink and topic."""
    compacted: frozenset[tuple[int, str]] = frozenset()
    """Targets whose cleanup.policy has compact, by sink and topic."""
    present: frozenset[tuple[int, str]] = frozenset()
    """Every topic that is there, by sink."""
    on_pulsar: Mapping[tuple[int, str], PulsarTopic] = field(default_factory=dict)
    """What targets are like that are written by Pulsar's own protocol, by sink and topic."""

    @property
    def is_empty(self) -> bool:
        """Whether the topic that is read holds nothing."""
        return all(self.earliest.get(part, 0) >= end for part, end in self.latest.items())


def survey(source: Source, stage: Stage, clusters: Clusters) -> Survey:
    """Look at what a source reads and writes; a topic that is not there is an error."""
    wanted = _topics(source, stage)
    limits: dict[tuple[int, str], int] = {}
    compacted: set[tuple[int, str]] = set()
    present: set[tuple[int, str]] = set()
    on_pulsar: dict[tuple[int, str], PulsarTopic] = {}
    for sink, (server, connection) in enumerate(source.connections.items()):
        is_read = source.is_on_pulsar and server == source.receive.server
        if is_read and server not in source.native_pulsar:
            continue  # nothing is written there; the topic that is read is looked at below
        topics = sorted(wanted[server])
        if server in source.native_pulsar:
            asked = {
                each.topic for each in _receipt_targets(stage) if each.sink % len(source.servers) == sink
            }
            seen = _inspect_pulsar(server, connection, topics, asked)
            on_pulsar |= {(sink, topic): each for topic, each in seen.items()}
            continue
        client = clusters.client(server, connection)
        present |= {(sink, topic) for topic in _require(client, server, topics)}
        for topic, settings in _settings(client, topics).items():
            limit = settings.get("max.message.bytes", "")
            if limit.isdecimal():
                limits[sink, topic] = int(limit)
            if "compact" in settings.get("cleanup.policy", "").split(","):
                compacted.add((sink, topic))
    return replace(
        _of_pulsar(source, clusters) if source.is_on_pulsar else _of_kafka(source, clusters),
        limits=limits | {place: each.limit for place, each in on_pulsar.items()},
        compacted=frozenset(compacted),
        present=frozenset(present | on_pulsar.keys()),
        on_pulsar=on_pulsar,
    )


def _of_kafka(source: Source, clusters: Clusters) -> Survey:
    receive = source.receive
    admin = clusters.client(receive.server, receive.connection, receive.client_id)
    return Survey(
        cluster_id=admin.cluster_id(),
        topic_id=admin.topic_id(source.topic),
        earliest=admin.earliest(source.topic),
        latest=admin.latest(source.topic),
    )


def _of_pulsar(source: Source, clusters: Clusters) -> Survey:
    """Look at a topic on Pulsar: the times of creation of its partitions say which one it is."""
    receive = source.receive
    client = clusters.pulsar(receive.server, receive.connection)
    created = client.created(source.topic)
    if created is None:
        raise _missing(receive.server, (source.topic,), receive.connection.address)
    return Survey(
        cluster_id=None,
        topic_id=None,
        created=created,
        earliest=client.earliest(source.topic),
        latest=client.latest(source.topic),
    )


def _receipt_targets(stage: Stage) -> Iterator[Target]:
    """Give the topics that events may name for their receipts."""
    for route in stage.routes:
        if isinstance(route.invoker, FunctionInvoker) and route.invoker.receipts is not None:
            yield from route.invoker.receipts.channels.values()


def _inspect_pulsar(
    server: str, connection: Connection, topics: Collection[str], others: Collection[str]
) -> Mapping[str, PulsarTopic]:
    """Look at topics on a Pulsar that is reached by its own protocol; all but the `others` must be there."""
    # It checks sums of entries with a kernel, which the driver loads only for this.
    from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster

    with PulsarCluster(PulsarSettings.of(connection)) as cluster:
        found = inspect_topics(cluster, {*topics, *others})
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise _missing(server, missing, connection.address)
    return found


def creation(source: Source, pipeline: Pipeline) -> Mapping[int, str]:
    """Return when the partitions of a source on Pulsar were created; nothing on Kafka.

    Pulsar is asked by its REST API. Raises ClusterError.
    """
    if source.receive.protocol != PULSAR:
        return {}
    with ContractClusters(pipeline.contract, pipeline.context) as clusters:
        return clusters.pulsar(source.receive.server).created(source.topic)


def beyond_end(position: Offsets, source: Source, found: Survey, clusters: Clusters) -> tuple[Change, ...]:
    """Say where the progress of a job lies beyond the end of its topic.

    Another job that still works may have moved it behind the end that the survey saw: the end is asked anew.
    """
    if not beyond(position, found.latest):
        return ()
    return beyond(position, clusters.source(source).latest(source.topic))


def settled(stage: Stage, found: Survey, clusters: int) -> Stage:
    """Tell a stage what its topics take, and which channels of receipts are there at all."""

    def known(target: Target) -> Target:
        place = (target.sink, target.topic)
        return replace(target, limit=found.limits.get(place), compacted=place in found.compacted)

    routes = tuple(
        replace(
            route,
            targets=tuple(map(known, route.targets)),
            dead=known(route.dead),
            invoker=_with_receipts(route.invoker, found, clusters),
        )
        for route in stage.routes
    )
    unknown = tuple(map(known, stage.unknown))
    return replace(stage, routes=routes, dead=known(stage.dead), unknown=unknown)


def _with_receipts(invoker: Invoker | None, found: Survey, clusters: int) -> Invoker | None:
    """Forget channels without a topic: an event that names one must not be able to stop the job."""
    if not isinstance(invoker, FunctionInvoker) or invoker.receipts is None:
        return invoker
    channels = {
        name: target
        for name, target in invoker.receipts.channels.items()
        if (target.sink % clusters, target.topic) in found.present
    }
    return replace(invoker, receipts=replace(invoker.receipts, channels=channels))


def _topics(source: Source, stage: Stage) -> Mapping[str, set[str]]:
    """Give the topics that must be there, by server."""
    servers = source.servers
    wanted: dict[str, set[str]] = {server: set() for server in servers}
    if not source.is_on_pulsar:
        wanted[source.receive.server].add(source.topic)
    routed = (each for route in stage.routes for each in (*route.targets, route.dead))
    for target in (stage.dead, *stage.unknown, *routed):
        wanted[servers[target.sink]].add(target.topic)
    return wanted


def has_topics(source: Source, stage: Stage, clusters: Clusters) -> bool:
    """Return whether the topics of a source are there, as far as its clusters answer."""
    try:
        survey(source, stage, clusters)
    except ClusterError as exc:
        _log.debug("whether all topics of a source are there is not known: %s", exc)
        return isinstance(exc, Unreachable)
    except PipelineError:
        return False
    return True


def _require(client: KafkaOffsets, server: str, topics: list[str]) -> Collection[str]:
    """Give all topics of a cluster; those that are needed must be among them."""
    cluster = client.cluster(topics)
    there, hidden = cluster.topics, [topic for topic in topics if topic in cluster.hidden]
    if hidden:
        why = f"topic {', '.join(hidden)}: it may not be seen"
        raise made(Condition.MISSING_RIGHT, where=client.address, why=why)
    missing = [topic for topic in topics if topic not in there]
    if missing:
        raise _missing(server, missing, client.address)
    return there.keys()


def _missing(server: str, topics: Iterable[str], where: str) -> PipelineError:
    return PipelineError(
        f"{server} has no topic {', '.join(topics)}",
        where=where,
        next="penstock plan shows what is missing, penstock apply makes it",
    )


def _settings(client: KafkaOffsets, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Give the settings of topics; none if the user may not see them: then the broker decides by record."""
    try:
        settings = client.settings(topics)
    except ClusterError:
        return {}
    return {topic: {name: each.value for name, each in found.items()} for topic, found in settings.items()}
