"""The reference evaluator alone, on one core: what a record costs to decode, to route and to encode.

The route and the records are those of bench/pipeline.py and bench/fused.py: binary CloudEvents with about
200 B of JSON, filtered by type and by a number in the data, the subject set from the data, written in
structured mode. Every second record passes. `route` is per record that was read, `encode` per record that is
written.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.cloudevent import CloudEvent
from penstock.events.reading import Mode as EventMode
from penstock.pipeline.evaluators.reference.route import Output, RouteEvaluator
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, Mode, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.record import KafkaRecord
from pipeline import TYPE, body_of, headers_of
from table import Report, alternate

ROUTE_GOAL = 10.0
"""Microseconds."""


def plan() -> RoutePlan:
    return RoutePlan(
        name="large",
        where=parse_sql(f"type = '{TYPE}' AND data.amount > 100"),
        set=(Assignment("subject", parse_sql("data.customer", Type.TEXT)),),
        mode=Mode.STRUCTURED,
    )


def records(count: int) -> list[KafkaRecord]:
    return [
        KafkaRecord(
            key=b"customer-%05d" % (number % 1000),
            value=body_of(number),
            headers=tuple(headers_of(number)),
            topic="in",
            partition=0,
            offset=number,
            timestamp=number,
        )
        for number in range(count)
    ]


def decode(given: list[KafkaRecord]) -> list[CloudEvent]:
    binding = KafkaBinding()
    return [binding.decode(record) for record in given]


def route(events: list[CloudEvent], given: list[KafkaRecord]) -> list[Output]:
    evaluator = RouteEvaluator(plan())
    found = [
        evaluator.route(event, key=record.key, now=1) for event, record in zip(events, given, strict=True)
    ]
    return [each for each in found if isinstance(each, Output)]


def encode(outputs: list[Output]) -> list[KafkaRecord]:
    binding = KafkaBinding(mode=EventMode.STRUCTURED)
    return [binding.encode(output.event, key=output.key) for output in outputs]


def main() -> None:
    report = Report.from_arguments(
        "The reference evaluator alone, one core", ("step", "us per record", "best")
    )
    count, rounds = (5_000, 9) if report.quick else (20_000, 21)
    given = records(count)
    events = decode(given)
    outputs = route(events, given)
    if len(outputs) != count // 2:
        raise SystemExit(f"{len(outputs)} of {count} records passed")
    steps: dict[str, tuple[int, Callable[[], object]]] = {
        "decode": (count, lambda: decode(given)),
        "route": (count, lambda: route(events, given)),
        "encode": (len(outputs), lambda: encode(outputs)),
    }
    taken = alternate({name: lambda work=work: work for name, (_, work) in steps.items()}, rounds)
    for name, (number, _) in steps.items():
        cost, best = taken[name].median / number * 1e6, taken[name].best / number * 1e6
        report.row(name, f"{cost:.2f}", f"{best:.2f}")
        report.figure(f"{name}: us per record", cost)
    report.goal("us to route a record", taken["route"].median / count * 1e6, ROUTE_GOAL, at_least=False)
    report.finish()


if __name__ == "__main__":
    main()
