"""`penstock groups reset`: a group without members goes to another place, shown before and checked after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.clusters import Cluster, Clusters, find_clusters
from penstock.cli.confirmation import confirm
from penstock.cli.places import ServerName
from penstock.cli.settings import current
from penstock.cli.standing import full_name
from penstock.errors import ClusterError, Refused, UsageError

if TYPE_CHECKING:
    from penstock.brokers.pulsar_subscriptions import Cursor, TopicPart
    from penstock.brokers.start import Start

__all__ = ["reset"]

_MOVES: Final = "reset moves a group"


@dataclass(frozen=True, slots=True)
class _Move:
    """One partition that gets another offset."""

    partition: int
    before: int | None
    after: int
    end: int


def reset(
    name: Annotated[str, typer.Argument(help="The group, or the subscription of Pulsar.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic in which it moves.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", help="earliest, latest, an offset, -100, 10m, or a time."),
    ],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this one; may be repeated.")
    ] = None,
    server: ServerName = None,
) -> None:
    """Move a group in one topic: shows where it goes, asks, and checks that it went there."""
    from penstock.brokers.start import Start

    start = Start.parse(to)
    with find_clusters(server) as clusters:
        cluster = _only(clusters, name, topic)
        work = _move_subscription if cluster.kind == "pulsar" else _move_group
        work(cluster, name, topic, start, partitions)


def _only(clusters: Clusters, name: str, topic: str) -> Cluster:
    """Find the one cluster that knows the group; the cursor of a gateway's group is no second one."""
    groups = clusters.each(lambda cluster: (cluster, _has_group(cluster, name)), ("kafka", "gateway"))
    found = [cluster for cluster, has in groups if has]
    if not found:
        cursors = clusters.each(lambda cluster: (cluster, _has_cursor(cluster, name, topic)), ("pulsar",))
        found = [cluster for cluster, has in cursors if has]
    clusters.end()  # one that cannot be asked may have it, too
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"there is no group '{name}', nor a subscription of that name on {topic}"
        raise UsageError(what, next="penstock groups lists them")
    names = ", ".join(cluster.name for cluster in found)
    raise UsageError(f"on which server is '{name}'?", next=f"give --server with one of: {names}")


def _has_group(cluster: Cluster, name: str) -> bool:
    return any(group.name == name for group in cluster.kafka.groups())


def _has_cursor(cluster: Cluster, name: str, topic: str) -> bool:
    full = full_name(topic) or topic
    stats = cluster.pulsar.look([full]).get(full)
    return stats is not None and name in stats.backlogs()


# Groups of Kafka and of the gateway


def _move_group(
    cluster: Cluster, name: str, topic: str, start: Start, partitions: Sequence[int] | None
) -> None:
    client = cluster.kafka
    _refuse_active(cluster, name)
    moves = _moves(cluster, name, topic, start, partitions)
    columns = ("topic", "partition", "before", "after", "lag before", "lag after")
    output.rows(columns, [(topic, *_row(move)) for move in moves], current().output)
    if all(move.before == move.after for move in moves):
        output.talk(f"{name} is there already")
        return
    confirm(_MOVES, f"move {name} in {len(moves)} partition{'' if len(moves) == 1 else 's'} of {topic}?")
    _refuse_active(cluster, name)  # somebody may have joined while the question stood there
    client.commit(name, topic, {move.partition: move.after for move in moves})
    now = client.committed(name, topic)
    wrong = [move.partition for move in moves if now.get(move.partition) != move.after]
    if wrong:
        raise ClusterError(
            f"{name} is not where it was moved to in partition {', '.join(map(str, wrong))}",
            why="Somebody else commits for this group.",
            next=f"penstock groups {name}",
        )
    more = (
        "; its Pulsar cursor follows within the gateway's --cursor-period"
        if cluster.kind == "gateway"
        else ""
    )
    output.talk(f"{name} moved in {len(moves)} partitions of {topic}, checked{more}")


def _refuse_active(cluster: Cluster, name: str) -> None:
    group = next((group for group in cluster.kafka.groups() if group.name == name), None)
    if group is not None and group.is_active:
        raise Refused(
            f"group {name} is {group.state}: it has members",
            why="They would overwrite what is reset, and go on where they are.",
            next="stop its consumers first",
        )


def _moves(
    cluster: Cluster, name: str, topic: str, start: Start, partitions: Sequence[int] | None
) -> list[_Move]:
    from penstock.brokers.start import Start as Place
    from penstock.brokers.start import StartKind

    client = cluster.kafka
    every = range(client.partitions([topic]).get(topic, 0))
    numbers = sorted(set(partitions)) if partitions else list(every)
    strange = [number for number in numbers if number not in every]
    if not every or strange:
        what = f"topic {topic} has no partition {strange[0]}" if every else f"there is no topic {topic}"
        raise UsageError(what, next=f"penstock topics --server {cluster.name}")
    parts = [(topic, number) for number in numbers]
    before, after = client.committed(name, topic), client.places(parts, start)
    ends = client.places(parts, Place(StartKind.END))
    if any(part not in after or part not in ends for part in parts):
        raise ClusterError(f"a partition of {topic} has no leader now", next="try again when it has one")
    return [
        _Move(number, before.get(number), after[topic, number], ends[topic, number]) for number in numbers
    ]


def _row(move: _Move) -> tuple[object, ...]:
    lag = None if move.before is None else max(0, move.end - move.before)
    return move.partition, move.before, move.after, lag, max(0, move.end - move.after)


# Subscriptions of Pulsar


def _move_subscription(
    cluster: Cluster, name: str, topic: str, start: Start, partitions: Sequence[int] | None
) -> None:
    full = full_name(topic) or topic
    parts = _subscribed(cluster, name, full, partitions)
    told = _told(start)
    columns = ("topic", "partition", "before", "after", "entries before")
    rows = [(topic, number, cursor.mark, told, cursor.backlog) for number, _, cursor in parts]
    output.rows(columns, rows, current().output)
    confirm(_MOVES, f"move {name} in {len(parts)} partition{'' if len(parts) == 1 else 's'} of {topic}?")
    # Pulsar would throw out consumers who came while the question stood there.
    for _, part, _ in _subscribed(cluster, name, full, partitions):
        cluster.pulsar.reset(part.topic, name, start)
    now = _subscribed(cluster, name, full, partitions)
    _check(name, start, parts, now)
    left = sum(cursor.backlog for _, _, cursor in now)
    output.talk(f"{name} moved in {len(now)} partitions of {topic}, checked; {left} entries to read")


_Subscribed = list[tuple[int, "TopicPart", "Cursor"]]


def _subscribed(cluster: Cluster, name: str, topic: str, partitions: Sequence[int] | None) -> _Subscribed:
    """Find the partitions on which a subscription is, and refuse if somebody reads one of them."""
    stats = cluster.pulsar.look([topic]).get(topic)
    if stats is None:
        raise UsageError(f"there is no topic {topic}", next=f"penstock topics --server {cluster.name}")
    found = [
        (number, part, cursor)
        for number, part in stats.parts.items()
        if (cursor := part.cursor(name)) is not None and (not partitions or number in partitions)
    ]
    if not found:
        raise UsageError(f"there is no subscription '{name}' on {topic}", next=f"penstock topics {topic}")
    if any(cursor.consumers for _, _, cursor in found):
        raise Refused(
            f"subscription {name} is active: it has consumers",
            why="Pulsar would disconnect them, and what they have in hand would come again.",
            next="stop its consumers first",
        )
    return found


def _told(start: Start) -> str:
    from penstock.brokers.start import StartKind

    words = {StartKind.BEGINNING: "earliest", StartKind.END: "latest"}
    if start.kind is StartKind.TIME:
        return datetime.fromtimestamp(start.number / 1000, UTC).isoformat(timespec="seconds")
    if start.kind not in words:
        raise UsageError("Pulsar has no offsets", next="give --to earliest, latest, 10m or a time")
    return words[start.kind]


def _check(name: str, start: Start, before: _Subscribed, now: _Subscribed) -> None:
    """Hold the backlog against what was stored; of a time only the broker knows where it is."""
    from penstock.brokers.start import StartKind

    stored = {number: part.entries for number, part, _ in before}
    for number, part, cursor in now:
        new = part.entries - stored[number]
        wrong = {
            StartKind.BEGINNING: cursor.backlog < stored[number],
            StartKind.END: cursor.backlog > max(0, new),
        }
        if wrong.get(start.kind):
            raise ClusterError(
                f"subscription {name} is not where it was moved to in partition {number}",
                why=f"It has {cursor.backlog} entries to read of {part.entries}.",
                next=f"penstock groups {name}",
            )
