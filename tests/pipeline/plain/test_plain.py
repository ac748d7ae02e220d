"""Plain records: the reader by columns against penstock.events row by row, and the way back."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from routed import check_reading, rows_of

from penstock.errors import InvalidEvent
from penstock.events.event import Event
from penstock.pipeline.arrow.decode import HEADERS
from penstock.pipeline.arrow.encode import event_at
from penstock.pipeline.plain import PlainReader, PlainWriter, plain_event
from penstock.pipeline.plan.nodes import Type
from penstock.pipeline.plan.route import Assignment, RoutePlan, SimpleKey
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.ports import Invoked, Routed, Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord

READER = PlainReader(source="/kafka/in", kind="order", content_type="application/json")
BARE = PlainReader(source="/kafka/in")


def record(value: bytes | None = b"{}", /, *headers: tuple[str, bytes | None], **more: object) -> KafkaRecord:
    place = {"topic": "in", "partition": 3, "offset": 42, "timestamp": 1_700_000_000_123, **more}
    return KafkaRecord(value=value, headers=headers, **place)  # type: ignore[arg-type]


def batch_of(records: list[KafkaRecord]) -> pa.RecordBatch:
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "topic": pa.utf8(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.int64(),
    }
    columns = {
        name: pa.array([getattr(r, name) for r in records], kind)
        for name, kind in kinds.items()
        if name != "headers"
    }
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    columns["headers"] = pa.array(headers, HEADERS)
    return pa.RecordBatch.from_pydict({name: columns[name] for name in kinds})


def test_what_is_missing_is_added_the_same_in_every_run() -> None:
    read = READER(batch_of([record()] * 2))
    first, second = event_at(read, 0), event_at(read, 1)
    assert first == second
    assert dict(first.attributes) == {
        "specversion": "1.0",
        "id": "in/3/42",
        "source": "/kafka/in",
        "type": "order",
        "subject": "in",
        "time": "2023-11-14T22:13:20.123000Z",
        "datacontenttype": "application/json",
    }
    assert first.data == b"{}"


def test_what_is_there_is_kept_and_the_rest_is_foreign() -> None:
    given_ = (
        ("Event-Id", b"7"),
        ("event-type", b"apiVersion=v1;class=stream;kind=placed"),
        ("created-at", b"2020-01-01T00:00:00Z"),
        ("source", b"/shop"),
        ("content-type", b"text/plain"),
        ("trace", b"\xff"),
        ("trace", None),
    )
    read = READER(batch_of([record(b"x", *given_)]))
    event = event_at(read, 0)
    assert (event.id, event.type, event.get("apiversion"), event.get("eventclass")) == (
        "7",
        "placed",
        "v1",
        "stream",
    )
    assert (event.get("time"), event.source, event.datacontenttype) == (
        "2020-01-01T00:00:00Z",
        "/shop",
        "text/plain",
    )
    assert read.foreign[0].as_py() == [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": None}]


@pytest.mark.parametrize(
    ("broken", "code", "reason"),
    [
        (record(b"x", ("content-type", b"text/plain")), "invalid-event", "event-type is missing"),
        (record(b"x", ("event-type", b"kind=a")), "invalid-event", "a body without content-type"),
        (record(b"x", ("event-type", b"class=a"), ("content-type", b"a/b")), "invalid-event", "no kind"),
        (record(b"x", ("event-type", b"a"), ("event-id", b"\xff")), "invalid-event", "not UTF-8"),
        (record(None), "not-a-cloudevent", None),
    ],
)
def test_what_is_no_event_says_why(broken: KafkaRecord, code: str, reason: str | None) -> None:
    read = BARE(batch_of([broken]))
    assert read.code[0].as_py() == code
    assert reason is None or reason in read.reason[0].as_py()


_NAMES = st.sampled_from(
    [
        "event-id",
        "Event-Type",
        "event-type",
        "created-at",
        "source",
        "content-type",
        "source-identity",
        "method",
        "log-level",
        "receipt-queue",
        "ce-subject",
        "ce-x",
        "ce-Bad_",
        "CE-id",
        "event-type-kind",
        "app",
        "trace",
        "ce_type",
    ]
)
_VALUES = st.sampled_from(
    [
        b"1",
        b"order",
        b"kind=placed;class=stream",
        b"kind=",
        b"/shop",
        b"http://a b",
        b"application/json",
        b"text/plain; charset=x",
        b"2020-02-29T00:00:00Z",
        b"2020-02-30T00:00:00Z",
        b"\xff",
        b"",
        b"\x07",
        "käse".encode(),
        b"debug",
        None,
    ]
)
_RECORDS = st.builds(
    lambda value, headers, timestamp, offset: record(value, *headers, timestamp=timestamp, offset=offset),
    st.sampled_from([None, b"", b"{}", b"\xff"]),
    st.lists(st.tuples(_NAMES, _VALUES), max_size=5),
    st.sampled_from([-1, 0, 999, 1_700_000_000_000, 1_700_000_000_120, 253_402_300_799_999, 2**62, None]),
    st.integers(0, 2**62),
)


@given(st.lists(_RECORDS, max_size=12), st.sampled_from([READER, BARE]))
def test_columns_and_events_agree_on_every_row(records: list[KafkaRecord], reader: PlainReader) -> None:
    read = reader(batch_of(records))
    assert read.rows == len(records)
    for row, each in enumerate(records):
        try:
            wanted = plain_event(each, kind=reader.kind, content_type=reader.content_type)
            event = wanted.to_cloudevent(source=reader.source)
        except InvalidEvent as exc:
            if read.code[row].as_py() != "not-a-cloudevent":
                assert (read.code[row].as_py(), read.reason[row].as_py()) == ("invalid-event", str(exc))
            continue
        if read.code[row].as_py() == "not-a-cloudevent":
            assert each.value is None
            continue
        assert read.code[row].as_py() is None
        assert event_at(read, row) == event
        assert read.foreign[row].as_py() == [
            {"key": field.name, "value": field.value} for field in wanted.foreign_headers
        ]


@given(st.lists(_RECORDS, max_size=12), st.sampled_from([READER, BARE]))
def test_records_and_columns_are_read_alike(records: list[KafkaRecord], reader: PlainReader) -> None:
    check_reading(reader, records)


@given(_RECORDS)
def test_an_event_survives_the_way_through_a_plain_record(each: KafkaRecord) -> None:
    read = READER(batch_of([each]))
    if read.code[0].is_valid:
        return
    event = event_at(read, 0)
    foreign = tuple((pair["key"], pair["value"]) for pair in read.foreign[0].as_py())
    written = PlainWriter()(event, b"k", foreign)
    again = Event(written.headers and "", written.headers, written.value)
    assert again.to_cloudevent() == event
    assert (written.key, written.value) == (b"k", each.value)


def test_other_columns_of_a_batch_are_left_alone() -> None:
    batch = batch_of([record(), record(None)]).append_column("_sql0", pa.array([True, False]))
    assert READER(batch).code.to_pylist() == [None, "not-a-cloudevent"]


def test_reader_and_writer_travel_to_workers() -> None:
    assert pickle.loads(pickle.dumps((READER, PlainWriter()))) == (READER, PlainWriter())


# Plain to plain: what a route does not change leaves as it came


def routed(came: list[KafkaRecord], *, function: bool = False, **plan: Any) -> list[KafkaRecord]:
    route = StageRoute(
        plan=RoutePlan(name="r", **plan),
        targets=(Target(topic="out", writer=PlainWriter()),),
        dead=Target(topic="dead"),
        invoker=emitted if function else None,
    )
    stage = Stage(pipeline="p", routes=(route,), dead=Target(topic="dead"), reader=READER)
    rows, _ = rows_of(stage, came)
    assert {row["topic"] for row in rows} <= {"out"}
    return [
        KafkaRecord(
            key=r["key"], value=r["value"], headers=tuple((h["key"], h["value"]) for h in r["headers"])
        )
        for r in rows
    ]


def emitted(events: Sequence[Routed]) -> list[Invoked]:
    """Give the events as they are, every other one with its headers said once more."""
    return [
        Invoked(events=(each.event,), headers=(each.headers,) if number % 2 else None)
        for number, each in enumerate(events)
    ]


PLAIN = [
    record(b"{}"),
    record(b"x", ("Event-Id", b"7"), ("content-type", b"text/plain"), ("trace", b"\xff"), ("trace", None)),
    record(b"{}", ("event-type", b"kind=placed"), ("source-identity", b"ada"), ("event-id", b"8")),
    record(None, ("event-type", b"kind=gone")),
    record(b"x", ("class", b"stream"), ("kind", b"placed"), ("content-type", b"a/b"), ("ce-foo", b"bar")),
]


@pytest.mark.parametrize("function", [False, True])
def test_an_unchanged_plain_record_leaves_as_it_came(function: bool) -> None:
    left = routed(PLAIN, function=function)
    # A route that would change others changes nothing of these.
    kept = routed(PLAIN, function=function, drop=("nothing",), rename=(("neither", "nor"),))
    assert [(each.value, each.headers) for each in left] == [(each.value, each.headers) for each in PLAIN]
    assert kept == left


def test_a_changed_plain_record_says_what_was_changed() -> None:
    change = (Assignment("partitionkey", parse_sql("type", Type.TEXT)),)
    left = routed(PLAIN, set=change)
    assert [dict(each.headers)["ce-partitionkey"] for each in left] == [
        b"order",
        b"order",
        b"placed",
        b"gone",
        b"order",
    ]


def test_the_key_of_the_route_goes_with_an_unchanged_record() -> None:
    (left,) = routed([record(b"{}", key=b"k")], key=SimpleKey.NONE)
    assert (left.key, left.headers) == (None, ())


def test_another_content_type_is_said() -> None:
    event = event_at(READER(batch_of([PLAIN[1]])), 0).replace({"datacontenttype": "application/json"})
    written = PlainWriter()(event, None, (), came=PLAIN[1].headers)
    assert dict(written.headers)["content-type"] == b"application/json"
