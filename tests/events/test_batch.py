"""Micro-batches (spec 004): records with headers and a body or attributes, JSON both ways, outcomes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CannotEncode, InvalidEvent, UsageError
from penstock.events.batch import BatchLimits, EventBatch
from penstock.events.cloudevent import CloudEvent
from penstock.events.event import Event
from penstock.events.event_headers import EventHeaders, HeaderField, Provenance
from penstock.events.event_type import EventType
from penstock.events.outcomes import Dead, Drop, Emit, Retry, settle
from penstock.events.reading import Level

AT = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
GOOD = {"event-id": "1", "event-type": "kind=order"}
BODY = Event("orders", GOOD | {"content-type": "application/json"}, b'{"n": 1}')
BYTES = Event("orders", GOOD | {"content-type": "image/png"}, b"\xff\x00", arrived=AT, source_address="o/1/2")
ATTRIBUTES = Event("rows", GOOD, attributes={"n": [1, None, "x"]})
NOTHING = Event("", GOOD)

GOLDEN = (
    b'{"path":"orders","headers":[["event-id","b-1"],["event-type","class=list;kind=orders"]],"records":['
    b'{"path":"orders","headers":[["event-id","1"],["event-type","kind=order"],'
    b'["content-type","application/json"]],"body":"{\\"n\\": 1}"},'
    b'{"path":"orders","headers":[["event-id","1"],["event-type","kind=order"],["content-type","image/png"]],'
    b'"source-address":"o/1/2","arrived-at":"2031-05-06T07:08:09Z","body-base64":"/wA="},'
    b'{"path":"rows","headers":[["event-id","1"],["event-type","kind=order"]],'
    b'"attributes":{"n":[1,null,"x"]}},'
    b'{"headers":[["event-id","1"],["event-type","kind=order"]]}]}'
)
BATCH = EventBatch.of([BODY, BYTES, ATTRIBUTES, NOTHING], id="b-1", kind="orders", path="orders")


def test_golden() -> None:
    assert BATCH.encode() == GOLDEN
    assert EventBatch.decode(GOLDEN) == BATCH


def test_a_batch_is_a_list_typed_event() -> None:
    assert BATCH.envelope.event_type == EventType(class_="list", kind="orders")
    assert (BATCH.envelope.id, BATCH.envelope.path) == ("b-1", "orders")
    assert [record.path for record in BATCH] == ["orders", "orders", "rows", ""]
    assert EventBatch((BODY,)).envelope.event_type == EventType(class_="list", kind="records")


def test_empty() -> None:
    batch = EventBatch.of([], id="b-1")
    assert (len(batch), EventBatch.decode(batch.encode())) == (0, batch)


def test_headers_that_are_no_map_survive() -> None:
    fields = (
        HeaderField("event-id", b"1"),
        HeaderField("event-type", b"kind=k"),
        HeaderField("x", b"1"),
        HeaderField("y", None),
        HeaderField("x", b"\xff", Provenance.INVOKER),
        HeaderField("created-at", b"2031-05-06T07:08:09Z", Provenance.GATEWAY),
    )
    batch = EventBatch.of([Event("p", EventHeaders(fields))], id="b")
    assert EventBatch.decode(batch.encode(), trusted=True).records[0].header_fields == fields
    doubted = EventBatch.decode(batch.encode()).records[0].header_fields
    assert {field.by for field in doubted} == {Provenance.CLIENT}
    assert [(f.name, f.value) for f in doubted] == [(f.name, f.value) for f in fields]


def test_a_batch_cannot_bring_an_identity() -> None:
    event = Event("p", GOOD).appended({"source-identity": "root"}, by=Provenance.GATEWAY)
    raw = EventBatch.of([event], id="b").encode()
    assert EventBatch.decode(raw).records[0].source_identity is None
    assert EventBatch.decode(raw, trusted=True).records[0].source_identity == "root"


def test_headers_as_a_map_are_read() -> None:
    head = {"event-id": "b", "event-type": "class=list;kind=k"}
    raw = json.dumps({"headers": head, "records": [{"headers": {"event-id": "1", "event-type": "k"}}]})
    assert EventBatch.decode(raw.encode()).records[0].id == "1"


def test_too_many_records() -> None:
    with pytest.raises(CannotEncode, match="4 records"):
        BATCH.encode(limits=BatchLimits(records=3))
    with pytest.raises(InvalidEvent, match="4 records"):
        EventBatch.decode(GOLDEN, limits=BatchLimits(records=3))
    assert EventBatch.decode(GOLDEN, limits=BatchLimits(records=4)) == BATCH


def test_too_many_bytes() -> None:
    size = len(GOLDEN)
    with pytest.raises(CannotEncode, match="bytes"):
        BATCH.encode(limits=BatchLimits(bytes=size - 1))
    with pytest.raises(InvalidEvent, match="bytes"):
        EventBatch.decode(GOLDEN, limits=BatchLimits(bytes=size - 1))
    assert BATCH.encode(limits=BatchLimits(bytes=size)) == GOLDEN


def test_attributes_that_json_cannot_hold() -> None:
    for value in (b"x", float("nan"), {1: 2}):
        with pytest.raises(CannotEncode, match="JSON"):
            EventBatch.of([Event("p", attributes={"a": value})], id="b").encode()


HEAD: dict[str, Any] = {"headers": [["event-id", "b"], ["event-type", "class=list;kind=k"]]}
RECORD: dict[str, Any] = {"headers": [["event-id", "1"], ["event-type", "k"]]}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([], "batch"),
        (HEAD, "records"),
        (HEAD | {"records": {}}, "records"),
        (HEAD | {"records": [5]}, "records[0]"),
        (HEAD | {"records": [], "body": "x"}, "batch"),
        (HEAD | {"records": [], "colour": "red"}, "batch"),
        (HEAD | {"records": [RECORD, RECORD | {"colour": 1}]}, "records[1]"),
        (HEAD | {"records": [RECORD | {"body": "x", "attributes": {}}]}, "records[0]"),
        (HEAD | {"records": [RECORD | {"body": 5}]}, "records[0]"),
        (HEAD | {"records": [RECORD | {"body-base64": "?"}]}, "records[0].body-base64"),
        (HEAD | {"records": [RECORD | {"attributes": []}]}, "records[0]"),
        (HEAD | {"records": [RECORD | {"path": 5}]}, "records[0]"),
        (HEAD | {"records": [RECORD | {"arrived-at": "now"}]}, "records[0]"),
        (HEAD | {"records": [{"headers": 5}]}, "records[0].headers"),
        (HEAD | {"records": [{"headers": [["x"]]}]}, "records[0].headers[0]"),
        (HEAD | {"records": [{"headers": [["x", 5]]}]}, "records[0].headers[0]"),
        (HEAD | {"records": [{"headers": [["x", "1", "nobody"]]}]}, "records[0].headers[0]"),
        (HEAD | {"records": [{"headers": [["x", {"base64": "?"}]]}]}, "records[0].headers[0]"),
    ],
)
def test_a_broken_batch_says_where(value: Any, where: str) -> None:
    for level in Level:
        with pytest.raises(InvalidEvent) as caught:
            EventBatch.decode(json.dumps(value).encode(), level=level)
        assert caught.value.attribute == where


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"records": []}, "batch.event-id"),
        ({"headers": {"event-id": "b"}, "records": []}, "batch.event-type"),
        ({"headers": {"event-id": "b", "event-type": "class=async;kind=k"}, "records": []}, "batch"),
        (HEAD | {"records": [RECORD, {}]}, "records[1].event-id"),
        (HEAD | {"records": [RECORD | {"body": "x"}]}, "records[0].content-type"),
    ],
)
def test_strict_holds_every_record_to_the_rules(value: Any, where: str) -> None:
    raw = json.dumps(value).encode()
    with pytest.raises(InvalidEvent) as caught:
        EventBatch.decode(raw)
    assert caught.value.attribute == where
    batch = EventBatch.decode(raw, level=Level.LENIENT)
    assert len(batch) == len(value["records"])


def test_the_envelope_has_headers_only() -> None:
    for envelope in (Event("p", GOOD, b"x"), Event("p", GOOD, attributes={})):
        with pytest.raises(UsageError, match="envelope"):
            EventBatch((), envelope)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FIELDS = st.builds(HeaderField, NAMES, st.none() | st.binary(max_size=6), st.sampled_from(Provenance))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    attributes = draw(st.none() | st.dictionaries(NAMES, JSON, max_size=3))
    return Event(
        draw(NAMES),
        EventHeaders(draw(st.lists(FIELDS, max_size=4))),
        draw(st.none() | st.binary(max_size=10)) if attributes is None else None,
        attributes=attributes,
        arrived=draw(st.none() | st.datetimes(timezones=st.just(UTC))),
        source_address=draw(st.none() | NAMES),
        url=draw(st.none() | NAMES),
    )


@given(st.lists(events(), max_size=3))
def test_what_goes_in_comes_out(records: list[Event]) -> None:
    batch = EventBatch.of(records, id="b")
    assert EventBatch.decode(batch.encode(), level=Level.FORENSIC, trusted=True) == batch


@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps({"records": value}).encode()))
def test_any_bytes_are_a_batch_or_a_typed_error(raw: bytes) -> None:
    try:
        batch = EventBatch.decode(raw, level=Level.LENIENT)
    except InvalidEvent:
        return
    assert EventBatch.decode(batch.encode(), level=Level.LENIENT) == batch


@given(events())
def test_every_event_can_be_held_against_the_rules_and_written(event: Event) -> None:
    assert event.checked(Level.FORENSIC) is event
    assert isinstance(event.findings, tuple)
    json.loads(event.as_json())


# Outcomes


def test_outcomes() -> None:
    other = CloudEvent({"id": "1", "source": "/s", "type": "t"})
    returned = [BODY, Emit(BODY, other), Retry("busy", after=2.5), Dead("no customer")]
    assert settle(BATCH, returned) == (Emit(BODY), Emit(BODY, other), Retry("busy", 2.5), Dead("no customer"))
    assert settle([1], [other]) == (Emit(other),)
    assert settle([], []) == ()
    assert Emit(BODY, other).events == (BODY, other)


@pytest.mark.parametrize("returned", [[], [Drop()] * 3, [Drop()] * 5])
def test_every_record_needs_an_outcome(returned: list[object]) -> None:
    with pytest.raises(UsageError, match="4 records"):
        settle(BATCH, returned)


@pytest.mark.parametrize("value", [None, "x", [BODY], Drop])
def test_forgetting_is_not_an_outcome(value: object) -> None:
    with pytest.raises(UsageError, match="record 1"):
        settle([1, 2], [Drop(), value])


def test_outcomes_that_say_nothing() -> None:
    with pytest.raises(UsageError, match="one event"):
        Emit()
    with pytest.raises(UsageError, match="one event"):
        Emit("x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="reason"):
        Dead("")
