"""The routes as a drawing: topics and routes between them, as text, as mermaid, or as plain data."""

from __future__ import annotations

from typing import Any

from penstock.pipeline.compile import CompiledRoute, Pipeline

__all__ = ["as_data", "as_mermaid", "as_text"]


def as_text(pipeline: Pipeline, *, explain: bool = False) -> str:
    """Draw every route with what it reads and writes; `explain` adds the plan."""
    return "\n\n".join(_route_text(route, explain) for route in pipeline.routes)


def _route_text(route: CompiledRoute, explain: bool) -> str:
    lines = [f"{route.receive.topic} ({route.receive.server})", f"  └─ {route.name}"]
    targets = [f"{operation.topic} ({operation.server})" for operation in route.send]
    lines += [f"       ├─> {target}" for target in targets]
    lines.append(f"       └─x {route.dead_letter_channel} (dead letters)")
    if explain:
        lines += [f"     {line}" for line in route.plan.explain().splitlines()[1:]]
    return "\n".join(lines)


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
    """Give the routes as plain data."""
    return [
        {
            "route": route.name,
            "receive": {"server": route.receive.server, "topic": route.receive.topic},
            "send": [{"server": target.server, "topic": target.topic} for target in route.send],
            "deadLetters": route.dead_letter_channel,
            "plan": route.plan.explain(),
        }
        for route in pipeline.routes
    ]


def _topic(server: str, topic: str | None) -> str:
    return f'{_id(server, topic or "")}["{_label(topic or "")}<br/>{_label(server)}"]'


def _id(*words: str) -> str:
    return "_".join("".join(c if c.isalnum() else "_" for c in word) for word in words)


def _label(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;")
