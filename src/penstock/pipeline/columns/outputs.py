"""All routes of a source as columns: each record becomes the records to write, dead letters among them.

It is what `stage.py` does to an Arrow batch, for Real-Time Mode, which takes columns only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add, and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.events.rules import CORE
from penstock.pipeline.columns.binding import Binding
from penstock.pipeline.columns.deadletter import dead_letter
from penstock.pipeline.columns.decode import CODE, REASON, binding_of, decode, needed_extensions
from penstock.pipeline.columns.encode import Written, binary, structured
from penstock.pipeline.columns.messages import has_message
from penstock.pipeline.columns.program import Program
from penstock.pipeline.columns.route import RouteColumns, compile_route, prepare
from penstock.pipeline.columns.size import batch_bytes
from penstock.pipeline.columns.times import time_of
from penstock.pipeline.plan.route import Mode, RoutePlan
from penstock.pipeline.plan.verdict import EXPIRED, KEEP, REASONS, UNMATCHED, Decision, Verdict
from penstock.pipeline.ports import Target
from penstock.pipeline.reference.route import route_null
from penstock.pipeline.stage import COUNTERS, Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["outputs_of"]

_OUTPUTS, _IS_EVENT, _IS_NULL, _IS_EXPIRED = "_outputs", "_is_event", "_is_null", "_is_expired"


def outputs_of(records: DataFrame, stage: Stage, name: str) -> DataFrame:
    """Give the records to write: topic, key, value, headers; the counters are observed under a name."""
    plans = [route.plan for route in stage.routes]
    extensions = needed_extensions(touched for plan in plans for touched in _touched(plan))
    binding = binding_of(extensions)
    frame = _checked(decode(records, extensions), stage)
    everywhere = any(plan.mode is Mode.STRUCTURED for plan in plans)
    frame = prepare(frame, binding, plans, everywhere=everywhere)
    program = Program(binding)
    compiled = [compile_route(plan, program) for plan in plans]
    frame = program.apply(frame).withColumns(
        {
            _IS_EVENT: F.col(CODE).isNull(),
            _IS_EXPIRED: F.col(CODE).isNull() & _is_expired(binding),
            _IS_NULL: F.coalesce(F.col(CODE) == "not-a-cloudevent", F.lit(False)) & F.col("value").isNull(),
        }
    )
    for number, (route, columns) in enumerate(zip(stage.routes, compiled, strict=True)):
        frame = _Route(number, route, binding).added(frame, columns)
    return _exploded(_counted(frame, stage, name), stage)


def _checked(frame: DataFrame, stage: Stage) -> DataFrame:
    """Reject events that the contract has no message for."""
    for check in stage.checks:
        if isinstance(check, ContractCheck):
            lost = F.col(CODE).isNull() & ~has_message(check.forms)
            reason = f"operation {check.operation} has no message for this type and dataschema"
            frame = frame.withColumns(
                {
                    CODE: F.when(lost, "no-message").otherwise(F.col(CODE)),
                    REASON: F.when(lost, reason).otherwise(F.col(REASON)),
                }
            )
    return frame


def _touched(plan: RoutePlan) -> set[str]:
    """Name every attribute that a route reads or may change."""
    changed = {*plan.drop, *(name for pair in plan.rename for name in pair)}
    return {*plan.attributes, *changed, *(each.attribute for each in plan.set), "causationid", "expirytime"}


def _is_expired(binding: Binding) -> Column:
    return F.coalesce(time_of(binding.attribute("expirytime")) < binding.now, F.lit(False))


def _flag(test: Column) -> Column:
    return F.coalesce(test, F.lit(False)).cast("int")


class _Route:
    """The columns of one route, by its number: verdict, dead-letter code, key, value and headers."""

    def __init__(self, number: int, route: StageRoute, binding: Binding) -> None:
        self.route, self.binding = route, binding
        names = ("decision", "code", "reason", "key", "value", "headers")
        self.names = {name: f"_route{number}_{name}" for name in names}

    def __getitem__(self, name: str) -> Column:
        return F.col(self.names[name])

    def added(self, frame: DataFrame, columns: RouteColumns) -> DataFrame:
        """Add the columns of the route to a frame, those that others stand on first."""
        verdict = F.when(F.col(_IS_EVENT), columns.verdict)
        null = route_null(self.route.plan)
        decision = F.when(F.col(_IS_NULL), null.decision.value).otherwise(verdict["decision"])
        code = F.when(F.col(_IS_NULL), null.code).otherwise(verdict["code"])
        frame = frame.withColumns({self.names["decision"]: decision, self.names["code"]: code})
        written, keep = self._written(columns), F.col(_IS_EVENT) & (self["decision"] == KEEP.decision.value)
        return frame.withColumns(
            {
                self.names["reason"]: self._reason(),
                self.names["key"]: F.when(keep, columns.key).otherwise(F.col("key")),
                self.names["value"]: F.when(keep, written.value).otherwise(F.col("value")),
                self.names["headers"]: F.when(keep, written.headers).otherwise(F.col("headers")),
            }
        )

    def _reason(self) -> Column:
        """Give the sentence of a verdict to reject."""
        column = F.lit(None).cast("string")
        for verdict, text in REASONS.items():
            if verdict.decision is Decision.REJECT:
                column = F.when(self._is(verdict), text).otherwise(column)
        return column

    def _written(self, columns: RouteColumns) -> Written:
        names = {*CORE, *self.binding.columns}
        attributes = {name: self.binding.attribute(name) for name in names} | dict(columns.attributes)
        plain = binary(attributes, self.binding)
        if self.route.plan.mode is not Mode.STRUCTURED:
            return plain
        spliced = structured(attributes, self.binding)
        # A tombstone stays one: no data is a null value, which only binary mode can say.
        return Written(
            F.when(~columns.null_value, spliced.value),
            F.when(columns.null_value, plain.headers).otherwise(spliced.headers),
        )

    def _is(self, verdict: Verdict) -> Column:
        return (self["decision"] == verdict.decision.value) & (self["code"] == verdict.code)

    def fits(self, target: Target) -> Column:
        """Tell whether a topic takes the record."""
        if target.limit is None:
            return F.lit(True)
        return batch_bytes(self["key"], self["value"], self["headers"]) <= target.limit

    @property
    def kept(self) -> Column:
        """Whether the route writes the record."""
        return F.coalesce(self["decision"] == Decision.KEEP.value, F.lit(False))

    @property
    def rejected(self) -> Column:
        """Whether the route gives the record up."""
        return F.coalesce(self["decision"] == Decision.REJECT.value, F.lit(False))

    @property
    def unmatched(self) -> Column:
        """Whether the condition of the route is not true."""
        return F.coalesce(self._is(UNMATCHED), F.lit(False))

    def outputs(self, pipeline: str) -> Iterator[Column]:
        """Give the records that may be written, null where one is not."""
        for target in self.route.targets:
            record = _output(target.topic, self["key"], self["value"], self["headers"])
            yield F.when(self.kept & self.fits(target), record)
            if target.limit is not None:
                reason = F.lit(f"larger than {target.topic} takes: {target.limit} bytes")
                too_large = self.kept & ~self.fits(target)
                yield F.when(too_large, self._letter(pipeline, F.lit("too-large"), reason))
        yield F.when(self.rejected, self._letter(pipeline, self["code"], self["reason"]))

    def _letter(self, pipeline: str, code: Column, reason: Column) -> Column:
        return _letter(pipeline, self.route.plan.name, self.route.dead, code, reason)

    def counts(self) -> dict[str, Column]:
        """Say how many records of each kind the route makes of a row."""
        sent = [(self.kept & self.fits(target)).cast("int") for target in self.route.targets]
        lost = [(self.kept & ~self.fits(target)).cast("int") for target in self.route.targets]
        dropped = (self["decision"] == Decision.DROP.value) & ~self["code"].isin(UNMATCHED.code, EXPIRED.code)
        return {
            "n_out": reduce(add, sent),
            "n_dead": reduce(add, lost, self.rejected.cast("int")),
            "n_dropped": _flag(dropped),
            "n_expired": (self.kept & F.col(_IS_EXPIRED)).cast("int") + _flag(self._is(EXPIRED)),
        }


def _routes(stage: Stage) -> list[_Route]:
    return [_Route(number, route, Binding()) for number, route in enumerate(stage.routes)]


def _output(topic: str, key: Column, value: Column, headers: Column) -> Column:
    return F.struct(
        F.lit(topic).alias("topic"), key.alias("key"), value.alias("value"), headers.alias("headers")
    )


def _letter(pipeline: str, route: str | None, dead: Target, code: Column, reason: Column) -> Column:
    letter = dead_letter(pipeline, route, code, reason)
    full = _output(dead.topic, F.col("key"), letter.value, letter.headers)
    if dead.limit is None:
        return full
    # A dead letter that cannot be written would stop the job: this one says where the record is.
    slim = dead_letter(pipeline, route, code, reason, kept=False)
    small = _output(dead.topic, F.lit(None).cast("binary"), slim.value, slim.headers)
    size = batch_bytes(F.col("key"), letter.value, letter.headers)
    return F.when(size <= dead.limit, full).otherwise(small)


def _is_unknown() -> Column:
    return F.coalesce(F.col(CODE) == "unsupported-format", F.lit(False))


def _is_lost(stage: Stage) -> Column:
    """Tell whether a record fails before any route."""
    lost = ~F.col(_IS_EVENT) & ~F.col(_IS_NULL)
    return lost & ~_is_unknown() if stage.unknown else lost


def _exploded(frame: DataFrame, stage: Stage) -> DataFrame:
    """Make a row of each record to write."""
    key, value, headers = (F.col(name) for name in ("key", "value", "headers"))
    outputs = [output for route in _routes(stage) for output in route.outputs(stage.pipeline)]
    outputs += [F.when(_is_unknown(), _output(each.topic, key, value, headers)) for each in stage.unknown]
    letter = _letter(stage.pipeline, None, stage.dead, F.col(CODE), F.col(REASON))
    outputs.append(F.when(_is_lost(stage), letter))
    return frame.select(F.explode(F.array_compact(F.array(*outputs))).alias(_OUTPUTS)).select(f"{_OUTPUTS}.*")


def _counted(frame: DataFrame, stage: Stage, name: str) -> DataFrame:
    routes = _routes(stage)
    sums = [route.counts() for route in routes]
    lost, unknown = _is_lost(stage).cast("int"), _is_unknown().cast("int") * len(stage.unknown)
    counts = {
        "n_in": F.lit(1),
        "n_out": _sum(each["n_out"] for each in sums) + unknown,
        "n_dead": _sum(each["n_dead"] for each in sums) + lost,
        "n_unmatched": _unmatched(routes).cast("int"),
        "n_dropped": _sum(each["n_dropped"] for each in sums),
        "n_expired": _sum(each["n_expired"] for each in sums),
    }
    totals = (F.sum(counts.get(column, F.lit(0)).cast("bigint")).alias(column) for column in COUNTERS)
    return frame.observe(name, *totals)


def _unmatched(routes: Iterable[_Route]) -> Column:
    return reduce(and_, (route.unmatched for route in routes))


def _sum(columns: Iterable[Column]) -> Column:
    return reduce(add, columns)
