"""A stage as a program for the routing kernel, and what keeps a stage from being one.

A stage that the kernel cannot express has a program without code: its targets are known, and the reference
decides about every record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from typing import Final

from penstock.errors import UnsupportedPlan
from penstock.events.bindings.pulsar import Profile, Values
from penstock.events.reading import Level
from penstock.pipeline.evaluators.kernel.admission import admission_of, stops_checks
from penstock.pipeline.evaluators.kernel.assembler import CORE, Assembler, computed_parts
from penstock.pipeline.evaluators.kernel.expressible import stops_condition, stops_value
from penstock.pipeline.evaluators.reference.router import stops_reference
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.nodes import Attribute, Boolean, Node, Null, Step
from penstock.pipeline.plan.route import ExpressionKey, FunctionKey, Mode, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.ports import Target
from penstock.pipeline.pulsar import PulsarReader
from penstock.pipeline.stage import Stage, StageRoute, read_cloud_events
from penstock.pipeline.typed.check import ContractCheck
from penstock.wire import routing_layout as at

__all__ = ["Program", "parts_left", "plan_digest", "program_of", "reference_program_of", "stops"]

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
_VALUES: Final = {Values.AUTO: at.VALUES_AUTO, Values.JSON: at.VALUES_JSON, Values.RAW: at.VALUES_RAW}


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
    receipts: frozenset[int] = frozenset()
    """The numbers of targets to which only receipts of functions go."""
    routes: str = ""
    """A digest of what the reference does; see `plan_digest`."""
    has_ids: bool = True
    """Whether records for Pulsar have ids: the place numbers of a log without index have too many bits."""

    @property
    def has_kernel(self) -> bool:
        """Whether the kernel decides about records; if not, the reference decides about all of them."""
        return bool(self.code)

    @property
    def by_position(self) -> frozenset[int]:
        """The targets on Pulsar: ids and partitions of their records come from the position of the input."""
        return frozenset(n for n, target in enumerate(self.targets) if target.profile is not None)


def plan_digest(program: Program) -> str:
    """Return what tells two programs apart: where a record goes, and what the topics take.

    Code alone does not say it: the reference has a part in each program, and what it does with a record, such
    as one without headers or with an expirytime, is in no code.
    """
    targets = [(target.sink, target.topic, target.limit, target.compacted) for target in program.targets]
    parts = (program.code, program.pool, program.trie, targets, program.routes)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


# What can be done


def stops(stage: Stage) -> tuple[str, ...]:
    """Say what keeps a stage from the kernel, each with its route; none: it can be done."""
    return tuple(_stops(stage))


def _stops(stage: Stage) -> Iterator[str]:
    if find_spec("numba") is None:
        yield "the kernel cannot: Numba is not installed"
    if stage.reader is not read_cloud_events and not isinstance(stage.reader, KafkaReader | PulsarReader):
        yield "the kernel cannot: records that are no CloudEvents"
    yield from (f"the kernel cannot: {what}" for what in stops_checks(stage.checks))
    for route in stage.routes:
        if not _is_left_in_part(route):
            yield from (f"route {route.plan.name}: the kernel cannot: {what}" for what in _route_stops(route))
    if sum(len(route.targets) for route in stage.routes) > at.MAX_OUTPUTS:
        yield f"the kernel cannot: more than {at.MAX_OUTPUTS} targets"


def parts_left(stage: Stage) -> tuple[str, ...]:
    """Say what keeps routes from the kernel of which it has a part of the conditions.

    It decides about the records that this part rules out, and leaves the others.
    """
    return tuple(
        f"route {route.plan.name}: the kernel cannot: {what}"
        for route in stage.routes
        if _is_left_in_part(route)
        for what in _route_stops(route)
    )


def _is_left_in_part(route: StageRoute) -> bool:
    """Whether the kernel has some conditions of a route, and not all of the route.

    A function has its events collected before a transaction begins, by the reference alone.
    """
    if route.invoker is not None or route.sql is not None or isinstance(route.plan.key, FunctionKey):
        return False
    if not _certain(route.plan.guard) + _certain(route.plan.body):
        return False
    return any(_route_stops(route))


def _certain(conditions: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return those of some conditions that the kernel can evaluate, and that may rule an event out."""
    return tuple(each for each in conditions if each != Boolean(True) and not any(stops_condition(each)))


def _route_stops(route: StageRoute) -> Iterator[str]:
    if route.invoker is not None:
        yield "a function"
    if route.sql is not None:
        yield "a condition in Spark's own SQL"
    for target in route.targets:
        if target.writer is not None:
            yield f"{target.topic} is written in another form than CloudEvents"
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
    values = [each.value for each in plan.set]
    values += [plan.key.expression] if isinstance(plan.key, ExpressionKey) else []
    if sum(map(computed_parts, values)) > at.MAX_COMPUTED:
        yield f"more than {at.MAX_COMPUTED} computed values"
    if len(plan.set) + len(plan.drop) + 2 * len(plan.rename) >= at.MAX_CHANGES:
        yield f"more than {at.MAX_CHANGES} changes of attributes"


# The program


def program_of(stage: Stage) -> Program:
    """Translate a stage; UnsupportedPlan if something stops it."""
    if stopped := stops(stage):
        raise UnsupportedPlan("the kernel", stopped)
    targets = _targets(stage)
    numbers = {(target.sink, target.topic): number for number, target in enumerate(targets)}
    writer = Assembler(code=[0] * (at.C_HEAD + len(stage.routes) * at.R_ROUTE))
    admission = admission_of(stage.checks)
    if isinstance(stage.reader, PulsarReader) and stage.reader.bridged:
        # Values of attributes are base64, which no kernel reads: nothing is certain.
        admission = (*admission, Boolean(False))
    for number, route in enumerate(stage.routes):
        row = at.C_HEAD + number * at.R_ROUTE
        # What admission asks need not be asked again.
        left = _is_left_in_part(route)
        conditions = _certain(route.plan.guard) if left else route.plan.guard
        guard = tuple(part for part in conditions if part not in admission)
        described = {at.R_GUARD: writer.condition(guard)}
        described |= _part_of(writer, route) if left else _route(writer, route, numbers)
        for name, value in described.items():
            writer.code[row + name] = value
    trie = _trie_of(writer.slots, writer.constant)
    head = {at.C_ROUTES: len(stage.routes), at.C_ROUTES_AT: at.C_HEAD, at.C_SLOTS: len(writer.slots)}
    head[at.C_ADMISSION] = writer.condition(admission)
    head[at.C_RESPELLED] = int(_respells(stage))
    head[at.C_VALUES], head[at.C_VERSION] = _values(stage), writer.constant(b"1.0")[0]
    # Behind the constants: the texts that were judged, the names of headers and their heads, the names of
    # extensions of profile 0.1, then room.
    head[at.C_MEMORY] = len(writer.pool)
    head[at.C_SHAPE] = head[at.C_MEMORY] + at.MEMORY_ROWS * at.MEMORY_TEXT
    head[at.C_HEADS] = head[at.C_SHAPE] + at.SHAPE_TEXT
    head[at.C_NAMES] = head[at.C_HEADS] + at.HEADS_TEXT
    head[at.C_SCRATCH] = head[at.C_NAMES] + at.NAMES_TEXT
    for name, value in head.items():
        writer.code[name] = value
    return Program(
        targets,
        tuple(writer.code),
        bytes(writer.pool),
        trie,
        len(writer.slots),
        routes=_routes_digest(stage),
    )


def reference_program_of(stage: Stage, *, has_answers: bool = False) -> Program:
    """Return the program without code of a stage; UnsupportedPlan if not even the reference can do it.

    `has_answers` says that the answers to conditions in Spark's own SQL come with the records.
    """
    if stopped := stops_reference(stage, has_answers=has_answers):
        raise UnsupportedPlan("the kernel", stopped)
    written = _targets(stage)
    places = {(target.sink, target.topic) for target in written}
    receipts = [each for each in _receipts(stage) if (each.sink, each.topic) not in places]
    return Program(
        targets=(*written, *receipts),
        code=(),
        pool=b"",
        trie=(),
        slots=0,
        receipts=frozenset(range(len(written), len(written) + len(receipts))),
        routes=_routes_digest(stage),
    )


def _receipts(stage: Stage) -> tuple[Target, ...]:
    """Return where receipts may go, each place once."""
    asked = (route.invoker for route in stage.routes if isinstance(route.invoker, FunctionInvoker))
    channels = (target for each in asked if each.receipts for target in each.receipts.channels.values())
    return tuple({(target.sink, target.topic): target for target in channels}.values())


def _routes_digest(stage: Stage) -> str:
    """Return a digest of what the reference does; not of schemas, which are learnt while a job runs."""
    calls = [
        (route.invoker.settings.function, route.invoker.settings.key)
        for route in stage.routes
        if isinstance(route.invoker, FunctionInvoker)
    ]
    checks = [
        (check.operation, check.forms, check.full)
        for check in stage.checks
        if isinstance(check, ContractCheck)
    ]
    reader = stage.reader if is_dataclass(stage.reader) else None
    routes = [
        (route.plan, route.sql, [(target.sink, target.topic) for target in (*route.targets, route.dead)])
        for route in stage.routes
    ]
    parts = (routes, calls, checks, reader)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _respells(stage: Stage) -> bool:
    """Whether a record with a header that begins like ours, in another spelling, is left to the reference.

    On Pulsar such a property is of profile 0.1, or makes a mixture that the binding refuses. With the names
    of Kafka alone, a record of Pulsar is read as one of Kafka.
    """
    reader = stage.reader
    return isinstance(reader, PulsarReader) or (isinstance(reader, KafkaReader) and reader.respells)


def _values(stage: Stage) -> int:
    """How properties of profile 0.1 say values, where the kernel reads them; else 0.

    At the level `lenient` other spellings are names of 0.1 as well, and names whose case is kept become an
    extension of their own.
    """
    reader = stage.reader
    if not isinstance(reader, PulsarReader) or reader.keep_case or reader.level is not Level.STRICT:
        return 0
    return _VALUES[reader.values]


def _targets(stage: Stage) -> tuple[Target, ...]:
    every = [target for route in stage.routes for target in (*route.targets, route.dead)]
    every += [stage.dead, *stage.unknown]
    return tuple({(target.sink, target.topic): target for target in reversed(every)}.values())[::-1]


def _part_of(writer: Assembler, route: StageRoute) -> dict[int, int]:
    """Write what the kernel has of a route that it leaves: nothing leaves on it."""
    body = _certain(route.plan.body)
    return {
        at.R_BODY: writer.condition(body),
        at.R_READS_DATA: int(bool(body)),
        at.R_TOMBSTONES: at.TOMBSTONES_REJECT,  # a null value is not certain
        at.R_LEFT: 1,
    }


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
    row[at.R_COMPUTED], row[at.R_COMPUTED_COUNT] = writer.computed()
    row |= {at.R_TARGETS: len(writer.code), at.R_TARGET_COUNT: len(route.targets)}
    for target in route.targets:
        limit = -1 if target.limit is None else target.limit
        values = _VALUES[target.values] if target.profile is Profile.V0_1 else 0
        writer.code += [numbers[target.sink, target.topic], limit, 0 if target.compacted else -1, values]
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


def _trie_of(
    slots: Mapping[tuple[Step, ...], int], place: Callable[[bytes], tuple[int, int]]
) -> tuple[int, ...]:
    """Write paths, each with its slot, as `wire.kernels.json` reads them; `place` puts a name somewhere."""
    prefixes = dict.fromkeys(path[:length] for path in slots for length in range(len(path) + 1)) or {(): 0}
    nodes = {prefix: 2 * number for number, prefix in enumerate(sorted(prefixes, key=len))}
    numbers: list[int] = [n for prefix in nodes for n in (-1, slots.get(prefix, -1))]
    for prefix, node in nodes.items():
        if prefix:
            step, parent = prefix[-1], nodes[prefix[:-1]]
            edge, following = len(numbers), numbers[parent]
            where, size = place(step.encode()) if isinstance(step, str) else (step, 0)
            numbers += [int(isinstance(step, int)), where, size, node, following]
            numbers[parent] = edge
    return tuple(numbers)
