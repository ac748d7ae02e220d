"""Which engine runs a route, and why: what `penstock routes --explain` says, with no Spark and no broker.

| engine | does |
|---|---|
| fused | Kafka's bytes to Kafka's bytes inside Spark's tasks, exactly once; all routes of a source, or none |
| loop | the same without Spark, if `engine: loop` or `--engine loop` asks for it |
| columns | whole Arrow batches by columns; one event at a time if a part of the route has no column form |

The names are those that `engine:` and `--engine` take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.errors import PenstockError, UnsupportedPlan
from penstock.pipeline.arrow.evaluate import cannot as arrow_cannot
from penstock.pipeline.assembly import Source, sources_of
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.job.choice import COLUMNS, LOOP, chosen, fused_stops, guarantee
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
    one_by_one: tuple[str, ...] = ()
    """Parts of the route that have no column form, if the columns engine runs it."""


def explanations(pipeline: Pipeline) -> dict[str, Explanation]:
    """Explain every route, by its name; a pipeline that cannot run says why for each."""
    if pipeline.engine != LOOP and is_connect():
        return {route.name: _refused(route, connect_refusal()) for route in pipeline.routes}
    try:
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
    unfused = fused_stops(source, pipeline)
    engines = (
        Engine(name="fused", runs=not unfused, stops=unfused),
        Engine(name=COLUMNS, runs=True),
    )
    try:
        engine = chosen(pipeline.engine, source, pipeline)
    except UnsupportedPlan as exc:
        return replace(_refused(route, exc), engines=engines)
    return Explanation(
        route=route.name,
        chosen=engine,
        engines=engines,
        guarantee=guarantee(engine, source),
        reads=_reads(route),
        one_by_one=arrow_cannot(route.plan) if engine == COLUMNS else (),
    )


def _reads(route: CompiledRoute) -> tuple[str, ...]:
    paths = sorted(map(path_text, route.plan.paths))
    return (*sorted(route.plan.attributes), *paths, *((f"sql: {route.sql}",) if route.sql else ()))
