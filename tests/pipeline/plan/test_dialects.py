"""The subscription dialects as plan nodes match what `penstock.events.filters` matches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.events.filters import (
    AllOf,
    AnyOf,
    Exact,
    Filter,
    Not,
    Prefix,
    Suffix,
    matches,
    parse_filter,
    parse_filters,
)
from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.plan.dialects import compile_filter, compile_filters

NAMES = ["type", "subject", "xa", "missing"]
texts = st.sampled_from(["a", "ab", "b", "é", "a.b", "true", "1"])
pairs = st.dictionaries(st.sampled_from(NAMES), texts, min_size=1, max_size=2).map(lambda d: tuple(d.items()))
sql = st.sampled_from(["missing != 2", "xa = 1", "EXISTS subject", "type LIKE 'a%'", "xa > 0 OR missing"])
leaves = st.one_of(
    st.builds(Exact, pairs),
    st.builds(Prefix, pairs),
    st.builds(Suffix, pairs),
    sql.map(lambda text: parse_filter({"sql": text})),
)


def bigger(below: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(below, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(AllOf, several), st.builds(AnyOf, several), st.builds(Not, below))


@given(
    st.recursive(leaves, bigger, max_leaves=6),
    st.dictionaries(st.sampled_from(NAMES[:-1]), texts, max_size=3),
)
def test_a_filter_matches_the_same_events(filter: Filter, attributes: dict[str, str]) -> None:
    attributes = {"type": "a", **attributes}
    assert evaluate(compile_filter(filter), Scope(attributes)) is matches(filter, attributes)


def test_all_filters_of_a_subscription_must_match() -> None:
    filters = parse_filters([{"exact": {"type": "a"}}, {"not": {"prefix": {"subject": "x"}}}])
    node = compile_filters(filters)
    assert evaluate(node, Scope({"type": "a"})) is True
    assert evaluate(node, Scope({"type": "a", "subject": "xy"})) is False
    assert evaluate(compile_filters(()), Scope({})) is True
