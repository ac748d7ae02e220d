"""Where a route runs, what decides it, and why: `penstock routes --explain`, with no Spark and no broker.

| engine | runs |
|---|---|
| spark | in Spark's tasks; a condition in Spark's own SQL is answered by Spark |
| loop | the same without Spark, if `engine: loop` or `--engine loop` asks for it; without such conditions |

The kernel decides the records of which it is certain, and the reference the others;
`dry_run.kernel_share` counts them. Where the kernel cannot express a route, the reference decides all records
of its topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.pipeline.assembly import Source, sources_of
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.job.choice import (
    LOOP,
    SPARK,
    engine_stops,
    evaluator_of,
    guarantee,
    kernel_leaves,
    kernel_stops,
    refuse_unrunnable,
    require_kernels,
)
from penstock.pipeline.plan.explain import path_text
from penstock.pipeline.spark.session import connect_refusal, is_connect

__all__ = ["Engine", "Explanation", "explanations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine, whether it runs the route, and what stops it."""

    name: str
    runs: bool
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a route is run."""

    route: str
    chosen: str
    engines: tuple[Engine, ...]
    guarantee: str
    reads: tuple[str, ...]
    """Attributes and paths into the data."""
    condition_by_spark: bool = False
    """Whether its condition is in Spark's own SQL, which Spark answers."""
    evaluator: str = "none"
    """What decides its records: kernel (the reference decides what it leaves) or reference."""
    kernel_stops: tuple[str, ...] = ()
    """Why it is not the kernel, each naming the node; empty if it is.

    With the evaluator `kernel`: why the reference decides what the other conditions do not rule out.
    """


def explanations(pipeline: Pipeline) -> dict[str, Explanation]:
    """Explain every route, by its name; a pipeline that cannot run says why for each."""
    if pipeline.engine != LOOP and is_connect():
        return {route.name: _refused(route, connect_refusal()) for route in pipeline.routes}
    try:
        require_kernels()
        sources = sources_of(pipeline)
    except PenstockError as exc:
        return {route.name: _refused(route, exc) for route in pipeline.routes}
    found = (_explained(route, source, pipeline) for source in sources for route in source.routes)
    return {each.route: each for each in found}


def _refused(route: CompiledRoute, exc: PenstockError) -> Explanation:
    return Explanation(
        route=route.name,
        chosen="none",
        engines=(),
        guarantee=f"the pipeline cannot run: {exc.what}",
        reads=_reads(route),
    )


def _explained(route: CompiledRoute, source: Source, pipeline: Pipeline) -> Explanation:
    found = {name: engine_stops(name, source) for name in (SPARK, LOOP)}
    engines = tuple(Engine(name=name, runs=not stops, stops=stops) for name, stops in found.items())
    try:
        refuse_unrunnable(pipeline.engine, source)
    except PenstockError as exc:
        return replace(_refused(route, exc), engines=engines)
    return Explanation(
        route=route.name,
        chosen=pipeline.engine,
        engines=engines,
        guarantee=guarantee(source),
        reads=_reads(route),
        condition_by_spark=route.sql is not None,
        evaluator=evaluator_of(source, pipeline),
        kernel_stops=_kernel_stops(route, source, pipeline),
    )


def _kernel_stops(route: CompiledRoute, source: Source, pipeline: Pipeline) -> tuple[str, ...]:
    """Return what keeps the kernel from the records of a route; none: it decides first.

    For a route of which it has a part of the conditions: what keeps it from those that they do not rule out.
    """
    alone = replace(source, routes=(route,))
    own = kernel_stops(alone, pipeline)
    others = kernel_stops(source, pipeline)
    if own or others:
        return own or tuple(f"another route of its topic: {stop}" for stop in others)
    return kernel_leaves(alone, pipeline)


def _reads(route: CompiledRoute) -> tuple[str, ...]:
    paths = sorted(map(path_text, route.plan.paths))
    return (*sorted(route.plan.attributes), *paths, *((f"sql: {route.sql}",) if route.sql else ()))
