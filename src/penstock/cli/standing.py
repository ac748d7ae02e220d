"""Where readers stand: groups of Kafka and of the gateway, and subscriptions of Pulsar, as the same values.

Commits are read before the ends of partitions, so that a lag is never negative. Pulsar counts a backlog in
entries; behind the gateway a group has both, its lag in records and the backlog of its cursor in entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.cli import output
from penstock.cli.clusters import Cluster, find_contract, is_internal
from penstock.errors import ApiError, ClusterError, Unreachable

if TYPE_CHECKING:
    from penstock.brokers.kafka_groups import Group, Member, Part
    from penstock.brokers.pulsar_subscriptions import TopicPart, TopicStats

__all__ = [
    "MAX_GROUPS",
    "MAX_TOPICS",
    "Reader",
    "Spot",
    "beside_cursors",
    "full_name",
    "kafka_readers",
    "pulsar_names",
    "pulsar_readers",
    "short_name",
]

READER: Final = re.compile(r"penstock-[0-9a-f]{16}-[0-9]+")
"""The subscription of a reader of our own (a gateway, a tail): not durable, gone with its connection."""
MAX_GROUPS: Final = 500
"""Groups that are looked into: each is one request."""
MAX_TOPICS: Final = 1000
"""Pulsar topics that are looked into: each is two requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a reader stands in one partition; None is not known, or not there."""

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None
    member: str | None = None
    cursor: str | None = None
    """Pulsar's ledger:entry up to which everything is read."""
    entries: int | None = None
    """The backlog as Pulsar counts it."""
    pulsar_topic: str | None = None
    """The name of the partition on Pulsar."""

    @property
    def lag(self) -> int | None:
        """The records that are still to be read."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    @property
    def behind(self) -> int:
        """What sorts readers: the lag, or the backlog if there is none."""
        return self.lag if self.lag is not None else self.entries or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A consumer group, or a subscription of Pulsar."""

    name: str
    server: str
    protocol: str
    """The kind of the server: kafka, gateway or pulsar."""
    kind: str
    """classic, consumer or subscription."""
    state: str
    members: tuple[Member, ...]
    spots: tuple[Spot, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it reads."""
        return tuple(dict.fromkeys(spot.topic for spot in self.spots))

    @property
    def lag(self) -> int | None:
        """All records that are still to be read; None if that is known of no partition."""
        return _sum(spot.lag for spot in self.spots)

    @property
    def entries(self) -> int | None:
        """The whole backlog as Pulsar counts it."""
        return _sum(spot.entries for spot in self.spots)

    @property
    def behind(self) -> int:
        """What sorts readers: the lag, or the backlog where there is none."""
        return sum(spot.behind for spot in self.spots)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


# Groups


def kafka_readers(cluster: Cluster, groups: Sequence[Group]) -> list[Reader]:
    """Look into groups of a Kafka or a gateway."""
    from penstock.brokers.start import Start, StartKind

    client, names = cluster.kafka, [group.name for group in groups]
    commits, members = client.commits(names), client.members(names)
    owned = {name: _owners(each) for name, each in members.items()}
    parts = {name: sorted({*commits[name], *owned[name]}) for name in names}
    ends = client.places({part for each in parts.values() for part in each}, Start(StartKind.END))
    return [
        Reader(
            name=group.name,
            server=cluster.name,
            protocol=cluster.kind,
            kind=group.type,
            state=group.state,
            members=members[group.name],
            spots=tuple(
                _spot(part, commits[group.name].get(part), ends.get(part), owned[group.name].get(part))
                for part in parts[group.name]
            ),
        )
        for group in groups
    ]


def _owners(members: Sequence[Member]) -> dict[Part, str]:
    return {part: member.id for member in members for part in member.parts}


def _spot(part: Part, committed: int | None, end: int | None, member: str | None) -> Spot:
    known = committed is not None and committed >= 0
    return Spot(
        topic=part[0], partition=part[1], committed=committed if known else None, end=end, member=member
    )


# Subscriptions


def pulsar_names(
    cluster: Cluster, namespaces: Sequence[str] = (), *, internal: bool = False
) -> Mapping[str, bool]:
    """Name the topics of a Pulsar, and whether they have partitions; all namespaces if none is named."""
    found, hidden = cluster.pulsar.topic_names(namespaces or _namespaces(cluster), absent_ok=not namespaces)
    if hidden:
        output.talk(f"{cluster.name}: this user may not list the topics of {', '.join(hidden)}")
    return {topic: parts for topic, parts in found.items() if internal or not is_internal(topic)}


def _namespaces(cluster: Cluster) -> Sequence[str]:
    """Name all namespaces, or those of the contract if only a super user may know all."""
    from penstock.contract.desired import desired_state

    try:
        return cluster.pulsar.namespaces()
    except Unreachable:
        raise
    except ClusterError:
        contract = find_contract()
        if contract is None or cluster.name not in contract.servers:
            raise
        found = desired_state(contract, servers=[cluster.name]).namespaces
        return [each.namespace for each in found]


def pulsar_readers(cluster: Cluster, stats: Iterable[TopicStats]) -> list[Reader]:
    """Gather the subscriptions of topics by their names."""
    spots: dict[str, list[Spot]] = {}
    busy: dict[str, list[Member]] = {}
    for name, spot, members in _subscribed(stats):
        spots.setdefault(name, []).append(spot)
        busy.setdefault(name, []).extend(members)
    return [
        Reader(
            name=name,
            server=cluster.name,
            protocol=cluster.kind,
            kind="reader" if READER.fullmatch(name) else "subscription",
            state="active" if busy[name] else "empty",
            members=tuple(busy[name]),
            spots=tuple(own),
        )
        for name, own in sorted(spots.items())
    ]


def _subscribed(stats: Iterable[TopicStats]) -> Iterator[tuple[str, Spot, list[Member]]]:
    from penstock.brokers.kafka_groups import Member

    for topic in stats:
        for number, part in topic.parts.items():
            for cursor in part.cursors:
                spot = Spot(
                    topic=topic.topic,
                    partition=number,
                    cursor=cursor.mark,
                    entries=cursor.backlog,
                    pulsar_topic=part.topic,
                )
                own = (topic.topic, number)
                members = [
                    Member(id=consumer.name, client=consumer.client, host=consumer.address, parts=(own,))
                    for consumer in cursor.consumers
                ]
                yield cursor.name, spot, members


# Both


def beside_cursors(readers: Sequence[Reader], pulsar: Cluster | None) -> list[Reader]:
    """Put the cursors of Pulsar beside the commits of the gateway's groups."""
    if pulsar is None:
        return list(readers)
    names = {topic: full_name(topic) for reader in readers for topic in reader.topics}
    stats = pulsar.pulsar.look({name for name in names.values() if name is not None})
    parts = {
        (topic, number): part
        for topic, name in names.items()
        if name is not None and name in stats
        for number, part in stats[name].parts.items()
    }
    return [
        replace(reader, spots=tuple(_beside(spot, reader.name, parts) for spot in reader.spots))
        for reader in readers
    ]


def _beside(spot: Spot, group: str, parts: Mapping[Part, TopicPart]) -> Spot:
    part = parts.get((spot.topic, spot.partition))
    cursor = part.cursor(group) if part is not None else None
    if part is None or cursor is None:
        return spot
    return replace(spot, cursor=cursor.mark, entries=cursor.backlog, pulsar_topic=part.topic)


def full_name(topic: str) -> str | None:
    """Give Pulsar's name of a topic that a Kafka client names, as the gateway reads it; None if it has none.

    >>> full_name("orders"), full_name("acme/shop/orders"), full_name("a/b")
    ('persistent://public/default/orders', 'persistent://acme/shop/orders', None)
    """
    from penstock.gateway.pulsar.names import Names

    try:
        return Names().to_pulsar(topic)
    except ApiError:
        return None


def short_name(topic: str) -> str:
    """Give the shortest name by which a topic can be asked for.

    >>> short_name("persistent://public/default/orders"), short_name("persistent://acme/shop/orders")
    ('orders', 'acme/shop/orders')
    >>> short_name("orders.placed")
    'orders.placed'
    """
    from penstock.gateway.pulsar.names import Names

    return Names().to_kafka(topic) if topic.startswith("persistent://") else topic
