"""The router of the reference: each record ends in an output or a letter, alone, and is counted.

What it writes is shown by test_records.py, and laws on routes by chance by test_laws.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from routed import placed

from penstock.contract.schema_ids import SchemaId, encode_payload
from penstock.contract.selection import Selector
from penstock.errors import CannotEncode, JobFailed, UnknownSchemas, UnsupportedPlan
from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import DeadLetter, read_dead_letter
from penstock.pipeline.evaluators.reference.router import Known, ReferenceRouter, Routing
from penstock.pipeline.plan.nodes import Boolean, Type
from penstock.pipeline.plan.route import Assignment, Expiry, Mode, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Receipt, Routed, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.pipeline.typed.check import ContractCheck
from penstock.pipeline.typed.form import Form
from penstock.pipeline.typed.frame import Frame
from penstock.record import KafkaRecord

PLAN = RoutePlan(name="large", where=parse_sql("data.total >= 100"), mode=Mode.STRUCTURED)


def stage(*targets: Target, **more: Any) -> Stage:
    route = StageRoute(
        plan=PLAN, targets=targets or (Target(topic="out"),), dead=Target(topic="dead.route"), **more
    )
    return Stage(pipeline="shop", routes=(route,), dead=Target(topic="dead.source"))


def order(total: int, key: bytes = b"k", **more: str) -> KafkaRecord:
    attributes = {"id": "1", "source": "/shop", "type": "placed", "datacontenttype": "application/json"}
    event = CloudEvent(attributes | more, b'{"total": %d}' % total)
    return KafkaBinding().encode(event, key=key)


def route(given: Stage, *records: KafkaRecord, **more: Any) -> Routing:
    return ReferenceRouter(given).route(placed(records), now=0, **more)


def topics(routing: Routing) -> list[list[str]]:
    return [[target.topic for target, _ in written] for written in routing.written]


def letter(routing: Routing, row: int, place: int = -1) -> DeadLetter:
    return read_dead_letter(KafkaBinding().decode(routing.written[row][place][1]))


def test_every_record_has_its_place_and_is_counted() -> None:
    found = route(stage(), order(150), order(50), KafkaRecord(value=b"plain"), KafkaRecord(key=b"k"))
    assert topics(found) == [["out"], [], ["dead.source"], ["out"]]
    assert {name: count for name, count in found.counts.items() if count} == {
        "n_in": 4, "n_out": 2, "n_unmatched": 1, "n_dead": 1,
    }  # fmt: skip
    assert found.written[3][0][1] == KafkaRecord(key=b"k")  # without the origin of the record that was read


def test_no_records_become_nothing() -> None:
    found = route(stage())
    assert (found.written, found.counts.total()) == ([], 0)


class Writer:
    """Refuses some keys."""

    def __init__(self, refused: dict[bytes, Exception]) -> None:
        self.refused = refused

    def __call__(self, event: CloudEvent, key: bytes | None, headers: Any, **more: Any) -> KafkaRecord:
        if key in self.refused:
            raise self.refused[key]
        return KafkaRecord(key=key)


def test_a_writer_that_raises_leaves_one_letter_of_its_route_and_the_other_targets() -> None:
    writer = Writer({b"bug": IndexError("in a writer"), b"no": CannotEncode("no message")})
    given = stage(Target(topic="typed", writer=writer), Target(topic="out"))
    found = route(given, order(150, b"bug"), order(150, b"no"), order(150, b"yes"))
    assert topics(found) == [["out", "dead.route"], ["out", "dead.route"], ["typed", "out"]]
    assert letter(found, 0).code == "internal-error"
    assert "IndexError at test_router.py" in letter(found, 0).reason
    assert letter(found, 1).code == "cannot-encode"


@pytest.mark.parametrize("error", [JobFailed("stop"), OSError("no disk"), MemoryError()])
def test_what_is_not_about_one_record_ends_the_batch(error: Exception) -> None:
    with pytest.raises(type(error)):
        route(stage(Target(topic="typed", writer=Writer({b"k": error}))), order(150))


def test_a_step_that_raises_takes_back_what_the_record_had_become() -> None:
    def broken(events: Sequence[Routed]) -> list[Invoked]:
        if any(each.key == b"bad" for each in events):
            raise ZeroDivisionError("in an invoker")
        return [Invoked(events=(each.event,)) for each in events]

    given = stage()
    called = replace(given.routes[0], plan=replace(PLAN, name="called"), invoker=broken)
    both = replace(given, routes=(given.routes[0], called))
    found = route(both, *(order(150, b"bad" if n in (0, 7) else b"%d" % n) for n in range(12)))
    assert topics(found) == [["dead.source"] if n in (0, 7) else ["out", "out"] for n in range(12)]
    assert (found.counts["n_out"], found.counts["n_dead"], found.counts["n_in"]) == (20, 2, 12)
    assert "ZeroDivisionError" in letter(found, 7).reason


def test_a_function_gets_its_events_at_once_and_in_order() -> None:
    calls: list[list[bytes | None]] = []

    def function(events: Sequence[Routed]) -> list[Invoked]:
        calls.append([each.key for each in events])
        return [Invoked(events=(each.event,) * 2, attempts=3) for each in events]

    found = route(stage(invoker=function), *(order(150 if n % 2 else 1, b"%d" % n) for n in range(6)))
    assert calls == [[b"1", b"3", b"5"]]
    assert topics(found) == [[], ["out"] * 2, [], ["out"] * 2, [], ["out"] * 2]
    assert (found.counts["n_out"], found.counts["n_retried"], found.counts["n_unmatched"]) == (6, 6, 3)


def test_two_reasons_of_one_route_are_one_letter() -> None:
    given = stage(Target(topic="small", limit=100), Target(topic="smaller", limit=90), Target(topic="out"))
    found = route(given, order(150))
    assert topics(found) == [["out", "dead.route"]]
    assert (letter(found, 0).code, letter(found, 0).reason.count("takes")) == ("too-large", 2)
    assert found.counts["n_dead"] == 1


def test_what_a_topic_has_refused_is_a_letter_and_a_refused_letter_leaves_without_its_record() -> None:
    refused = {(0, 0, "out"): ("timestamp-out-of-bounds", "it is late"), (1, 0, "out"): ("x", "y")}
    found = route(stage(), order(150), order(150), order(150), refused=refused)
    assert topics(found) == [["dead.route"], ["dead.route"], ["out"]]
    assert letter(found, 0).code == "timestamp-out-of-bounds"
    again = route(stage(), order(150), refused={**refused, (0, 0, "dead.route"): ("too-large", "n")})
    assert (letter(found, 0).kept, letter(again, 0).kept) == (True, False)


def test_ids_that_nobody_has_asked_for_end_the_batch_once_for_all_of_them() -> None:
    form = Form(name="order", selector=Selector(), codec="avro", frame=Frame(location="payload"))
    check = ContractCheck(operation="onOrder", forms=(form,))
    records = [
        replace(order(150), value=encode_payload(SchemaId(number=number), b"\x00")) for number in (5, 7)
    ]
    with pytest.raises(UnknownSchemas, match=r"<schemas of onOrder: id:5,id:7>"):
        route(replace(stage(), checks=(check,)), *records)


def with_sql(given: Stage) -> Stage:
    """The same stage, its condition asked by Spark."""
    routes = [replace(each, plan=replace(each.plan, where=Boolean(True)), sql="?") for each in given.routes]
    return replace(given, routes=tuple(routes))


def test_answers_of_spark_decide_as_a_condition_of_the_route_does() -> None:
    past = "1960-01-01T00:00:00Z"
    given = [
        order(150),
        order(50),
        order(50, expirytime=past),
        order(150, expirytime=past),
        KafkaRecord(value=b"plain"),
        KafkaRecord(key=b"k"),
    ]
    plan = replace(PLAN, expiry=Expiry.DISCARD, set=(Assignment("subject", parse_sql("id", Type.TEXT)),))
    base = stage()
    base = replace(base, routes=(replace(base.routes[0], plan=plan),))
    wanted = route(base, *given)
    answers = [(True,), (False,), (False,), (True,), (False,), (False,)]
    found = ReferenceRouter(with_sql(base), has_answers=True).route(placed(given), now=0, answers=answers)
    assert (found.written, found.counts) == (wanted.written, wanted.counts)
    assert (wanted.counts["n_expired"], wanted.counts["n_unmatched"], wanted.counts["n_out"]) == (2, 1, 2)


def test_each_route_has_its_own_answer() -> None:
    base = with_sql(stage())
    other = replace(base.routes[0], targets=(Target(topic="other"),))
    both = replace(base, routes=(base.routes[0], other))
    answers = [(True, True), (True, False), (False, True), (False, False)]
    router = ReferenceRouter(both, has_answers=True)
    found = router.route(placed([order(1)] * 4), now=0, answers=answers)
    assert topics(found) == [["out", "other"], ["out"], ["other"], []]
    assert found.counts["n_unmatched"] == 1


def test_what_the_router_cannot_do_is_said_when_it_is_made() -> None:
    with pytest.raises(UnsupportedPlan, match="Spark's own SQL"):
        ReferenceRouter(stage(sql="x > 1"))
    with pytest.raises(UnsupportedPlan, match="checked by function"):
        ReferenceRouter(replace(stage(), checks=(lambda events, batch: events,)))


def test_what_a_function_has_answered_is_not_asked_again() -> None:
    calls: list[list[bytes | None]] = []

    def function(events: Sequence[Routed]) -> list[Invoked]:
        calls.append([each.key for each in events])
        return [Invoked(events=(each.event,)) for each in events]

    records, known = [order(150, b"%d" % number) for number in range(3)], Known()
    refused = {(1, 0, "out"): ("x", "it is refused")}
    first = route(stage(invoker=function), *records[:2], known=known)
    again = route(stage(invoker=function), *records, known=known, refused=refused)
    assert calls == [[b"0", b"1"], [b"2"]]
    assert (topics(first), topics(again)) == ([["out"]] * 2, [["out"], ["dead.route"], ["out"]])
    assert again.counts["n_out"] == 2


def test_a_receipt_that_its_topic_has_refused_is_left_out_and_counted() -> None:
    target = Target(topic="receipts")

    def function(events: Sequence[Routed]) -> list[Invoked]:
        return [
            Invoked(events=(each.event,), receipt=Receipt(event=each.event, target=target)) for each in events
        ]

    refused = {(1, 0, "receipts"): ("no-key", "it is compacted")}
    found = route(stage(invoker=function), order(150), order(150), refused=refused)
    assert topics(found) == [["out", "receipts"], ["out"]]
    assert (found.counts["n_unfollowed"], found.counts["n_dead"]) == (1, 0)
