"""What holds for every CESQL expression: it reads back, it never raises, and any text is an answer."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidExpression, UsageError
from penstock.events.cesql import (
    BUILTINS,
    Binary,
    BooleanLiteral,
    Call,
    ErrorKind,
    Exists,
    Expression,
    Identifier,
    In,
    IntegerLiteral,
    Like,
    Operator,
    StringLiteral,
    Unary,
    UnaryOperator,
    evaluate,
    like,
    parse,
    render,
    returns,
    walk,
)
from penstock.events.cesql.casts import type_of
from penstock.events.cesql.tokens import KEYWORDS

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=8) | st.sampled_from(["true", "FALSE", "12", "-3", "it's", 'say "x"', "a\\b", "\\%"])
NAMES = st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True).filter(
    lambda name: name.upper() not in KEYWORDS and not name.isdecimal()
)
KNOWN = st.sampled_from(["a", "b", "c", "d"])
LITERALS = TEXT.map(StringLiteral) | INT32.map(IntegerLiteral) | st.booleans().map(BooleanLiteral)
FUNCTIONS = st.sampled_from(sorted({function.name for function in BUILTINS}) + ["NOSUCH"])


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Unary, st.sampled_from(UnaryOperator), inner),
        st.builds(Binary, st.sampled_from(Operator), inner, inner),
        st.builds(Like, inner, TEXT, st.booleans()),
        st.builds(In, inner, st.lists(inner, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(Call, FUNCTIONS, several),
    )


TREES: st.SearchStrategy[Expression] = st.recursive(
    LITERALS | (KNOWN | NAMES).map(Identifier) | (KNOWN | NAMES).map(Exists), _larger, max_leaves=12
)
VALUES = (
    st.text(max_size=5)
    | INT32
    | st.booleans()
    | st.binary(max_size=4)
    | st.none()
    | st.sampled_from(["7", "true"])
)
EVENTS = st.dictionaries(KNOWN, VALUES)
WORDS = st.sampled_from(
    [
        *KEYWORDS,
        "a",
        "b",
        "F",
        "F_G",
        "1",
        "-1",
        "'x'",
        '"y"',
        "(",
        ")",
        ",",
        "=",
        "!=",
        "<>",
        "<",
        "+",
        "-",
        "*",
        "%",
    ]
)


@given(TREES)
def test_rendered_trees_read_back(tree: Expression) -> None:
    try:
        text = render(tree)
    except UsageError:
        strings = [n.value for n in walk(tree) if isinstance(n, StringLiteral)]
        strings += [n.pattern for n in walk(tree) if isinstance(n, Like)]
        assert any("\\" in string for string in strings)
    else:
        assert parse(text) == tree


@given(TREES, EVENTS, st.booleans())
def test_evaluation_always_gives_a_value_of_the_language(
    tree: Expression, event: dict[str, object], fail_fast: bool
) -> None:
    result = evaluate(tree, event, fail_fast=fail_fast)
    assert type(result.value) in (str, int, bool)
    assert not isinstance(result.value, int) or -(2**31) <= result.value < 2**31
    assert len(result.errors) <= 1 or not fail_fast
    # An attribute alone has the type of its value; everything else has a type that needs no event.
    assert isinstance(tree, Identifier) or type_of(result.value) is returns(tree)


@given(TREES, EVENTS)
def test_both_modes_agree_on_what_passes_a_filter(tree: Expression, event: dict[str, object]) -> None:
    complete, fast = evaluate(tree, event), evaluate(tree, event, fail_fast=True)
    assert complete.passes == fast.passes
    assert complete.errors[:1] == fast.errors


@given(TREES, EVENTS)
def test_evaluation_does_not_change_its_input(tree: Expression, event: dict[str, object]) -> None:
    before = dict(event)
    assert evaluate(tree, event) == evaluate(tree, event)
    assert event == before


@given(
    st.text(max_size=60)
    | st.lists(WORDS, max_size=15).map(" ".join)
    | st.lists(WORDS, max_size=15).map("".join)
)
@example("'")
@example("\\")
@example("a NOT")
@example("((((((")
def test_any_text_is_read_or_refused_with_a_position(text: str) -> None:
    try:
        tree = parse(text)
    except InvalidExpression as error:
        assert error.position is not None and 0 <= error.position <= len(text)
        assert evaluate(text, {}).errors[0].kind is ErrorKind.PARSE
    else:
        assert parse(render(tree)) == tree


def _regex(pattern: str) -> re.Pattern[str]:
    """LIKE by its definition, as one regular expression: slow for some patterns, but plainly right."""
    parts = re.findall(r"\\[%_]|.", pattern, re.DOTALL)
    meaning = {"%": ".*", "_": ".", r"\%": "%", r"\_": "_"}
    return re.compile("".join(meaning.get(part) or re.escape(part) for part in parts), re.DOTALL)


@given(st.text("ab%_\\\n", max_size=10), st.text("ab%_\\", max_size=8))
def test_like_agrees_with_its_definition(text: str, pattern: str) -> None:
    assert like(text, pattern) is (_regex(pattern).fullmatch(text) is not None)
