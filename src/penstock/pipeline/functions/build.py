"""From a compiled route to its invoker: its functions, their bounds, its retries and its receipts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.contract.channels import Channel
from penstock.contract.protocols import family_of
from penstock.contract.servers import Server
from penstock.contract.topics import is_kafka_topic, kafka_topic, pulsar_topic
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.document import FunctionCall
from penstock.pipeline.functions.delivery import Retries
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.process import Bounds, Settings
from penstock.pipeline.functions.receipts import Receipts
from penstock.pipeline.plan.route import FunctionKey, SimpleKey
from penstock.pipeline.ports import Target
from penstock.pipeline.pulsar import PULSAR, is_served, profile_on
from penstock.pipeline.stage import Stage

__all__ = ["check_functions", "close_functions", "invoker_of", "module_path"]


def check_functions(stage: Stage) -> None:
    """Load every function of a stage here, before the workers do; PipelineError if one cannot be loaded."""
    for route in stage.routes:
        if isinstance(route.invoker, FunctionInvoker):
            route.invoker.check()
    close_functions(stage)


def close_functions(stage: Stage) -> None:
    """End the processes of all functions of a stage that run here."""
    for route in stage.routes:
        if isinstance(route.invoker, FunctionInvoker):
            route.invoker.close()


def module_path(pipeline: Pipeline) -> tuple[str, ...]:
    """Give where the modules of a pipeline are looked for first: in the folder of its file."""
    return (str(Path(pipeline.path).absolute().parent),)


def invoker_of(
    route: CompiledRoute, pipeline: Pipeline, *, name: str, servers: Sequence[str], closed: frozenset[str]
) -> FunctionInvoker | None:
    """Give the invoker of a route; None if it names no function.

    `servers` are the clusters that the source writes to, `closed` the topics that take no receipts.
    """
    call, key, delivery = route.document.apply, route.plan.key, route.document.delivery
    if call is None and not isinstance(key, FunctionKey):
        return None
    bounds = call or FunctionCall()
    receipts = Receipts(
        pipeline=name, route=route.name, channels=dict(_channels(pipeline, servers, closed)) if call else {}
    )
    return FunctionInvoker(
        settings=Settings(
            route=route.name,
            function=call.function if call else None,
            key=key.name if isinstance(key, FunctionKey) else None,
            path=module_path(pipeline),
            environment=tuple(pipeline.context.function_environment().items()) if pipeline.context else (),
        ),
        bounds=Bounds(seconds=bounds.timeout, megabytes=bounds.memory),
        batch=bounds.batch,
        retries=Retries(retry=delivery.retry, policy=delivery.backoff_policy, delay=route.backoff_seconds),
        ordering=route.document.ordering,
        key_from_partitionkey=key is SimpleKey.PARTITIONKEY,
        receipts=receipts if call else None,
    )


def _channels(
    pipeline: Pipeline, servers: Sequence[str], closed: frozenset[str]
) -> Iterator[tuple[str, Target]]:
    contract = pipeline.contract
    for name, channel in contract.channels.items():
        there = [server for server in servers if server in contract.servers_of(channel)]
        topic = _topic(channel, contract.servers[there[0]]) if there else None
        if topic is None or topic in closed:
            continue
        # Sink n is cluster n; n + len(servers) are its receipts, written when everything else is durable.
        sink = servers.index(there[0]) + len(servers)
        profile = profile_on(family_of(contract.servers[there[0]]), contract, name)
        target = Target(topic=topic, sink=sink, profile=profile)
        yield topic, target
        yield name, target


def _topic(channel: Channel, server: Server) -> str | None:
    """Give the topic of a channel on a server; None if it has none, or many."""
    if family_of(server) == PULSAR:
        topic = pulsar_topic(channel, server)
        return topic if topic is not None and is_served(topic) and "{" not in topic else None
    topic = kafka_topic(channel)
    return topic if topic is not None and is_kafka_topic(topic) else None
