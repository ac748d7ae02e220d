"""One topic for `penstock topics NAME`: partitions, readers, settings, and where it has left the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.cli.clusters import Cluster, Clusters
from penstock.cli.planning import look
from penstock.cli.settings import Format, current
from penstock.cli.standing import (
    MAX_GROUPS,
    Reader,
    beside_cursors,
    full_name,
    kafka_readers,
    pulsar_readers,
    short_name,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar_subscriptions import TopicStats
    from penstock.contract import Contract

__all__ = ["print_topic"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Everything about one topic."""

    topic: str
    server: str
    channel: str | None
    facts: Mapping[str, Any]
    partitions: Sequence[Row]
    readers: Sequence[Reader]
    settings: Mapping[str, str]
    drift: Sequence[str]


def print_topic(clusters: Clusters, contract: Contract | None, name: str, environment: str | None) -> None:
    """Print a topic, or the topic of a channel or operation, on every server that has it."""
    asked = {cluster.name: _topic(cluster, contract, name) for cluster in clusters.chosen}

    def find(cluster: Cluster) -> Detail | None:
        if cluster.kind == "pulsar":
            return _on_pulsar(cluster, clusters, asked[cluster.name])
        return _on_kafka(cluster, asked[cluster.name])

    details = clusters.each(find, clusters.with_topics)
    found = [_of_contract(each, contract, environment) for each in details if each is not None]
    if not found and not clusters.failed:
        raise UsageError(f"there is no topic '{name}'", next="penstock topics lists them")
    if current().output is Format.TABLE:
        for each in found:
            _print(each)
    else:
        output.document([_data(each) for each in found], current().output)


def _topic(cluster: Cluster, contract: Contract | None, name: str) -> str:
    """Give the topic that a name means on a cluster: that of a channel or operation, else itself."""
    from penstock.contract.meaning import topics_of

    operation = contract.operations.get(name) if contract is not None else None
    channel = contract.channels.get(operation.channel or "" if operation else name) if contract else None
    if contract is not None and channel is not None and cluster.name in contract.servers_of(channel):
        return str(next(filter(None, topics_of(channel, contract.servers[cluster.name], {})), name))
    return name


# What the clusters say


def _on_kafka(cluster: Cluster, topic: str) -> Detail | None:
    client = cluster.kafka
    count = client.partitions([topic]).get(topic)
    if count is None:
        return None
    readers = kafka_readers(cluster, client.groups()[:MAX_GROUPS])
    settings = client.settings([topic]).get(topic, {})
    return Detail(
        topic=topic,
        server=cluster.name,
        channel=None,
        facts={"partitions": count, "replicas": _replicas(client.cluster().topics.get(topic))},
        partitions=list(_offsets(cluster, topic, count)),
        readers=_of_topic(readers, topic),
        settings={key: each.value for key, each in sorted(settings.items()) if each.source == "topic"},
        drift=(),
    )


def _replicas(layout: Any) -> str:
    return ", ".join(map(str, layout.replicas)) if layout is not None else "-"


def _offsets(cluster: Cluster, topic: str, count: int) -> Iterator[Row]:
    from penstock.brokers.start import Start, StartKind

    parts = [(topic, number) for number in range(count)]
    first = cluster.kafka.places(parts, Start(StartKind.BEGINNING))
    last = cluster.kafka.places(parts, Start(StartKind.END))
    for part in parts:
        ends = first.get(part), last.get(part)
        records = None if None in ends else max(0, last[part] - first[part])
        yield {"partition": part[1], "first": ends[0], "end": ends[1], "records": records}


def _on_pulsar(cluster: Cluster, clusters: Clusters, topic: str) -> Detail | None:
    full = full_name(topic) or topic
    if "://" not in full:
        return None
    stats = cluster.pulsar.look([full]).get(full)
    if stats is None:
        return None
    gateway = next((each for each in clusters.known if each.kind == "gateway"), None)
    behind = gateway if clusters.behind_gateway is cluster else None
    return Detail(
        topic=full,
        server=cluster.name,
        channel=None,
        facts={"partitions": stats.partitions or "none", "entries": stats.entries},
        partitions=_entries(stats, behind),
        readers=_pulsar_readers(cluster, stats, behind),
        settings={},
        drift=(),
    )


def _entries(stats: TopicStats, gateway: Cluster | None) -> list[Row]:
    """Give what each partition holds in entries, and in records if a gateway counts them."""
    own = [{"partition": number, "entries": part.entries} for number, part in stats.parts.items()]
    if gateway is None:
        return own
    offsets = {
        row["partition"]: row for row in _offsets(gateway, short_name(stats.topic), stats.partitions or 1)
    }
    nothing = {"first": None, "end": None, "records": None}
    return [{**row, **nothing, **offsets.get(row["partition"], {})} for row in own]


def _pulsar_readers(cluster: Cluster, stats: TopicStats, gateway: Cluster | None) -> list[Reader]:
    """Give the subscriptions; those that are groups of the gateway with their commits."""
    subscriptions = pulsar_readers(cluster, [stats])
    if gateway is None:
        return subscriptions
    groups = kafka_readers(gateway, gateway.kafka.groups()[:MAX_GROUPS])
    groups = beside_cursors(_of_topic(groups, short_name(stats.topic)), cluster)
    names = {group.name for group in groups}
    return [*groups, *(each for each in subscriptions if each.name not in names)]


def _of_topic(readers: Sequence[Reader], topic: str) -> list[Reader]:
    """Leave only what readers have to do with one topic, the furthest behind first."""
    found = []
    for reader in readers:
        spots = tuple(spot for spot in reader.spots if spot.topic == topic)
        if spots:
            found.append(replace(reader, spots=spots))
    return sorted(found, key=lambda reader: (-reader.behind, reader.name))


# What the contract says


def _of_contract(detail: Detail, contract: Contract | None, environment: str | None) -> Detail:
    from penstock.contract.places import channel_of

    channel = None if contract is None else channel_of(contract, detail.server, detail.topic)
    if channel is None:
        return detail
    return replace(detail, channel=channel, drift=_drift(detail, environment))


def _drift(detail: Detail, environment: str | None) -> list[str]:
    """Plan for the server, and take what is about this topic; schemas belong to the registry."""
    from penstock.contract.actual import read_actual
    from penstock.contract.plan import make_plan
    from penstock.contract.plan_text import short
    from penstock.contract.steps import target_of

    with look(servers=[detail.server], environment=environment) as situation:
        desired = replace(situation.desired, subjects=())
        plan = make_plan(desired, read_actual(desired, situation.clusters))
    return [short(step) for step in plan.steps if target_of(step) == detail.topic]


# What people read


def _print(detail: Detail) -> None:
    facts = {"topic": detail.topic, "server": detail.server, "channel": detail.channel or "-", **detail.facts}
    width = max(map(len, facts))
    for name, value in facts.items():
        output.data(f"{name:<{width}}  {value}")
    for key, value in detail.settings.items():
        output.data(f"{'':<{width}}  {key} = {value}")
    for step in detail.drift:
        output.data(f"{'drift':<{width}}  {step}")
    for rows in (detail.partitions, [_reader(each) for each in detail.readers]):
        if rows:
            output.data("")
            output.rows(tuple(rows[0]), [tuple(row.values()) for row in rows], Format.TABLE)


def _reader(reader: Reader) -> Row:
    return {
        "group": reader.name,
        "server": reader.server,
        "state": reader.state,
        "members": len(reader.members),
        "lag": reader.lag,
        "entries": reader.entries,
    }


def _data(detail: Detail) -> Row:
    return {
        "topic": detail.topic,
        "server": detail.server,
        "channel": detail.channel,
        **detail.facts,
        "settings": detail.settings,
        "drift": detail.drift,
        "partitions": detail.partitions,
        "groups": [_reader(each) for each in detail.readers],
    }
