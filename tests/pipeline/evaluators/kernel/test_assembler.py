"""Conditions as code: what may be left out where only true counts."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.evaluators.kernel.expressible import digits_of
from penstock.pipeline.evaluators.kernel.program import Program, plan_digest
from penstock.pipeline.evaluators.kernel.simplify import where_only_true_counts
from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.plan.cesql import parse_cesql
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import Number
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Target

NAMES = ("subject", "hop", "flag")
TEXTS = ("a", "b", "5", "-3", "true", "False", "0")
CONDITIONS = (
    *("type = 'a' OR hop > 1", "NOT (type = 'a' AND flag)", "type = 'a' XOR flag", "hop IN (5, subject)"),
    *("LEFT(type, hop) = 'a' AND NOT flag", "EXISTS subject AND subject != 'b'", "hop + 1 = 6 OR flag"),
    *("NOT (hop > 1) OR NOT (subject LIKE 'a%')", "IS_INT(subject) AND INT(subject) = hop"),
)


@pytest.mark.parametrize(
    ("condition", "is_shorter"),
    [
        ("coalesce(data.ok, false)", True),
        ("type = 'a' AND coalesce(data.ok, false)", True),
        ("coalesce(data.ok, true)", False),
        ("NOT coalesce(data.ok, false)", False),
        ("type = 'a' OR coalesce(data.ok, true)", False),
    ],
)
def test_only_that_null_is_false_is_left_out_where_only_true_counts(condition: str, is_shorter: bool) -> None:
    node = parse_sql(condition)
    assert (where_only_true_counts(node) != node) is is_shorter


@pytest.mark.parametrize(
    ("condition", "tests"),
    [
        ("type = 'a'", "type = 'a'"),
        ("NOT (type = 'a')", "NOT type = 'a'"),
        ("hop > 5 AND LOWER(type) = 'a'", "cesql_integer(hop) > 5 AND unicode_lower(type) = 'a'"),
        ("hop + 1 = 3", "within(cesql_integer(hop) + 1, -2147483648, 2147483647) = 3"),
        ("EXISTS subject", "subject IS NOT NULL"),
        ("IS_INT(hop)", "cesql_integer(hop) IS NOT NULL"),
        ("LEFT(type, hop) = 'a'", "NOT cesql_integer(hop) < 0 AND left(type, cesql_integer(hop)) = 'a'"),
        # One side of OR may be true without the other's operands.
        (
            "type = 'a' OR subject = 'b'",
            "NOT (NOT type = 'a' AND subject IS NULL) AND (type = 'a' OR subject = 'b')",
        ),
    ],
)
def test_cesql_asks_no_more_than_where_does(condition: str, tests: str) -> None:
    assert explain(where_only_true_counts(parse_cesql(condition))) == tests


@given(
    st.sampled_from(CONDITIONS),
    st.fixed_dictionaries(
        {"type": st.sampled_from(TEXTS)}, optional=dict.fromkeys(NAMES, st.sampled_from(TEXTS))
    ),
)
def test_a_condition_is_true_for_the_same_events(condition: str, attributes: dict[str, str]) -> None:
    node = parse_cesql(condition)
    scope = Scope(attributes)
    assert (evaluate(where_only_true_counts(node), scope) is True) == (evaluate(node, scope) is True)


def test_a_negative_zero_is_left_to_the_reference() -> None:
    """It writes the sign, and the digits of the kernel have none for zero."""
    assert digits_of(Number(Decimal("-0.0"))) is None
    assert digits_of(Number(Decimal("0.0"))) == (0, 0)


def test_programs_that_write_the_same_topic_on_other_clusters_are_others() -> None:
    """What one of them has begun, the other one cannot finish."""
    programs = [Program((Target(topic="out", sink=sink),), (), b"", (), 0) for sink in (0, 1)]
    assert len({plan_digest(program) for program in programs}) == 2
