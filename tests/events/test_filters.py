"""The subscription filter dialects: what they match, which are invalid, and where the error points."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidExpression, PenstockError
from penstock.events.cesql import BUILTINS, Function, Type
from penstock.events.cloudevent import CloudEvent
from penstock.events.filters import (
    MAX_CHILDREN,
    MAX_DEPTH,
    AllOf,
    Exact,
    Not,
    Sql,
    matches,
    parse_filter,
    parse_filters,
    to_json,
)

EVENT = CloudEvent(
    {
        "id": "e-1",
        "source": "https://shop.example/orders",
        "type": "shop.order.placed",
        "subject": "order-17",
        "hop": 5,
        "express": True,
    }
)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"exact": {"type": "shop.order.placed"}}, True),
        ({"exact": {"type": "shop.order"}}, False),
        ({"exact": {"type": "Shop.order.placed"}}, False),
        ({"exact": {"type": "shop.order.placed", "subject": "order-17"}}, True),
        ({"exact": {"type": "shop.order.placed", "subject": "order-18"}}, False),
        ({"exact": {"missing": "x"}}, False),
        ({"exact": {"hop": "5"}}, True),
        ({"exact": {"express": "true"}}, True),
        ({"prefix": {"type": "shop."}}, True),
        ({"prefix": {"type": "shop.", "subject": "invoice"}}, False),
        ({"prefix": {"missing": "x"}}, False),
        ({"suffix": {"type": ".placed"}}, True),
        ({"suffix": {"type": ".paid"}}, False),
        ({"suffix": {"missing": "x"}}, False),
        ({"all": [{"prefix": {"type": "shop."}}, {"suffix": {"type": ".placed"}}]}, True),
        ({"all": [{"prefix": {"type": "shop."}}, {"suffix": {"type": ".paid"}}]}, False),
        ({"any": [{"prefix": {"type": "x"}}, {"suffix": {"type": ".placed"}}]}, True),
        ({"any": [{"prefix": {"type": "x"}}]}, False),
        ({"not": {"exact": {"type": "x"}}}, True),
        ({"not": {"exact": {"missing": "x"}}}, True),
        ({"not": {"not": {"exact": {"type": "x"}}}}, False),
        ({"sql": "hop = 5 AND express"}, True),
        ({"cesql": "subject LIKE 'order-%'"}, True),
        ({"sql": "subject"}, False),
        ({"sql": "hop"}, False),
        ({"sql": "missing != 2"}, False),
        ({"not": {"sql": "missing != 2"}}, True),
        ({"sql": "5 / 0 = 0"}, False),
    ],
)
def test_matches(filter: dict[str, Any], expected: bool) -> None:
    assert matches(parse_filter(filter), EVENT) is expected
    assert matches(parse_filter(to_json(parse_filter(filter))), EVENT) is expected


@pytest.mark.parametrize(
    ("filter", "path"),
    [
        ({"exact": {"type": ""}}, "filter.exact.type"),
        ({"exact": {"": "x"}}, "filter.exact."),
        ({"exact": {}}, "filter.exact"),
        ({"exact": []}, "filter.exact"),
        ({"exact": {"type": 5}}, "filter.exact.type"),
        ({"exact": {"my-ext": "x"}}, "filter.exact.my-ext"),
        ({"exact": {"data": "x"}}, "filter.exact.data"),
        ({"prefix": {"type": ""}}, "filter.prefix.type"),
        ({"suffix": {"type": None}}, "filter.suffix.type"),
        ({"all": []}, "filter.all"),
        ({"any": []}, "filter.any"),
        ({"any": {"exact": {"type": "x"}}}, "filter.any"),
        ({"all": [{"exact": {"type": "x"}}, {"any": []}]}, "filter.all[1].any"),
        ({"not": []}, "filter.not"),
        ({"not": {"exact": {"id": ""}}}, "filter.not.exact.id"),
        ({"sql": 5}, "filter.sql"),
        ({"sql": "type LIKE"}, "filter.sql"),
        ({"sql": "NOSUCH(1)"}, "filter.sql"),
        ({"sql": "1 + 1"}, "filter.sql"),
        ({"sql": "'text'"}, "filter.sql"),
        ({"regex": {"type": "x"}}, "filter"),
        ({}, "filter"),
        ({"exact": {"id": "1"}, "prefix": {"id": "1"}}, "filter"),
        ([], "filter"),
        (None, "filter"),
        ("type", "filter"),
    ],
)
def test_an_invalid_filter_says_where(filter: Any, path: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse_filter(filter)
    assert caught.value.path == path
    assert path in str(caught.value)


def test_a_wrong_expression_keeps_its_position() -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse_filters([{"sql": "TRUE"}, {"not": {"sql": "type = "}}])
    assert (caught.value.path, caught.value.position) == ("filters[1].not.sql", 7)


def test_no_filters_match_everything_and_all_of_them_must() -> None:
    assert parse_filters([]) == ()
    assert parse_filters([{"exact": {"id": "1"}}]) == (Exact((("id", "1"),)),)
    with pytest.raises(InvalidExpression):
        parse_filters({"exact": {"id": "1"}})


def test_depth_and_number_are_bounded() -> None:
    deep: dict[str, Any] = {"exact": {"id": "1"}}
    for _ in range(MAX_DEPTH - 1):
        deep = {"not": deep}
    assert parse_filter(deep)
    with pytest.raises(InvalidExpression, match="levels"):
        parse_filter({"not": deep})
    with pytest.raises(InvalidExpression, match=str(MAX_CHILDREN)):
        parse_filter({"any": [{"exact": {"id": "1"}}] * MAX_CHILDREN})


def test_user_functions_in_a_filter() -> None:
    mine = BUILTINS.with_functions(
        Function(name="VIP", parameters=(Type.STRING,), returns=Type.BOOLEAN, call=lambda s: s == "order-17")
    )
    filter = parse_filter({"sql": "VIP(subject)"}, functions=mine)
    assert isinstance(filter, Sql)
    assert matches(filter, EVENT, functions=mine)
    assert not matches(filter, EVENT)


NAMES = st.sampled_from(["type", "subject", "hop", "missing"])
TEXTS = st.sampled_from(["shop.order.placed", "shop.", "placed", "5", "x"])
PAIRS = st.dictionaries(NAMES, TEXTS, min_size=1, max_size=2)
LEAVES = st.one_of(
    *(
        PAIRS.map(lambda pairs, dialect=dialect: {dialect: pairs})
        for dialect in ("exact", "prefix", "suffix")
    ),
    st.sampled_from(["hop = 5", "missing = 1", "EXISTS subject"]).map(lambda text: {"sql": text}),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda children: {"all": children}),
        st.lists(inner, min_size=1, max_size=3).map(lambda children: {"any": children}),
        inner.map(lambda child: {"not": child}),
    ),
    max_leaves=8,
)


@given(FILTERS)
def test_json_reads_back_and_de_morgan_holds(shape: dict[str, Any]) -> None:
    filter = parse_filter(shape)
    assert to_json(filter) == shape
    assert parse_filter(to_json(filter)) == filter
    assert matches(Not(filter), EVENT) is not matches(filter, EVENT)
    assert matches(AllOf((filter, filter)), EVENT) is matches(filter, EVENT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["exact", "all", "not", "sql", "type", ""]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_a_filter_or_a_typed_error(value: Any) -> None:
    try:
        filter = parse_filter(value)
    except PenstockError as error:
        assert isinstance(error, InvalidExpression)
    else:
        assert matches(filter, EVENT) in (True, False)
