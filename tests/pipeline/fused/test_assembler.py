"""Conditions as code: what may be left out where only true counts."""

from __future__ import annotations

import pytest

from penstock.pipeline.fused.assembler import _positive
from penstock.pipeline.plan.sql import parse_sql


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
    assert (_positive(node) != node) is is_shorter
