"""Conflicts between routes, which no route has by itself: a circle of topics, a source read in two ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.contract.finding import Report
from penstock.contract.node import Node as DocumentNode
from penstock.errors import PenstockError
from penstock.pipeline import rules
from penstock.pipeline.compiled import CompiledRoute, Pipeline
from penstock.pipeline.pulsar import PULSAR

__all__ = ["refuse_disagreement", "refuse_loops"]

_OF_THE_SOURCE: Final = {
    **{name: name for name in ("events", "check", "dialects", "reading", "sniff", "dash")},
    "keep_case": "keepCase",
}
"""What is done once with a record, before any route, and how the file calls it."""
_OF_PULSAR: Final = {"values": "values"}
"""The same on Pulsar only; elsewhere it is about what a route writes."""


Node = tuple[str, str | None]
"""A topic: its server and its name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """One way on which a route writes what it received."""

    route: str
    kind: str
    source: Node
    target: Node
    place: DocumentNode
    """What says so in the pipeline file."""


def refuse_loops(pipeline: Pipeline, report: Report) -> None:
    """Refuse a route from which a record can come back to where it was received, on whichever way.

    A dead letter that dies in its turn is wrapped in a new one, so a circle of dead letters writes for ever,
    each time more. Where letters go that fail before any route counts as well.
    """
    edges = [edge for route in pipeline.routes for edge in _edges(route, pipeline)]
    told: set[tuple[str, Node, int]] = set()
    for edge in edges:
        path = _path(edges, edge.target, edge.source)
        key = (edge.route, edge.target, edge.place.position().line)
        if path is not None and key not in told:
            told.add(key)
            circle = _circle((edge, *path))
            topic = edge.target[1]
            report.add(rules.LOOP, edge.place, route=edge.route, kind=edge.kind, topic=topic, circle=circle)


def _edges(route: CompiledRoute, pipeline: Pipeline) -> Iterator[_Edge]:
    document, receive = route.document, route.receive
    source = (receive.server, receive.topic)

    def edge(kind: str, target: Node, place: DocumentNode) -> _Edge:
        return _Edge(route=route.name, kind=kind, source=source, target=target, place=place)

    for operation in route.send:
        yield edge("sends", (operation.server, operation.topic), document.at("send"))
    own = document.delivery.dead_letter_sink is not None
    said_at = document.delivery.at("deadLetterSink") if own else document.at("receive")
    beside: list[tuple[str, str | None, DocumentNode]] = [
        ("sends dead letters", route.dead_letter_channel, said_at),
        ("sends dead letters", receive.dead_letter_channel, document.at("receive")),
        ("forwards unknown formats", route.unknown_channel, document.at("unknownFormat")),
    ]
    for kind, channel, place in beside:
        found = None if channel is None else _placed(channel, receive.server, pipeline)
        if found is not None:
            yield edge(kind, found, place)


def _placed(channel: str, near: str, pipeline: Pipeline) -> Node | None:
    try:
        place = pipeline.place(channel, near)
    except PenstockError:
        return None  # No server for it, or several: who runs the pipeline is told, and nothing runs.
    return place.server, place.topic


def _path(edges: Sequence[_Edge], start: Node, end: Node) -> tuple[_Edge, ...] | None:
    """Give the shortest way from a topic to another; None if there is none."""
    ways: dict[Node, tuple[_Edge, ...]] = {start: ()}
    todo = deque([start])
    while todo and end not in ways:
        here = todo.popleft()
        for edge in edges:
            if edge.source == here and edge.target not in ways:
                ways[edge.target] = (*ways[here], edge)
                todo.append(edge.target)
    return ways.get(end)


def _circle(edges: Sequence[_Edge]) -> str:
    """Spell a circle out."""
    several = len({server for edge in edges for server in (edge.source[0], edge.target[0])}) > 1

    def name(node: Node) -> str:
        return f"{node[1]} ({node[0]})" if several else str(node[1])

    steps = (f"{edge.route} {edge.kind} to {name(edge.target)}" for edge in edges)
    return ", ".join((f"from {name(edges[0].source)} {next(steps)}", *steps))


def refuse_disagreement(routes: Sequence[CompiledRoute], report: Report) -> None:
    """Refuse routes of one source that want it read in different ways."""
    said: dict[tuple[str, str | None, str], str] = {}
    for route in routes:
        own = _OF_THE_SOURCE | (_OF_PULSAR if route.receive.protocol == PULSAR else {})
        for key, name in own.items():
            found = getattr(route.document, key)
            place = route.receive.server, route.receive.topic, key
            other = said.setdefault(place, found) if found is not None else None
            if other not in (None, found):
                words = {"route": route.name, "field": name, "found": found, "other": other}
                report.add(rules.DISAGREEMENT, route.document.at(name), topic=route.receive.topic, **words)
