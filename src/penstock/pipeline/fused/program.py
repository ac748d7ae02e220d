"""A stage as a program for the routing kernel, and what keeps a stage from being one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import UnsupportedPlan
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute, read_cloud_events

__all__ = ["Program", "program_of", "stops"]


@dataclass(frozen=True, slots=True)
class Program:
    """What the kernel runs, and where its records go."""

    targets: tuple[Target, ...]
    """Every topic that is written to, those of dead letters and of unknown formats included."""


def stops(stage: Stage) -> tuple[str, ...]:
    """Say what keeps a stage from the kernel, each with its route; none: it can be done."""
    return tuple(_stops(stage))


def program_of(stage: Stage) -> Program:
    """Translate a stage; UnsupportedPlan if something stops it."""
    if stopped := stops(stage):
        raise UnsupportedPlan("fused", stopped)
    return Program(targets=_targets(stage))


def _stops(stage: Stage) -> Iterator[str]:
    if stage.reader is not read_cloud_events:
        yield "fused cannot: records that are no CloudEvents"
    for check in stage.checks:
        yield f"fused cannot: data is checked by {type(check).__name__}"
    for route in stage.routes:
        yield from (f"route {route.plan.name}: fused cannot: {what}" for what in _route_stops(route))


def _route_stops(route: StageRoute) -> Iterator[str]:
    if route.invoker is not None:
        yield "a function"
    if route.sql is not None:
        yield "a condition in Spark's own SQL"
    for target in route.targets:
        if target.writer is not None:
            yield f"{target.topic} is written in another form than CloudEvents"


def _targets(stage: Stage) -> tuple[Target, ...]:
    every = [target for route in stage.routes for target in (*route.targets, route.dead)]
    every += [stage.dead, *stage.unknown]
    return tuple({(target.sink, target.topic): target for target in reversed(every)}.values())[::-1]
