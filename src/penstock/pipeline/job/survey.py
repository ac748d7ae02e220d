"""One look at the clusters before anything runs: the topics are there, who they are, and what they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.brokers.kafka_offsets import KafkaOffsets, Offsets
from penstock.contract.credentials import Client, Connection, options, reveal
from penstock.errors import ClusterError, PipelineError
from penstock.pipeline.assembly import Source
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage

__all__ = ["Clusters", "Survey", "limited", "survey"]


class Clusters:
    """The admin clients of a job, one for each cluster."""

    def __init__(self) -> None:
        self._clients: dict[str, KafkaOffsets] = {}

    def client(self, server: str, connection: Connection, client_id: str | None = None) -> KafkaOffsets:
        """Give the client of a cluster."""
        if server not in self._clients:
            own = reveal(options(connection, Client.CONFLUENT_KAFKA))
            named = {"client.id": client_id} if client_id else {}
            self._clients[server] = KafkaOffsets({**own, **named}, name=server)
        return self._clients[server]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a source and its targets are like."""

    cluster_id: str | None
    topic_id: str | None
    earliest: Offsets
    latest: Offsets
    limits: Mapping[tuple[int, str], int]
    """max.message.bytes of each target, by sink and topic."""


def survey(source: Source, stage: Stage, clusters: Clusters) -> Survey:
    """Look at what a source reads and writes; a topic that is not there is an error."""
    receive = source.receive
    admin = clusters.client(receive.server, receive.connection, receive.client_id)
    wanted = _topics(source, stage)
    limits: dict[tuple[int, str], int] = {}
    for sink, (server, connection) in enumerate(source.connections.items()):
        client = clusters.client(server, connection)
        topics = sorted(wanted[server])
        _require(client, server, topics)
        limits |= {(sink, topic): limit for topic, limit in _limits(client, topics)}
    return Survey(
        cluster_id=admin.cluster_id(),
        topic_id=admin.topic_id(source.topic),
        earliest=admin.earliest(source.topic),
        latest=admin.latest(source.topic),
        limits=limits,
    )


def limited(stage: Stage, limits: Mapping[tuple[int, str], int]) -> Stage:
    """Tell the targets of a stage what their topics take."""

    def known(target: Target) -> Target:
        return replace(target, limit=limits.get((target.sink, target.topic)))

    routes = tuple(
        replace(route, targets=tuple(map(known, route.targets)), dead=known(route.dead))
        for route in stage.routes
    )
    return replace(stage, routes=routes, dead=known(stage.dead))


def _topics(source: Source, stage: Stage) -> Mapping[str, set[str]]:
    """Give the topics that must be there, by server."""
    servers = source.servers
    wanted: dict[str, set[str]] = {server: set() for server in servers}
    wanted[source.receive.server].add(source.topic)
    for target in (stage.dead, *(each for route in stage.routes for each in (*route.targets, route.dead))):
        wanted[servers[target.sink % len(servers)]].add(target.topic)
    return wanted


def _require(client: KafkaOffsets, server: str, topics: list[str]) -> None:
    there = client.cluster(topics).topics
    missing = [topic for topic in topics if topic not in there]
    if missing:
        raise PipelineError(
            f"{server} has no topic {', '.join(missing)}",
            where=client.address,
            next="penstock plan shows what is missing, penstock apply makes it",
        )


def _limits(client: KafkaOffsets, topics: list[str]) -> Iterator[tuple[str, int]]:
    try:
        settings = client.settings(topics)
    except ClusterError:
        return  # A user who may not see settings may still write: the broker is the judge then.
    for topic, found in settings.items():
        limit = found.get("max.message.bytes")
        if limit is not None and limit.value.isdecimal():
            yield topic, int(limit.value)
