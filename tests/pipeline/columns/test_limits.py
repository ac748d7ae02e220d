"""What columns cannot do is said before Spark is there, and names the part that stops."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.pipeline.columns.limits import cannot, stops
from penstock.pipeline.plan.cesql import parse_cesql
from penstock.pipeline.plan.nodes import Attribute, Call, Data, IsNull, Raw, Text, Type
from penstock.pipeline.plan.route import Assignment, FunctionKey, RoutePlan
from penstock.pipeline.plan.sql import parse_sql


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (parse_cesql("UPPER(subject) = 'A'"), "unicode_upper(subject)"),
        (IsNull(Data(("a'\"b",))), "both kinds of quotes"),
        (Call("round", (Call("length", (Text("a"),)), Call("length", (Text("a"),)))), "not a constant"),
    ],
)
def test_expressions(node: object, words: str) -> None:
    (stop,) = stops(node)  # type: ignore[arg-type]
    assert stop.startswith("columns cannot: ") and words in stop


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"key": FunctionKey("shop.keys:of")}, "shop.keys:of"),
        ({"set": (Assignment("source", Attribute("subject")),)}, "set source = subject"),
        ({"set": (Assignment("dataschema", Call("text_of_json", (Data(("a",)),))),)}, "set dataschema"),
    ],
)
def test_routes(parts: dict[str, object], words: str) -> None:
    (stop,) = cannot(RoutePlan(name="r", **parts))  # type: ignore[arg-type]
    assert words in stop


def test_what_columns_can_do() -> None:
    where = parse_sql("lower(type) LIKE 'a%' AND data.a.b[0] >= 1.5 AND time < now() - INTERVAL 1 DAY")
    constant = Assignment("source", Text("/shop"))
    assert cannot(RoutePlan(name="r", where=where, set=(constant,))) == ()
    assert cannot(RoutePlan(name="r", where=Raw("rand() < 0.5", Type.BOOLEAN))) == ()


def test_the_question_needs_no_spark() -> None:
    code = "import sys; import penstock.pipeline.columns.limits; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
