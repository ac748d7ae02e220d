"""`where` is SQL in Spark's spelling: every documented operator and function against Spark's own SQL.

Each row of the table is evaluated by the reference and by Spark on 200 events of a fixed seed. A second text
is what Spark is asked instead, where docs/pipeline/expressions.md says that a route means something else.
"""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.pipeline.evaluators.reference.evaluate import Scope, evaluate
from penstock.pipeline.evaluators.reference.json_data import number_text, read_json
from penstock.pipeline.plan.nodes import Node, Type
from penstock.pipeline.plan.sql_builder import Builder
from penstock.pipeline.plan.typing import type_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 200
SCHEMA: Final = (
    "s string, r string, digits string, moment string, time timestamp, "
    "data struct<n: decimal(12,4), m: decimal(12,4), i: bigint, ok: boolean, name: string>"
)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

COMPARISON = [
    *(f"s {sign} r" for sign in ("=", "==", "!=", "<>", "<", "<=", ">", ">=")),
    *(f"data.n {sign} data.m" for sign in ("=", "!=", "<", "<=", ">", ">=")),
    *(f"data.n {sign} 12.5" for sign in ("=", "<>", "<", ">=")),
    *("data.ok = true", "data.ok != false", "data.name = s", "time >= '2024-01-31'"),
    # The text of an attribute is read as the number that it is, not cut to the type of the literal.
    ("digits < 5", "CAST(digits AS DECIMAL(37,18)) < 5"),
    *("time < TIMESTAMP '2001-09-09T01:46:40Z'", "time BETWEEN '1999-12-31' AND '2024-02-29T12:00:00Z'"),
    *("s BETWEEN 'a' AND r", "s NOT BETWEEN 'a' AND 'b'", "data.n BETWEEN -1 AND data.m"),
    *("s IN ('a', 'ab', ' a ')", "s IN ('a', NULL)", "s NOT IN ('a', 'b')", "data.i IN (1, 2, 3)"),
    *("s LIKE 'a%'", "s LIKE '_b%'", "s LIKE '%'", "s NOT LIKE '%b'"),
    *("s LIKE '%\\\\%%'", "s LIKE 'a/_%' ESCAPE '/'"),
    *("s IS NULL", "s IS NOT NULL", "data.name IS NULL", "data.n IS NOT NULL"),
    *(f"(data.n > 1) IS {word}" for word in ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "NULL")),
]  # fmt: skip
LOGIC = [
    *("data.ok AND s = r", "data.ok OR s = r", "NOT data.ok", "NOT (s = r AND data.n > 0)"),
    *("if(data.ok, s, r)", "if(data.n > 0, data.n, data.m)"),
    "CASE WHEN data.n > 1 THEN 'big' WHEN data.n IS NULL THEN 'none' ELSE 'small' END",
    "CASE WHEN data.ok THEN s END",
    *("coalesce(s, r)", "coalesce(data.n, data.m, 0)", "coalesce(data.ok, false)"),
    *("nvl(s, 'x')", "ifnull(s, r)"),
    *("nullif(s, r)", "nullif(data.n, data.m)", "isnull(s)", "isnotnull(data.n)"),
]  # fmt: skip
NUMBERS = [
    *("data.n + data.m", "data.n - data.m", "data.n * data.m", "data.n % data.m", "-data.n", "data.n + 1.5"),
    ("data.n / data.m", "CAST(data.n AS DECIMAL(37,18)) / CAST(data.m AS DECIMAL(37,18))"),
    *(
        "data.n div data.m",
        "data.i div 7",
        "mod(data.n, data.m)",
        "mod(data.i, 7)",
        "data.i % 7",
        "abs(data.n)",
    ),
    *("floor(data.n)", "ceil(data.n)", "round(data.n)", "round(data.n, 2)", "round(data.n, 3)"),
]
TEXT = [
    *("s || r", "s || '-' || r", "concat(s, '/', r)", "concat(s, data.i)", "length(s)"),
    # Letters beyond A to Z stay as they are, so that every engine agrees.
    ("lower(s)", "translate(s, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"),
    ("upper(s)", "translate(s, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ')"),
    *(f"substring(s, {start})" for start in (1, 2, 0, -1, -2, 5)),
    *(f"substring(s, {start}, {size})" for start in (1, 2, 0, -2, -9) for size in (0, 1, 2, 9, -1)),
    *("left(s, 1)", "left(s, 0)", "left(s, 9)", "left(s, -1)", "right(s, 1)", "right(s, 0)", "right(s, 9)"),
    *("trim(s)", "ltrim(s)", "rtrim(s)", "btrim(s)", "btrim(s, 'a')", "trim(BOTH 'ab' FROM s)"),
    *("trim(LEADING 'a' FROM s)", "trim(TRAILING 'b' FROM s)"),
    *("replace(s, 'a', 'xy')", "replace(s, 'b')", "replace(s, '', 'x')", "replace(s, 'ab', '')"),
    *("startswith(s, 'a')", "startswith(s, r)", "endswith(s, 'b')", "endswith(s, r)"),
    *("contains(s, 'b')", "contains(s, r)"),
    *("instr(s, 'b')", "instr(s, '')", "locate('b', s)", "position('b' IN s)", "position('b', s)"),
]  # fmt: skip
TIME = [
    *(f"{part}(time)" for part in ("year", "month", "day", "hour", "minute", "second")),
    *(f"unix_{unit}(time)" for unit in ("seconds", "millis", "micros")),
    *(
        "to_timestamp(moment)",
        "time + INTERVAL 90 MINUTES",
        "time - INTERVAL 1 WEEK",
        "time + INTERVAL 2 DAYS",
    ),
    *("time - INTERVAL 5 HOURS", "time + INTERVAL 3 SECONDS", "time + INTERVAL 250 MILLISECONDS"),
    *("time - INTERVAL 7 MICROSECONDS", "time + INTERVAL 1 DAY > '2024-01-31'"),
]
CASTS = [
    *(f"CAST(data.n AS {kind})" for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
    *(f"CAST(data.n AS {kind})" for kind in ("DECIMAL(10,2)", "DECIMAL(6,1)", "DECIMAL")),
    *(f"CAST(digits AS {kind})" for kind in ("DECIMAL(10,2)", "DECIMAL(37,18)")),
    *("CAST(data.ok AS STRING)", "CAST(data.i AS STRING)", "CAST(moment AS TIMESTAMP)"),
    "CAST(data.name AS STRING)",
]  # fmt: skip
# Spark wraps around or rounds to the width of a type where a route says null.
AS_WRITTEN = [*COMPARISON, *LOGIC, *NUMBERS, *TEXT, *TIME]
CASES = [
    *(case if isinstance(case, tuple) else (case, case) for case in AS_WRITTEN),
    *((case, case.replace("CAST(", "TRY_CAST(")) for case in CASTS),
]  # fmt: skip


def events() -> list[dict[str, Any]]:
    chance = random.Random(15)
    texts = [
        "",
        "a",
        "b",
        "ab",
        "ba",
        "abab",
        " a ",
        "aB%c",
        "a_b",
        "a\\b",
        "É",
        "é😀b",
        "😀a",
        "  ",
        "bb",
        None,
    ]
    numbers = ["0", "1", "-1", "12.5", "-12.5", "0.0001", "99999999.9999", "-7", "3", "2.5", "-2.5", None]
    digits = ["0", "5", "-3.25", "4.999", "10.005", "1e2", "x", "", None]

    def moment() -> datetime:
        near = chance.choice([datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)])
        return near + timedelta(microseconds=chance.randint(-(10**15), 10**15))

    def row() -> dict[str, Any]:
        data = {
            "n": chance.choice(numbers),
            "m": chance.choice(numbers),
            "i": chance.choice([0, 1, 2, -15, 10**12, None]),
            "ok": chance.choice([True, False, None]),
            "name": chance.choice(texts),
        }
        at = chance.choice([moment(), moment(), None])
        texts_of = {"s": chance.choice(texts), "r": chance.choice(texts), "digits": chance.choice(digits)}
        return {**texts_of, "time": at, "moment": moment(), "data": data}

    return [row() for _ in range(ROWS)]


def as_scope(row: dict[str, Any]) -> Scope:
    """The event as a route sees it: attributes are text, numbers are JSON as it was written."""
    attributes = {name: row[name] for name in ("s", "r", "digits") if row[name] is not None}
    attributes["moment"] = row["moment"].isoformat()
    if row["time"] is not None:
        attributes["time"] = row["time"].isoformat()
    written = [
        f'"{name}":{value if name in "nm" and value is not None else json.dumps(value)}'
        for name, value in row["data"].items()
    ]
    return Scope(attributes, read_json(f"{{{','.join(written)}}}".encode()))


def as_row(row: dict[str, Any]) -> tuple[Any, ...]:
    data = row["data"]
    n, m = (None if data[name] is None else Decimal(data[name]) for name in "nm")
    known = (row["s"], row["r"], row["digits"], row["moment"].isoformat(), row["time"])
    return (*known, (n, m, data["i"], data["ok"], data["name"]))


def built(text: str) -> Node:
    """The plan of an expression of any type; a JSON value that stands alone is taken as text."""
    import sqlglot
    from sqlglot import expressions

    builder = Builder(text)
    node = builder.build(sqlglot.parse_one(text, read="spark", into=expressions.Condition))
    assert builder.findings == [], (text, builder.findings)
    return node


def same(node: Node, ours: Any, spark: Any) -> bool:
    if ours is None or spark is None:
        return ours is spark
    if type_of(node) is Type.JSON and (text := number_text(ours)) is not None:
        ours = Decimal(text)
    if type_of(node) is Type.TIME:
        return bool(ours == (spark.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1))
    if type_of(node) is Type.NUMBER:
        return Decimal(ours) == Decimal(spark)
    return bool(ours == spark)


@pytest.mark.server
def test_every_documented_expression_means_what_spark_says(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = events()
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        frame = spark.createDataFrame(
            [(number, *as_row(row)) for number, row in enumerate(rows)], f"at int, {SCHEMA}"
        )
        asked = [F.expr(text).alias(f"c{number}") for number, (_, text) in enumerate(CASES)]
        found = frame.select("at", *asked).orderBy("at").collect()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    differing = {}
    for number, (text, _) in enumerate(CASES):
        node = built(text)
        told = [
            (evaluate(node, as_scope(row)), row_of_spark[f"c{number}"])
            for row, row_of_spark in zip(rows, found, strict=True)
        ]
        wrong = [(as_row(row), pair) for row, pair in zip(rows, told, strict=True) if not same(node, *pair)]
        if wrong:
            differing[text] = (len(wrong), wrong[0])
        assert len({repr(ours) for ours, _ in told}) > 1, f"{text} gives the same for all rows"
    assert differing == {}


def test_every_documented_function_is_asked() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipeline" / "expressions.md").read_text(encoding="utf-8")
    table = page.split("## Functions and operators")[1].split("`lower` and `upper` change")[0]
    names = set(re.findall(r"`([a-z_]+)(?:\(|`)", table))
    text = " ".join(case for case, _ in CASES)
    assert len(names) > 40
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
