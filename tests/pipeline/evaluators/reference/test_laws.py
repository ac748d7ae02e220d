"""Laws of the reference on routes and records by chance: each record by itself, and each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routed import placed, rows_of

from penstock.events import CloudEvent, Mode, absent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.events.reading import Level
from penstock.pipeline.kafka_reader import KafkaReader
from penstock.pipeline.plan.nodes import And, Node, Not, Or, Type
from penstock.pipeline.plan.route import Assignment, Expiry, ExpressionKey, RoutePlan, SimpleKey, Tombstones
from penstock.pipeline.plan.route import Mode as RouteMode
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Routed, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import Headers, KafkaRecord

NOW = 1_767_225_600_000_000

CONDITIONS = [
    "type = 'a'",
    "type <> 'a'",
    "type IN ('a', 'b', NULL)",
    "type LIKE 'a%'",
    "type LIKE '_'",
    "subject LIKE '%\"%'",
    "subject LIKE 'x_y%z'",
    "subject IS NULL",
    "subject >= 'm'",
    "lower(subject) = 'äb'",
    "upper(subject) = 'ÄB'",
    "length(subject) = 2",
    "concat(type, subject) = 'axy'",
    "hop < 5",
    "hop BETWEEN 1 AND 3.5",
    "flag = true",
    "time > timestamp'2026-01-01T00:00:00Z'",
    "year(time) = 2026",
    "unix_millis(time) < 0",
    "time < now()",
    "data.total >= 100",
    "data.total = 12.5",
    "data.total < 0",
    "data.total IS NULL",
    "data.total IS NOT NULL AND data.name IS NULL",
    "data.name = 'x'",
    "data.name < 'é'",
    "data.name LIKE 'x%'",
    "data.name IN ('x', 'y')",
    "data.ok",
    "NOT data.ok",
    "data.items[1].n = 2",
    "data.inner.name = 'x'",
    "coalesce(data.name, subject) = 'x'",
    "coalesce(data.name, data.inner.name) = 'x'",
    "if(data.ok, type, subject) = 'a'",
    "data.total + 1 > 2",
    "substring(type, 1, 1) = 'a'",
    "data.name = subject",
    "true",
]
TEXTS = [
    "data.name",
    "subject",
    "type",
    "'constant'",
    "coalesce(data.name, 'none')",
    "data.inner.name",
    "concat(type, '-', data.name)",
    "cast(data.total as string)",
    "lower(subject)",
    "NULL",
]
TIMES = ["time", "now()", "timestamp'2026-01-01T00:00:00Z'"]

BODIES = [
    b"{}",
    b'{"total": 150}',
    b'{"total":12.5,"name":"x"}',
    b'{"total":12.50,"name":"y","ok":true}',
    b'{"total":-0,"ok":false}',
    b'{"total":-0.0}',
    b'{"total":1e2,"name":null}',
    b'{"total":0.1000000000000000055511151231257827}',
    b'{"total":"150","name":5}',
    b'{"total":123456789012345678}',
    b'{"name":"x\\u00e9","inner":{"name":"x"}}',
    '{"name":"é","total":1}'.encode(),
    b'{"name":"x","name":"y"}',
    b'{"items":[{"n":1},{"n":2}],"ok":1}',
    b'{"items":[1],"inner":[]}',
    b'{"name":""}',
    b'{"name":"a\\nb"}',
    b'{"name":"\x7f"}',
    b'"text"',
    b"5",
    b"null",
    b"{",
    b"[1] x",
    b"\xff",
    b"",
    None,
]
ATTRIBUTES: dict[str, list[str]] = {
    "type": ["a", "b", "abc", "c"],
    "subject": ["xy", "ÄB", "äb", "m", 'q"q', "x\\y z", "x€y..z"],
    "hop": ["1", "3.5", "05", "1e0", "x", "7", "123456789012345678901"],
    "flag": ["true", "false", "TRUE"],
    "time": [
        "2026-01-01T00:00:00Z",
        "2025-12-31T23:59:59.999999Z",
        "2026-06-01T00:00:00+02:00",
        "1960-01-01T00:00:00.5Z",
    ],
    "expirytime": ["2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2025-01-01T00:00:00.1234567Z"],
    "causationid": ["earlier"],
    "partitionkey": ["p", "q"],
    "datacontenttype": ["application/json", "text/plain", "application/x+json; charset=utf-8"],
    "old": ["o"],
    "new": ["n"],
}


def text(expression: str) -> Node:
    return parse_sql(expression, Type.TEXT)


@st.composite
def conditions(draw: st.DrawFn) -> Node:
    parts = [parse_sql(text) for text in draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=3))]
    parts = [Not(part) if draw(st.integers(0, 3)) == 0 else part for part in parts]
    if len(parts) == 1:
        return parts[0]
    return And(tuple(parts)) if draw(st.booleans()) else Or(tuple(parts))


@st.composite
def plans(draw: st.DrawFn) -> RoutePlan:
    texts = st.sampled_from(TEXTS).map(text)
    assigned = [
        Assignment(name, draw(texts))
        for name in draw(st.sets(st.sampled_from(["subject", "type", "partitionkey", "extra"]), max_size=2))
    ]
    if draw(st.integers(0, 3)) == 0:
        assigned.append(Assignment("time", parse_sql(draw(st.sampled_from(TIMES)), Type.TIME)))
    return RoutePlan(
        name="r",
        where=draw(conditions()),
        set=tuple(assigned),
        drop=draw(st.sampled_from([(), ("flag",), ("new",)])),
        rename=draw(st.sampled_from([(), (("old", "new"),), (("hop", "jump"), ("old", "new"))])),
        key=draw(st.sampled_from([*SimpleKey, "expression"]).map(_key(draw(texts)))),
        mode=draw(st.sampled_from(RouteMode)),
        tombstones=draw(st.sampled_from(Tombstones)),
        expiry=draw(st.sampled_from(Expiry)),
    )


def _key(expression: Node) -> Any:
    return lambda rule: ExpressionKey(expression) if rule == "expression" else rule


@st.composite
def records(draw: st.DrawFn) -> KafkaRecord:
    chosen = draw(st.sets(st.sampled_from(sorted(ATTRIBUTES)), max_size=6)) | {"type"}
    texts = {name: draw(st.sampled_from(ATTRIBUTES[name])) for name in sorted(chosen)}
    if draw(st.integers(0, 3)):
        texts["datacontenttype"] = "application/json"
    headers = [("ce_specversion", "1.0"), ("ce_id", draw(st.sampled_from("123"))), ("ce_source", "/s")]
    headers += [(f"ce_{name}", text) for name, text in texts.items() if name != "datacontenttype"]
    headers += [("content-type", texts["datacontenttype"])] if "datacontenttype" in texts else []
    record = KafkaRecord(
        value=draw(st.sampled_from(BODIES)),
        key=draw(st.sampled_from([None, b"k", b"\xff"])),
        headers=tuple((name, text.encode()) for name, text in headers),
    )
    extra = draw(st.sampled_from([(), (("app", b"\xff"), ("app", None))]))
    match draw(st.integers(0, 9)):
        case 0:
            return KafkaRecord(key=b"k")
        case 1:
            return KafkaRecord(value=b"plain", headers=record.headers[1:])
        case 2:
            return _structured(record)
        case _:
            return KafkaRecord(value=record.value, key=record.key, headers=(*record.headers, *extra))


def _structured(record: KafkaRecord) -> KafkaRecord:
    attributes = {name[3:]: (text or b"").decode() for name, text in record.headers if name.startswith("ce_")}
    event = CloudEvent({**attributes}, absent if record.value is None else record.value)
    return KafkaBinding(mode=Mode.STRUCTURED).encode(event, key=record.key)


def twice(events: Sequence[Routed]) -> list[Invoked]:
    """Emit each event twice, but none for those of type b, and dead letters for those of type c."""
    outcomes = {"b": Invoked(), "c": Invoked(code="refused", reason="by the function")}
    return [outcomes.get(each.event.type, Invoked(events=(each.event, each.event))) for each in events]


def plainly(
    event: CloudEvent,
    key: bytes | None,
    headers: Headers,
    *,
    null_value: bool = False,
    came: Headers | None = None,
) -> KafkaRecord:
    return KafkaRecord(key=key, value=event.data_bytes, headers=(("type", event.type.encode()), *headers))


@given(
    st.lists(plans(), min_size=1, max_size=3),
    st.lists(records(), min_size=1, max_size=20),
    st.builds(
        KafkaReader,
        level=st.sampled_from([Level.STRICT, Level.LENIENT]),
        dash=st.booleans(),
        sniff=st.booleans(),
    ),
    st.booleans(),
    st.sampled_from([None, twice]),
    st.sets(
        st.tuples(st.integers(0, 19), st.sampled_from(["out", "dead"]), st.sampled_from(["too-large", "no"]))
    ),
)
def test_a_record_becomes_the_same_whatever_comes_with_it(
    plans: list[RoutePlan],
    records: list[KafkaRecord],
    reader: KafkaReader,
    compacted: bool,
    function: Any,
    told: set[tuple[int, str, str]],
) -> None:
    targets = (
        Target(topic="out", compacted=compacted),
        Target(topic="big", limit=400, repeat_headers=True),
        Target(topic="typed", writer=plainly),
    )
    dead = Target(topic="dead", compacted=compacted, limit=900)
    routes = tuple(
        StageRoute(plan=replace(plan, name=f"r{n}"), targets=targets, dead=dead, invoker=function)
        for n, plan in enumerate(plans)
    )
    stage = Stage(
        pipeline="shop",
        routes=routes,
        dead=Target(topic="dead", sink=1),
        reader=reader,
        servers=("east", "west"),
        unknown=(Target(topic="unknown"),),
    )
    refused = {(offset, 0, topic): (code, "because") for offset, topic, code in told}
    given = placed(records)
    rows, counts = rows_of(stage, given, now=NOW, refused=refused)
    alone = [rows_of(stage, [each], now=NOW, refused=refused) for each in given]
    assert rows == [row for own, _ in alone for row in own]
    assert counts == {name: sum(own[name] for _, own in alone) for name in counts}


def outputs(stage: Stage, records: Sequence[KafkaRecord]) -> tuple[dict[str, list[Any]], dict[str, int]]:
    rows, counts = rows_of(stage, records, now=NOW)
    topics: dict[str, list[Any]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    return topics, counts


@given(plans(), st.lists(records(), min_size=1, max_size=30))
def test_every_record_is_counted_once(plan: RoutePlan, records: list[KafkaRecord]) -> None:
    route = StageRoute(plan=plan, targets=(Target(topic="out", limit=250),), dead=Target(topic="dead"))
    stage = Stage(pipeline="shop", routes=(route,), dead=Target(topic="dead"))
    _, counts = outputs(stage, records)
    outcomes = ("n_out", "n_dead", "n_unmatched", "n_dropped", "n_expired")
    assert counts["n_in"] == sum(counts[name] for name in outcomes)


@pytest.mark.parametrize(("expiry", "written"), [(Expiry.KEEP, 3), (Expiry.DISCARD, 1)])
def test_expired_events_are_counted_if_they_are_discarded(expiry: Expiry, written: int) -> None:
    headers = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"a"))
    times = [b"2025-01-01T00:00:00Z", b"2025-01-01T01:00:00+01:00", b"2027-01-01T00:00:00Z"]
    records = [KafkaRecord(headers=(*headers, ("ce_expirytime", time))) for time in times]
    plan = RoutePlan(name="r", expiry=expiry)
    route = StageRoute(plan=plan, targets=(Target(topic="out"),), dead=Target(topic="dead"))
    topics, counts = outputs(Stage(pipeline="shop", routes=(route,), dead=Target(topic="dead")), records)
    assert len(topics["out"]) == written
    assert counts["n_expired"] == 3 - written
