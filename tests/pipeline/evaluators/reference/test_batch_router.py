"""Batches through the reference alone: what is held, how much a flush routes, and what it leaves behind."""

from __future__ import annotations

import gc
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.schema_ids import SchemaId, encode_payload
from penstock.contract.selection import Selector
from penstock.errors import JobFailed, UnknownSchemas, UnsupportedPlan
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.evaluators.kernel.batch_builder import Output, numbered, record_bytes
from penstock.pipeline.evaluators.kernel.program import plan_digest, program_of, reference_program_of
from penstock.pipeline.evaluators.reference import batch_router
from penstock.pipeline.evaluators.reference.batch_router import Bounds, ReferenceBatchRouter, _BatchBuilder
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.process import Settings
from penstock.pipeline.functions.receipts import Receipts
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.route import Expiry, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Receipt, Routed, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form
from penstock.pipeline.typed.frame import Frame
from penstock.record import KafkaRecord
from penstock.wire.kafka.batch_body import BatchBody, framed

PLAN = RoutePlan(name="r", where=parse_sql("data.a = data.b"))
"""Both may be texts or numbers, so the kernel leaves it alone."""
IN_KERNEL = RoutePlan(name="r", where=parse_sql("type = 't'"))


def stage(plan: RoutePlan = PLAN, **more: Any) -> Stage:
    route = StageRoute(plan=plan, targets=(Target(topic="out"),), dead=Target(topic="dead"), **more)
    return Stage(pipeline="p", routes=(route,), dead=Target(topic="dead"))


def record(number: int) -> KafkaRecord:
    attributes = {"id": str(number), "source": "/s", "type": "t", "datacontenttype": "application/json"}
    event = CloudEvent(attributes, b'{"a": %d, "b": %d}' % (number, number - number % 2))
    return KafkaBinding().encode(event, key=b"%d" % number)


def batch(records: Sequence[KafkaRecord], base: int) -> bytes:
    rows = [numbered(record_bytes(r.key, r.value, r.headers), n) for n, r in enumerate(records)]
    data = framed(BatchBody(b"".join(rows), len(rows), 1000, 1000))
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


class Puts:
    """Takes what a router puts, as the numbers of target and partition and the count of records."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []

    def __call__(self, output: Output) -> None:
        self.batches.append((output.target, output.partition, output.body.count))

    @property
    def records(self) -> int:
        return sum(count for _, _, count in self.batches)


def router(given: Stage, puts: Puts, **bounds: Any) -> ReferenceBatchRouter:
    program = reference_program_of(given)
    return ReferenceBatchRouter(program, given, [1] * len(program.targets), puts, bounds=Bounds(**bounds))


def feed(to: ReferenceBatchRouter, partition: int, first: int, end: int) -> None:
    data = batch([record(number) for number in range(first, end)], first)
    to.feed(data, topic="in", partition=partition, first=first, end=end)


def test_what_is_fed_is_held_until_a_flush_and_then_routed_in_parts() -> None:
    puts = Puts()
    made = router(stage(), puts, flush_records=10, step_records=4)
    feed(made, 0, 100, 108)
    feed(made, 1, 0, 8)
    feed(made, 0, 108, 110)
    assert (made.held, made.holds, puts.batches, made.counts.total()) == ({0: 100, 1: 0}, True, [], 0)
    made.flush()
    assert (made.held, puts.records, made.counts["n_in"], made.counts["n_slow"]) == (
        {0: 108, 1: 2},
        5,
        10,
        10,
    )
    made.flush()
    assert (made.held, made.holds, puts.records) == ({}, False, 9)
    assert (made.counts["n_in"], made.counts["n_out"], made.counts["n_unmatched"]) == (18, 9, 9)
    made.flush()
    assert puts.records == 9


@pytest.mark.parametrize("raises", [False, True])
def test_the_garbage_collector_rests_during_a_flush(raises: bool) -> None:
    seen: list[bool] = []

    def function(events: Sequence[Routed]) -> list[Invoked]:
        seen.append(gc.isenabled())
        if raises:
            raise KeyboardInterrupt
        return [Invoked(events=(routed.event,)) for routed in events]

    made = router(stage(invoker=function), Puts())
    feed(made, 0, 0, 4)
    assert gc.isenabled()
    with pytest.raises(KeyboardInterrupt) if raises else nullcontext():
        made.flush()
    assert (seen, gc.isenabled()) == ([False], True)


def test_it_is_full_by_records_or_by_bytes_until_it_is_flushed() -> None:
    for bounds in ({"held_records": 8}, {"held_bytes": 1000}):
        made = router(stage(), Puts(), **bounds)
        feed(made, 0, 0, 2)
        assert not made.is_full
        feed(made, 0, 2, 12)
        assert made.is_full
        made.flush()
        assert not made.is_full


def test_batches_that_there_is_no_room_for_are_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the batches of a fetch may inflate to a thousand times its size."""
    monkeypatch.setattr(batch_router, "HELD", 500)
    made = router(stage(), Puts())
    data = b"".join(batch([record(number) for number in range(9)], base) for base in (0, 9, 18))
    where = {"topic": "in", "partition": 0}
    assert made.feed(data, first=0, end=27, **where) == 9
    assert made.feed(data, first=9, end=27, **where) == 9
    made.flush()
    assert (made.counts["n_in"], made.feed(data, first=9, end=27, **where)) == (9, 18)
    made.flush()
    assert made.feed(data, first=18, end=27, **where) is None


def test_a_flush_ends_after_so_many_bytes() -> None:
    made = router(stage(), Puts(), flush_bytes=500, step_records=1)
    feed(made, 0, 0, 12)
    made.flush()
    assert 0 < made.held[0] < 12


def test_what_a_function_makes_much_of_ends_a_flush() -> None:
    def function(events: Sequence[Routed]) -> list[Invoked]:
        return [Invoked(events=(each.event,) * 50) for each in events]

    everything = replace(PLAN, where=parse_sql("type = 't'"))
    made = router(stage(everything, invoker=function), Puts(), flush_bytes=10_000, step_records=1)
    feed(made, 0, 0, 12)
    made.flush()
    assert made.held == {0: 2}


def test_a_record_that_is_larger_than_a_flush_is_routed_alone() -> None:
    puts = Puts()
    made = router(stage(), puts, flush_bytes=10)
    feed(made, 0, 0, 3)
    made.flush()
    assert (made.held, puts.records) == ({0: 1}, 1)


@pytest.mark.parametrize(
    ("shared", "held"), [(range(2, 7), 7), (range(8), None), (range(5, 8), None), (range(2, 4), 4)]
)
def test_records_of_one_offset_are_routed_together(shared: range, held: int | None) -> None:
    """Messages of a Pulsar transaction may have one offset; a mark before it would repeat those routed."""
    puts = Puts()
    everything = replace(PLAN, where=parse_sql("type = 't'"))
    made = router(stage(everything), puts, flush_records=4 if shared.start < 4 else 6, step_records=1)
    offsets = [shared.start if number in shared else number for number in range(8)]
    rows = [
        numbered(record_bytes(each.key, each.value, each.headers), offset)
        for offset, each in zip(offsets, map(record, range(8)), strict=True)
    ]
    data = framed(BatchBody(b"".join(rows), len(rows), 1000, 1000))
    made.feed(bytes(data), topic="in", partition=0, first=0, end=8)
    made.flush()
    assert made.held == ({} if held is None else {0: held})
    assert puts.records == (8 if held is None else held)


def test_no_batch_is_larger_than_its_topic_takes() -> None:
    """Records without a key change the partition when their batch is full, to one that may be full too."""
    everything = replace(PLAN, where=parse_sql("type = 't'"))
    given = stage(everything)
    program, sizes = reference_program_of(given), list[int]()

    def put(output: Output) -> None:
        sizes.append(len(output.body.records))

    made = ReferenceBatchRouter(program, given, [2, 1], put, batch_bytes=1000)
    records = [replace(record(n), key=None if n % 3 else b"%d" % n) for n in range(300)]
    made.feed(batch(records, 0), topic="in", partition=0, first=0, end=300)
    made.flush()
    assert sum(sizes) > 30_000
    assert max(sizes) <= 1000


def test_a_slow_function_ends_a_flush_by_time_and_nothing_is_put_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, puts, calls = [0.0], Puts(), list[int]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def function(events: Sequence[Routed]) -> list[Invoked]:
        now[0] += 40.0
        calls.append(len(events))
        assert puts.batches == []
        return [Invoked(events=(each.event,)) for each in events]

    everything = replace(PLAN, where=parse_sql("type = 't'"))
    made = router(stage(everything, invoker=function), puts, flush_seconds=60.0, step_records=3)
    feed(made, 0, 0, 20)
    made.flush()
    assert (calls, made.held, puts.records) == ([3, 3], {0: 6}, 6)


def test_the_clock_is_looked_at_between_calls_of_a_slow_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with one call; while they are quick more of them go at once."""
    now, seconds, calls = [0.0], [0.1], list[int]()

    def function(self: FunctionInvoker, events: Sequence[Routed]) -> list[Invoked]:
        now[0] += seconds[0]
        calls.append(len(events))
        return [Invoked(events=(each.event,)) for each in events]

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(FunctionInvoker, "__call__", function)
    invoker = FunctionInvoker(settings=Settings(route="r", function="m:f"), batch=2)
    everything, puts = replace(PLAN, where=parse_sql("type = 't'")), Puts()
    made = router(stage(everything, invoker=invoker), puts, flush_seconds=5.0, step_records=8)
    feed(made, 0, 0, 40)
    made.flush()
    assert calls == [2, 4, 8, 8, 8, 8, 2]
    calls.clear()
    seconds[0] = 30.0
    feed(made, 0, 40, 80)
    made.flush()
    made.flush()
    made.flush()
    assert calls == [8, 4, 2]


@pytest.mark.parametrize(("size", "is_kept"), [(10, True), (100_000, False)])
def test_the_partitions_of_long_keys_are_not_remembered(size: int, is_kept: bool) -> None:
    builder, key = _BatchBuilder([3], [None], batch_bytes=1 << 20, pick=None), bytes(size)
    before = sys.getrefcount(key)
    builder.add(0, KafkaRecord(key=key, value=b""), KafkaRecord(value=b"", offset=0))
    assert [output.body.count for output in builder.taken()] == [1]
    assert (sys.getrefcount(key) > before) is is_kept


def test_a_flush_that_is_stopped_puts_nothing_and_holds_everything() -> None:
    form = Form(name="order", selector=Selector(), codec="avro", frame=Frame(location="payload"))
    given = replace(stage(), checks=(ContractCheck(operation="onOrder", forms=(form,)),))
    puts = Puts()
    made = router(given, puts, step_records=2)
    unknown = replace(record(3), value=encode_payload(SchemaId(number=5), b"x"))
    made.feed(batch([KafkaRecord(), KafkaRecord(), unknown], 7), topic="in", partition=0, first=7, end=10)
    with pytest.raises(UnknownSchemas) as caught:
        made.flush()
    assert (caught.value.tokens, made.held, puts.batches, made.counts.total()) == (("id:5",), {0: 7}, [], 0)


def function(name: str = "m:f", **channels: Target) -> FunctionInvoker:
    return FunctionInvoker(
        settings=Settings(route="r", function=name),
        receipts=Receipts(pipeline="p", route="r", channels=channels),
    )


def test_a_step_has_room_for_a_batch_of_the_function() -> None:
    given = stage(invoker=replace(function(), batch=700))
    assert router(given, Puts())._step == 700


def test_the_program_knows_where_receipts_go() -> None:
    channels = {"own": Target(topic="own"), "o": Target(topic="own"), "out": Target(topic="out")}
    program = reference_program_of(stage(invoker=function(**channels)))
    assert [target.topic for target in program.targets] == ["out", "dead", "own"]
    assert (program.receipts, program.has_kernel) == ({2}, False)


def test_a_receipt_goes_out_with_its_event() -> None:
    target = Target(topic="own")

    def answered(events: Sequence[Routed]) -> list[Invoked]:
        receipts = [Receipt(event=each.event, target=target) for each in events]
        return [
            Invoked(events=(each.event,), receipt=receipt)
            for each, receipt in zip(events, receipts, strict=True)
        ]

    program = reference_program_of(stage(invoker=function(own=target)))
    puts = Puts()
    made = ReferenceBatchRouter(program, stage(invoker=answered), [1, 1, 1], puts)
    feed(made, 0, 0, 4)
    made.flush()
    assert sorted(puts.batches) == [(0, 0, 2), (2, 0, 2)]


def test_what_spark_has_to_decide_has_no_program() -> None:
    with pytest.raises(UnsupportedPlan):
        reference_program_of(stage(sql="size(headers) > 1"))


def test_the_digest_tells_routes_and_functions_apart_and_not_what_was_learnt() -> None:
    other = stage(replace(PLAN, where=parse_sql("data.a = data.c")))
    checked = replace(stage(), checks=(ContractCheck(operation="o", forms=()),))
    learnt = replace(checked.checks[0], schemas=replace(checked.checks[0].schemas, known={"id:1": ("{}",)}))
    stages = [stage(), other, stage(invoker=function()), stage(invoker=function("m:g")), checked]
    digests = [plan_digest(reference_program_of(each)) for each in stages]
    assert len(set(digests)) == len(stages)
    assert plan_digest(reference_program_of(replace(checked, checks=(learnt,)))) == digests[-1]


@pytest.mark.parametrize(
    "edited",
    [
        {"plan": replace(IN_KERNEL, expiry=Expiry.DISCARD)},
        {"reader": KafkaReader(sniff=True)},
        {"reader": KafkaReader(dash=True)},
    ],
    ids=["expiry", "sniff", "dash"],
)
def test_the_digest_of_a_kernel_program_says_what_the_reference_does_in_it(edited: dict[str, Any]) -> None:
    """What is in no code decides as well where a record goes: an open batch must not be finished by it."""
    before = stage(IN_KERNEL)
    after = replace(stage(edited.pop("plan", IN_KERNEL)), **edited)
    assert plan_digest(program_of(before)) == plan_digest(program_of(stage(IN_KERNEL)))
    assert plan_digest(program_of(before)) != plan_digest(program_of(after))


def test_the_ordinal_begins_anew_with_each_input() -> None:
    """It is a part of the id under which Pulsar knows a record: the same in every run."""
    builder = _BatchBuilder([1], [None], batch_bytes=1 << 16, pick=None, by_position={0})
    first, second = (replace(record(0), topic="in", partition=0, offset=offset) for offset in (3, 4))
    for given in (first, first, second):
        builder.add(0, record(1), given)
    [output] = builder.taken()
    assert output.ids is not None and output.ids.tolist() == [3 << 16, (3 << 16) + 1, 4 << 16]


def test_what_was_routed_before_an_error_is_not_put_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    puts = Puts()
    made = router(stage(replace(PLAN, where=parse_sql("type = 't'"))), puts, step_records=1)
    route, calls = made._router.route, iter(range(100))

    def failing(*given: Any, **more: Any) -> Any:
        if next(calls) == 1:
            raise JobFailed("a step that fails")
        return route(*given, **more)

    monkeypatch.setattr(made._router, "route", failing)
    feed(made, 0, 0, 3)
    with pytest.raises(JobFailed):
        made.flush()
    assert (puts.records, made.held) == (0, {0: 0})
    made.flush()
    assert (puts.records, made.held) == (3, {})
