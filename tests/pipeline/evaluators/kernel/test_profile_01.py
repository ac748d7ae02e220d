"""Events to Pulsar in profile 0.1, written by the kernel: the same bytes as the reference writes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.events import CloudEvent, Mode
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.bindings.pulsar import Profile, Values
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, RoutePlan, Tombstones
from penstock.pipeline.plan.route import Mode as RouteMode
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.stage import Stage
from penstock.record import KafkaRecord

TrialOn = Callable[[Stage], Any]
TrialOf = Callable[..., Any]
TrialBy = Callable[[random.Random], Any]
Records = Callable[[random.Random, int], list[KafkaRecord]]

USUAL = {"specversion": "1.0", "id": "1", "source": "/s", "type": "order.placed"}
TYPED = {**USUAL, "datacontenttype": "application/json"}
TEXTS = ("true", "false", "TRUE", "0", "-0", "-1", "05", "7", "2147483647", "2147483648", "-2147483648")
MORE_TEXTS = (
    *(
        "-2147483649",
        "-",
        "1e0",
        "1.5",
        "99999999999",
        "",
        "x",
        "ü€",
        '"',
        '"a"',
        '"a',
        'a"b',
        "a\\b",
        "{",
        "[1]",
    ),
    *("{}", '{"a":1}', "[]", "t", "tru", "00-00-01"),
)
NAMES = (
    "a",
    "0",
    "z9",
    "traceparent",
    "eventtypeversion",
    "fifteenletters0",
    "sixteenletters00",
    "ninechars",
)
ODD_NAMES = ("schemaurl", "extensionnames", "attributenames")


def on_pulsar(
    stage: Stage, dice: random.Random, profiles: tuple[Profile | None, ...] = (Profile.V0_1,)
) -> Stage:
    """A stage whose targets are on Pulsar, in these profiles and any way to say values."""

    def moved(target: Any) -> Any:
        profile = dice.choice(profiles)
        return replace(target, profile=profile, values=dice.choice(list(Values)))

    routes = tuple(
        replace(route, targets=tuple(map(moved, route.targets)), dead=moved(route.dead))
        for route in stage.routes
    )
    unique = {(each.sink, each.topic): each for route in routes for each in (*route.targets, route.dead)}
    routes = tuple(
        replace(
            route,
            targets=tuple(unique[each.sink, each.topic] for each in route.targets),
            dead=unique[route.dead.sink, route.dead.topic],
        )
        for route in routes
    )
    return replace(stage, routes=routes, dead=unique.get((0, "dead"), stage.dead))


def target_with(trial: Any, values: Values) -> Stage:
    (route,) = trial.stage.routes
    targets = tuple(replace(each, profile=Profile.V0_1, values=values) for each in route.targets)
    return replace(trial.stage, routes=(replace(route, targets=targets),))


def binary(attributes: dict[str, str], value: bytes | None = b"{}", key: bytes | None = b"k") -> KafkaRecord:
    named = [
        ("content-type" if n == "datacontenttype" else f"ce_{n}", t.encode()) for n, t in attributes.items()
    ]
    return KafkaRecord(key=key, value=value, headers=tuple(named))


def structured(members: dict[str, Any], data: bytes | None = b"{}", key: bytes | None = b"k") -> KafkaRecord:
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    text = text if data is None else text[:-1] + b',"data":' + data + b"}"
    return KafkaRecord(key=key, value=text, headers=(("content-type", b"application/cloudevents+json"),))


def ordinary(dice: random.Random, number: int) -> KafkaRecord:
    """An event as SDKs write it, in either mode."""
    attributes = {
        **USUAL,
        "id": f"{number:032x}",
        "time": f"2026-01-0{number % 9 + 1}T10:00:00.{number % 1000:03}Z",
        **({"subject": f"c-{number % 7}"} if dice.random() < 0.5 else {}),
        **({"dataschema": "https://shop.example/order"} if dice.random() < 0.3 else {}),
        **({"traceparent": f"00-{number:032x}-01"} if dice.random() < 0.5 else {}),
        "hop": str(number % 5),
    }
    data = json.dumps({"order": number, "text": 'größer "als"'}, ensure_ascii=False).encode()
    event = CloudEvent({**attributes, "datacontenttype": "application/json"}, data)
    mode = dice.choice([Mode.BINARY, Mode.STRUCTURED])
    return KafkaBinding(mode=mode).encode(
        event, key=dice.choice([None, b"", b"k-%d" % (number % 5), b"\xff"])
    )


@pytest.mark.parametrize("values", list(Values))
@pytest.mark.parametrize("mode", list(RouteMode))
def test_ordinary_events_are_written_by_the_kernel(
    mode: RouteMode, values: Values, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    label = Assignment("label", parse_sql("concat(data.order, '')", Type.TEXT))
    plan = RoutePlan(name="r", set=(label,), mode=mode)
    trial = trial_on(target_with(trial_of(plan), values))
    dice = random.Random(1)
    records = [ordinary(dice, number) for number in range(300)]
    trial.check(records)
    assert trial.slow == 0
    routed, counts = trial.expected(records)
    assert counts["n_out"] == len(records)
    names = {name for rows in routed.values() for _, _, headers in rows for name, _ in headers}
    assert names <= {"CE-ContentType"} if mode is RouteMode.STRUCTURED else "CE-X-Label" in names


@pytest.mark.parametrize("values", list(Values))
@pytest.mark.parametrize("mode", list(RouteMode))
def test_every_text_is_said_as_the_reference_says_it(
    mode: RouteMode, values: Values, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    trial = trial_on(target_with(trial_of(RoutePlan(name="r", mode=mode)), values))
    records = []
    for text in (*TEXTS, *MORE_TEXTS):
        for name in ("subject", "type", "id", *NAMES, *ODD_NAMES):
            records += [binary({**TYPED, name: text}), structured({**USUAL, name: text})]
    for value in (0, 5, -7, 2**31 - 1, True, False):
        records += [structured({**USUAL, name: value}) for name in (*NAMES, *ODD_NAMES)]
    records += [
        binary({**USUAL, **dict.fromkeys(NAMES, "t"), "subject": "s", "time": "2026-01-01T00:00:00Z"})
    ]
    trial.check(records)
    assert trial.slow < 0.4 * trial.seen


@pytest.mark.parametrize("mode", list(RouteMode))
def test_data_of_every_type(mode: RouteMode, trial_of: TrialOf, trial_on: TrialOn) -> None:
    plan = RoutePlan(name="r", mode=mode)
    trial = trial_on(target_with(trial_of(plan), Values.AUTO))
    types = [
        None,
        "application/json",
        "text/plain",
        "text/plain; charset=iso-8859-1",
        "text/json",
        "image/png",
    ]
    bodies = [None, b"", b"{}", b'{"a": "\xc3\xbc"}', b"5", b"null", b'text "q" \\ \x01\n', b"\xff\x00", b"{"]
    records = [
        binary({**USUAL, **({} if media is None else {"datacontenttype": media})}, body)
        for media in types
        for body in bodies
    ]
    records += [
        structured({**USUAL, **({} if media is None else {"datacontenttype": media})}, body)
        for media in types
        for body in (None, b"{}", b'"text"', b"5", b"null", b"[1, 2]")
    ]
    trial.check(records)
    plain = [
        binary({**USUAL, "datacontenttype": "image/png"}, b"\xff\x00"),
        binary(USUAL, None),
        structured(USUAL),
    ]
    before = trial.slow
    trial.check(plain)
    assert trial.slow == before


def test_values_in_json_say_the_content_type_of_implied_json(trial_of: TrialOf, trial_on: TrialOn) -> None:
    records = [structured(USUAL, b'{"a":1}'), structured({**USUAL, "a": "b"}, b"[]"), structured(USUAL, None)]
    for values in Values:
        for mode in RouteMode:
            trial = trial_on(target_with(trial_of(RoutePlan(name="r", mode=mode)), values))
            trial.check(records)
            assert trial.slow == 0


@pytest.mark.parametrize("tombstones", list(Tombstones))
def test_null_values_that_are_no_events_leave_as_they_came(
    tombstones: Tombstones, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    plan = RoutePlan(name="r", tombstones=tombstones)
    trial = trial_on(target_with(trial_of(plan), Values.AUTO))
    records = [KafkaRecord(key=key, value=None, headers=(("app", b"x"),)) for key in (None, b"k")]
    trial.check(records)
    trial.check([*records, binary(USUAL, None), KafkaRecord(value=None, headers=(("CE-X", b"x"),))])


def test_one_route_to_kafka_and_to_both_profiles(trial_of: TrialOf, trial_on: TrialOn) -> None:
    """The record is measured anew for each target that is written in another way than the one before."""
    trial = trial_of(RoutePlan(name="r"))
    (route,) = trial.stage.routes
    ways: list[tuple[Profile | None, Values]] = [
        (Profile.V0_1, Values.AUTO),
        (None, Values.AUTO),
        (Profile.V0_1, Values.JSON),
        (Profile.V1_0, Values.AUTO),
        (Profile.V0_1, Values.RAW),
        (Profile.V0_1, Values.JSON),
        (None, Values.AUTO),
    ]
    targets = tuple(
        replace(route.targets[0], topic=f"t{n}", profile=profile, values=values)
        for n, (profile, values) in enumerate(ways)
    )
    trial = trial_on(replace(trial.stage, routes=(replace(route, targets=targets),)))
    dice = random.Random(3)
    records = [ordinary(dice, number) for number in range(100)]
    records += [binary(USUAL, None), KafkaRecord(key=b"k", value=None)]
    for batch_bytes in (2000, 512 * 1024):
        trial.check(records, batch_bytes=batch_bytes)
    assert trial.slow == 0


@pytest.mark.parametrize("mode", [RouteMode.BINARY, RouteMode.STRUCTURED])
def test_the_limit_of_a_topic_counts_what_is_written(
    mode: RouteMode, trial_of: TrialOf, trial_on: TrialOn
) -> None:
    records = [binary({**TYPED, "a": "x" * size}, b"[1]") for size in range(20, 80)]
    dead = set()
    for limit in (250, 300, 350, 400):
        trial = trial_on(target_with(trial_of(RoutePlan(name="r", mode=mode), limit=limit), Values.AUTO))
        trial.check(records)
        _, counts = trial.expected(records)
        dead.add(counts["n_dead"])
    assert len(dead) > 1


@pytest.mark.parametrize("seed", range(4))
def test_generated_plans_write_profile_0_1_as_the_reference_does(
    seed: int, trial_by: TrialBy, trial_on: TrialOn, records_by: Records
) -> None:
    dice = random.Random(f"profile 0.1 {seed}")
    records = [*records_by(dice, 200), *(ordinary(dice, number) for number in range(50))]
    seen = slow = 0
    for _ in range(6):
        stage = trial_by(dice).stage
        profiles = dice.choice([(Profile.V0_1,), (Profile.V0_1, Profile.V1_0, None)])
        trial = trial_on(on_pulsar(stage, dice, profiles))
        trial.check(records)
        seen, slow = seen + trial.seen, slow + trial.slow
    assert slow < 0.8 * seen
