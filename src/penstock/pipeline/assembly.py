"""From compiled routes to the stage that the workers run: the joints of each source, chosen by its routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.contract import ResolvedOperation
from penstock.contract.credentials import Connection
from penstock.contract.places import Place
from penstock.errors import PipelineError
from penstock.events.bindings.pulsar import Values
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.functions.build import invoker_of
from penstock.pipeline.plan.route import FunctionKey, RoutePlan, SimpleKey
from penstock.pipeline.ports import Invoker, Target
from penstock.pipeline.pulsar import PULSAR, is_native, is_served, path_name, profile_on
from penstock.pipeline.stage import Stage, StageRoute, read_cloud_events
from penstock.pipeline.typed.joints import checks_of, reader_of, writer_of
from penstock.pipeline.typed.schemas import Schemas

__all__ = ["Source", "sources_of", "stage_of"]

_SERVED: Final = ("kafka", PULSAR)
"""The protocols that a job reads and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One topic with all routes that receive from it."""

    routes: tuple[CompiledRoute, ...]
    dead: Mapping[str | None, Place]
    """Where dead letters of each route go; None stands for what fails before any route."""
    unknown: tuple[Place, ...] = ()
    """Where structured events of an unregistered format go unchanged."""

    @property
    def receive(self) -> ResolvedOperation:
        """What is read."""
        return self.routes[0].receive

    @property
    def is_on_pulsar(self) -> bool:
        """Whether it is read from Pulsar itself, and not through a gateway."""
        return is_native(self.receive.protocol, self.receive.connection)

    @property
    def asks_spark(self) -> bool:
        """Whether a route has a condition in Spark's own SQL."""
        return any(route.sql is not None for route in self.routes)

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return str(self.receive.topic)

    @property
    def name(self) -> str:
        """The name of its checkpoint."""
        return f"{self.receive.server}-{path_name(self.topic)}"

    @property
    def servers(self) -> tuple[str, ...]:
        """The clusters that it writes to, its own first: sink n is cluster n, n + len(servers) its receipts.

        Receipts are written when everything else of a batch is durable.
        """
        return tuple(self.connections)

    @property
    def written(self) -> tuple[str, ...]:
        """The clusters that records or dead letters go to, in the order of `servers`."""
        sent = {operation.server for route in self.routes for operation in route.send}
        sent |= {place.server for place in (*self.dead.values(), *self.unknown)}
        return tuple(server for server in self.servers if server in sent)

    @property
    def native_pulsar(self) -> tuple[str, ...]:
        """The clusters that are written by Pulsar's own protocol, not through a gateway."""
        return tuple(name for name in self.written if is_native(PULSAR, self.connections[name]))

    @property
    def on_kafka(self) -> tuple[str, ...]:
        """The clusters that are reached by Kafka's protocol, the one that is read among them."""
        return tuple(name for name, each in self.connections.items() if not is_native(PULSAR, each))

    @property
    def connections(self) -> Mapping[str, Connection]:
        """How to reach each of them."""
        found = {self.receive.server: self.receive.connection}
        for operation in (operation for route in self.routes for operation in route.send):
            found.setdefault(operation.server, operation.connection)
        for place in (*self.dead.values(), *self.unknown):
            found.setdefault(place.server, place.connection)
        return found


def sources_of(pipeline: Pipeline) -> list[Source]:
    """Group the routes by what they receive from: each topic is read and decoded once."""
    groups: dict[tuple[str, str | None], list[CompiledRoute]] = {}
    for route in pipeline.routes:
        _refuse(route)
        groups.setdefault((route.receive.server, route.receive.topic), []).append(route)
    return [_source_of(tuple(routes), pipeline) for routes in groups.values()]


def _source_of(routes: tuple[CompiledRoute, ...], pipeline: Pipeline) -> Source:
    receive = routes[0].receive
    channels: dict[str | None, str] = {route.name: route.dead_letter_channel for route in routes}
    channels[None] = receive.dead_letter_channel or routes[0].dead_letter_channel
    dead = {name: pipeline.place(channel, receive.server) for name, channel in channels.items()}
    forwards = dict.fromkeys(route.unknown_channel for route in routes if route.unknown_channel is not None)
    unknown = tuple(pipeline.place(channel, receive.server) for channel in forwards)
    for place in (*dead.values(), *unknown):
        if place.protocol not in _SERVED or (place.protocol == PULSAR and not is_served(place.topic)):
            raise PipelineError(
                f"records cannot be put aside in {place.channel}",
                why="It is no topic of Kafka, and no persistent topic of Pulsar.",
                next="name another channel under deadLetterSink or unknownFormat",
            )
        if place.connection.mechanism == "GSSAPI":
            # Servers that a route receives from or sends to were looked at before, by rule PK532.
            raise PipelineError(
                f"PK532: server {place.server} wants GSSAPI (Kerberos), which no engine speaks to Kafka",
                where=f"channel {place.channel}",
                next="put records aside on another server, or give this one another login in a context",
            )
    return Source(routes=routes, dead=dead, unknown=unknown)


def _refuse(route: CompiledRoute) -> None:
    for stopped, why in _stops(route):
        if stopped:
            raise PipelineError(f"route {route.name} cannot run: {why}", next="penstock routes --explain")


def _stops(route: CompiledRoute) -> Iterator[tuple[bool, str]]:
    """Say what no engine can do yet, and whether the route asks for it."""
    operations = (route.receive, *route.send)
    leaves = any(operation.protocol not in _SERVED for operation in operations)
    yield leaves, "it leaves Kafka and Pulsar"


def stage_of(source: Source, pipeline: Pipeline, schemas: Schemas | None = None) -> Stage:
    """Give the stage of a source; it is made again when `schemas` have learnt what a batch asked for."""
    known = schemas or Schemas()
    return Stage(
        pipeline=_name_of(pipeline),
        routes=tuple(_route_of(route, source, pipeline, known) for route in source.routes),
        dead=_place_target(source.dead[None], source, pipeline),
        reader=reader_of(source.routes) or read_cloud_events,
        checks=tuple(checks_of(source.routes, known)),
        unknown=tuple(_place_target(place, source, pipeline) for place in source.unknown),
        servers=source.servers,
    )


def _route_of(route: CompiledRoute, source: Source, pipeline: Pipeline, schemas: Schemas) -> StageRoute:
    return StageRoute(
        plan=_plan_of(route),
        targets=tuple(_target_of(operation, route, source, pipeline, schemas) for operation in route.send),
        dead=_place_target(source.dead[route.name], source, pipeline),
        invoker=_invoker_of(route, source, pipeline),
        sql=route.sql,
    )


def _target_of(
    operation: ResolvedOperation, route: CompiledRoute, source: Source, pipeline: Pipeline, schemas: Schemas
) -> Target:
    contract = pipeline.contract
    profile = profile_on(operation.protocol, contract, operation.channel, route.document.profile)
    values, repeat = Values(route.document.values or "auto"), route.document.repeat_headers
    return Target(
        topic=str(operation.topic),
        sink=source.servers.index(operation.server),
        writer=writer_of(operation, contract, schemas, profile, values, repeat),
        profile=profile,
        values=values,
        repeat_headers=repeat,
    )


def _place_target(place: Place, source: Source, pipeline: Pipeline) -> Target:
    profile = profile_on(place.protocol, pipeline.contract, place.channel)
    return Target(topic=place.topic, sink=source.servers.index(place.server), profile=profile)


def _plan_of(route: CompiledRoute) -> RoutePlan:
    # A key function sees the output, so the invoker calls it; until then the event has the record's own key.
    by_function = isinstance(route.plan.key, FunctionKey)
    return replace(route.plan, key=SimpleKey.KEEP) if by_function else route.plan


def _invoker_of(route: CompiledRoute, source: Source, pipeline: Pipeline) -> Invoker | None:
    closed = {source.topic, *(place.topic for place in source.dead.values())}
    return invoker_of(
        route, pipeline, name=_name_of(pipeline), servers=source.servers, closed=frozenset(closed)
    )


def _name_of(pipeline: Pipeline) -> str:
    return str(pipeline.contract.info.title if pipeline.contract.info else "pipeline")
