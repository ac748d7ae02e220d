"""Programs of columns: raw SQL, lazy parsing, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import UnsupportedPlan
from penstock.pipeline.plan.cesql import parse_cesql
from penstock.pipeline.plan.nodes import Compare, Comparison, Number, Raw, Type
from penstock.pipeline.plan.route import RoutePlan
from penstock.pipeline.plan.sql import parse_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server


def test_raw_sql_is_evaluated_by_spark(spark: SparkSession) -> None:
    from decimal import Decimal

    from penstock.pipeline.columns.binding import Binding
    from penstock.pipeline.columns.program import Program

    program = Program(Binding())
    raw = Compare(Comparison.GREATER, Raw("size(split(type, '[.]'))", Type.NUMBER), Number(Decimal(2)))
    column = program.add(raw)
    frame = spark.createDataFrame([("a.b.c",), ("a.b",)], "type string")
    assert [row[0] for row in program.apply(frame).select(column).collect()] == [True, False]


def test_what_columns_cannot_do_is_refused(spark: SparkSession) -> None:
    from penstock.pipeline.columns.binding import Binding
    from penstock.pipeline.columns.program import Program

    with pytest.raises(UnsupportedPlan) as caught:
        Program(Binding()).add(parse_cesql("LOWER(type) = 'a'"))
    assert "unicode_lower(type)" in caught.value.stops[0]


def test_only_events_that_a_guard_lets_through_are_parsed(spark: SparkSession) -> None:
    from penstock.pipeline.columns.binding import Binding, path_column
    from penstock.pipeline.columns.program import Program
    from penstock.pipeline.columns.route import compile_route, prepare

    binding = Binding(columns={"xa": "extra"}, extensions=None, json="json")
    plan = RoutePlan(name="r", where=parse_sql("xa = 'go' AND data.a = 1"))
    rows = [("go", bytearray(b'{"a":1}'), True), ("no", bytearray(b"{"), True), ("go", bytearray(b"{"), True),
            ("go", bytearray(b'{"a":1}'), False), (None, None, True)]  # fmt: skip
    schema = "extra string, data binary, json boolean, id string, source string, key binary"
    frame = spark.createDataFrame([(*row, "1", "/s", None) for row in rows], schema)
    prepared = prepare(frame, binding, [plan])
    assert {"_data_unreadable", path_column(("a",))} == set(prepared.columns) - set(frame.columns)
    program = Program(binding)
    route = compile_route(plan, program)
    found = program.apply(prepared).select(route.verdict.alias("v"), path_column(("a",))).collect()
    assert [tuple(row["v"]) for row in found] == [
        ("keep", ""), ("drop", "unmatched"), ("reject", "data-invalid"), ("drop", "unmatched"),
        ("drop", "unmatched"),
    ]  # fmt: skip
    assert [row[1] for row in found] == ["1", None, None, None, None]
