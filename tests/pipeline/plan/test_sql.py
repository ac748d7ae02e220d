"""Spark SQL text to plan nodes: what is read, what is refused and in which words, and hostile text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidExpression
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import Data, Or, Type, paths_read
from penstock.pipeline.plan.sql import MAX_CHARACTERS, parse_sql, read_sql
from penstock.pipeline.plan.typing import check


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("type = 'a'", "type = 'a'"),
        ("Type == \"a\"", "type = 'a'"),
        ("NOT a = 'b' AND (c = 'd' OR e <> 'f')", "NOT a = 'b' AND (c = 'd' OR e != 'f')"),
        ("a = 'b' AND c = 'd' AND e = 'f'", "a = 'b' AND c = 'd' AND e = 'f'"),
        ("subject IN ('a', 'b')", "subject IN ('a', 'b')"),
        ("subject NOT IN ('a', NULL)", "NOT subject IN ('a', NULL)"),
        ("subject LIKE 'a\\%b%'", "subject LIKE 'a\\\\%b%'"),
        ("subject NOT LIKE 'a!%%' ESCAPE '!'", "NOT subject LIKE 'a\\\\%%'"),
        ("subject IS NOT NULL", "subject IS NOT NULL"),
        ("isnull(subject)", "subject IS NULL"),
        ("xa IS TRUE", "coalesce(boolean_of_text(xa), FALSE)"),
        ("hop < 5", "number_of_text(hop) < 5"),
        ("data.total >= 100", "number_of_json(data.total) >= 100"),
        ("data.total BETWEEN 1 AND 2.50",
        "number_of_json(data.total) >= 1 AND number_of_json(data.total) <= 2.5"),
        ("data.a.b[0].`c d`['e'] = 'x'", "string_of_json(data.a.b[0].`c d`.e) = 'x'"),
        ("data.customerId = data.Other", "data.customerId = data.Other"),
        ("data.flag", "boolean_of_json(data.flag)"),
        ("data IS NULL", "data IS NULL"),
        ("a = -1.5 + 2 * 3", "number_of_text(a) = -1.5 + 2 * 3"),
        ("-data.a < 0", "0 - number_of_json(data.a) < 0"),
        ("data.a % 2 = 0 AND data.a div 2 > 1",
        "number_of_json(data.a) % 2 = 0 AND quotient(number_of_json(data.a), 2) > 1"),
        ("data.a / 3 > 1", "number_of_json(data.a) / 3 > 1"),
        ("lower(type) = 'a'", "lower(type) = 'a'"),
        ("type || '-' || data.n = 'a-1'", "concat(type, '-', text_of_json(data.n)) = 'a-1'"),
        ("substr(type, 2) = 'b'", "substring(type, 2, 1000000000) = 'b'"),
        ("left(type, 1) = right(type, 1)", "left(type, 1) = right(type, 1)"),
        ("trim(subject) = 'a'", "trim(subject, ' ') = 'a'"),
        ("rtrim('x', subject) = 'a'", "rtrim(subject, 'x') = 'a'"),
        ("instr(subject, 'b') > 0", "position(subject, 'b') > 0"),
        ("startswith(type, 'a')", "starts_with(type, 'a')"),
        ("nvl(subject, 'none') = 'none'", "coalesce(subject, 'none') = 'none'"),
        ("nullif(subject, 'a') IS NULL", "if(subject = 'a', NULL, subject) IS NULL"),
        ("CASE WHEN a = 'b' THEN 1 ELSE 2 END = 2", "if(a = 'b', 1, 2) = 2"),
        ("if(a = 'b', data.x, 5) = 5", "if(a = 'b', number_of_json(data.x), 5) = 5"),
        ("round(data.a, 2) = abs(data.b)", "round(number_of_json(data.a), 2) = abs(number_of_json(data.b))"),
        ("CAST(subject AS INT) = 5",
        "within(truncate(number_of_text(subject)), -2147483648, 2147483647) = 5"),
        ("CAST(hop AS DECIMAL(5,2)) = 1", "within(round(number_of_text(hop), 2), -999.99, 999.99) = 1"),
        ("CAST(data.n AS STRING) = '5'", "text_of_json(data.n) = '5'"),
        ("time > '2024-01-31'", "time_of_text(time) > TIMESTAMP '2024-01-31T00:00:00Z'"),
        ("data.at < time", "time_of_text(string_of_json(data.at)) < time_of_text(time)"),
        ("time < now() - INTERVAL 5 MINUTES", "time_of_text(time) < shift(now(), -300000000)"),
        ("year(time) = 2024", "year(time_of_text(time)) = 2024"),
        ("to_timestamp(data.at) > TIMESTAMP '2024-01-31 12:00:00'",
         "time_of_text(string_of_json(data.at)) > TIMESTAMP '2024-01-31T12:00:00Z'"),
        ("a = 'x\\ty' -- a comment", "a = 'x\ty'"),
    ],
)  # fmt: skip
def test_what_is_read(text: str, plan: str) -> None:
    node = parse_sql(text)
    check(node, Type.BOOLEAN)
    assert explain(node) == plan


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("type RLIKE 'a'", 1, "REGEXPLIKE is not in the language"),
        ("type = 'a' AND size(data.x) > 1", 16, "is not in the language"),
        ("x = 'a' AND nope(type) = 1", 13, "the function nope is not in the language"),
        ("type IN (SELECT 1)", 1, "SUBQUERY looks at many events"),
        ("count(*) > 1", 1, "COUNT looks at many events"),
        ("max(data.n) over (partition by id) > 1", 1, "WINDOW looks at many events"),
        ("a <=> b", 1, "is not in the language"),
        ("type = 5 AND a LIKE b", 14, "LIKE with a pattern that is not a text"),
        ("a LIKE 'x\\\\y'", 8, "not a LIKE pattern"),
        ("subject = NULL", 1, "never true"),
        ("data.a = '5' + 1", 10, "'5' is text, not a number"),
        ("lower(a) > 5", 1, "this is text, not a number"),
        ("data.a > 5 AND 7", 16, "this is a number, and a boolean is needed"),
        ("time > 'yesterday'", 8, "is not a time"),
        ("source.x = 'a'", 1, "source has no members"),
        ("my_ext = 'a'", 1, "is not the name of an attribute"),
        ("data.x[-1] = 1", 1, "not a path into the data"),
        ("data.* = 1", 1, "not a path into the data"),
        ("a = 12345678901234567890", 5, "out of range"),
        ("a = 0.1234567890123456789", 5, "out of range"),
        ("a = 'it''s'", 9, "two texts side by side"),
        ("if(a = 'b', 1, 'x') = 1", 16, "different types"),
        ("time > now() - INTERVAL 1 MONTH", 8, "not an interval of a fixed length"),
        ("CAST(a AS DECIMAL(38,30)) = 1", 6, "too wide"),
        ("CAST(a AS ARRAY<INT>) = 1", 6, "is not in the language"),
        ("a = 1; DROP TABLE x", 11, "not a SQL expression"),
        ("DROP TABLE x", 4, "not a SQL expression"),
        ("a = ", 1, "not a SQL expression"),
        ("a = 'b", 1, "not a SQL expression"),
        ("", 1, "the expression is empty"),
        ("-- nothing", 1, "the expression is empty"),
    ],
)
def test_what_is_refused(text: str, column: int, words: str) -> None:
    reading = read_sql(text)
    assert reading.node is None
    assert any(words in finding.what for finding in reading.findings), reading.findings
    with pytest.raises(InvalidExpression) as caught:
        parse_sql(text, path="routes.a.where")
    assert caught.value.path == "routes.a.where"
    found = next(finding for finding in reading.findings if words in finding.what)
    assert abs(found.position + 1 - column) <= 3, found


def test_a_refusal_says_what_is_allowed_instead() -> None:
    (finding,) = read_sql("type RLIKE 'a'").findings
    assert "allowed under sql:" in finding.why


def test_every_finding_is_given_in_the_order_of_the_text() -> None:
    findings = read_sql("nope(a) = 1 AND type = NULL AND my_ext = 'b'").findings
    assert len(findings) == 3
    assert [finding.position for finding in findings] == sorted(finding.position for finding in findings)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "NOT " * 1500 + "a = 'b'",
        " AND ".join(["a = 'b'"] * 1500),
        "-" * 1500 + "1 = 1",
        "a" * (MAX_CHARACTERS + 1),
        " + ".join(["1"] * 900) + " = 1",
        "data" + ".a" * 100 + " = 1",
        "data" + "[0]" * 100 + " = 1",
        "a = 1e999999999",
        "a = " + "9" * 5000,
        "data[99999999999999999999] = 1",
        "a = '\ud800'",
        "CASE " + "WHEN a = 'b' THEN 1 " * 300 + "END = 1",
        "\x00", "\ud800 = 1", "a = {{b}}", "@x", "?", "a = :x", "/* ", "`", "'", '"', "a.b.c.d.e.f",
        "[1] = 1", "{} = 1",
    ],
)  # fmt: skip
def test_hostile_text_gives_findings(text: str) -> None:
    reading = read_sql(text)
    assert reading.node is None and reading.findings


def test_a_long_list_of_conditions_is_not_deep() -> None:
    node = parse_sql(" OR ".join(f"type = 'a{n}'" for n in range(300)))
    check(node, Type.BOOLEAN)
    assert isinstance(node, Or)
    assert len(node.operands) == 300


WORDS = ["a", "data.b", "data", "'x'", "5", "1.5", "AND", "OR", "NOT", "(", ")", "=", "<", ">=", "LIKE",
"IN", ",", "IS",
         "NULL", "BETWEEN", "+", "-", "*", "/", "%", "lower(", "CAST(", "AS", "INT", "CASE", "WHEN",
         "THEN", "END", ".",
         "[0]", "time", "INTERVAL", "1", "DAY", "||", "TRUE", "coalesce(", ":", ";", "`", "--", "SELECT",
         "*", "@"]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_gives_a_plan_or_findings(text: str) -> None:
    reading = read_sql(text)
    assert (reading.node is None) is bool(reading.findings)
    if reading.node is not None:
        check(reading.node)


def test_member_names_keep_their_case_and_may_be_anything() -> None:
    node = parse_sql("data.`Sku No`.`it's` = 1 AND data['q\"t'][2] = 1")
    assert paths_read(node) == {("Sku No", "it's"), ('q"t', 2)}
    assert parse_sql("DATA.Total", Type.JSON) == Data(("Total",))


@pytest.mark.parametrize(
    ("text", "want", "plan"),
    [
        ("data.customer", Type.TEXT, "text_of_json(data.customer)"),
        ("data.total * 2", Type.TEXT, "text_of_number(number_of_json(data.total) * 2)"),
        ("NULL", Type.TEXT, "NULL"),
        ("data.at", Type.TIME, "time_of_text(string_of_json(data.at))"),
        ("'2024-01-31'", Type.TIME, "TIMESTAMP '2024-01-31T00:00:00Z'"),
    ],
)
def test_values_for_set_take_the_type_of_the_attribute(text: str, want: Type, plan: str) -> None:
    assert explain(parse_sql(text, want)) == plan


def test_a_missing_operand_is_told_in_plain_words() -> None:
    (finding,) = read_sql("data.total >").findings
    assert finding.what == "not a SQL expression: something is missing behind this"
