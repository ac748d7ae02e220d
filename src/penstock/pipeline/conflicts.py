"""Conflicts between routes, which no route has by itself: a circle of topics, a source read in two ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.contract.finding import Report
from penstock.pipeline import rules
from penstock.pipeline.compiled import CompiledRoute

__all__ = ["refuse_disagreement", "refuse_loops"]

_OF_THE_SOURCE: Final = ("events", "check", "dialects")
"""What is done once with a record, before any route."""


def refuse_loops(routes: Sequence[CompiledRoute], report: Report) -> None:
    """Refuse a route from which an event can come back to where it was received."""
    edges: dict[tuple[str, str | None], set[tuple[str, str | None]]] = {}
    for route in routes:
        targets = {(operation.server, operation.topic) for operation in route.send}
        edges.setdefault((route.receive.server, route.receive.topic), set()).update(targets)
    for route in routes:
        source = (route.receive.server, route.receive.topic)
        if route.unknown_channel == route.receive.channel:
            node = route.document.at("unknownFormat")
            report.add(rules.LOOP, node, route=route.name, topic=route.receive.topic)
        for operation in route.send:
            if source in _reachable(edges, (operation.server, operation.topic)):
                node = route.document.at("send")
                report.add(rules.LOOP, node, route=route.name, topic=operation.topic)


def refuse_disagreement(routes: Sequence[CompiledRoute], report: Report) -> None:
    """Refuse routes of one source that want it read in different ways."""
    said: dict[tuple[str, str | None, str], str] = {}
    for route in routes:
        for key in _OF_THE_SOURCE:
            found = getattr(route.document, key)
            place = route.receive.server, route.receive.topic, key
            other = said.setdefault(place, found) if found is not None else None
            if other not in (None, found):
                words = {"route": route.name, "field": key, "found": found, "other": other}
                report.add(rules.DISAGREEMENT, route.document.at(key), topic=route.receive.topic, **words)


def _reachable(
    edges: Mapping[tuple[str, str | None], set[tuple[str, str | None]]], start: tuple[str, str | None]
) -> set[tuple[str, str | None]]:
    seen: set[tuple[str, str | None]] = set()
    todo = [start]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo += edges.get(here, ())
    return seen
