"""Routes of which the kernel has a part of the conditions: it drops what they rule out, and leaves others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.pipeline.evaluators.kernel.program import parts_left, program_of, stops
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, FunctionKey, RoutePlan, Tombstones
from penstock.pipeline.plan.sql import parse_sql
from penstock.record import KafkaRecord

TrialOn = Callable[[Any], Any]
TrialOf = Callable[..., Any]
TrialBy = Callable[[random.Random], Any]
Records = Callable[[random.Random, int], list[KafkaRecord]]

HARD = (
    "data.total = data.inner",
    "NOT data.total <> data.inner",
    "data.total < 1234567890123456789",
    "data.total IN (data.inner, data.missing)",
)
"""Conditions that the kernel cannot express."""


def events(count: int) -> list[KafkaRecord]:
    """Events of the types a to d, in turns."""
    return [
        KafkaRecord(
            key=b"k",
            value=b'{"name": "x%d", "total": %d, "inner": %d}' % (number, number % 7, number % 5),
            headers=(
                ("ce_specversion", b"1.0"),
                ("ce_id", b"%d" % number),
                ("ce_source", b"/s"),
                ("ce_type", b"abcd"[number % 4 : number % 4 + 1]),
                ("content-type", b"application/json"),
                ("ce_subject", b"xm"),
            ),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("hard", HARD)
def test_only_what_the_simple_conditions_leave_is_left(hard: str, trial_of: TrialOf) -> None:
    left = RoutePlan(name="left", where=parse_sql(f"type = 'a' AND {hard}"))
    other = RoutePlan(name="other", where=parse_sql("type = 'b'"))
    trial = trial_of(left, other)
    assert stops(trial.stage) == ()
    assert [each.partition(":")[0] for each in parts_left(trial.stage)] == ["route left"]
    trial.check(events(100))
    assert trial.slow == 25
    _, counts = trial.expected(events(100))
    assert counts["n_unmatched"] >= 50


def test_conditions_on_data_rule_out_too(trial_of: TrialOf) -> None:
    trial = trial_of(RoutePlan(name="r", where=parse_sql("data.total >= 6 AND data.total = data.inner")))
    trial.check(events(70))
    assert trial.slow == 10
    broken = [replace(each, value=value) for each in events(4) for value in (b"{", b"", None, b"\xff")]
    trial.check(broken)


def test_a_value_that_the_kernel_cannot_make_is_left_for_what_matches(trial_of: TrialOf) -> None:
    values = [Assignment("label", parse_sql("if(data.total = data.inner, 'same', 'other')", Type.TEXT))]
    plan = RoutePlan(name="r", where=parse_sql("type = 'c'"), set=tuple(values))
    trial = trial_of(plan)
    trial.check(events(40))
    assert trial.slow == 10


def test_a_route_of_which_the_kernel_has_nothing_stops_it(trial_of: TrialOf) -> None:
    simple = RoutePlan(name="simple")
    for where in (HARD[0], f"type = 'a' OR {HARD[0]}", f"true AND {HARD[0]}"):
        stage = trial_of(simple).stage
        plan = RoutePlan(name="hard", where=parse_sql(where))
        stage = replace(stage, routes=(*stage.routes, replace(stage.routes[0], plan=plan)))
        assert stops(stage)
        assert parts_left(stage) == ()


def test_functions_are_not_left_in_part(trial_of: TrialOf) -> None:
    """Their events are collected before a transaction begins, by the reference alone."""
    stage = trial_of(RoutePlan(name="r", where=parse_sql("type = 'a'"))).stage
    (route,) = stage.routes
    key = replace(route.plan, key=FunctionKey("module:name"))
    called = replace(route, invoker=lambda events: [])
    for each in (replace(route, plan=key), called):
        assert stops(replace(stage, routes=(each,)))


@pytest.mark.parametrize("tombstones", list(Tombstones))
def test_null_values_that_are_no_events_are_left(tombstones: Tombstones, trial_of: TrialOf) -> None:
    plan = RoutePlan(name="r", where=parse_sql(f"type = 'a' AND {HARD[0]}"), tombstones=tombstones)
    trial = trial_of(plan, RoutePlan(name="other"))
    trial.check([KafkaRecord(key=b"k", value=None), *events(3)])


@pytest.mark.parametrize("seed", range(4))
def test_generated_routes_beside_one_that_is_left(
    seed: int, trial_by: TrialBy, trial_on: TrialOn, records_by: Records
) -> None:
    dice = random.Random(f"left {seed}")
    records = [*records_by(dice, 150), *events(50)]
    for _ in range(5):
        stage = trial_by(dice).stage
        place = dice.randrange(len(stage.routes))
        where = f"{dice.choice(['type', 'subject'])} = '{dice.choice('abxm')}' AND {dice.choice(HARD)}"
        plan = replace(stage.routes[place].plan, where=parse_sql(where))
        routes = list(stage.routes)
        routes[place] = replace(routes[place], plan=plan)
        trial = trial_on(replace(stage, routes=tuple(routes)))
        assert parts_left(trial.stage)
        trial.check(records)


def test_the_program_of_another_condition_is_another_one(trial_of: TrialOf) -> None:
    programs = {
        program_of(trial_of(RoutePlan(name="r", where=parse_sql(f"type = 'a' AND {hard}"))).stage).routes
        for hard in HARD
    }
    assert len(programs) == len(HARD)
