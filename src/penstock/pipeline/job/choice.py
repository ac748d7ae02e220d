"""Which engine runs a source, and what keeps it from the fused one; nothing is asked of a cluster.

| engine | where | promise |
|---|---|---|
| fused | Kafka's bytes to Kafka's bytes in Spark's tasks | exactly once |
| loop | the same without Spark | exactly once |
| columns | Arrow batches and columns of Spark | at least once |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.errors import PenstockError, UnsupportedPlan
from penstock.pipeline.assembly import Source, stage_of
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.fused.program import stops
from penstock.pipeline.job.sinks import delivery_of
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.typed.joints import has_writer, reader_of, reads_data

__all__ = ["AUTO", "COLUMNS", "FUSED", "LOOP", "chosen", "fused_stops", "guarantee"]

AUTO, FUSED, COLUMNS, LOOP = "auto", "fused", "columns", "loop"
_BY_KERNEL: Final = (FUSED, LOOP)
_REFUSED: Final = ("OAUTHBEARER",)
"""SASL mechanisms that the raw client does not speak."""


def fused_stops(source: Source, pipeline: Pipeline) -> tuple[str, ...]:
    """Say what keeps a source from the fused engine and the loop, each naming the node."""
    early = (*_of_clusters(source), *_of_contract(source))
    if early:
        return early  # The stage of such a source may have to ask a registry.
    try:
        return stops(stage_of(source, pipeline))
    except PenstockError as exc:
        return (exc.what,)


def _of_clusters(source: Source) -> Iterator[str]:
    if len(source.servers) > 1:
        yield f"it writes to {len(source.servers)} clusters, and a transaction is on one"
    for server, connection in source.connections.items():
        if connection.mechanism in _REFUSED:
            yield f"{server} wants {connection.mechanism}, which only Spark's own clients speak"


def _of_contract(source: Source) -> Iterator[str]:
    if any(each.protocol != "kafka" for route in source.routes for each in (route.receive, *route.send)):
        yield "it reads or writes Pulsar in its own profiles, which only columns know"
    if not isinstance(reader_of(source.routes), KafkaReader | None):
        yield "its source does not carry CloudEvents"
    if reads_data(source.routes):
        yield "its data is checked or decoded by the contract's schemas"
    for route in source.routes:
        yield from (f"route {route.name}: {why}" for why in _of_route(route))


def _of_route(route: CompiledRoute) -> Iterator[str]:
    if route.document.apply is not None:
        yield f"apply {route.document.apply.function} is a function of Python"
    if any(map(has_writer, route.send)):
        yield "its output is written by an encoder of Python"


def chosen(wanted: str, source: Source, pipeline: Pipeline) -> str:
    """Choose the engine of a source; raises UnsupportedPlan if the wanted one cannot do it."""
    if wanted == COLUMNS:
        return COLUMNS
    found = fused_stops(source, pipeline)
    if wanted == AUTO:
        return COLUMNS if found else FUSED
    if found:
        raise UnsupportedPlan(f"{source.name}: the {wanted} engine", found)
    return wanted


def guarantee(engine: str, source: Source, *, exactly_once: bool | None = None) -> str:
    """Say what the delivery of an engine is worth; without `exactly_once` no cluster was asked yet."""
    if engine not in _BY_KERNEL:
        return delivery_of(source).guarantee
    (server,) = source.servers
    if exactly_once is None or exactly_once:
        unknown = (
            ", at least once if it is a gateway, which has no transactions" if exactly_once is None else ""
        )
        return (
            f"exactly once on {server}: output, dead letters and progress are one transaction; "
            f"readers set isolation.level to read_committed{unknown}"
        )
    return f"at least once on {server}: what was written since the last mark is written again after a crash"
