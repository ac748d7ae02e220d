"""From compiled routes to the stage that the workers run: the joints of each source, chosen by its routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.contract import ResolvedOperation
from penstock.contract.topics import kafka_topic
from penstock.errors import PipelineError
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.plan.route import FunctionKey
from penstock.pipeline.ports import Checker, Invoker, Reader, Target, Writer
from penstock.pipeline.stage import Stage, StageRoute, read_cloud_events

__all__ = ["Source", "sources_of", "stage_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One topic with all routes that receive from it."""

    routes: tuple[CompiledRoute, ...]

    @property
    def receive(self) -> ResolvedOperation:
        """What is read."""
        return self.routes[0].receive

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return str(self.receive.topic)

    @property
    def name(self) -> str:
        """The name of its checkpoint."""
        return f"{self.receive.server}-{self.topic}"

    @property
    def servers(self) -> tuple[str, ...]:
        """The clusters that it writes to, its own first: sink n is cluster n, n + len(servers) its receipts.

        Receipts are written when everything else of a batch is durable.
        """
        sent = (operation.server for route in self.routes for operation in route.send)
        return tuple(dict.fromkeys((self.receive.server, *sent)))


def sources_of(pipeline: Pipeline) -> list[Source]:
    """Group the routes by what they receive from: each topic is read and decoded once."""
    groups: dict[tuple[str, str | None], list[CompiledRoute]] = {}
    for route in pipeline.routes:
        _refuse(route)
        groups.setdefault((route.receive.server, route.receive.topic), []).append(route)
    return [Source(routes=tuple(routes)) for routes in groups.values()]


def _refuse(route: CompiledRoute) -> None:
    for stopped, why in _stops(route):
        if stopped:
            raise PipelineError(f"route {route.name} cannot run: {why}", next="penstock routes --explain")


def _stops(route: CompiledRoute) -> Iterator[tuple[bool, str]]:
    """Say what no engine can do yet, and whether the route asks for it."""
    operations = (route.receive, *route.send)
    declared = any(message.cloud_event for message in route.receive.messages)
    yield any(operation.protocol != "kafka" for operation in operations), "it leaves Kafka"
    yield len({operation.server for operation in operations}) > 1, "it goes to another cluster"
    yield route.document.apply is not None, "it applies a function"
    yield route.sql is not None, "its condition is Spark's own SQL"
    yield isinstance(route.plan.key, FunctionKey), "its key is made by a function"
    yield route.document.events == "plain" or not declared, "its source does not carry CloudEvents"


def stage_of(source: Source, pipeline: Pipeline) -> Stage:
    """Give the stage of a source."""
    routes = tuple(_route_of(route, source, pipeline) for route in source.routes)
    own = source.receive.dead_letter_topic
    name = str(pipeline.contract.info.title if pipeline.contract.info else "pipeline")
    return Stage(
        pipeline=name,
        routes=routes,
        dead=Target(topic=own) if own else routes[0].dead,
        reader=_reader_of(source),
        checks=tuple(_checks_of(source)),
    )


def _route_of(route: CompiledRoute, source: Source, pipeline: Pipeline) -> StageRoute:
    return StageRoute(
        plan=route.plan,
        targets=tuple(_target_of(operation, route, source.servers) for operation in route.send),
        dead=_dead_target(route, source, pipeline),
        invoker=_invoker_of(route, source, pipeline),
    )


def _target_of(operation: ResolvedOperation, route: CompiledRoute, servers: Sequence[str]) -> Target:
    topic, sink = str(operation.topic), servers.index(operation.server)
    return Target(topic=topic, sink=sink, writer=_writer_of(operation, route))


def _dead_target(route: CompiledRoute, source: Source, pipeline: Pipeline) -> Target:
    found = kafka_topic(pipeline.contract.channels[route.dead_letter_channel])
    if found is None:
        raise PipelineError(f"channel {route.dead_letter_channel} has no topic on Kafka")
    return Target(topic=str(found))


def _reader_of(source: Source) -> Reader:
    return read_cloud_events


def _checks_of(source: Source) -> Iterator[Checker]:
    yield from ()


def _writer_of(operation: ResolvedOperation, route: CompiledRoute) -> Writer | None:
    return None


def _invoker_of(route: CompiledRoute, source: Source, pipeline: Pipeline) -> Invoker | None:
    return None
