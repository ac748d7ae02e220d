"""`penstock topics`: the topics of Kafka and Pulsar side by side, with what they hold and who reads them.

Names come first, which is one request for Kafka and three a namespace for Pulsar; only what is shown is
looked into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.clusters import Cluster, Clusters, find_clusters, find_contract, is_internal
from penstock.cli.places import ServerName
from penstock.cli.planning import Environment
from penstock.cli.settings import Format, current
from penstock.cli.standing import MAX_GROUPS, Reader, kafka_readers, pulsar_names, pulsar_readers, short_name

if TYPE_CHECKING:
    from penstock.contract import Contract
    from penstock.contract.desired import Desired

__all__ = ["command"]

_SHOWN_GROUPS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as it is listed."""

    name: str
    server: str
    partitions: int
    """0 is a topic of Pulsar without partitions."""
    records: int | None = None
    entries: int | None = None
    readers: tuple[tuple[str, int], ...] = ()
    """Names with their lag (records, on Pulsar entries), the furthest behind first."""
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A topic that is known by name."""

    cluster: Cluster
    name: str
    partitions: int
    """Of a topic of Pulsar it is only known whether it has some: 1 or 0."""


def command(
    name: Annotated[
        str | None, typer.Argument(help="One topic in detail; with * in it, all topics of such names.")
    ] = None,
    server: ServerName = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show so many at most.")] = 100,
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="TENANT/NAME", help="Of Pulsar; may be repeated. All of them."),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those in which brokers and gateway keep their state.")
    ] = False,
    environment: Environment = None,
) -> None:
    """List topics with what they hold, who reads them, and whether they are in the contract."""
    from penstock.cli.topic_detail import print_topic

    contract, pattern = find_contract(), name if name and "*" in name else None
    with find_clusters(server) as clusters:
        if name and pattern is None:
            print_topic(clusters, contract, name, environment)
        else:
            found = _names(clusters, pattern, namespaces or (), internal)
            _list(clusters, contract, found, limit)
            if contract is not None and pattern is None and not namespaces:
                _tell_missing(clusters, contract, found)
        clusters.end()


# Names


def _names(
    clusters: Clusters, pattern: str | None, namespaces: Sequence[str], internal: bool
) -> list[_Found]:
    def look(cluster: Cluster) -> list[_Found]:
        if cluster.kind != "pulsar":
            topics = {name: each.partitions for name, each in cluster.kafka.cluster().topics.items()}
        else:
            topics = dict(pulsar_names(cluster, namespaces, internal=internal))
        return [_Found(cluster, name, int(count)) for name, count in topics.items()]

    every = [found for each in clusters.each(look, clusters.with_topics) for found in each]
    wanted = [
        found
        for found in every
        if (internal or not is_internal(found.name)) and (pattern is None or _fits(found.name, pattern))
    ]
    return sorted(wanted, key=lambda found: (short_name(found.name), found.cluster.name))


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(short_name(name), pattern)


# Details of what is shown


def _list(clusters: Clusters, contract: Contract | None, found: Sequence[_Found], limit: int) -> None:
    shown = found[:limit]

    def look(cluster: Cluster) -> list[Topic]:
        own = [each for each in shown if each.cluster is cluster]
        return _pulsar(cluster, own) if cluster.kind == "pulsar" else _kafka(cluster, own)

    topics = [topic for each in clusters.each(look, clusters.with_topics) for topic in each]
    topics = [replace(topic, channel=_channel(contract, topic)) for topic in topics]
    topics.sort(key=lambda topic: (short_name(topic.name), topic.server))
    if current().output is Format.TABLE:
        columns = ("topic", "server", "partitions", "records", "entries", "groups and lag", "channel")
        output.rows(columns, [_row(topic) for topic in topics], Format.TABLE)
    else:
        output.document([_data(topic) for topic in topics], current().output)
    more = (
        f" of {len(found)}; narrow with a name such as 'orders*', or raise --limit" if found[limit:] else ""
    )
    output.talk(f"{len(topics)} shown{more}")


def _kafka(cluster: Cluster, found: Sequence[_Found]) -> list[Topic]:
    from penstock.brokers.start import Start, StartKind

    parts = [(each.name, number) for each in found for number in range(each.partitions)]
    if not parts:
        return []
    readers = _by_topic(kafka_readers(cluster, cluster.kafka.groups()[:MAX_GROUPS]))
    first = cluster.kafka.places(parts, Start(StartKind.BEGINNING))
    last = cluster.kafka.places(parts, Start(StartKind.END))
    records = Counter[str]()
    for part in first.keys() & last.keys():
        records[part[0]] += max(0, last[part] - first[part])
    return [
        Topic(
            name=each.name,
            server=cluster.name,
            partitions=each.partitions,
            records=records[each.name],
            readers=readers.get(each.name, ()),
        )
        for each in found
    ]


def _pulsar(cluster: Cluster, found: Sequence[_Found]) -> list[Topic]:
    stats = cluster.pulsar.stats({each.name: bool(each.partitions) for each in found})
    readers = _by_topic(pulsar_readers(cluster, stats.values()))
    return [
        Topic(
            name=each.topic,
            server=cluster.name,
            partitions=each.partitions,
            entries=each.entries,
            readers=readers.get(each.topic, ()),
        )
        for each in stats.values()
    ]


def _by_topic(readers: Iterable[Reader]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Give the readers of each topic with their lag in it, the furthest behind first."""
    found: dict[str, Counter[str]] = {}
    for reader in readers:
        for spot in reader.spots:
            found.setdefault(spot.topic, Counter())[reader.name] += spot.behind
    return {
        topic: tuple(sorted(lags.items(), key=lambda each: (-each[1], each[0])))
        for topic, lags in found.items()
    }


def _channel(contract: Contract | None, topic: Topic) -> str | None:
    from penstock.contract.places import channel_of

    return None if contract is None else channel_of(contract, topic.server, topic.name)


def _tell_missing(clusters: Clusters, contract: Contract, found: Sequence[_Found]) -> None:
    """Say which topics the contract wants that are not there."""
    from penstock.contract.desired import desired_state

    servers = [cluster.name for cluster in clusters.chosen if cluster.name in contract.servers]
    if not servers or clusters.failed:
        return
    desired = desired_state(contract, servers=servers)
    there = {(each.cluster.name, each.name) for each in found}
    hidden = _hidden(clusters, desired, there)
    wanted = [(each.server, each.topic) for each in desired.kafka_topics]
    wanted += [(each.server, each.topic) for each in desired.pulsar_topics]
    absent = [each for each in wanted if each not in there]
    missing = [f"{short_name(topic)} ({server})" for server, topic in absent if (server, topic) not in hidden]
    unseen = [f"{short_name(topic)} ({server})" for server, topic in absent if (server, topic) in hidden]
    if unseen:
        output.talk(f"in the contract and may not be seen by this user: {', '.join(unseen)}")
    if missing:
        output.talk(f"not there, though in the contract: {', '.join(missing)}; next: penstock plan")


def _hidden(
    clusters: Clusters, desired: Desired, there: Collection[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Name the topics of the contract that are not listed because this user may not see them."""
    from penstock.errors import AccessDenied

    found: set[tuple[str, str]] = set()
    for cluster in clusters.chosen:
        kafka = [each.topic for each in desired.kafka_topics if each.server == cluster.name]
        pulsar = [each.topic for each in desired.pulsar_topics if each.server == cluster.name]
        absent = [topic for topic in (*kafka, *pulsar) if (cluster.name, topic) not in there]
        if absent and cluster.kind == "pulsar":
            states = cluster.pulsar.topics(absent, ())
            found |= {(cluster.name, t) for t, state in states.items() if isinstance(state, AccessDenied)}
        elif absent:
            found |= {(cluster.name, topic) for topic in cluster.kafka.cluster(absent).hidden}
    return frozenset(found)


def _row(topic: Topic) -> tuple[Any, ...]:
    told = [f"{name} {lag}" for name, lag in topic.readers[:_SHOWN_GROUPS]]
    left = len(topic.readers) - len(told)
    return (
        short_name(topic.name),
        topic.server,
        topic.partitions or None,
        topic.records,
        topic.entries,
        ", ".join(told) + (f", and {left} more" if left else "") or None,
        topic.channel,
    )


def _data(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "server": topic.server,
        "partitions": topic.partitions,
        "records": topic.records,
        "entries": topic.entries,
        "groups": [{"group": name, "lag": lag} for name, lag in topic.readers],
        "channel": topic.channel,
    }
