"""The routes as a drawing: topics and routes between them, as text, as mermaid, or as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.engines import Explanation, explanations
from penstock.pipeline.job.choice import KERNEL, REFERENCE

__all__ = ["as_data", "as_mermaid", "as_text"]


def as_text(pipeline: Pipeline, *, explain: bool = False) -> str:
    """Draw every route with what it reads and writes; `explain` adds plan, engine and guarantee."""
    found = explanations(pipeline) if explain else {}
    return "\n\n".join(_route_text(route, found.get(route.name)) for route in pipeline.routes)


def _route_text(route: CompiledRoute, explained: Explanation | None) -> str:
    lines = [f"{route.receive.topic} ({route.receive.server})", f"  └─ {route.name}"]
    targets = [f"{operation.topic} ({operation.server})" for operation in route.send]
    lines += [f"       ├─> {target}" for target in targets]
    lines.append(f"       └─x {route.dead_letter_channel} (dead letters)")
    if explained is not None:
        lines += [f"     {line}" for line in route.plan.explain().splitlines()[1:]]
        lines += [f"       {line}" for line in _function_lines(route)]
        lines += [f"       {line}" for line in _explanation_lines(explained)]
    return "\n".join(lines)


def _function_lines(route: CompiledRoute) -> Iterator[str]:
    call, delivery = route.document.apply, route.document.delivery
    if call is not None:
        bounds = f"{call.batch} events a call, at most {call.timeout} s and {call.memory} MB"
        tries = f"tried again {delivery.retry} times" if delivery.retry else "not tried again"
        yield f"apply {call.function}: {bounds}; {tries}, ordering {route.document.ordering}"


def _explanation_lines(explained: Explanation) -> Iterator[str]:
    yield f"engine {explained.chosen}" + (", condition by Spark" if explained.condition_by_spark else "")
    for engine in explained.engines:
        if engine.stops:
            yield f"  not {engine.name}:"
            yield from (f"    {stop}" for stop in engine.stops)
        elif engine.name != explained.chosen and explained.chosen != "none":
            yield f"  can run by {engine.name} (--engine {engine.name})"
    yield from _evaluator_lines(explained)
    yield explained.guarantee


def _evaluator_lines(explained: Explanation) -> Iterator[str]:
    if explained.evaluator == KERNEL:
        yield "evaluator kernel; the reference decides what the kernel is not certain of"
        if explained.kernel_stops:
            yield "and what the other conditions of this route do not rule out:"
            yield from (f"  {stop}" for stop in explained.kernel_stops)
    elif explained.evaluator == REFERENCE:
        yield "evaluator reference, not the kernel:"
        yield from (f"  {stop}" for stop in explained.kernel_stops)


def as_mermaid(pipeline: Pipeline) -> str:
    """Draw the routes as a mermaid flow chart."""
    lines = ["flowchart LR"]
    for route in pipeline.routes:
        box = _id("route", route.name)
        lines.append(f'  {box}{{{{"{_label(route.name)}"}}}}')
        lines.append(f"  {_topic(route.receive.server, route.receive.topic)} --> {box}")
        lines += [f"  {box} --> {_topic(target.server, target.topic)}" for target in route.send]
        lines.append(f"  {box} -.-> {_topic('dead letters', route.dead_letter_channel)}")
    return "\n".join(lines)


def as_data(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Give the routes as plain data, with how each is run."""
    explained = explanations(pipeline)
    return [
        {
            "route": route.name,
            "receive": {"server": route.receive.server, "topic": route.receive.topic},
            "send": [{"server": target.server, "topic": target.topic} for target in route.send],
            "deadLetters": route.dead_letter_channel,
            "plan": route.plan.explain(),
            "function": route.document.apply.function if route.document.apply else None,
            **_explained_data(explained[route.name]),
        }
        for route in pipeline.routes
    ]


def _explained_data(explained: Explanation) -> dict[str, Any]:
    return {
        "engine": explained.chosen,
        "engines": {
            engine.name: {"runs": engine.runs, "stops": list(engine.stops)} for engine in explained.engines
        },
        "evaluator": explained.evaluator,
        "notKernel": list(explained.kernel_stops),
        "conditionBySpark": explained.condition_by_spark,
        "guarantee": explained.guarantee,
        "reads": list(explained.reads),
    }


def _topic(server: str, topic: str | None) -> str:
    return f'{_id(server, topic or "")}["{_label(topic or "")}<br/>{_label(server)}"]'


def _id(*words: str) -> str:
    return "_".join("".join(c if c.isalnum() else "_" for c in word) for word in words)


def _label(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;")
