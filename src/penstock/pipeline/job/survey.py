"""One look at the clusters before anything runs: the topics are there, who they are, and what they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.brokers.conditions import Condition, made
from penstock.brokers.kafka_offsets import KafkaOffsets, Offsets
from penstock.contract.clusters import ContractClusters
from penstock.contract.credentials import Client, Connection, options, reveal
from penstock.errors import ClusterError, PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.compile import Pipeline
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.job.fingerprint import Change, beyond
from penstock.pipeline.ports import Invoker, Target
from penstock.pipeline.pulsar import PULSAR
from penstock.pipeline.stage import Stage

__all__ = ["Clusters", "Survey", "beyond_end", "creation", "settled", "survey"]


class Clusters:
    """The admin clients of a job, one for each cluster."""

    def __init__(self) -> None:
        self._clients: dict[str, KafkaOffsets] = {}

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
    limits: Mapping[tuple[int, str], int]
    """max.message.bytes of each target, by sink and topic."""
    compacted: frozenset[tuple[int, str]] = frozenset()
    """Targets whose cleanup.policy has compact, by sink and topic."""
    present: frozenset[tuple[int, str]] = frozenset()
    """Every topic that is there, by sink."""

    @property
    def is_empty(self) -> bool:
        """Whether the topic that is read holds nothing."""
        return all(self.earliest.get(part, 0) >= end for part, end in self.latest.items())


def survey(source: Source, stage: Stage, clusters: Clusters) -> Survey:
    """Look at what a source reads and writes; a topic that is not there is an error."""
    receive = source.receive
    admin = clusters.client(receive.server, receive.connection, receive.client_id)
    wanted = _topics(source, stage)
    limits: dict[tuple[int, str], int] = {}
    compacted: set[tuple[int, str]] = set()
    present: set[tuple[int, str]] = set()
    for sink, (server, connection) in enumerate(source.connections.items()):
        client, topics = clusters.client(server, connection), sorted(wanted[server])
        present |= {(sink, topic) for topic in _require(client, server, topics)}
        for topic, settings in _settings(client, topics).items():
            limit = settings.get("max.message.bytes", "")
            if limit.isdecimal():
                limits[sink, topic] = int(limit)
            if "compact" in settings.get("cleanup.policy", "").split(","):
                compacted.add((sink, topic))
    return Survey(
        cluster_id=admin.cluster_id(),
        topic_id=admin.topic_id(source.topic),
        earliest=admin.earliest(source.topic),
        latest=admin.latest(source.topic),
        limits=limits,
        compacted=frozenset(compacted),
        present=frozenset(present),
    )


def creation(source: Source, pipeline: Pipeline) -> Mapping[int, str]:
    """Return when the partitions of a source on Pulsar were created; nothing on Kafka.

    Pulsar is asked itself, also where a gateway is named: through it a topic that Pulsar's own tools have
    created has the same id for ever. Raises ClusterError.
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
    receive = source.receive
    return beyond(position, clusters.client(receive.server, receive.connection).latest(source.topic))


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
    wanted[source.receive.server].add(source.topic)
    routed = (each for route in stage.routes for each in (*route.targets, route.dead))
    for target in (stage.dead, *stage.unknown, *routed):
        wanted[servers[target.sink]].add(target.topic)
    return wanted


def _require(client: KafkaOffsets, server: str, topics: list[str]) -> Collection[str]:
    """Give all topics of a cluster; those that are needed must be among them."""
    cluster = client.cluster(topics)
    there, hidden = cluster.topics, [topic for topic in topics if topic in cluster.hidden]
    if hidden:
        why = f"topic {', '.join(hidden)}: it may not be seen"
        raise made(Condition.MISSING_RIGHT, where=client.address, why=why)
    missing = [topic for topic in topics if topic not in there]
    if missing:
        raise PipelineError(
            f"{server} has no topic {', '.join(missing)}",
            where=client.address,
            next="penstock plan shows what is missing, penstock apply makes it",
        )
    return there.keys()


def _settings(client: KafkaOffsets, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Give the settings of topics; none if the user may not see them: then the broker decides by record."""
    try:
        settings = client.settings(topics)
    except ClusterError:
        return {}
    return {topic: {name: each.value for name, each in found.items()} for topic, found in settings.items()}
