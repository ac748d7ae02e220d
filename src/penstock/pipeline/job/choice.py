"""Where a source runs, which evaluator decides, what keeps it from either, and what its delivery is worth.

Nothing is asked of a cluster or of a registry.

| engine | runs |
|---|---|
| spark | in Spark's tasks; conditions in Spark's own SQL are answered by Spark |
| loop | without Spark; it has no such conditions |

Both carry bytes of Kafka or Pulsar to bytes of both, exactly once. The kernel decides about the records of
a source, and the reference about those that it leaves; where the kernel cannot express a route, or Spark
answers a condition, the reference decides about all records of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from penstock.errors import MissingExtra, PenstockError, PipelineError, UnsupportedPlan
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import CompiledRoute, Pipeline
from penstock.pipeline.delivery.progress import TOPIC
from penstock.pipeline.evaluators.kernel.program import parts_left, stops
from penstock.pipeline.frames.conditions import why_unrepeatable as why_unrepeatable_sql
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.route import FunctionKey
from penstock.pipeline.pulsar import PulsarReader
from penstock.pipeline.typed.joints import has_writer, reader_of, reads_data

__all__ = [
    "KERNEL",
    "LOOP",
    "REFERENCE",
    "SPARK",
    "engine_stops",
    "evaluator_of",
    "guarantee",
    "is_exactly_once",
    "kernel_leaves",
    "kernel_stops",
    "progress_servers",
    "refuse_unrunnable",
    "require_exactly_once",
    "require_kernels",
    "why_unrepeatable",
]

SPARK, LOOP = "spark", "loop"
"""Those that `engine:` and `--engine` take."""
KERNEL, REFERENCE = "kernel", "reference"


def require_kernels() -> None:
    """Raise MissingExtra if Numba is not installed: tasks and loops read and write by kernels."""
    if find_spec("numba") is None:
        raise MissingExtra("spark", "numba", purpose="running a pipeline")


def engine_stops(engine: str, source: Source) -> tuple[str, ...]:
    """Return what keeps a source from an engine, each naming the route; none: it runs there."""
    if engine == SPARK:
        return ()
    return tuple(
        f"route {route.name}: a condition in Spark's own SQL"
        for route in source.routes
        if route.sql is not None
    )


def refuse_unrunnable(engine: str, source: Source) -> None:
    """Raise UnsupportedPlan if an engine cannot run a source."""
    if found := engine_stops(engine, source):
        raise UnsupportedPlan(f"{source.name}: engine {engine}", found)


def kernel_stops(source: Source, pipeline: Pipeline) -> tuple[str, ...]:
    """Say why the reference decides about all records of a source; none: the kernel decides first."""
    early = tuple(_by_reference(source))
    if early:
        return early  # The stage of such a source may have to ask a registry.
    try:
        return stops(stage_of(source, pipeline))
    except PenstockError as exc:
        return (exc.what,)


def kernel_leaves(source: Source, pipeline: Pipeline) -> tuple[str, ...]:
    """Say of which routes the kernel only rules records out, for a source that it decides first."""
    return parts_left(stage_of(source, pipeline))


def _by_reference(source: Source) -> Iterator[str]:
    for route in source.routes:
        if route.sql is not None:
            yield f"route {route.name}: a condition in Spark's own SQL"
    if not isinstance(reader_of(source.routes), KafkaReader | PulsarReader | None):
        yield "its source does not carry CloudEvents"
    if reads_data(source.routes):
        yield "its data is checked or decoded by the contract's schemas"
    for route in source.routes:
        yield from (f"route {route.name}: {why}" for why in _of_route(route))


def _of_route(route: CompiledRoute) -> Iterator[str]:
    if route.document.apply is not None:
        yield f"apply {route.document.apply.function} is a function of Python"
    if isinstance(route.plan.key, FunctionKey):
        yield f"key {route.plan.key.name} is a function of Python"
    if any(map(has_writer, route.send)):
        yield "its output is written by an encoder of Python"


def evaluator_of(source: Source, pipeline: Pipeline) -> str:
    """Return which evaluator decides about the records of a source."""
    return REFERENCE if kernel_stops(source, pipeline) else KERNEL


def is_exactly_once(source: Source, *, transactional: bool, indexed: bool = True) -> bool:
    """Return whether a source is delivered exactly once, as `exactly-once: required` asks for.

    `indexed`: see `why_unrepeatable`.
    """
    is_one_step = len(source.written) == 1 and not source.native_pulsar
    return transactional and (is_one_step or why_unrepeatable(source, indexed=indexed) is None)


def progress_servers(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return the servers that need a progress topic, each with the sources that write marks there.

    They are those on Kafka that a source writes to exactly once and does not read from; if it writes to
    Pulsar and to none of these, a loop keeps its plan on the one that it reads. A source that its engine
    cannot run is left out: a job refuses it before it needs anything.
    """
    found: dict[str, tuple[str, ...]] = {}
    for source in sources_of(pipeline):
        if engine_stops(pipeline.engine, source):
            continue
        marked = [each for each in source.written if each not in (source.servers[0], *source.native_pulsar)]
        if not marked and pipeline.engine == LOOP and source.native_pulsar and not source.is_on_pulsar:
            marked = [source.servers[0]]
        for server in marked:
            found[server] = (*found.get(server, ()), source.name)
    return found


def require_exactly_once(
    source: Source, pipeline: Pipeline, *, transactional: bool, indexed: bool = True
) -> None:
    """Raise PipelineError if the file asks for exactly once and a source gets less."""
    if not pipeline.requires_exactly_once or is_exactly_once(
        source, transactional=transactional, indexed=indexed
    ):
        return
    why = None
    if transactional:
        because = why_unrepeatable(source, indexed=indexed)
        why = f"it writes to {', '.join(source.written)}, and {because}"
    raise PipelineError(
        f"{source.name} would be delivered at least once, and the pipeline requires exactly once",
        where="exactly-once: required",
        why=why or f"{' or '.join(source.written)} has no transactions, or --at-least-once was given",
        next="penstock routes --explain says what each route gets; change it, or take exactly-once out",
    )


def guarantee(source: Source, *, exactly_once: bool | None = None, indexed: bool = True) -> str:
    """Return what the delivery of a source is worth; without `exactly_once` no cluster was asked yet.

    `indexed`: see `why_unrepeatable`.
    """
    if exactly_once is False:
        servers = ", ".join(source.written)
        return (
            f"at least once on {servers}: what was written since the last mark is written again after a crash"
        )
    unknown = ", at least once if it is a gateway, which has no transactions" if exactly_once is None else ""
    if source.native_pulsar:
        kafka = [server for server in source.on_kafka if server in (source.servers[0], *source.written)]
        unknown = unknown.replace("if it is", f"if {' or '.join(kafka)} is") if kafka else ""
        if source.is_on_pulsar and exactly_once is None:
            unknown += f", at least once on Pulsar if the broker of {source.servers[0]} keeps no index"
        return _with_pulsar(source, indexed) + unknown
    if source.written == source.servers[:1]:
        return (
            f"exactly once on {source.written[0]}: output, dead letters and progress are one transaction; "
            f"readers set isolation.level to read_committed{unknown}"
        )
    return _of_several(source) + unknown.replace("if it is", "if one of them is")


def _with_pulsar(source: Source, indexed: bool) -> str:
    """Say what holds where Pulsar is written by its own protocol, alone or beside Kafka."""
    pulsar = [server for server in source.written if server in source.native_pulsar]
    kafka = [server for server in source.written if server not in source.native_pulsar]
    first, servers = source.servers[0], ", ".join(pulsar)
    others = [f"{TOPIC} of {server}" for server in kafka if server != first]
    if source.is_on_pulsar and not kafka:
        marks = f"topics {TOPIC}-... of {servers}"
    else:
        has_group = first in kafka or not kafka
        marks = " and ".join((*others, *([f"the group's offsets on {first}"] if has_group else [])))
    if (why := why_unrepeatable(source, indexed=indexed)) is not None:
        once = f"; exactly once on {', '.join(kafka)}" if kafka else ""
        return (
            f"at least once on {servers}: what was written since the last mark may be written again after a "
            f"crash, since a second run may give something else: {why}{once}; progress is in {marks}"
        )
    text = f"exactly once on {servers}: by deduplication, under names and ids from the position of the input"
    if kafka:
        text += (
            f"; exactly once on {', '.join(kafka)}: output and progress are one transaction, committed when "
            f"{servers} has everything; readers of Kafka set isolation.level to read_committed"
        )
    return f"{text}; progress is in {marks}"


def _of_several(source: Source) -> str:
    """Say what holds where other clusters than the one that is read are written."""
    first, others = source.servers[0], [each for each in source.written if each != source.servers[0]]
    where = f"{TOPIC} of {', '.join(others)}"
    if first in source.written:
        where += f" and the group's offsets on {first}"
    servers = ", ".join(source.written)
    if len(source.written) == 1:
        return (
            f"exactly once on {servers}: output, dead letters and progress ({where}) are one transaction; "
            "readers set isolation.level to read_committed"
        )
    if (why := why_unrepeatable(source)) is not None:
        return (
            f"exactly once on {servers} but for a crash between their commits, after which what was not "
            f"committed on all of them is written again: {why}; progress is in {where}"
        )
    return (
        f"exactly once on each of {servers}: output and progress of a cluster ({where}) are one transaction; "
        "a dead letter of a record that another cluster refuses is at least once; readers set "
        "isolation.level to read_committed"
    )


def why_unrepeatable(source: Source, *, indexed: bool = True) -> str | None:
    """Say why a second run may send a record to another cluster than the first one; None if it cannot.

    On Pulsar it must not send it to another partition either, which the key decides, and records need an id:
    from a source without the broker's index (not `indexed`) they have none. `now()`, and with it what is
    expired, is kept with each range (`delivery.range_clock`); with conditions in Spark's own SQL it is not.
    """
    if source.native_pulsar and not indexed:
        return f"the broker of {source.servers[0]} keeps no index, which the ids of records are made of"
    for route in source.routes:
        plan = route.plan
        if plan.reads_now and source.asks_spark:
            return f"route {route.name} reads now() or discards expired events"
        call = route.document.apply
        if call is not None and not call.deterministic:
            return f"route {route.name} applies {call.function}, which does not say deterministic: true"
        if isinstance(plan.key, FunctionKey) and call is None:
            # Where it fails the event becomes a dead letter, perhaps on another cluster.
            return f"route {route.name} has its key from {plan.key.name}, which may give another one or fail"
        if route.sql is not None and (why := why_unrepeatable_sql(route.sql)) is not None:
            return f"route {route.name}: {why}"
    return None
