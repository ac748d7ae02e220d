"""Expressions over columns against the reference: every row is unsure, or has the value of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.events import CloudEvent, absent
from penstock.pipeline.arrow.batch import EventColumns
from penstock.pipeline.arrow.calls import CALLS, OF_JSON
from penstock.pipeline.arrow.cells import broadcast
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.evaluate import Columns, cannot, evaluate, stops
from penstock.pipeline.arrow.found import find_paths
from penstock.pipeline.plan.explain import explain
from penstock.pipeline.plan.nodes import Attribute, Call, Node, Type, paths_read, walk
from penstock.pipeline.plan.route import FunctionKey, RoutePlan
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.plan.typing import type_of
from penstock.pipeline.reference.data import read_data
from penstock.pipeline.reference.evaluation import Scope
from penstock.pipeline.reference.evaluation import evaluate as by_the_reference

NOW = 1_767_225_600_000_000

TEXTS = [
    *(
        None,
        "",
        "a",
        "ab",
        "aB\n",
        "ÄB äb",
        "a%b",
        'quo"te',
        "\\",
        "x😀y",
        "true",
        "false",
        "TRUE",
        "0",
        "-0",
    ),
    *(
        "5",
        "5.0",
        "-17.25",
        "1e3",
        "05",
        "+1",
        "1.",
        "123456789012345",
        "1234567890123456",
        "0.000000000000001",
    ),
    *(
        "2026-01-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1969-12-31T23:59:59.5Z",
        "2026-01-01T00:00:00.123456789Z",
    ),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-01t00:00:00z", "2026-06-30T23:59:60Z"),
]
TIMES = [text for text in TEXTS if text is None or text.startswith(("0001", "1969", "2026", "9999"))]
BODIES = [
    *(b"null", b"5", b'"a"', b"[]", b'{"v":null}', b'{"v":true}', b'{"v":false}', b'{"v":"a"}', b'{"v":""}'),
    *(b'{"v":"a\\nb"}', '{"v":"ä😀"}'.encode(), b'{"v":{}}', b'{"v":[1]}', b'{"v":[{"w":2},{"w":"x"}]}'),
    *(b'{"v":%s}' % number for number in (b"0", b"-0", b"5", b"5.0", b"5.50", b"-17.25", b"1e3", b"1E400")),
    *(b'{"v":%s}' % number for number in (b"123456789012345", b"123456789012345678", b"0.1", b"1.0e0")),
]
TEXT_EXPRESSIONS = [
    *(
        "t",
        "data.v",
        "lower(t)",
        "upper(t)",
        "concat(t, '-', u)",
        "coalesce(t, u, 'x')",
        "coalesce(data.v, t)",
    ),
    *(
        "if(t = 'a', u, t)",
        "if(data.v, t, 'no')",
        "cast(t = 'a' as string)",
        "cast(time as string)",
        "'constant'",
    ),
    *("data.v[1].w", "cast(data.v as string)", "cast(data.v = 5 as string)"),
]
CONDITIONS = [
    *(
        "t = 'a'",
        "t <> u",
        "t < 'b'",
        "t <= u",
        "t > 'aB'",
        "t >= u",
        "t IN ('a', 'ab', u)",
        "t IN ('a', NULL)",
    ),
    *(
        "t LIKE 'a%'",
        "t LIKE '%b'",
        "t LIKE '%\\n%'",
        "t LIKE 'a_'",
        "t LIKE '_%_'",
        "t LIKE 'a\\\\%b'",
        "t LIKE ''",
    ),
    *(
        "t IS NULL",
        "t IS NOT NULL",
        "NOT t = 'a'",
        "t = 'a' AND u = 'a'",
        "t = 'a' OR u = 'a'",
        "NULL OR t = 'a'",
    ),
    *(
        "startswith(t, 'a')",
        "endswith(t, 'b')",
        "contains(t, 'B')",
        "length(t) > 1",
        "flag",
        "NOT flag",
        "flag = false",
    ),
    *("n = 5", "n <> 5", "n < 0", "n BETWEEN 0 AND 5.5", "n = m", "n < m", "n IN (0, 5)", "n IS NULL"),
    *(
        "time = timestamp'2026-01-01T00:00:00Z'",
        "time < now()",
        "year(time) = 2026",
        "month(time) = 1",
        "day(time) = 31",
    ),
    *(
        "hour(time) = 23",
        "minute(time) = 59",
        "second(time) = 59",
        "unix_seconds(time) = -1",
        "unix_millis(time) < 0",
    ),
    *(
        "data.v = 'a'",
        "data.v = 5",
        "data.v > 4.5",
        "data.v",
        "NOT data.v",
        "data.v = true",
        "data.v IS NULL",
    ),
    *(
        "data.v.w IS NULL",
        "data.v[0].w = 2",
        "data.v LIKE 'a%'",
        "data.v IN ('a', 'b')",
        "data.v = t",
        "data.v < n",
    ),
    *(
        "(data.v = 5 OR t = 'a') AND NOT (data.v = 'a')",
        "coalesce(data.v = 5, t = 'a', false)",
        "if(flag, data.v, n = 5)",
    ),
]


TIME_AS_TEXT = Call("text_of_time", (Call("time_of_text", (Attribute("time"),)),))


def everything() -> tuple[EventColumns, list[CloudEvent]]:
    """Give events with every text beside others, and every body."""
    rows = max(len(TEXTS), len(BODIES)) * 4
    events = []
    for row in range(rows):
        text, other = TEXTS[row % len(TEXTS)], TEXTS[row * 7 % len(TEXTS)]
        own = {"t": text, "u": other, "n": text, "m": other, "flag": text, "time": TIMES[row % len(TIMES)]}
        attributes = {name: value for name, value in own.items() if value is not None}
        raw = None if row % 11 == 0 else BODIES[row * 5 % len(BODIES)]
        events.append(
            CloudEvent.unchecked(
                {"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json", **attributes},
                absent if raw is None else raw,
                {},
            )
        )
    names = ("t", "u", "n", "m", "flag", "time")
    return (
        EventColumns(
            rows=rows,
            attributes={name: pa.array([event.get(name) for event in events], pa.utf8()) for name in names},
            data=pa.array([event.data_bytes for event in events], pa.binary()),
            data_is_json=pa.repeat(pa.scalar(False), rows),
            structured=pa.repeat(pa.scalar(False), rows),
            code=pa.nulls(rows, pa.utf8()),
            reason=pa.nulls(rows, pa.utf8()),
            foreign=pa.array([[]] * rows, HEADERS),
        ),
        events,
    )


EVENTS, ROWS = everything()
KINDS = {Type.BOOLEAN: pa.bool_(), Type.TEXT: pa.utf8(), Type.NUMBER: pa.float64(), Type.TIME: pa.int64()}


def values_of(node: Node) -> tuple[list[Any], list[bool], list[int]]:
    """Evaluate over the rows whose data is JSON; give values, whether they are unsure, and which rows."""
    rows = np.flatnonzero(EVENTS.data.is_valid().to_numpy(zero_copy_only=False))
    found = find_paths(EVENTS.data, rows, paths_read(node))
    rows, found = rows[found.valid], found.take(np.flatnonzero(found.valid))
    cells = evaluate(node, Columns(EVENTS.take(pa.array(rows)), NOW, found))
    values = broadcast(cells.values, len(rows), KINDS[type_of(node)]).to_pylist()
    unsure = [False] * len(rows) if cells.unsure is None else cells.unsure.tolist()
    return values, unsure, rows.tolist()


def check(node: Node) -> None:
    assert stops(node) == ()
    values, unsure, rows = values_of(node)
    certain = 0
    for value, doubtful, row in zip(values, unsure, rows, strict=True):
        event = ROWS[row]
        expected = by_the_reference(node, Scope(event.attributes, read_data(event), NOW))
        if not doubtful:
            certain += 1
            assert value == (float(expected) if type_of(node) is Type.NUMBER and expected else expected), (
                explain(node),
                dict(event.attributes),
                event.data_bytes,
            )
    assert certain > len(rows) // 4, "columns that are never sure are of no use"


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions(text: str) -> None:
    check(parse_sql(text))


@pytest.mark.parametrize("text", TEXT_EXPRESSIONS)
def test_texts(text: str) -> None:
    check(parse_sql(text, Type.TEXT))


def test_a_time_as_text() -> None:
    check(TIME_AS_TEXT)


def test_every_function_that_columns_know_is_tested_here() -> None:
    nodes = [parse_sql(text) for text in CONDITIONS] + [
        parse_sql(text, Type.TEXT) for text in TEXT_EXPRESSIONS
    ]
    used = {part.function for node in [*nodes, TIME_AS_TEXT] for part in walk(node) if isinstance(part, Call)}
    assert used >= {*CALLS, *OF_JSON}


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("n + 1 > 2", "no column form: number_of_text(n) + 1"),
        ("n = 12345678901234567", "no column form: 12345678901234567"),
        ("data.v = data.w", "no column form: data.v = data.w"),
        ("trim(t) = 'a'", "no column form: trim(t, ' ')"),
        ("contains(t, u)", "no column form: contains(t, u)"),
    ],
)
def test_what_columns_cannot_do_is_named(text: str, stop: str) -> None:
    assert stops(parse_sql(text)) == (stop,)


def test_a_key_made_by_a_function_stops_a_route() -> None:
    assert cannot(RoutePlan(name="r", key=FunctionKey("m:f"))) == (
        "no column form: key m:f: a function of Python",
    )
