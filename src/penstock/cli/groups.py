"""`penstock groups`: who reads topics and how far, on Kafka, on Pulsar, and behind the gateway on both."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import output
from penstock.cli.clusters import Cluster, Clusters, find_clusters
from penstock.cli.groups_reset import reset
from penstock.cli.places import ServerName
from penstock.cli.settings import Format, current
from penstock.cli.standing import (
    MAX_GROUPS,
    MAX_TOPICS,
    Reader,
    Spot,
    beside_cursors,
    full_name,
    kafka_readers,
    pulsar_names,
    pulsar_readers,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from typer._click import Context

__all__ = ["app"]


class _Groups(TyperGroup):
    """A group of commands that shows when none of them is named."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Let `penstock groups NAME` mean `penstock groups show NAME`."""
        named = any(word in self.commands for word in args) or {"-h", "--help"} & set(args)
        return super().parse_args(ctx, args if named else ["show", *args])


app = typer.Typer(cls=_Groups, help="Show who reads topics and how far: penstock groups [NAME].")
app.command("reset")(reset)


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(help="One group in detail; with * in it, all groups of such names.")
    ] = None,
    server: ServerName = None,
) -> None:
    """Show groups with their state, members and lag, those that are furthest behind first."""
    with find_clusters(server) as clusters:
        if name is None or "*" in name:
            _list(clusters, name or "*")
        else:
            _detail(clusters, name)
        clusters.end()


# All groups


def _list(clusters: Clusters, pattern: str) -> None:
    groups = clusters.each(lambda cluster: _groups(cluster, clusters, pattern), ("kafka", "gateway"))
    found = [reader for each in groups for reader in each]
    mirrored = {
        (reader.name, full_name(topic))
        for reader in found
        if reader.protocol == "gateway"
        for topic in reader.topics
    }
    for each in clusters.each(lambda cluster: _subscriptions(cluster, pattern), ("pulsar",)):
        found += [reader for reader in each if not _is_mirrored(reader, mirrored)]
    found.sort(key=lambda reader: (-reader.behind, reader.name))
    columns = ("group", "server", "kind", "state", "members", "topics", "lag", "entries")
    rows = [
        (
            each.name,
            each.server,
            each.kind,
            each.state,
            len(each.members),
            len(each.topics),
            each.lag,
            each.entries,
        )
        for each in found
    ]
    output.rows(columns, rows, current().output)
    output.talk(f"{len(found)} in all; lag is in records, a backlog of Pulsar in entries")
    if any(reader.kind == "reader" for reader in found):
        output.talk("a reader is a gateway or a tail of Penstock that reads now: it ends with its connection")


def _groups(cluster: Cluster, clusters: Clusters, pattern: str) -> list[Reader]:
    listed = [group for group in cluster.kafka.groups() if fnmatchcase(group.name, pattern)]
    _tell_cut(cluster, len(listed), MAX_GROUPS, "groups")
    found = kafka_readers(cluster, listed[:MAX_GROUPS])
    return beside_cursors(found, clusters.behind_gateway) if cluster.kind == "gateway" else found


def _subscriptions(cluster: Cluster, pattern: str) -> list[Reader]:
    names = pulsar_names(cluster)
    _tell_cut(cluster, len(names), MAX_TOPICS, "topics")
    stats = cluster.pulsar.stats(dict(list(names.items())[:MAX_TOPICS]), ledgers=False)
    return [each for each in pulsar_readers(cluster, stats.values()) if fnmatchcase(each.name, pattern)]


def _is_mirrored(reader: Reader, mirrored: set[tuple[str, str | None]]) -> bool:
    """Say whether a subscription is only the cursor of a group that the gateway has."""
    return all((reader.name, topic) in mirrored for topic in reader.topics)


def _tell_cut(cluster: Cluster, number: int, limit: int, what: str) -> None:
    if number > limit:
        output.talk(f"{cluster.name} has {number} {what}; only the first {limit} are looked into")


# One group


def _detail(clusters: Clusters, name: str) -> None:
    groups = clusters.each(lambda cluster: _one_group(cluster, clusters, name), ("kafka", "gateway"))
    found = [reader for each in groups for reader in each]
    if not found:
        subscriptions = clusters.each(lambda cluster: _one_subscription(cluster, name), ("pulsar",))
        found = [reader for each in subscriptions for reader in each]
    if not found and not clusters.failed:
        raise UsageError(f"nobody reads as '{name}'", next="penstock groups lists who does")
    if current().output is Format.TABLE:
        for reader in found:
            _print(reader, clusters)
    else:
        output.document([_data(reader, clusters) for reader in found], current().output)


def _one_group(cluster: Cluster, clusters: Clusters, name: str) -> list[Reader]:
    readers = kafka_readers(cluster, [group for group in cluster.kafka.groups() if group.name == name])
    return beside_cursors(readers, clusters.behind_gateway) if cluster.kind == "gateway" else readers


def _one_subscription(cluster: Cluster, name: str) -> list[Reader]:
    topics = {
        topic for reader in _subscriptions(cluster, "*") if reader.name == name for topic in reader.topics
    }
    readers = pulsar_readers(cluster, cluster.pulsar.look(topics).values())
    return [reader for reader in readers if reader.name == name]


def _print(reader: Reader, clusters: Clusters) -> None:
    count = len(reader.members)
    behind = f"lag {reader.lag}" if reader.lag is not None else f"backlog {reader.entries} entries"
    output.talk(
        f"{reader.name} on {reader.server}: {reader.kind}, {reader.state}, "
        f"{count} member{'' if count == 1 else 's'}, {behind}"
    )
    spots, members = _spots(reader, clusters), _members(reader)
    output.rows(_COLUMNS[reader.protocol], [tuple(row.values()) for row in spots], Format.TABLE)
    if members:
        output.data("")
        output.rows(tuple(members[0]), [tuple(row.values()) for row in members], Format.TABLE)


def _data(reader: Reader, clusters: Clusters) -> dict[str, Any]:
    return {
        "group": reader.name,
        "server": reader.server,
        "kind": reader.kind,
        "state": reader.state,
        "lag": reader.lag,
        "entries": reader.entries,
        "members": _members(reader),
        "partitions": _spots(reader, clusters),
    }


_COMMITS = ("committed", "end", "lag", "member")
_CURSORS = ("cursor", "entries", "messages")
_COLUMNS = {
    "kafka": ("topic", "partition", *_COMMITS),
    "gateway": ("topic", "partition", *_COMMITS, *_CURSORS),
    "pulsar": ("topic", "partition", *_CURSORS),
}


def _spots(reader: Reader, clusters: Clusters) -> list[dict[str, Any]]:
    """Give a row for each partition; where there is a cursor, its messages are counted by the broker."""
    messages = _messages(reader, clusters)
    columns = _COLUMNS[reader.protocol]
    return [
        {name: messages.get(spot) if name == "messages" else getattr(spot, name) for name in columns}
        for spot in reader.spots
    ]


def _messages(reader: Reader, clusters: Clusters) -> dict[Spot, int | None]:
    from concurrent.futures import ThreadPoolExecutor

    from penstock.brokers.pulsar_admin import WORKERS

    own = next((cluster for cluster in clusters.known if cluster.name == reader.server), None)
    pulsar = clusters.behind_gateway if reader.protocol == "gateway" else own
    asked = [spot for spot in reader.spots if spot.pulsar_topic is not None]
    if pulsar is None or not asked:
        return {}
    client = pulsar.pulsar
    with ThreadPoolExecutor(WORKERS) as workers:
        found = workers.map(lambda spot: client.messages_left(str(spot.pulsar_topic), reader.name), asked)
        return dict(zip(asked, found, strict=True))


def _members(reader: Reader) -> list[dict[str, Any]]:
    return [
        {
            "member": member.id,
            "client": member.client,
            "host": member.host,
            "instance": member.instance,
            "partitions": ", ".join(f"{topic}/{number}" for topic, number in member.parts),
        }
        for member in reader.members
    ]
