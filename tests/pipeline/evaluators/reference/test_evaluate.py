"""The meaning of expressions: hand-written truth tables of three-valued logic, types, text and time."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from penstock.errors import PipelineError
from penstock.pipeline.evaluators.reference.calls import CALLS
from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.evaluators.reference.json_data import read_json
from penstock.pipeline.plan.functions import FUNCTIONS
from penstock.pipeline.plan.nodes import (
    And,
    Attribute,
    Boolean,
    Call,
    Compare,
    Comparison,
    Data,
    In,
    Node,
    Not,
    Null,
    Or,
    Text,
)
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.plan.typing import check

T, F, N = True, False, None
DATA = b"""{
    "n": 5, "d": 10.50, "s": "abc", "five": "5", "t": true, "z": null, "o": {"x": "y"}, "l": [1, "two", [3]],
    "big": 9007199254740993, "tiny": 1e-30, "huge": 1e25, "over": 1e999, "at": "2024-01-31T12:00:00.5+01:00"
}"""
SCOPE = Scope(
    {"type": "order.placed", "subject": "Ab", "hop": "3", "bad": "x", "time": "2024-01-31T11:00:00Z"},
    read_json(DATA),
    1_000_000,
)


def literal(value: bool | None) -> Node:
    return Null() if value is None else Boolean(value)


AND = {(T, T): T, (T, F): F, (T, N): N, (F, F): F, (F, N): F, (N, N): N}
OR = {(T, T): T, (T, F): T, (T, N): T, (F, F): F, (F, N): N, (N, N): N}


@pytest.mark.parametrize(("left", "right"), list(product((T, F, N), repeat=2)))
def test_and_or_are_kleenes(left: bool | None, right: bool | None) -> None:
    operands = (literal(left), literal(right))
    assert evaluate(And(operands), SCOPE) is AND.get((left, right), AND.get((right, left), "?"))
    assert evaluate(Or(operands), SCOPE) is OR.get((left, right), OR.get((right, left), "?"))


def test_not_is_kleenes() -> None:
    assert [evaluate(Not(literal(value)), SCOPE) for value in (T, F, N)] == [F, T, N]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        # JSON values take the type of the other side, and are null where they are of another.
        ("data.n = 5", T), ("data.n = '5'", N), ("data.five = 5", N), ("data.five = '5'", T),
        ("data.s = 5", N),
        ("data.t", T), ("data.t = true", T), ("data.n", N), ("data.s", N), ("data.z = 1", N),
        ("data.z IS NULL", T),
        ("data.missing IS NULL", T), ("data.o IS NULL", F), ("data.o = 'x'", N), ("data.o.x = 'y'", T),
        ("data.l[0] = 1", T), ("data.l[1] = 'two'", T), ("data.l[2][0] = 3", T), ("data.l[9] IS NULL", T),
        ("data.s[0] IS NULL", T), ("data.l.x IS NULL", T), ("data.n.x IS NULL", T),
        # Two JSON values compare if they are of one kind.
        ("data.n = data.n", T), ("data.n = data.five", N), ("data.n < data.d", T), ("data.s = data.s", T),
        ("data.t = data.t", T), ("data.o = data.o", N), ("data.l = data.l", N), ("data.z = data.z", N),
        # Numbers: exact where they fit, doubles where not, null beyond.
        ("data.d = 10.5", T), ("data.big = 9007199254740993", T), ("data.big = 9007199254740992", F),
        ("data.tiny > 0", T), ("data.huge > 100", T), ("data.over > 100", N), ("data.over IS NULL", F),
        ("data.huge = data.huge", T), ("data.tiny + 1 > 0", N), ("abs(data.huge) > 1", N),
        ("data.n / 0 = 1", N), ("data.n % 0 = 1", N), ("data.n div 0 = 1", N), ("data.n / 3 = 1.666667", T),
        ("-7 % 3 = -1", T), ("-7 div 2 = -3", T), ("0.1 + 0.2 = 0.3", T), ("0.1 * 0.1 = 0.01", T),
        ("9999999999999999999 + 1 > 0", N), ("round(2.5) = 3", T), ("round(-2.5) = -3", T),
        ("floor(-1.5) = -2", T), ("ceil(-1.5) = -1", T),
        # Attributes are text, read as what they are compared with.
        ("hop < 5", T), ("hop = '3'", T), ("bad < 5", N), ("missing < 5", N), ("missing = 'a'", N),
        ("missing != 'a'", N),
        ("missing IS NULL", T), ("hop + 1 = 4", T), ("hop * hop = 9", T),
        # IN, LIKE, BETWEEN.
        ("type IN ('a', 'order.placed')", T), ("type IN ('a', NULL)", N),
        ("type IN ('order.placed', NULL)", T),
        ("missing IN ('a')", N), ("type NOT IN ('a')", T), ("type NOT IN ('a', NULL)", N),
        ("data.n IN (1, 5)", T),
        ("type LIKE 'order.%'", T), ("type LIKE 'order_placed'", T), ("type LIKE 'Order%'", F),
        ("missing LIKE '%'", N), ("data.n LIKE '5'", T), ("hop BETWEEN 1 AND 3", T),
        ("hop BETWEEN 4 AND 5", F),
        # Text.
        ("lower(subject) = 'ab' AND upper(subject) = 'AB'", T), ("lower('É') = 'É'", T),
        ("length('é😀') = 2", T),
        ("substring('abc', 0, 2) = 'ab'", T), ("substring('abc', -2) = 'bc'", T),
        ("substring('abc', -5, 3) = 'a'", T),
        ("substring('abc', 1.5) IS NULL", T), ("left('abc', -1) = ''", T), ("right('abc', 2) = 'bc'", T),
        ("concat(subject, missing) IS NULL", T), ("'a' || data.n || data.t || data.d = 'a5true10.5'", T),
        ("'a' || data.o IS NULL", T), ("data.tiny || '' = '1e-30'", T), ("replace('aba', 'a', '') = 'b'", T),
        ("replace('aba', '', 'x') = 'aba'", T), ("instr('abc', 'c') = 3 AND instr('abc', 'x') = 0", T),
        ("'\\uffff' < '😀'", T), ("'a' < 'B'", F), ("trim('  a ') = 'a'", T),
        ("contains(type, '.') AND endswith(type, 'placed')", T),
        # Times are moments.
        ("time = '2024-01-31T12:00:00+01:00'", T), ("data.at > time", T), ("time < '2024-02-01'", T),
        ("data.at = TIMESTAMP '2024-01-31T11:00:00.5Z'", T), ("bad < time", N), ("time < now()", F),
        ("year(time) = 2024 AND month(time) = 1 AND day(time) = 31 AND hour(time) = 11", T),
        ("time - INTERVAL 1 DAY = '2024-01-30T11:00:00Z'", T), ("unix_seconds(now()) = 1", T),
        ("CAST(time AS STRING) = '2024-01-31T11:00:00Z'", T), ("CAST(data.at AS TIMESTAMP) > time", T),
        # Choosing.
        ("coalesce(missing, subject) = 'Ab'", T), ("coalesce(data.z, data.n) = 5", T),
        ("nullif(hop, '3') IS NULL", T),
        ("CASE WHEN missing = 'a' THEN 1 WHEN hop = 3 THEN 2 END = 2", T), ("if(missing = 'a', 1, 2) = 2", T),
        ("(missing = 'a') IS TRUE", F), ("(hop = 3) IS TRUE", T), ("(hop = 4) IS FALSE", T),
        ("CAST('12.7' AS INT) = 12", T), ("CAST('x' AS INT) IS NULL", T),
        ("CAST('300' AS TINYINT) IS NULL", T),
        ("CAST(data.five AS INT) = 5", T), ("CAST('1.005' AS DECIMAL(5,2)) = 1.01", T),
        ("CAST('true' AS BOOLEAN)", T),
    ],
)  # fmt: skip
def test_meaning(sql: str, value: bool | None) -> None:
    assert evaluate(parse_sql(sql), SCOPE) is value


def test_data_that_is_not_there_is_null() -> None:
    assert evaluate(parse_sql("data.n IS NULL AND data IS NULL"), Scope({})) is True


def test_every_function_of_the_table_is_there() -> None:
    assert CALLS.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_a_null_argument_gives_null(function: str) -> None:
    signature = FUNCTIONS[function]
    arguments: tuple[Any, ...] = (Null(),) * max(len(signature.parameters), 1)
    assert evaluate(Call(function, arguments), SCOPE) is None


@pytest.mark.parametrize(
    "node",
    [
        And((Attribute("a"), Boolean(True))),
        Compare(Comparison.EQUAL, Attribute("a"), Data(("b",))),
        Call("lower", (Data(("b",)),)),
        Call("lower", ()),
        Call("nope", ()),
        Not(Text("a")),
    ],
)
def test_a_plan_that_is_not_well_typed_is_refused(node: Node) -> None:
    with pytest.raises(PipelineError):
        check(node)


def test_a_plan_without_bound_is_refused() -> None:
    node: Node = Boolean(True)
    for _ in range(200):
        node = Not(node)
    with pytest.raises(PipelineError, match="levels"):
        check(node)


def test_a_number_and_one_of_too_many_digits_are_compared_as_doubles() -> None:
    data = read_json(b'{"a": 0.1, "b": 0.1000000000000000055511151231257827021181583404541015625}')
    for text in ("data.a = data.b", "data.b = data.a", "data.b = 0.1", "data.b IN (0.1, 7)"):
        assert evaluate(parse_sql(text), Scope({}, data)) is True, text


def test_nothing_is_in_an_empty_list() -> None:
    assert [evaluate(In(Attribute("x"), ()), Scope(each)) for each in ({}, {"x": "a"})] == [False, False]
