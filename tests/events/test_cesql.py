"""CESQL 1.0.0: one row per rule with the clause it comes from; value and error kinds must both match."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

import penstock.events.cesql as cesql
from penstock.errors import InvalidExpression, UsageError
from penstock.events.cesql import (
    BUILTINS,
    ErrorKind,
    Failed,
    Function,
    Functions,
    Type,
    attributes_of,
    evaluate,
    identifiers,
    parse,
    render,
    returns,
)
from penstock.events.cesql.builtins import MAX_TEXT
from penstock.events.cesql.parser import MAX_DEPTH
from penstock.events.cesql.tokens import MAX_LENGTH
from penstock.events.cloudevent import CloudEvent

EVENT: dict[str, object] = {
    "specversion": "1.0",
    "id": "evt-7",
    "source": "https://shop.example/orders",
    "type": "shop.order.placed",
    "time": "2031-05-06T07:08:09+02:00",
    "hop": "5",
    "ttl": "10",
    "count": 12,
    "express": True,
    "photo": b"Ma",
    "ratio": 1.5,
    "huge": 2**40,
    "unset": None,
    "path": "a%b_c\\d",
    "3d": "yes",
}

MISSING, CAST, MATH = "missingAttribute", "cast", "math"
FUNCTION, NO_FUNCTION = "functionEvaluation", "missingFunction"

ROWS: list[tuple[str, str, Any, str]] = [
    # clause, expression, value, error kinds
    ("2.2", "TRUE", True, ""),
    ("2.2", "fAlSe", False, ""),
    ("2.2", "0", 0, ""),
    ("2.2", "+7", 7, ""),
    ("2.2", "-7", -7, ""),
    ("2.2", "007", 7, ""),
    ("2.2", "2147483647", 2147483647, ""),
    ("2.2", "-2147483648", -2147483648, ""),
    ("2.2", "'tide'", "tide", ""),
    ("2.2", '"TiDe"', "TiDe", ""),
    ("2.2", "''", "", ""),
    ("2.2", r"""'it\'s "so"'""", """it's "so\"""", ""),
    ("2.2", r'''"it's \"so\""''', """it's "so\"""", ""),
    ("2.2", r"'back\slash'", r"back\slash", ""),
    ("2.2", r"'two\\'", r"two\\", ""),
    ("2.2", "'line\nbreak €🌊'", "line\nbreak €🌊", ""),
    ("2.1", "((TRUE))", True, ""),
    ("2.1", "\t3\r\n*\n(1 + 1) ", 6, ""),
    # attributes
    ("3.2", "id", "evt-7", ""),
    ("3.2", "ID", "evt-7", ""),
    ("3.2", "source", "https://shop.example/orders", ""),
    ("3.2", "time", "2031-05-06T07:08:09+02:00", ""),
    ("3.2", "count", 12, ""),
    ("3.2", "express", True, ""),
    ("3.2", "photo", "TWE=", ""),
    ("3.2", "ratio", "1.5", ""),
    ("3.2", "huge", "1099511627776", ""),
    ("3.2", "3d", "yes", ""),
    ("3.2", "missing", False, MISSING),
    ("3.2", "unset", False, MISSING),
    ("3.2", "missing * 5", 0, MISSING),
    ("3.2", "1 / missing", 0, MISSING),
    ("3.2", "missing / 0", 0, MISSING),
    ("3.2", "missing % 0", 0, MISSING),
    ("3.2", "TRUE AND (missing = '')", False, MISSING),
    ("3.2", "LENGTH(missing)", 0, MISSING),
    ("3.2", "LEFT(missing, 1)", "", MISSING),
    ("3.2", "missing + other", 0, f"{MISSING} {MISSING}"),
    # unary
    ("3.4.1", "NOT TRUE", False, ""),
    ("3.4.1", "NOT FALSE", True, ""),
    ("3.4.1", "NOT 'TRUE'", False, ""),
    ("3.4.1", "NOT 'false'", True, ""),
    ("3.4.1", "NOT 10", False, ""),
    ("3.4.1", "NOT 0", True, ""),
    ("3.4.1", "NOT 'tide'", False, CAST),
    ("3.4.1", "NOT missing", False, MISSING),
    ("3.4.1", "NOT (missing = 2)", False, MISSING),
    ("3.4.1", "--10", 10, ""),
    ("3.4.1", "-'10'", -10, ""),
    ("3.4.1", "--'10'", 10, ""),
    ("3.4.1", "-TRUE", -1, ""),
    ("3.4.1", "-hop", -5, ""),
    ("3.4.1", "-missing", 0, MISSING),
    ("3.4.1", "-'tide'", 0, CAST),
    ("3.4.1", "-(-2147483648)", 0, MATH),
    # comparison
    ("3.4.2", "TRUE = FALSE", False, ""),
    ("3.4.2", "FALSE = FALSE", True, ""),
    ("3.4.2", "3 = 4", False, ""),
    ("3.4.2", "4 = 4", True, ""),
    ("3.4.2", "'a' = 'b'", False, ""),
    ("3.4.2", "'a' = 'a'", True, ""),
    ("3.4.2", "'a' = 'A'", False, ""),
    ("3.4.2", "missing = 2", False, MISSING),
    ("3.4.2", "TRUE != FALSE", True, ""),
    ("3.4.2", "4 != 4", False, ""),
    ("3.4.2", "'a' != 'b'", True, ""),
    ("3.4.2", "missing != 2", False, MISSING),
    ("3.4.2", "2 != missing", False, MISSING),
    ("3.4.2", "TRUE <> FALSE", True, ""),
    ("3.4.2", "4 <> 4", False, ""),
    ("3.4.2", "'a' <> 'a'", False, ""),
    ("3.4.2", "missing <> 2", False, MISSING),
    ("3.4.2", "3 < 4", True, ""),
    ("3.4.2", "4 < 4", False, ""),
    ("3.4.2", "4 <= 4", True, ""),
    ("3.4.2", "5 <= 4", False, ""),
    ("3.4.2", "5 > 4", True, ""),
    ("3.4.2", "4 > 4", False, ""),
    ("3.4.2", "4 >= 4", True, ""),
    ("3.4.2", "4 >= 5", False, ""),
    ("3.4.2", "missing <= 2", False, MISSING),
    ("3.4.2", "hop < ttl", True, ""),
    ("3.4.2", "'tide' < 4", False, CAST),
    # arithmetic
    ("3.4.2", "5 / 3", 1, ""),
    ("3.4.2", "-5 / 3", -1, ""),
    ("3.4.2", "5 / -3", -1, ""),
    ("3.4.2", "-5 / -3", 1, ""),
    ("3.4.2", "5 % 3", 2, ""),
    ("3.4.2", "-5 % 3", -2, ""),
    ("3.4.2", "5 % -3", 2, ""),
    ("3.4.2", "5 / 0", 0, MATH),
    ("3.4.2", "5 % 0", 0, MATH),
    ("3.4.2", "4 + 1", 5, ""),
    ("3.4.2", "-4 + -1", -5, ""),
    ("3.4.2", "4 - 1", 3, ""),
    ("3.4.2", "4-1", 3, ""),
    ("3.4.2", "4 - -1", 5, ""),
    ("3.4.2", "hop-1", 4, ""),
    ("3.4.2", "(4)-1", 3, ""),
    ("3.4.2", "TRUE+1", 2, ""),
    ("3.4.2", "'5' + 3", 8, ""),
    ("3.4.2", "5 + '3'", 8, ""),
    ("3.4.2", "'5' + '3'", 8, ""),
    ("3.4.2", "'5x' + 10", 0, CAST),
    ("3.4.2", "2147483647 + 1", 0, MATH),
    ("3.4.2", "-2147483648 - 1", 0, MATH),
    ("3.4.2", "65536 * 65536", 0, MATH),
    ("3.4.2", "-2147483648 / -1", 0, MATH),
    ("3.4.2", "-2147483648 % -1", 0, ""),
    # logic
    ("3.4.2", "FALSE AND TRUE", False, ""),
    ("3.4.2", "TRUE AND FALSE", False, ""),
    ("3.4.2", "TRUE AND TRUE", True, ""),
    ("3.4.2", "FALSE OR FALSE", False, ""),
    ("3.4.2", "FALSE OR TRUE", True, ""),
    ("3.4.2", "TRUE OR FALSE", True, ""),
    ("3.4.2", "FALSE XOR FALSE", False, ""),
    ("3.4.2", "FALSE XOR TRUE", True, ""),
    ("3.4.2", "TRUE XOR FALSE", True, ""),
    ("3.4.2", "TRUE XOR TRUE", False, ""),
    ("3.4.2", "'true' and 1", True, ""),
    ("3.4.2", "false and (1 != 1 / 0)", False, ""),
    ("3.4.2", "true and (1 != 1 / 0)", False, MATH),
    ("3.4.2", "true or (1 != 1 / 0)", True, ""),
    ("3.4.2", "false or (1 != 1 / 0)", False, MATH),
    ("3.4.2", "missing = 1 OR TRUE", False, MISSING),
    ("3.4.2", "missing = 1 AND other = 2", False, MISSING),
    ("3.4.2", "missing XOR TRUE", False, MISSING),
    ("3.4.2", "'tide' OR FALSE", False, CAST),
    # like
    ("3.4.3", "'tide' LIKE 'tide'", True, ""),
    ("3.4.3", "'tide' LIKE 'Tide'", False, ""),
    ("3.4.3", "'tide' NOT LIKE 'tide'", False, ""),
    ("3.4.3", "'tide' LIKE 'ti%'", True, ""),
    ("3.4.3", "'tide' LIKE '%de'", True, ""),
    ("3.4.3", "'tide' LIKE '%'", True, ""),
    ("3.4.3", "'' LIKE '%'", True, ""),
    ("3.4.3", "'' LIKE '_'", False, ""),
    ("3.4.3", "'tide' LIKE 't%d%e'", True, ""),
    ("3.4.3", "'te' LIKE 'tide'", False, ""),
    ("3.4.3", "'aa' LIKE 'a%a%a'", False, ""),
    ("3.4.3", "'ab' LIKE 'ab%b'", False, ""),
    ("3.4.3", "'.x.yz.' LIKE '.%.%.'", True, ""),
    ("3.4.3", "'x.yz' LIKE '.%.%.'", False, ""),
    ("3.4.3", "'tide' LIKE 't_d_'", True, ""),
    ("3.4.3", "'tide' LIKE 't_e'", False, ""),
    ("3.4.3", "'a\nb' LIKE 'a_b'", True, ""),
    ("3.4.3", "'🌊' LIKE '_'", True, ""),
    ("3.4.3", "'t(d)' LIKE 't(_)'", True, ""),
    ("3.4.3", r"'a_b' LIKE 'a\_b'", True, ""),
    ("3.4.3", r"'axb' LIKE 'a\_b'", False, ""),
    ("3.4.3", r"'a_b' NOT LIKE 'a\_b'", False, ""),
    ("3.4.3", r"'a%b' LIKE 'a\%b'", True, ""),
    ("3.4.3", r"'axb' LIKE 'a\%b'", False, ""),
    ("3.4.3", r"'a\b' LIKE 'a\b'", True, ""),
    ("3.4.3", r"path LIKE 'a\%b\_c\d'", True, ""),
    ("3.4.3", r"path NOT LIKE 'a\%b\_c\d'", False, ""),
    ("3.4.3", "234 LIKE '23_'", True, ""),
    ("3.4.3", "2344 LIKE '23_'", False, ""),
    ("3.4.3", "TRUE LIKE 'tr%'", True, ""),
    ("3.4.3", "FALSE LIKE '%lse'", True, ""),
    ("3.4.3", "missing LIKE 'x%'", False, MISSING),
    ("3.4.3", "missing NOT LIKE 'x%'", False, MISSING),
    # exists
    ("3.4.4", "EXISTS id AND EXISTS SOURCE AND EXISTS type AND EXISTS specversion", True, ""),
    ("3.4.4", "EXISTS time", True, ""),
    ("3.4.4", "EXISTS missing", False, ""),
    ("3.4.4", "EXISTS unset", False, ""),
    ("3.4.4", "NOT EXISTS missing", True, ""),
    ("3.4.4", "NOT EXISTS time", False, ""),
    ("3.4.4", "EXISTS 3d", True, ""),
    # in
    ("3.4.5", "3 IN (1, 2, 3)", True, ""),
    ("3.4.5", "4 IN (1, 2, 3)", False, ""),
    ("3.4.5", "3 NOT IN (1, 2, 3)", False, ""),
    ("3.4.5", "4 NOT IN (1, 2, 3)", True, ""),
    ("3.4.5", "'a' IN ('a', \"b\")", True, ""),
    ("3.4.5", "TRUE IN (FALSE)", False, ""),
    ("3.4.5", "source IN (id, 'https://shop.example/orders')", True, ""),
    ("3.4.5", "source IN (id, 'x')", False, ""),
    ("3.4.5", "'true' IN (TRUE, 'x')", True, ""),
    ("3.4.5", "'true' IN ('TRUE')", False, ""),
    ("3.4.5", "TRUE IN ('true', 'false')", True, ""),
    ("3.4.5", "'TRUE' IN (TRUE)", False, ""),
    ("3.4.5", "1 IN ('1', '2')", True, ""),
    ("3.4.5", "'1' IN (1, 2)", True, ""),
    ("3.4.5", "1 IN ('tide', 1)", False, CAST),
    ("3.4.5", "missing NOT IN (1)", False, MISSING),
    ("3.4.5", "1 IN (1, missing)", False, MISSING),
    # string functions
    ("3.5.1", "LENGTH('tide')", 4, ""),
    ("3.5.1", "LENGTH('')", 0, ""),
    ("3.5.1", "LENGTH('🌊')", 1, ""),
    ("3.5.1", "LENGTH(TRUE)", 4, ""),
    ("3.5.1", "length(100)", 3, ""),
    ("3.5.1", "CONCAT()", "", ""),
    ("3.5.1", "CONCAT('a')", "a", ""),
    ("3.5.1", "CONCAT('a', 1, TRUE)", "a1true", ""),
    ("3.5.1", "CONCAT_WS('-')", "", ""),
    ("3.5.1", "CONCAT_WS('-', 'a')", "a", ""),
    ("3.5.1", "CONCAT_WS('-', 'a', 'b', 'c')", "a-b-c", ""),
    ("3.5", "CONCAT_WS()", False, NO_FUNCTION),
    ("3.5.1", "LOWER('TiDe')", "tide", ""),
    ("3.5.1", "UPPER('TiDe')", "TIDE", ""),
    ("3.5.1", "TRIM('  a b\u3000\t')", "a b", ""),
    ("3.5.1", "TRIM('\x1fa\x1f')", "\x1fa\x1f", ""),
    ("3.5.1", "LEFT('tide', 2)", "ti", ""),
    ("3.5.1", "LEFT('tide', 9)", "tide", ""),
    ("3.5.1", "LEFT('tide', 0)", "", ""),
    ("3.5.1", "LEFT('tide', -2)", "tide", FUNCTION),
    ("3.5.1", "LEFT('tide', 'x')", "", CAST),
    ("3.5.1", "RIGHT('tide', 2)", "de", ""),
    ("3.5.1", "RIGHT('tide', 9)", "tide", ""),
    ("3.5.1", "RIGHT('tide', 0)", "", ""),
    ("3.5.1", "RIGHT('tide', -2)", "tide", FUNCTION),
    ("3.5.1", "SUBSTRING('spring', 1)", "spring", ""),
    ("3.5.1", "SUBSTRING('spring', 3)", "ring", ""),
    ("3.5.1", "SUBSTRING('spring', -4)", "ring", ""),
    ("3.5.1", "SUBSTRING('spring', 0)", "", ""),
    ("3.5.1", "SUBSTRING('spring', 6)", "g", ""),
    ("3.5.1", "SUBSTRING('spring', 7)", "", FUNCTION),
    ("3.5.1", "SUBSTRING('spring', -7)", "", FUNCTION),
    ("3.5.1", "SUBSTRING('', 0)", "", ""),
    ("3.5.1", "SUBSTRING('spring', 2, 3)", "pri", ""),
    ("3.5.1", "SUBSTRING('spring', -4, 3)", "rin", ""),
    ("3.5.1", "SUBSTRING('spring', 2, 99)", "pring", ""),
    ("3.5.1", "SUBSTRING('spring', 2, 0)", "", ""),
    ("3.5.1", "SUBSTRING('spring', 0, 1)", "", ""),
    ("3.5.1", "SUBSTRING('spring', 7, 1)", "", FUNCTION),
    ("3.5.1", "SUBSTRING('spring', -7, 1)", "", FUNCTION),
    ("3.5.1", "SUBSTRING('spring', 2, -1)", "", FUNCTION),
    ("3.5", "SUBSTRING('spring')", False, NO_FUNCTION),
    # math functions
    ("3.5.2", "ABS(10)", 10, ""),
    ("3.5.2", "ABS(-10)", 10, ""),
    ("3.5.2", "ABS('-10')", 10, ""),
    ("3.5.2", "ABS(-2147483648)", 2147483647, MATH),
    ("3.5.2", "ABS(-2147483648) - 1", 0, MATH),
    # functions
    ("3.5", "NOSUCH(1)", False, NO_FUNCTION),
    ("3.5", "NOSUCH(1 / 0)", False, NO_FUNCTION),
    # casts as functions
    ("3.7", "INT('12')", 12, ""),
    ("3.7", "INT('-12')", -12, ""),
    ("3.7", "INT('+12')", 12, ""),
    ("3.7", "INT('0012')", 12, ""),
    ("3.7", "INT(12)", 12, ""),
    ("3.7", "INT(TRUE)", 1, ""),
    ("3.7", "INT(FALSE)", 0, ""),
    ("3.7", "INT('tide')", 0, CAST),
    ("3.7", "INT('')", 0, CAST),
    ("3.7", "INT(' 1')", 0, CAST),
    ("3.7", "INT('1_0')", 0, CAST),
    ("3.7", "INT('1.0')", 0, CAST),
    ("3.7", "INT('٣')", 0, CAST),
    ("3.7", "INT('2147483648')", 0, CAST),
    ("3.7", "INT('-2147483648')", -2147483648, ""),
    ("3.7", "BOOL('TRUE')", True, ""),
    ("3.7", 'BOOL("false")', False, ""),
    ("3.7", "BOOL(TRUE)", True, ""),
    ("3.7", "BOOL('tide')", False, CAST),
    ("3.7", "BOOL(0)", False, ""),
    ("3.7", "BOOL(-50)", True, ""),
    ("3.7", "STRING(TRUE)", "true", ""),
    ("3.7", "STRING(FALSE)", "false", ""),
    ("3.7", "STRING(-1)", "-1", ""),
    ("3.7", "STRING('x')", "x", ""),
    ("3.7", "STRING(missing)", "", MISSING),
    ("drafts", "IS_BOOL('true')", True, ""),
    ("drafts", "IS_BOOL(TRUE)", True, ""),
    ("drafts", "IS_BOOL(1)", False, ""),
    ("drafts", "IS_BOOL('tide')", False, ""),
    ("drafts", "IS_INT('-1')", True, ""),
    ("drafts", "IS_INT(1)", True, ""),
    ("drafts", "IS_INT(TRUE)", False, ""),
    ("drafts", "IS_INT('tide')", False, ""),
    ("drafts", "IS_STRING('tide')", False, NO_FUNCTION),
    # implicit casts
    ("3.7", "'TRUE' = TRUE", True, ""),
    ("3.7", "TRUE = 'TRUE'", False, ""),
    ("3.7", "TRUE = 'true' AND FALSE = 'false'", True, ""),
    ("3.7", "hop = 5", True, ""),
    ("3.7", "5 = hop", True, ""),
    ("3.7", "hop = '05'", False, ""),
    ("3.7", "'05' = 5", True, ""),
    ("3.7", "'tide' = 5", False, CAST),
    ("3.7", "'tide' != 5", False, CAST),
    ("3.7", "5 = TRUE", True, ""),
    ("3.7", "LENGTH(hop + 10)", 2, ""),
    # precedence
    ("3.6", "4 * 2 + 4 / 2", 10, ""),
    ("3.6", "4 * (2 + 4) / 2", 12, ""),
    ("3.6", "2 + 3 * 4", 14, ""),
    ("3.6", "8 / 4 / 2", 1, ""),
    ("3.6", "8 - 4 - 2", 2, ""),
    ("3.6", "1 + 1 = 2", True, ""),
    ("3.6", "1 < 2 = TRUE", True, ""),
    ("3.6", "NOT FALSE AND FALSE", False, ""),
    ("3.6", "NOT 'a' = 'a'", False, CAST),
    ("3.6", "NOT TRUE LIKE 'fal%'", True, ""),
    ("3.6", "NOT TRUE IN (FALSE)", True, ""),
    ("3.6", "-hop LIKE '-_'", True, ""),
    ("3.6", "2 * hop LIKE '5'", 2, ""),
    ("3.6", "'a' LIKE 'a' IN (TRUE)", True, ""),
    ("3.6", "'a' IN ('a') LIKE 'true'", True, ""),
    ("3.6", "NOT -1", False, ""),
    ("3.6", "- NOT TRUE", 0, ""),
    # AND, OR and XOR are equal and read from the left
    ("3.6", "FALSE AND TRUE OR TRUE", True, ""),
    ("3.6", "TRUE OR TRUE AND FALSE", False, ""),
    ("3.6", "TRUE OR TRUE XOR TRUE", False, ""),
    # the words of the language are not the words of events
    ("2.2", "int", False, MISSING),
    ("2", "int(hop) < INT(ttl) and iNt(hop) < 1000", True, ""),
]


@pytest.mark.parametrize(
    ("clause", "expression", "value", "kinds"), ROWS, ids=[f"{r[0]} {r[1]}" for r in ROWS]
)
def test_row(clause: str, expression: str, value: Any, kinds: str) -> None:
    result = evaluate(expression, EVENT)
    assert (result.value, type(result.value)) == (value, type(value))
    assert [error.kind.value for error in result.errors] == kinds.split()


@pytest.mark.parametrize(
    ("clause", "expression", "value", "kinds"), ROWS, ids=[f"{r[0]} {r[1]}" for r in ROWS]
)
def test_fail_fast_gives_the_first_error_and_the_zero_value(
    clause: str, expression: str, value: Any, kinds: str
) -> None:
    result = evaluate(expression, EVENT, fail_fast=True)
    assert [error.kind.value for error in result.errors] == kinds.split()[:1]
    zero = {Type.STRING: "", Type.INTEGER: 0, Type.BOOLEAN: False}[returns(parse(expression))]
    assert result.value == (zero if kinds else value)


@pytest.mark.parametrize("expression", [row[1] for row in ROWS])
def test_rendered_text_reads_back_as_the_same_tree(expression: str) -> None:
    tree = parse(expression)
    assert parse(render(tree)) == tree


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("", 0),
        ("   ", 3),
        ("ABC(", 4),
        ("(1", 2),
        ("1)", 1),
        ("1 2", 2),
        ("'open", 0),
        ('"open', 0),
        (r"'open\'", 0),
        ("'it''s'", 4),
        ("a b", 2),
        ("a AND", 5),
        ("AND a", 0),
        ("a = ", 4),
        ("a == b", 3),
        ("a ! b", 2),
        ("a & b", 2),
        ("a.b", 1),
        ("1.5", 1),
        ("+a", 0),
        ("a LIKE b", 7),
        ("a LIKE 5", 7),
        ("a LIKE CONCAT('x')", 7),
        ("a NOT b", 6),
        ("a IN ()", 6),
        ("a IN (1,)", 8),
        ("a IN 1", 5),
        ("EXISTS", 6),
        ("EXISTS (a)", 7),
        ("EXISTS 'a'", 7),
        ("my_ext = 1", 0),
        ("_F(1)", 0),
        ("F2(1)", 0),
        ("é = 1", 0),
        ("F(1,)", 4),
        ("F(,1)", 2),
        ("2147483648", 0),
        ("-2147483649", 0),
        ("- 2147483648", 2),
        ("1" * 5000, 0),
        ("\x00", 0),
    ],
)
def test_a_wrong_expression_says_where(expression: str, position: int) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(expression)
    assert caught.value.position == position
    assert f"column {position + 1}" in str(caught.value)
    result = evaluate(expression, EVENT)
    assert (result.value, [e.kind for e in result.errors]) == (False, [ErrorKind.PARSE])


def test_length_and_depth_are_bounded() -> None:
    for text in (
        "1" + " " * MAX_LENGTH,
        "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1),
        "NOT " * (MAX_DEPTH + 1) + "TRUE",
        " OR ".join(["a"] * (MAX_DEPTH + 2)),
        "F(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1),
    ):
        with pytest.raises(InvalidExpression):
            parse(text)
    assert parse(" OR ".join(["a"] * MAX_DEPTH))
    assert parse("(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1))


def test_a_tree_made_by_hand_may_be_too_deep_but_does_not_raise() -> None:
    tree: cesql.Expression = cesql.BooleanLiteral(True)
    for _ in range(5000):
        tree = cesql.Unary(cesql.UnaryOperator.NOT, tree)
    assert [error.kind for error in evaluate(tree, {}).errors] == [ErrorKind.GENERIC]


class _Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("expression", "value", "passes", "kinds"),
    [
        ("n = 1", "0" * 5000 + "1", True, []),
        ("n = 1", "-" + "0" * 5000 + "1", False, []),
        ("n < 5", "0" * 5000 + "12345678901", False, ["cast"]),
        ("INT(n) = 0", "0" * 5000, True, []),
        ("IS_INT(n)", "0" * 5000 + "1", True, []),
        (f"n = {'0' * 5000}1", "1", True, []),
        (f"n = -{'0' * 5000}1", "1", False, []),
        (f"n = {'0' * 5000}12345678901", "1", False, ["parse"]),
        ("LENGTH(n) = 5001", 10**5000, True, []),
        ("LENGTH(n) = 5002", -(10**5000), True, []),
        ("n = 1", _Unprintable(), False, ["generic"]),
    ],
    ids=range(11),
)
def test_no_value_of_an_attribute_makes_an_evaluation_raise(
    expression: str, value: object, passes: bool, kinds: list[str]
) -> None:
    result = evaluate(expression, {"n": value})
    assert [str(error.kind) for error in result.errors] == kinds
    assert result.passes is passes


def test_many_wildcards_take_no_time() -> None:
    pattern = "%a" * 2000 + "%b"
    assert evaluate(f"text LIKE '{pattern}'", {"text": "a" * 65536}).value is False


def test_concatenation_is_bounded() -> None:
    result = evaluate("CONCAT(a, a, a)", {"a": "x" * (MAX_TEXT // 2)})
    assert (result.value, [e.kind for e in result.errors]) == ("", [ErrorKind.FUNCTION_EVALUATION])


def test_passes_only_with_true_and_no_error() -> None:
    passes = {text: evaluate(text, EVENT).passes for text in ("TRUE", "1", "'true'", "missing = 1", "FALSE")}
    assert passes == {"TRUE": True, "1": False, "'true'": False, "missing = 1": False, "FALSE": False}


def _shout(text: str) -> str:
    return text.upper() + "!"


def _sum(*numbers: int) -> int:
    return sum(numbers)


MINE = BUILTINS.with_functions(
    Function(name="shout", parameters=(Type.STRING,), returns=Type.STRING, call=_shout),
    Function(name="SUM", parameters=(Type.INTEGER,), rest=Type.INTEGER, returns=Type.INTEGER, call=_sum),
    Function(name="PAIR", parameters=(Type.ANY, Type.ANY), returns=Type.BOOLEAN, call=lambda a, b: a == b),
    Function(name="PAIR", parameters=(Type.ANY,), returns=Type.BOOLEAN, call=lambda a: False),
    Function(name="RAISES", returns=Type.STRING, call=lambda: str(1 // 0)),
    Function(name="NOTHING", returns=Type.STRING, call=lambda: None),  # type: ignore[arg-type,return-value]
    Function(name="HALF", returns=Type.STRING, call=lambda: Failed("half", "only half done")),
    Function(name="WRONG", returns=Type.STRING, call=lambda: Failed(5, "wrong type")),
    Function(name="HUGE", returns=Type.INTEGER, call=lambda: 2**31),
)


@pytest.mark.parametrize(
    ("expression", "value", "kinds"),
    [
        ("SHOUT(count)", "12!", ""),
        ("Shout('a')", "A!", ""),
        ("SUM(1)", 1, ""),
        ("SUM(1, '2', TRUE)", 4, ""),
        ("SUM()", False, NO_FUNCTION),
        ("PAIR(1, 1)", True, ""),
        ("PAIR(1)", False, ""),
        ("PAIR(1, 2, 3)", False, NO_FUNCTION),
        ("SHOUT(missing)", "", MISSING),
        ("RAISES()", "", FUNCTION),
        ("NOTHING()", "", FUNCTION),
        ("HALF()", "half", FUNCTION),
        ("WRONG()", "", f"{FUNCTION} {FUNCTION}"),
        ("HUGE()", 0, FUNCTION),
        ("LENGTH('still here')", 10, ""),
    ],
)
def test_user_functions(expression: str, value: Any, kinds: str) -> None:
    result = evaluate(expression, EVENT, functions=MINE)
    assert (result.value, type(result.value)) == (value, type(value))
    assert [error.kind.value for error in result.errors] == kinds.split()


def test_the_built_in_set_does_not_change() -> None:
    assert evaluate("SHOUT('a')", {}).errors[0].kind is ErrorKind.MISSING_FUNCTION


def _function(fixed: int, *, rest: bool = False) -> Function:
    return Function(
        name="ABC",
        parameters=(Type.STRING,) * fixed,
        rest=Type.STRING if rest else None,
        returns=Type.INTEGER,
        call=lambda *a: 0,
    )


@pytest.mark.parametrize(
    ("overloads", "legal"),
    [
        ([_function(1), _function(2), _function(3, rest=True)], True),
        ([_function(3, rest=True), _function(2), _function(1)], True),
        ([_function(0, rest=True), _function(3)], False),
        ([_function(3), _function(0, rest=True)], False),
        ([_function(3), _function(3, rest=True)], False),
        ([_function(1), _function(1)], False),
        ([_function(1, rest=True), _function(2, rest=True)], False),
    ],
)
def test_overloads_of_one_name(overloads: list[Function], legal: bool) -> None:
    if legal:
        assert len(list(Functions(*overloads))) == len(overloads)
    else:
        with pytest.raises(UsageError, match="ABC"):
            Functions(*overloads)


@pytest.mark.parametrize("name", ["", "_A", "A1", "Ä", "A-B"])
def test_a_function_needs_a_name_that_can_be_called(name: str) -> None:
    with pytest.raises(UsageError):
        Function(name=name, returns=Type.STRING, call=str)


def test_a_function_needs_a_return_type() -> None:
    with pytest.raises(UsageError, match="must return"):
        Function(name="F", returns=Type.ANY, call=str)


def test_an_event_keeps_its_declared_types() -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "hop": 3, "ok": True, "raw": b"Ma"})
    attributes = attributes_of(event)
    assert {name: attributes[name] for name in ("id", "hop", "ok", "raw")} == {
        "id": "1",
        "hop": 3,
        "ok": True,
        "raw": "TWE=",
    }
    assert evaluate("ok", attributes).value is True


def test_values_of_subclasses_are_values() -> None:
    result = evaluate("a = b AND c + 1 = 6", {"a": ErrorKind.CAST, "b": "cast", "c": _Five.FIVE})
    assert (result.value, result.errors) == (True, ())
    echo = BUILTINS.with_functions(Function(name="KIND", returns=Type.STRING, call=lambda: ErrorKind.CAST))
    assert evaluate("LENGTH(KIND())", {}, functions=echo).value == 4


class _Five(IntEnum):
    FIVE = 5


def test_identifiers_are_known_without_an_event() -> None:
    assert identifiers(parse("a = 1 AND EXISTS b OR LENGTH(C) IN (d, 'e')")) == {"a", "b", "c", "d"}


def test_a_string_that_cesql_cannot_write() -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        render(cesql.StringLiteral("ends with \\"))


def test_literals_of_different_types_are_different() -> None:
    assert parse("1") != parse("TRUE")


def test_every_public_name_is_there() -> None:
    assert {name for name in cesql.__all__ if not hasattr(cesql, name)} == set()
    assert sorted(cesql.__all__) == sorted(set(cesql.__all__))
