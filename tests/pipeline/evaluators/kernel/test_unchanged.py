"""What a route does not change leaves as it came, by the reference and by the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from routed import rows_of

from penstock.events import CloudEvent, Json, absent
from penstock.events import Mode as EventMode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, Mode, RoutePlan, Tombstones
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord

Trials = Callable[..., Any]
Route = Callable[[RoutePlan, Sequence[KafkaRecord]], list[KafkaRecord]]

ENVELOPE = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.touched"}
MARK = ("content-type", b"application/cloudevents+json; charset=utf-8")
BINARY = tuple((f"ce_{name}", text.encode()) for name, text in ENVELOPE.items())


def structured(**members: Any) -> KafkaRecord:
    value = json.dumps({**ENVELOPE, **members}, separators=(",", ":")).encode()
    return KafkaRecord(key=b"k", value=value, headers=(MARK,))


@pytest.fixture(params=["reference", "kernel"])
def route(request: pytest.FixtureRequest, trial_of: Trials) -> Route:
    """Give what sends records over one route by one evaluator, and gives what the target gets."""

    def run(plan: RoutePlan, records: Sequence[KafkaRecord]) -> list[KafkaRecord]:
        trial = trial_of(plan)
        if request.param == "reference":
            rows, _ = trial.expected(records)
        else:
            rows, _ = trial.routed(records)
            assert trial.slow == 0, "the kernel is asked, not the reference"
        (target,) = {number for number, _ in rows}
        assert target == 0, "nothing is a dead letter"
        return [
            KafkaRecord(key=key, value=value, headers=headers)
            for part in rows.values()
            for key, value, headers in part
        ]

    return run


@pytest.mark.parametrize("mode", [Mode.KEEP, Mode.STRUCTURED])
@pytest.mark.parametrize("tombstones", list(Tombstones))
def test_a_structured_event_without_data_stays_an_event(
    route: Route, mode: Mode, tombstones: Tombstones
) -> None:
    came = structured(num=5, flag=True, word="5")
    (left,) = route(RoutePlan(name="r", mode=mode, tombstones=tombstones), [came])
    assert left.key == b"k"
    assert left.value is not None
    assert json.loads(left.value) == {**ENVELOPE, "num": 5, "flag": True, "word": "5"}
    assert left.headers == (MARK,)


def test_a_changed_structured_event_without_data_stays_one(route: Route) -> None:
    plan = RoutePlan(name="r", set=(Assignment("subject", parse_sql("'s'", Type.TEXT)),))
    (left,) = route(plan, [structured(num=5)])
    assert left.value is not None
    written = json.loads(left.value)
    assert (written["subject"], written["num"], written["causationid"]) == ("s", 5, "1")


@pytest.mark.parametrize(
    ("mode", "tombstones", "null"),
    [
        (Mode.KEEP, Tombstones.PASS, True),
        (Mode.KEEP, Tombstones.EVENT, True),
        (Mode.BINARY, Tombstones.PASS, True),
        (Mode.STRUCTURED, Tombstones.PASS, True),
        (Mode.STRUCTURED, Tombstones.EVENT, False),
    ],
)
def test_what_came_as_null_leaves_as_null(
    route: Route, mode: Mode, tombstones: Tombstones, null: bool
) -> None:
    came = KafkaRecord(key=b"k", value=None, headers=BINARY)
    (left,) = route(RoutePlan(name="r", mode=mode, tombstones=tombstones), [came])
    assert (left.value is None) is null
    assert left.headers == (BINARY if null else (MARK,))


def test_binary_mode_has_no_other_form_for_an_event_without_data(route: Route) -> None:
    (left,) = route(RoutePlan(name="r", mode=Mode.BINARY), [structured()])
    assert (left.value, left.headers) == (None, BINARY)


def test_a_renamed_extension_keeps_its_type(route: Route) -> None:
    plan = RoutePlan(name="r", rename=(("num", "count"), ("flag", "mark"), ("word", "text")))
    (left,) = route(plan, [structured(num=5, flag=True, word="5", data={})])
    assert left.value is not None
    written = json.loads(left.value)
    assert {name: written[name] for name in ("count", "mark", "text")} == {
        "count": 5,
        "mark": True,
        "text": "5",
    }


def emptied(events: Sequence[Any]) -> list[Invoked]:
    return [Invoked(events=(CloudEvent(each.event.attributes),)) for each in events]


@pytest.mark.parametrize(
    ("came", "mode", "null"),
    [
        (structured(data={}), Mode.KEEP, False),
        (structured(data={}), Mode.STRUCTURED, False),
        (KafkaRecord(value=b"x", headers=BINARY), Mode.STRUCTURED, False),
        (KafkaRecord(value=b"x", headers=BINARY), Mode.KEEP, True),
        (KafkaRecord(value=None, headers=BINARY), Mode.STRUCTURED, True),
    ],
)
def test_what_a_function_emits_without_data(came: KafkaRecord, mode: Mode, null: bool) -> None:
    """Binary mode says no data as null; structured mode says it as null only of what came as null."""
    one = StageRoute(
        plan=RoutePlan(name="r", mode=mode),
        targets=(Target(topic="out"),),
        dead=Target(topic="dead"),
        invoker=emptied,
    )
    stage = Stage(pipeline="p", routes=(one,), dead=Target(topic="dead"))
    (left,), _ = rows_of(stage, [came])
    assert (left["topic"], left["value"] is None) == ("out", null)


def test_the_codec_itself_says_so() -> None:
    """Spec 000, 3.2.2 and 3.3.2."""
    event = CloudEvent(ENVELOPE)
    assert event.data is absent
    assert KafkaBinding().encode(event).value is None
    assert KafkaBinding(mode=EventMode.STRUCTURED).encode(event).value is not None
    assert KafkaBinding(mode=EventMode.STRUCTURED).encode(CloudEvent(ENVELOPE, Json(None))).value is not None


@pytest.mark.parametrize("turned", [False, True])
def test_a_media_type_that_stands_in_two_headers(route: Route, turned: bool) -> None:
    pair = [("content-type", b"application/json"), ("ce_datacontenttype", b"application/json")]
    pair = pair[::-1] if turned else pair
    came = [KafkaRecord(key=b"k", value=b'{"n":%d}' % n, headers=(*BINARY, *pair)) for n in range(30)]
    left = route(RoutePlan(name="r"), came)
    assert [record.value for record in left] == [record.value for record in came]
    assert {record.headers for record in left} == {(*BINARY, ("content-type", b"application/json"))}


@pytest.mark.parametrize("first", [[], [("content-type", b"a/b"), ("ce_datacontenttype", b"a/b")]])
def test_two_media_types_are_a_dead_letter(trial_of: Trials, first: Any) -> None:
    """Also behind records of the same shape in which the two are equal."""
    trial = trial_of(RoutePlan(name="r"))
    came = [KafkaRecord(value=b"x", headers=(*BINARY, *first))] * 3 if first else []
    different = (("content-type", b"a/b"), ("ce_datacontenttype", b"a/c"))
    came.append(KafkaRecord(value=b"x", headers=(*BINARY, *different)))
    trial.check(came)
    rows, counts = trial.routed(came)
    assert (counts["n_out"], counts["n_dead"]) == (len(came) - 1, 1)
    ((_, letter, _),) = rows[1, 0]
    assert b"header ce_datacontenttype differs from content-type" in letter


def test_a_large_number_is_set(trial_of: Trials) -> None:
    plan = RoutePlan(name="r", set=(Assignment("stage", parse_sql("data.total", Type.TEXT)),))
    typed = (*BINARY, ("content-type", b"application/json"))
    came = [
        KafkaRecord(value=b'{"total":%s}' % total, headers=typed)
        for total in (b"18446744073709551617", b"1e300", b"7", b"-0.0")
    ]
    trial = trial_of(plan)
    trial.check(came)
    rows, _ = trial.expected(came)
    stages = [dict(headers)["ce_stage"] for _, _, headers in rows[0, 0]]
    assert stages == [b"18446744073709551617", b"1e300", b"7", b"0"]
