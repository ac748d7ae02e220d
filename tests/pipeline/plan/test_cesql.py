"""CESQL as plan nodes gives the value and the errors of the CESQL evaluator."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidExpression
from penstock.events import cesql
from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.plan.cesql import compile_cesql, parse_cesql
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.typing import type_of

TEXTS = [
    "",
    "a",
    "A",
    "ab%c",
    "a_b",
    "x\\y",
    "é😀",
    "TRUE",
    "false",
    "1",
    "-5",
    "+007",
    "2147483648",
    " a\u2003",
    "0",
]
NAMES = ["type", "subject", "xa", "xb", "missing"]
texts = st.sampled_from(TEXTS)
integers = st.sampled_from([0, 1, -1, 2, 5, 7, 100, 2**31 - 1, -(2**31)])
leaves = st.one_of(
    st.builds(cesql.StringLiteral, texts),
    st.builds(cesql.IntegerLiteral, integers),
    st.builds(cesql.BooleanLiteral, st.booleans()),
    st.builds(cesql.Identifier, st.sampled_from(NAMES)),
    st.builds(cesql.Exists, st.sampled_from(NAMES)),
)
PATTERNS = ["%", "a%", "_b%", "ab\\%c", "a\\_b", "x\\y", "\\", "%😀"]


def bigger(below: st.SearchStrategy[cesql.Expression]) -> st.SearchStrategy[cesql.Expression]:
    calls = [
        st.builds(cesql.Call, st.just(name), st.tuples(*[below] * count))
        for name, count in [
            ("LENGTH", 1), ("CONCAT", 0), ("CONCAT", 2), ("CONCAT_WS", 1), ("CONCAT_WS", 3), ("LOWER", 1),
            ("UPPER", 1), ("TRIM", 1), ("LEFT", 2), ("RIGHT", 2), ("SUBSTRING", 2), ("SUBSTRING", 3),
            ("ABS", 1),
            ("INT", 1), ("BOOL", 1), ("STRING", 1), ("IS_INT", 1), ("IS_BOOL", 1),
        ]
    ]  # fmt: skip
    return st.one_of(
        st.builds(cesql.Binary, st.sampled_from(list(cesql.Operator)), below, below),
        st.builds(cesql.Binary, st.sampled_from([cesql.Operator.AND, cesql.Operator.OR]), below, below),
        st.builds(cesql.Unary, st.sampled_from(list(cesql.UnaryOperator)), below),
        st.builds(cesql.Like, below, st.sampled_from(PATTERNS), st.booleans()),
        st.builds(cesql.In, below, st.tuples(below, below), st.booleans()),
        *calls,
    )


expressions = st.recursive(leaves, bigger, max_leaves=8)
attributes = st.dictionaries(st.sampled_from(NAMES[:-1]), texts).map(lambda some: {"type": "t", **some})


@given(expressions, attributes)
def test_value_and_error_are_those_of_the_evaluator(
    expression: cesql.Expression, attributes: dict[str, str]
) -> None:
    expected = cesql.evaluate(expression, attributes)
    checked = compile_cesql(expression)
    scope = Scope(attributes)
    error = evaluate(checked.error, scope)
    assert error is bool(expected.errors)
    assert type_of(checked.value) in (checked.type, Type.NULL)
    if not error:
        value = evaluate(checked.value, scope)
        assert value == (
            Decimal(expected.value) if type(expected.value) is int else expected.value
        ) and isinstance(value, bool) is isinstance(expected.value, bool)
    passes = evaluate(checked.passes, scope) if checked.type is Type.BOOLEAN else False
    assert (passes is True) is cesql.evaluate(expression, attributes, fail_fast=True).passes


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        # Row 83 of the behaviour list, and what tells CESQL from SQL.
        ("missing != 2", False),
        ("NOT (missing = 2)", False),
        ("NOT EXISTS missing", True),
        ("TRUE OR missing = 2", True),
        ("missing = 2 OR TRUE", False),
        ("FALSE AND missing = 2", False),
        ("NOT (FALSE AND missing = 2)", True),
        # Row 84: the type of the right operand chooses.
        ("'TRUE' = TRUE", True),
        ("TRUE = 'TRUE'", False),
        # Row 85: 5 / 0 is 0 and an error.
        ("5 / 0 = 0", False),
        ("ABS(-2147483648) > 0", False),
        ("-7 / 2 = -3 AND -7 % 2 = -1", True),
        ("2147483647 + 1 > 0", False),
        ("SUBSTRING(type, 0) = ''", True),
        ("hop < 5", True),
    ],
)
def test_filters(text: str, passes: bool) -> None:
    assert (evaluate(parse_cesql(text), Scope({"type": "t", "hop": "3"})) is True) is passes


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        # 3.7: the type of the left operand chooses, element by element.
        ("1 IN ('1', 2)", True),
        ("1 IN (2, '1')", True),
        ("1 IN ('01', 2)", True),
        ("'1' IN (1, '2')", True),
        ("'01' IN (1, '2')", False),
        ("TRUE IN ('true', FALSE)", True),
        ("TRUE IN ('TRUE', FALSE)", True),
        ("'true' IN (TRUE, 'x')", True),
        ("'TRUE' IN (TRUE, 'x')", False),
        ("1 IN (TRUE, 2)", True),
        ("0 IN (TRUE, FALSE)", True),
        ("2 IN (TRUE, FALSE)", False),
        ("1 IN ('tide', 1)", False),
        ("1 NOT IN ('tide', 2)", False),
        ("hop IN (3, 'x')", True),
        ("hop IN (TRUE, 3)", True),
        ("hop NOT IN (TRUE, 4)", True),
        ("3 IN (hop, 'x')", False),
        ("3 IN (hop, 4)", True),
        ("hop IN (3, missing)", False),
    ],
)
def test_elements_of_two_types(text: str, passes: bool) -> None:
    attributes = {"type": "t", "hop": "3"}
    assert cesql.evaluate(cesql.parse(text), attributes, fail_fast=True).passes is passes
    assert (evaluate(parse_cesql(text), Scope(attributes)) is True) is passes


@pytest.mark.parametrize("text", ["type", "1 + 1", "NOPE(1) = 1", "type ="])
def test_what_cannot_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        parse_cesql(text, path="routes.a.where")


def test_nested_functions_cannot_grow_without_bound() -> None:
    text = "type"
    for _ in range(40):
        text = f"SUBSTRING({text}, 1)"
    with pytest.raises(InvalidExpression, match="nodes"):
        parse_cesql(f"{text} = 'a'")
