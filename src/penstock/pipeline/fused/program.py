"""A stage as a program for the routing kernel, and what keeps a stage from being one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from penstock.errors import UnsupportedPlan
from penstock.pipeline.arrow.found import trie_of
from penstock.pipeline.fused.admission import admission_of, stops_checks
from penstock.pipeline.fused.assembler import CORE, Assembler, stops_condition, stops_value
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.nodes import Attribute, Node, Null
from penstock.pipeline.plan.route import ExpressionKey, FunctionKey, Mode, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute, read_cloud_events
from penstock.wire import routing_layout as at

__all__ = ["Program", "program_of", "stops"]

_MODES: Final = {
    Mode.KEEP: at.MODE_KEEP,
    Mode.BINARY: at.MODE_BINARY,
    Mode.STRUCTURED: at.MODE_STRUCTURED,
}
_TOMBSTONES: Final = {
    Tombstones.PASS: at.TOMBSTONES_PASS,
    Tombstones.EVENT: at.TOMBSTONES_PASS,
    Tombstones.DROP: at.TOMBSTONES_DROP,
    Tombstones.REJECT: at.TOMBSTONES_REJECT,
}
_KEYS: Final = {
    SimpleKey.KEEP: at.KEY_KEEP,
    SimpleKey.NONE: at.KEY_NONE,
    SimpleKey.PARTITIONKEY: at.KEY_PARTITIONKEY,
}


@dataclass(frozen=True, slots=True)
class Program:
    """What the kernel runs, as `wire.routing_layout` says, and where its records go."""

    targets: tuple[Target, ...]
    """Every topic that is written to, those of dead letters and of unknown formats included."""
    code: tuple[int, ...]
    pool: bytes
    trie: tuple[int, ...]
    slots: int
    """How many paths into the data are read."""


# What can be done


def stops(stage: Stage) -> tuple[str, ...]:
    """Say what keeps a stage from the kernel, each with its route; none: it can be done."""
    return tuple(_stops(stage))


def _stops(stage: Stage) -> Iterator[str]:
    if find_spec("numba") is None:
        yield "fused cannot: Numba is not installed"
    if stage.reader is not read_cloud_events and not isinstance(stage.reader, KafkaReader):
        yield "fused cannot: records that are no CloudEvents"
    yield from (f"fused cannot: {what}" for what in stops_checks(stage.checks))
    for route in stage.routes:
        yield from (f"route {route.plan.name}: fused cannot: {what}" for what in _route_stops(route))
    if sum(len(route.targets) for route in stage.routes) > at.MAX_OUTPUTS:
        yield f"fused cannot: more than {at.MAX_OUTPUTS} targets"


def _route_stops(route: StageRoute) -> Iterator[str]:
    if route.invoker is not None:
        yield "a function"
    if route.sql is not None:
        yield "a condition in Spark's own SQL"
    for target in route.targets:
        if target.writer is not None:
            yield f"{target.topic} is written in another form than CloudEvents"
        if target.profile is not None:
            yield f"{target.topic} is on Pulsar"
        if target.repeat_headers and route.plan.mode is not Mode.BINARY:
            yield "repeatHeaders"
    yield from _plan_stops(route.plan)


def _plan_stops(plan: RoutePlan) -> Iterator[str]:
    yield from stops_condition(plan.where)
    for assignment in plan.set:
        yield from stops_value(assignment.value)
    if isinstance(plan.key, ExpressionKey):
        yield from stops_value(plan.key.expression)
    if isinstance(plan.key, FunctionKey):
        yield f"key {plan.key.name}"
    if len(plan.set) + len(plan.drop) + 2 * len(plan.rename) >= at.MAX_CHANGES:
        yield f"more than {at.MAX_CHANGES} changes of attributes"


# The program


def program_of(stage: Stage) -> Program:
    """Translate a stage; UnsupportedPlan if something stops it."""
    if stopped := stops(stage):
        raise UnsupportedPlan("fused", stopped)
    targets = _targets(stage)
    numbers = {(target.sink, target.topic): number for number, target in enumerate(targets)}
    writer = Assembler(code=[0] * (at.C_HEAD + len(stage.routes) * at.R_ROUTE))
    admission = admission_of(stage.checks)
    for number, route in enumerate(stage.routes):
        row = at.C_HEAD + number * at.R_ROUTE
        # What admission asks need not be asked again.
        guard = tuple(part for part in route.plan.guard if part not in admission)
        described = {at.R_GUARD: writer.condition(guard)} | _route(writer, route, numbers)
        for name, value in described.items():
            writer.code[row + name] = value
    trie = trie_of(writer.slots, writer.constant)
    head = {at.C_ROUTES: len(stage.routes), at.C_ROUTES_AT: at.C_HEAD, at.C_SLOTS: len(writer.slots)}
    head[at.C_ADMISSION] = writer.condition(admission)
    head[at.C_RESPELLED] = int(isinstance(stage.reader, KafkaReader) and stage.reader.respells)
    # Behind the constants: the texts that were judged, the names of headers and their heads, then room.
    head[at.C_MEMORY] = len(writer.pool)
    head[at.C_SHAPE] = head[at.C_MEMORY] + at.MEMORY_ROWS * at.MEMORY_TEXT
    head[at.C_HEADS] = head[at.C_SHAPE] + at.SHAPE_TEXT
    head[at.C_SCRATCH] = head[at.C_HEADS] + at.HEADS_TEXT
    for name, value in head.items():
        writer.code[name] = value
    return Program(targets, tuple(writer.code), bytes(writer.pool), trie, len(writer.slots))


def _targets(stage: Stage) -> tuple[Target, ...]:
    every = [target for route in stage.routes for target in (*route.targets, route.dead)]
    every += [stage.dead, *stage.unknown]
    return tuple({(target.sink, target.topic): target for target in reversed(every)}.values())[::-1]


def _route(writer: Assembler, route: StageRoute, numbers: Mapping[tuple[int, str], int]) -> dict[int, int]:
    plan = route.plan
    name = plan.name.encode()
    place, size = writer.constant(b"%d:%s," % (len(name), name))
    row = {
        at.R_BODY: writer.condition(plan.body),
        at.R_READS_DATA: int(plan.reads_data),
        at.R_MODE: _MODES[plan.mode],
        at.R_TOMBSTONES: _TOMBSTONES[plan.tombstones],
        at.R_NO_DATA_AS_EVENT: int(plan.writes_no_data_as_event),
        at.R_KEY: at.KEY_VALUE,
        at.R_NAME: place,
        at.R_NAME_SIZE: size,
    }
    if isinstance(plan.key, ExpressionKey):
        row[at.R_KEY_VALUE] = writer.value(plan.key.expression)
    elif isinstance(plan.key, SimpleKey):
        row[at.R_KEY] = _KEYS[plan.key]
    row |= _changes(writer, plan)
    row |= {at.R_TARGETS: len(writer.code), at.R_TARGET_COUNT: len(route.targets)}
    for target in route.targets:
        limit = -1 if target.limit is None else target.limit
        writer.code += [numbers[target.sink, target.topic], limit, 0 if target.compacted else -1]
    return row


def _changes(writer: Assembler, plan: RoutePlan) -> dict[int, int]:
    """Write what happens to each attribute that the route touches."""
    values, keeps = _touched(plan)
    assigned = {assignment.attribute for assignment in plan.set}
    renamed = {new for _, new in plan.rename} - assigned
    rows = {
        name: (writer.value(node), int(name in keeps), int(name in renamed)) for name, node in values.items()
    }
    if rows:
        rows["causationid"] = (at.CAUSE, 0, 0)
    core = [name for name in CORE if name in rows]
    extensions = sorted(rows.keys() - set(CORE))
    start = len(writer.code)
    for name in (*core, *extensions):
        index = CORE.index(name) if name in CORE else -1
        writer.code += [*writer.constant(name.encode()), index, writer.head(name), *rows[name]]
    cause = extensions.index("causationid") + len(core) if rows else -1
    return {at.R_CHANGES: start, at.R_CHANGE_COUNT: len(rows), at.R_CAUSE: cause}


def _touched(plan: RoutePlan) -> tuple[dict[str, Node], frozenset[str]]:
    """Give the value of each attribute that the route touches, and those that a null leaves alone."""
    gone = [*plan.drop, *(old for old, _ in plan.rename)]
    values: dict[str, Node] = dict.fromkeys(gone, Null())
    values |= {new: Attribute(old) for old, new in plan.rename}
    values |= {assignment.attribute: assignment.value for assignment in plan.set}
    return values, frozenset(new for _, new in plan.rename if new not in gone) - {
        assignment.attribute for assignment in plan.set
    }
